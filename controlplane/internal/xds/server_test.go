package xds_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/xds"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
)

// acked waits until the registry shows these versions for the only sidecar.
func (f *fixture) acked(t *testing.T, want policies) {
	t.Helper()
	var got map[string]int64
	defer func() {
		if t.Failed() {
			t.Logf("acked: %v, want %v", got, want)
		}
	}()
	eventually(t, "acked versions", func() bool {
		list := f.registry.Sidecars()
		if len(list) == 1 {
			got = list[0].Versions
		}
		return len(list) == 1 && maps.Equal(got, want)
	})
}

func TestPoliciesArrive(t *testing.T) {
	set := policies{"a": 1, "b": 2, "other": 3, "*": 4, "x.*": 5}
	f := serve(t, set)
	c := f.connect(t, "n", "i")
	c.policies()
	c.expect(set)
	f.acked(t, set)
	for _, next := range []policies{
		{"a": 11, "b": 2, "other": 3, "*": 4, "x.*": 5},
		{"a": 11, "b": 2, "other": 3, "*": 4, "x.*": 5, "none": 12},
		{"a": 11, "other": 3, "*": 4, "none": 12, "y.*": 13},
	} {
		f.set(next)
		c.expect(next)
		f.acked(t, next)
	}
}

// A sidecar says which write concerns are not met when it comes, and later as that changes; it is
// sent nothing for it.
func TestUnmetConcerns(t *testing.T) {
	f := serve(t, policies{"*": 4})
	c := f.connect(t, "n", "i")
	say := func(concerns map[string]any) {
		told, err := structpb.NewStruct(concerns)
		require.NoError(t, err)
		c.node = node("n", "i")
		c.node.Metadata.Fields[policypb.UnmetConcerns] = structpb.NewStructValue(told)
		c.subscribe(packs)
	}
	for _, want := range []map[string]any{{"orders": "w:3"}, {"orders": "w:2", "paid": "w:3"}, {}} {
		say(want)
		eventually(t, fmt.Sprint("shown: ", want), func() bool {
			list := f.registry.Sidecars()
			return len(list) == 1 && maps.EqualFunc(list[0].UnmetConcerns, want, func(a string, b any) bool { return a == b })
		})
	}
	c.policies()
	c.expect(policies{"*": 4})
	say(map[string]any{strings.Repeat("x", 64<<10): "w:3"})
	if err := c.end(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("too much of them ended with %v", err)
	}
}

// A sidecar may say on its open stream which store it is on.
func TestTheStoreIsToldLater(t *testing.T) {
	f := serve(t, policies{"*": 4})
	c := f.connect(t, "n", "i")
	for _, store := range []string{"", "s7"} {
		c.node = node("n", "i")
		c.node.Metadata.Fields["store_id"] = structpb.NewStringValue(store)
		c.subscribe(packs)
		eventually(t, "the store is "+store, func() bool {
			list := f.registry.Sidecars()
			return len(list) == 1 && list[0].Connected && list[0].StoreID == store
		})
	}
	c.node = node("n", "i")
	c.node.Metadata.Fields["store_id"] = structpb.NewStringValue(strings.Repeat("x", 2000))
	c.subscribe(packs)
	if err := c.end(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a store's id of 2,000 bytes ended with %v", err)
	}
}

// A sidecar that asks for packs is sent all policies, hears of a change at once and of nothing
// else, and after a restart of what has changed.
func TestPacksArrive(t *testing.T) {
	set := policies{"*": 1, "a": 1, "x.*": 5}
	for i := range 500 {
		set[fmt.Sprintf("t-%03d", i)] = 7
	}
	f := serve(t, set)
	c := f.connect(t, "n", "i")
	c.subscribe(packs, "*")
	has := map[string]string{}
	take := func(r *discovery.DeltaDiscoveryResponse) (n int) {
		for _, each := range r.GetResources() {
			has[each.GetName()] = each.GetVersion()
		}
		for _, name := range r.GetRemovedResources() {
			delete(has, name)
		}
		c.ack(r)
		return len(r.GetResources()) + len(r.GetRemovedResources())
	}
	if n := take(c.next()); n < 3 {
		t.Errorf("%d packs", n)
	}
	f.acked(t, set)
	set["a"] = 2
	f.set(set)
	if n := take(c.next()); n != 1 {
		t.Errorf("a change is %d packs", n)
	}
	f.acked(t, set)
	delete(set, "t-123")
	f.set(set)
	if n := take(c.next()); n > 2 {
		t.Errorf("a policy less is %d packs", n)
	}
	f.acked(t, set)
	c.close()
	f.stop()
	set["t-200"] = 8
	f = serve(t, set)
	c = f.connect(t, "n", "i")
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: packs, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: has})
	r := c.next()
	if len(r.GetResources()) != 1 || len(f.registry.Sidecars()[0].Versions) < 300 {
		t.Errorf("%d packs of what it has, %d versions before them", len(r.GetResources()), len(f.registry.Sidecars()[0].Versions))
	}
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: packs, ResponseNonce: r.GetNonce(), ErrorDetail: &rpc.Status{Message: `"t-200": is bad`}})
	eventually(t, "rejected", func() bool {
		rejected := f.registry.Sidecars()[0].Rejected
		return rejected != nil && rejected.Policy == "t-200" && rejected.Version == 8
	})
}

func TestChangesInQuickSuccessionAreSentTogether(t *testing.T) {
	f := serve(t, policies{"a": 1})
	c := f.connect(t, "n", "i")
	c.policies()
	c.expect(policies{"a": 1})
	const changes = 500
	for version := int64(2); version <= changes; version++ {
		f.set(policies{"a": version})
	}
	responses := 0
	for last := int64(0); last < changes; responses++ {
		r := c.next()
		last = inPack(t, r.GetResources()[0])["a"]
		c.ack(r)
	}
	if responses > changes/10 {
		t.Errorf("%d changes were sent in %d responses", changes, responses)
	}
}

func TestRejectionIsShownUntilAnAck(t *testing.T) {
	f := serve(t, policies{"a": 1, "b": 1, "*": 1})
	c := f.connect(t, "n", "i")
	c.policies()
	c.expect(policies{"a": 1, "b": 1, "*": 1})
	f.acked(t, policies{"a": 1, "b": 1, "*": 1})
	f.set(policies{"a": 2, "b": 3, "*": 1})
	c.nack(c.next(), `resource "b": publish.rate is too odd`)
	rejected := func() *fleet.Rejection { return f.registry.Sidecars()[0].Rejected }
	eventually(t, "rejected", func() bool { return rejected() != nil })
	if got := *rejected(); got != (fleet.Rejection{Policy: "b", Version: 3, Reason: `resource "b": publish.rate is too odd`}) {
		t.Errorf("got %+v", got)
	}
	f.acked(t, policies{"a": 1, "b": 1, "*": 1})

	c.subscribe(peers, "*") // an ack of another type changes nothing
	c.ack(c.next())
	c.subscribe("type.googleapis.com/sluice.v9.Later") // handled after the ack
	f.set(policies{"a": 2, "b": 3, "*": 1, "c": 1})
	r := c.next()
	if r.GetTypeUrl() != packs {
		r = c.next() // the peers again, with this sidecar
	}
	if rejected() == nil {
		t.Error("cleared by another type")
	}
	c.ack(r)
	eventually(t, "cleared", func() bool { return rejected() == nil })
}

func TestALongReasonIsCut(t *testing.T) {
	f := serve(t, policies{"a": 1})
	c := f.connect(t, "n", "i")
	c.policies()
	c.nack(c.next(), strings.Repeat("ü", 10_000))
	eventually(t, "rejected", func() bool { return f.registry.Sidecars()[0].Rejected != nil })
	got := f.registry.Sidecars()[0].Rejected
	if len(got.Reason) > 3000 || strings.Trim(got.Reason, "ü") != "…" || got.Policy != "a" {
		t.Errorf("%d bytes for %s", len(got.Reason), got.Policy)
	}
}

func TestConnectingAgainResendsNothing(t *testing.T) {
	set := policies{"a": 1, "b": 1, "x.*": 1, "*": 1}
	f := serve(t, set)
	c := f.connect(t, "n", "i")
	c.policies()
	has := versions(c.expect(set))
	c.close()
	f.stop()

	f = serve(t, set) // the control plane starts again
	c = f.connect(t, "n", "i")
	c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: packs, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: has})
	r := c.next() // a first wildcard is always answered
	if len(r.GetResources()) != 0 {
		t.Errorf("got %v, want nothing", r)
	}
	f.acked(t, set) // it still has those
	c.ack(r)
	set["b"] = 2
	f.set(set)
	if r := c.next(); len(r.GetResources()) != 1 {
		t.Errorf("got %v, want one pack", r)
	} else {
		c.ack(r)
	}
	f.acked(t, set)
}

func versions(r *discovery.DeltaDiscoveryResponse) map[string]string {
	out := map[string]string{}
	for _, each := range r.GetResources() {
		out[each.GetName()] = each.GetVersion()
	}
	return out
}

// A sidecar that has refused a pack subscribes to it again, alone or with all.
func TestAskingForOneOfAllAgain(t *testing.T) {
	set := policies{}
	for i := range 300 {
		set[fmt.Sprintf("t-%03d", i)] = 1
	}
	f := serve(t, set)
	c := f.connect(t, "n", "i")
	c.policies()
	all := c.expect(set)
	if len(all.GetResources()) < 3 {
		t.Fatalf("%d packs", len(all.GetResources()))
	}
	ask := func(name string) *discovery.DeltaDiscoveryResponse {
		c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: packs, ResourceNamesSubscribe: []string{name}, ResourceNamesUnsubscribe: []string{name}})
		return c.expect(set)
	}
	one := all.GetResources()[1].GetName()
	if r := ask(one); len(r.GetResources()) != 1 || r.GetResources()[0].GetName() != one {
		t.Errorf("asked for %s alone, got %v", one, r)
	}
	if r := ask("policies/gone"); len(r.GetResources()) != 0 || !slices.Equal(r.GetRemovedResources(), []string{"policies/gone"}) {
		t.Errorf("asked for what is gone, got %v", r)
	}
	c.policies()
	if r := c.expect(set); len(r.GetResources()) != len(all.GetResources()) {
		t.Errorf("asked for all, got %d of %d packs", len(r.GetResources()), len(all.GetResources()))
	}
	set["t-123"] = 2
	f.set(set)
	c.expect(set) // the wildcard holds on
	f.acked(t, set)
}

// A second process with the node id of one that is connected is refused, and the first one goes on.
// The same process may come again over another connection, and so may a restarted one as soon as
// its last connection has ended.
func TestASecondSessionOfANodeIsRefused(t *testing.T) {
	f := serve(t, policies{"a": 1})
	one, two := f.connect(t, "n", "i1"), f.connect(t, "n", "i2")
	one.policies()
	one.expect(policies{"a": 1})
	two.policies()
	for range two.got {
		t.Error("the second one is told something")
	}
	if status.Code(two.err) != codes.AlreadyExists || !strings.Contains(two.err.Error(), `"n" is in use`) {
		t.Errorf("the second one ends with %v", two.err)
	}
	f.set(policies{"a": 2})
	one.expect(policies{"a": 2})
	list := f.registry.Sidecars()
	if len(list) != 1 || list[0].RefusedSessions == nil || list[0].RefusedSessions.Count != 1 ||
		list[0].RefusedSessions.Address != "10.0.0.1:8083" {
		t.Errorf("shown is %+v", list)
	}
	again := f.connect(t, "n", "i1")
	again.policies()
	again.expect(policies{"a": 2})
	restarted := f.connect(t, "n", "i2")
	restarted.policies()
	again.close()
	restarted.expect(policies{"a": 2})
	if list := f.registry.Sidecars(); len(list) != 1 || !list[0].Connected {
		t.Errorf("after its restart: %+v", list)
	}
}

func TestAnUnknownTypeIsMetWithSilence(t *testing.T) {
	f := serve(t, policies{"a": 1})
	c := f.connect(t, "n", "i")
	c.subscribe("type.googleapis.com/sluice.v9.Later", "*")
	c.policies()
	c.expect(policies{"a": 1})
}

func TestWhatEndsAStream(t *testing.T) {
	f := serve(t, policies{"a": 1})
	for _, test := range []struct {
		what string
		do   func(c *client)
		code codes.Code
		says string
	}{
		{"no node id", func(c *client) { c.node.Id = ""; c.policies() }, codes.InvalidArgument, "node.id"},
		{"long metadata", func(c *client) {
			c.node.Metadata.Fields["version"].Kind = longString()
			c.policies()
		}, codes.InvalidArgument, "node.metadata"},
		{"no type", func(c *client) { c.subscribe("", "a") }, codes.InvalidArgument, "type URL"},
		{"a long name", func(c *client) { c.subscribe(packs, "ok", strings.Repeat("x", 300)) }, codes.InvalidArgument, "300 bytes"},
		{"too many names", func(c *client) {
			names := make([]string, xds.MaxSubscribed+1)
			for i := range names {
				names[i] = fmt.Sprint(i)
			}
			c.subscribe(packs, names[:1000]...)
			c.subscribe(packs, names[1000:]...)
		}, codes.ResourceExhausted, `sidecar "n": this stream subscribes to more than the 20000 names`},
		{"too many versions", func(c *client) {
			has := map[string]string{}
			for i := range xds.MaxVersions/2 + 1 {
				has[fmt.Sprint(i)] = "v"
			}
			for _, kind := range []string{packs, peers} { // of all types together
				c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: kind, ResourceNamesSubscribe: []string{"*"}, InitialResourceVersions: has})
			}
		}, codes.ResourceExhausted, `sidecar "n": more than the 20000 resources`},
		{"a long version", func(c *client) {
			c.send(&discovery.DeltaDiscoveryRequest{TypeUrl: packs, InitialResourceVersions: map[string]string{"a": strings.Repeat("v", 129)}})
		}, codes.InvalidArgument, `sidecar "n": a name of 1 bytes and a version of 129`},
		{"too many types", func(c *client) {
			for i := range 33 {
				c.subscribe(fmt.Sprint("type", i), "*")
			}
		}, codes.ResourceExhausted, "types"},
	} {
		t.Run(test.what, func(t *testing.T) {
			c := f.connect(t, "n", "i")
			test.do(c)
			err := c.end()
			if status.Code(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("got %v, want %v that says %q", err, test.code, test.says)
			}
		})
	}
	c := f.connect(t, "n", "i")
	c.policies()
	c.expect(policies{"a": 1})
}

func TestStreamsEndWithRun(t *testing.T) {
	f := serve(t, policies{"a": 1})
	c := f.connect(t, "n", "i")
	c.policies()
	c.expect(policies{"a": 1})
	f.stop()
	_ = c.end()
	eventually(t, "disconnected", func() bool { return f.registry.Known() == 0 })
}

// TestMetadataIsBounded: it comes before the caller is known.
func TestMetadataIsBounded(t *testing.T) {
	conn, err := grpc.NewClient(serve(t, nil).address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "x-long", strings.Repeat("x", listen.MaxHeadBytes))
	_, err = discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("maximum size (%d bytes) set by server", listen.MaxHeadBytes)) {
		t.Errorf("%d bytes of metadata: %v", listen.MaxHeadBytes, err)
	}
}
