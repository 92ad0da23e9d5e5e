package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// history sends a request to a sidecar's replay listener, with a token.
func (m *member) history(t *testing.T, path, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", m.ReplayURL()+path, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

// joinAs joins a control plane as a sidecar whose replay API is at an address.
func (g *guarded) joinAs(t *testing.T, role, node, address string) {
	t.Helper()
	conn, err := grpc.NewClient(g.xds, grpc.WithTransportCredentials(credentials.NewTLS(g.tls())))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ctx := metadata.AppendToOutgoingContext(context.WithoutCancel(t.Context()), "authorization", "Bearer "+g.tokens[role])
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	require.NoError(t, err)
	require.NoError(t, stream.Send(&discovery.DeltaDiscoveryRequest{
		Node: &core.Node{Id: node, Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{
			policypb.InstanceSecret: structpb.NewStringValue(node), "store_id": structpb.NewStringValue(node),
			"replay": structpb.NewStringValue(address),
		}}},
		TypeUrl: policypb.PolicyPackType, ResourceNamesSubscribe: []string{"*"},
	}))
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
}

// TestStolenPeerToken: two sidecars replay each other's history, with no other setting than their
// control plane. A third one with a credential of its own announces an address, collects the tokens
// that it is shown there, and shows them to the two.
func TestStolenPeerToken(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "")
	g.put(t, "*", unlimited)
	auditor := g.token(t, "auditor")
	auth := testkit.Write(t, g.path("sidecar.yaml"),
		fmt.Sprintf("tokens: [{name: auditor, sha256: %s, publish: ['*'], replay: ['*']}]\n"+
			"control_plane: {ca: ca.pem, token_file: sidecar.token}\n", digest(auditor)))
	var fleet []*member
	for _, name := range []string{"a", "b"} {
		m := startSidecar(t, name, "--auth-config", auth, "--control-plane", g.xds)
		m.api.Token = auditor
		require.NoError(t, m.publish(t.Context(), "orders"))
		fleet = append(fleet, m)
	}
	for _, m := range fleet {
		eventually(t, m.name+" replays the fleet", func() bool {
			_, body := m.history(t, "/replay?topic=orders&scope=fleet", auditor)
			return strings.Contains(body, `"count":2`)
		})
	}

	var mu sync.Mutex
	stolen := map[string]bool{}
	trap := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		stolen[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")] = true
		w.WriteHeader(http.StatusTeapot)
	}))
	t.Cleanup(trap.Close)
	g.joinAs(t, "sidecar", "mallory", strings.TrimPrefix(trap.URL, "http://"))
	for _, m := range fleet {
		eventually(t, m.name+" misses what mallory does not tell", func() bool {
			status, body := m.history(t, "/replay?topic=orders&scope=fleet", auditor)
			return status == http.StatusBadGateway && strings.Contains(body, "mallory")
		})
	}
	mu.Lock()
	defer mu.Unlock()
	if len(stolen) < 2 || stolen[""] {
		t.Fatalf("%d tokens were collected", len(stolen))
	}
	for token := range stolen {
		for _, m := range fleet {
			for _, path := range []string{"/peer", "/replay?topic=orders", "/export?topic=orders&part=log", "/export?topic=orders"} {
				if status, body := m.history(t, path, token); status != http.StatusUnauthorized || !strings.Contains(body, "mallory") {
					t.Errorf("%s of %s: %d %s", path, m.name, status, body)
				}
			}
		}
	}
}
