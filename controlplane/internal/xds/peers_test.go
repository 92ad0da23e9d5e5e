package xds_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpoint "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
)

// fleetView is what a sidecar knows of its peers: node ids with addresses, by resource.
type fleetView map[string][]string

// take reads one response into the view, and returns how many resources it had.
func (v fleetView) take(t *testing.T, c *client) int {
	t.Helper()
	r := c.next()
	c.ack(r)
	for _, name := range r.GetRemovedResources() {
		delete(v, name)
	}
	for _, each := range r.GetResources() {
		var group endpoint.ClusterLoadAssignment
		require.NoError(t, proto.Unmarshal(each.GetResource().GetValue(), &group))
		v[each.GetName()] = nil
		for _, l := range group.GetEndpoints() {
			for _, e := range l.GetLbEndpoints() {
				who := e.GetMetadata().GetFilterMetadata()["sluice"].GetFields()
				at := e.GetEndpoint().GetAddress()
				where := fmt.Sprint(at.GetSocketAddress().GetAddress(), ":", at.GetSocketAddress().GetPortValue())
				if at.GetPipe() != nil {
					where = "unix:" + at.GetPipe().GetPath()
				}
				if e.GetHealthStatus() == core.HealthStatus_UNHEALTHY {
					where += ", gone"
				}
				v[each.GetName()] = append(v[each.GetName()], fmt.Sprintf("%s/%s on %s at %s",
					who["node_id"].GetStringValue(), who["instance"].GetStringValue(), who["store_id"].GetStringValue(), where))
			}
		}
	}
	return len(r.GetResources())
}

func (v fleetView) all() (out []string) {
	for _, group := range v {
		out = append(out, group...)
	}
	slices.Sort(out)
	return out
}

func TestReplayPeersArrive(t *testing.T) {
	f := serve(t, policies{})
	c := f.connect(t, "n1", "i")
	c.subscribe(peers, "*")
	view := fleetView{}
	if n := view.take(t, c); n != 0 {
		t.Fatalf("%d resources before anybody is known", n)
	}
	for len(view.all()) < 1 {
		view.take(t, c)
	}
	for _, add := range []fleet.Node{
		{ID: "n2", Instance: "i", Address: "unix:/run/replay.sock", StoreID: "s"},
		{ID: "n3", Instance: "i", Address: "[::1]:99", StoreID: "s"},
		{ID: "n4", Instance: "i"}, {ID: "n5", Instance: "i", Address: "nowhere"}, {ID: "n6", Instance: "i", Address: ":0"},
	} {
		s, err := f.registry.Connect(add, fleet.Prefix{})
		require.NoError(t, err)
		defer s.Close()
	}
	for len(view.all()) < 3 {
		view.take(t, c)
	}
	want := []string{
		"n1/" + policypb.PublicID("i") + " on store-n1 at 10.0.0.1:8083", "n2/i on s at unix:/run/replay.sock", "n3/i on s at ::1:99",
	}
	if got := view.all(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// Each of the two is in a group of its own. One that leaves stays a peer, for it may have events
// that nobody else has, until it says that it has none.
func TestAJoinChangesOneResource(t *testing.T) {
	f := serve(t, policies{})
	c := f.connect(t, "n1", "i")
	c.subscribe(peers, "*")
	view := fleetView{}
	view.take(t, c)
	for len(view.all()) < 1 {
		view.take(t, c)
	}
	joined := f.connect(t, "n2", "i")
	joined.subscribe(peers)
	if n := view.take(t, c); n != 1 || len(view.all()) != 2 {
		t.Errorf("%d resources with %v", n, view.all())
	}
	joined.close()
	if n := view.take(t, c); n != 1 || !strings.HasSuffix(view.all()[1], ", gone") {
		t.Errorf("%d resources with %v", n, view.all())
	}
	leaving := f.connect(t, "n2", "i")
	leaving.node.Metadata.Fields["drained"] = structpb.NewBoolValue(true)
	leaving.subscribe(peers)
	if err := leaving.end(); status.Code(err) != codes.Aborted {
		t.Errorf("the farewell ended with %v", err)
	}
	if n := view.take(t, c); n != 0 || len(view.all()) != 1 {
		t.Errorf("%d resources with %v", n, view.all())
	}
}
