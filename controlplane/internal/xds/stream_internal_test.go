package xds

import (
	"context"
	"fmt"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
)

func newTestStream(t *testing.T) *stream {
	t.Helper()
	s := newStream(nil, newPolicies())
	var err error
	s.session, err = fleet.NewRegistry(fleet.Config{}).Connect(fleet.Node{ID: "n"}, fleet.Prefix{})
	require.NoError(t, err)
	return s
}

func TestResponsesThatAreNeverAcked(t *testing.T) {
	const names = 1000
	s := newTestStream(t)
	respond := func(i int) {
		s.response(&discovery.DeltaDiscoveryResponse{
			TypeUrl: policypb.PolicyPackType, Nonce: fmt.Sprint(i), RemovedResources: make([]string, names),
		})
	}
	for i := range 3 * maxUnacked / names { // acked, it can go on for ever
		respond(i)
		require.NoError(t, s.request(&discovery.DeltaDiscoveryRequest{TypeUrl: policypb.PolicyPackType, ResponseNonce: fmt.Sprint(i)}))
	}
	if len(s.unacked) != 0 || s.unackedN != 0 {
		t.Errorf("%d responses with %d resources are left", len(s.unacked), s.unackedN)
	}
	for i := range maxUnacked / names {
		respond(i)
	}
	err := s.request(&discovery.DeltaDiscoveryRequest{TypeUrl: policypb.PeerCredentialType})
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "neither acked nor rejected") {
		t.Errorf("got %v", err)
	}
}

func TestAnswersToOtherStreamsMeanNothing(t *testing.T) {
	s := newTestStream(t)
	s.response(&discovery.DeltaDiscoveryResponse{TypeUrl: policypb.PolicyPackType, Nonce: "1", RemovedResources: []string{"a"}})
	for _, r := range []*discovery.DeltaDiscoveryRequest{
		{TypeUrl: policypb.PolicyPackType, ResponseNonce: "7"},
		{TypeUrl: policypb.PeerCredentialType, ResponseNonce: "1"},
		{TypeUrl: policypb.PolicyPackType},
	} {
		if err := s.request(r); err != nil || len(s.unacked) != 1 {
			t.Errorf("%v: %v, %d unacked", r, err, len(s.unacked))
		}
	}
}

// A stream that its sidecar has given up is not taken for the sidecar's, whenever it is looked at.
func TestAStreamThatIsGivenUpTakesNoPlace(t *testing.T) {
	r := fleet.NewRegistry(fleet.Config{})
	node := fleet.Node{ID: "n", Instance: "i"}
	live, err := r.Connect(node, fleet.Prefix{})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (callbacks{&Server{cfg: Config{Registry: r}}}).connect(ctx, node, fleet.Prefix{}, nil); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
	live.Holds(map[string]*fleet.Part{"policies/": {ID: "h", Versions: map[string]int64{"a": 1}}}, nil)
	if got := r.Sidecars(); len(got) != 1 || !got[0].Connected || got[0].Versions["a"] != 1 {
		t.Errorf("the stream that is there is not the sidecar's any more: %+v", got)
	}
}
