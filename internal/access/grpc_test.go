package access

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/test/require"
)

// serveGRPC serves something to call behind a.
func serveGRPC(t *testing.T, a *Access, more ...grpc.ServerOption) (addr string, svc *health.Server) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(append(a.ServerOptions("xds-listen", ln), more...)...)
	svc = health.NewServer()
	healthpb.RegisterHealthServer(server, svc)
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Serve(ln); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { server.Stop(); running.Wait() })
	return ln.Addr().String(), svc
}

func dialGRPC(t *testing.T, c *Client, addr string) healthpb.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, c.DialOptions()...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return healthpb.NewHealthClient(conn)
}

func callOf(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// calls makes a unary call and a stream, which must end alike.
func calls(t *testing.T, c healthpb.HealthClient) error {
	t.Helper()
	_, err := c.Check(callOf(t), &healthpb.HealthCheckRequest{})
	stream, streamErr := c.Watch(callOf(t), &healthpb.HealthCheckRequest{})
	if streamErr == nil {
		_, streamErr = stream.Recv()
	}
	if status.Code(err) != status.Code(streamErr) {
		t.Errorf("the call: %v; the stream: %v", err, streamErr)
	}
	return err
}

func TestJoin(t *testing.T) {
	f := newFolder(t)
	f.withTLS(newAuthority(t, "ca"), "node-7")
	f.writef("node", "%s", nodeToken)
	f.writef("alice", "%s", aliceToken)
	f.writef("wrong", "what-is-this-0123456789")
	tokens := "tokens: [{name: node, role: sidecar, token_file: node}, {name: alice, role: editor, token_file: alice}]"
	clear, secured := ClientConfig{}, ClientConfig{CA: "ca.pem"}
	mutual := ClientConfig{CA: "ca.pem", Cert: "client.pem", Key: "client.key"}
	with := func(c ClientConfig, token string) ClientConfig { c.TokenFile = token; return c }
	for _, tc := range []struct {
		name, rules string
		client      ClientConfig
		want        codes.Code
		says        string
	}{
		{"a sidecar's token", tokens, with(clear, "node"), codes.OK, ""},
		{"an editor's token", tokens, with(clear, "alice"), codes.PermissionDenied, `"alice" may not join as a sidecar: its role is "editor"`},
		{"a wrong token", tokens, with(clear, "wrong"), codes.Unauthenticated, "not known"},
		{"no token", tokens, clear, codes.Unauthenticated, "no token"},
		{"a token by TLS", tokens + tlsSection, with(secured, "node"), codes.OK, ""},
		{"a certificate", tokens + tlsSection, mutual, codes.OK, ""},
		{"a viewer's certificate", "certs: [{name: node-7, role: viewer}]" + tlsSection, mutual, codes.PermissionDenied, "viewer"},
		{"neither", tokens + tlsSection, secured, codes.Unauthenticated, "no token"},
		{"a token where a certificate is needed", tokens + tlsSection + "xds: {require_client_cert: true}", with(secured, "node"),
			codes.Unauthenticated, "a client certificate is required"},
		{"a certificate where one is needed", tokens + tlsSection + "xds: {require_client_cert: true}", mutual, codes.OK, ""},
		{"a wrong token with a certificate", tokens + tlsSection, with(mutual, "wrong"), codes.Unauthenticated, "not known"},
		{"in clear where TLS is wanted", tokens + tlsSection, with(clear, "node"), codes.Unavailable, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f.writef("auth.yaml", "%s", tc.rules)
			a, log := f.open(ControlPlane)
			addr, _ := serveGRPC(t, a)
			err := calls(t, dialGRPC(t, f.client(tc.client), addr))
			if status.Code(err) != tc.want || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v; want %s, %q", err, tc.want, tc.says)
			}
			if strings.Contains(log.String(), nodeToken) || strings.Contains(log.String(), "what-is-this") {
				t.Errorf("a token is in the log:\n%s", log)
			}
		})
	}
	t.Run("without authentication", func(t *testing.T) {
		addr, _ := serveGRPC(t, nil)
		if err := calls(t, dialGRPC(t, nil, addr)); err != nil {
			t.Error(err)
		}
	})
}

func TestStreamEndsWithItsRights(t *testing.T) {
	f := newFolder(t)
	f.writef("node", "%s", nodeToken)
	f.writef("auth.yaml", "tokens: [{name: node, role: sidecar, sha256: %s}]", sumOf(nodeToken))
	a, _ := f.open(ControlPlane)
	addr, svc := serveGRPC(t, a)
	client := dialGRPC(t, f.client(ClientConfig{TokenFile: "node"}), addr)
	stream, err := client.Watch(callOf(t), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	// Other changes do not end it.
	f.writef("auth.yaml", "tokens: [{name: renamed, role: sidecar, sha256: %s}]", sumOf(nodeToken))
	a.settle()
	svc.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	f.writef("auth.yaml", "tokens: []")
	a.settle()
	svc.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	if m, err := stream.Recv(); err == nil {
		t.Errorf("it still gets %v", m)
	}
	// The client's new token counts from the next call on.
	f.writef("auth.yaml", "tokens: [{name: node, role: sidecar, sha256: %s}]", sumOf(aliceToken))
	a.settle()
	f.writef("node", "%s", aliceToken)
	if err := calls(t, client); err != nil {
		t.Error(err)
	}
}

func TestGRPCRotation(t *testing.T) {
	f := newFolder(t)
	old, young := newAuthority(t, "old"), newAuthority(t, "young")
	f.withTLS(old, "node-7")
	f.writef("auth.yaml", "tokens: []"+tlsSection)
	a, _ := f.open(ControlPlane)
	client := f.client(ClientConfig{CA: "ca.pem", Cert: "client.pem", Key: "client.key"})
	addr, _ := serveGRPC(t, a)
	first := dialGRPC(t, client, addr)
	require.NoError(t, calls(t, first))
	f.withTLS(young, "node-7")
	a.settle()
	// The connection that the old authority vouched for is closed, and the next one, of the same
	// client, is made with the new files.
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		_, err := first.Check(callOf(t), &healthpb.HealthCheckRequest{})
		if err == nil {
			break
		}
		if status.Code(err) != codes.Unavailable || time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.changed) != 1 {
		t.Errorf("%d connections are kept", len(a.changed))
	}
}

// claiming serves something to call whose callers go by the node id that they send.
func claiming(t *testing.T, a *Access) (addr string, svc *health.Server) {
	t.Helper()
	return serveGRPC(t, a, grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo,
		handle grpc.StreamHandler) error {
		if _, _, err := a.Claim(stream.Context(), metadata.ValueFromIncomingContext(stream.Context(), "node")[0], ""); err != nil {
			return err
		}
		return handle(srv, stream)
	}))
}

func claims(t *testing.T, c healthpb.HealthClient, node string) (healthpb.Health_WatchClient, error) {
	t.Helper()
	stream, err := c.Watch(metadata.AppendToOutgoingContext(callOf(t), "node", node), &healthpb.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = stream.Recv()
	return stream, err
}

func TestACredentialIsForItsNodes(t *testing.T) {
	f := newFolder(t)
	f.withTLS(newAuthority(t, "ca"), "node-7")
	f.writef("node", "%s", nodeToken)
	tokens := "tokens: [{name: node, role: sidecar, token_file: node, sidecar: 'orders-*'}]" + tlsSection
	mutual := ClientConfig{CA: "ca.pem", Cert: "client.pem", Key: "client.key"}
	token := ClientConfig{CA: "ca.pem", TokenFile: "node"}
	for _, tc := range []struct {
		name, rules string
		client      ClientConfig
		node, says  string // says: "": it is let in
	}{
		{"a token, of its prefix", tokens, token, "orders-1", ""},
		{"a token, of another", tokens, token, "billing-1", `"node" may not join as node "billing-1"; allowed are orders-*`},
		{"a certificate, of its name", tokens, mutual, "node-7", ""},
		{"a certificate, of its alternative name", tokens, mutual, "localhost", ""},
		{"a certificate, of another", tokens, mutual, "node-8", `"node-7" may not join as node "node-8"; allowed are node-7, localhost`},
		{"a listed certificate", "certs: [{name: node-7, role: sidecar, sidecar: [orders-1, 'b-*']}]" + tlsSection, mutual, "b-2", ""},
		{"a listed certificate, of another", "certs: [{name: node-7, role: sidecar, sidecar: [orders-1, 'b-*']}]" + tlsSection, mutual, "node-7",
			"allowed are orders-1, b-*"},
		{"a listed certificate, of any", "certs: [{name: node-7, role: sidecar}]" + tlsSection, mutual, "b-2", ""},
		{"an admin's", "certs: [{name: node-7, role: admin}]" + tlsSection, mutual, "b-2", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f.writef("auth.yaml", "%s", tc.rules)
			a, _ := f.open(ControlPlane)
			addr, _ := claiming(t, a)
			_, err := claims(t, dialGRPC(t, f.client(tc.client), addr), tc.node)
			if tc.says == "" && err != nil || tc.says != "" && (status.Code(err) != codes.PermissionDenied ||
				!strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%v; want %q", err, tc.says)
			}
		})
	}
}

func TestAWildcardCertificateIsForNoPrefix(t *testing.T) {
	f := newFolder(t)
	f.withTLS(newAuthority(t, "ca"), "*")
	f.writef("auth.yaml", "tokens: []"+tlsSection)
	a, _ := f.open(ControlPlane)
	addr, _ := claiming(t, a)
	client := dialGRPC(t, f.client(ClientConfig{CA: "ca.pem", Cert: "client.pem", Key: "client.key"}), addr)
	if _, err := claims(t, client, "node-8"); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
}

func TestStreamEndsWithItsNode(t *testing.T) {
	f := newFolder(t)
	f.writef("node", "%s", nodeToken)
	entry := "tokens: [{name: node, role: sidecar, sha256: " + sumOf(nodeToken) + ", sidecar: %s}]"
	f.writef("auth.yaml", entry, "'a-*'")
	a, _ := f.open(ControlPlane)
	addr, svc := claiming(t, a)
	stream, err := claims(t, dialGRPC(t, f.client(ClientConfig{TokenFile: "node"}), addr), "a-1")
	require.NoError(t, err)
	f.writef("auth.yaml", entry, "[a-1, b]") // which covers it still
	a.settle()
	svc.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	f.writef("auth.yaml", entry, "b")
	a.settle()
	svc.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	if m, err := stream.Recv(); err == nil {
		t.Errorf("it still gets %v", m)
	}
}

// A credential that may join as any sidecar is warned of on loopback; beyond it the program does not start with one, and a
// changed file with one does not act.
func TestEntriesOfAnySidecar(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", "tokens:\n - {name: node, role: sidecar, sha256: %s}\n"+
		" - {name: all, role: sidecar, sha256: %s, sidecar: '*'}\ncerts: [{name: x, role: sidecar}, {name: y, role: admin}]",
		sumOf(nodeToken), sumOf(aliceToken))
	a, log := f.open(ControlPlane)
	says := "certs[0] (x) may join as any sidecar; name its node ids, as in sidecar: NAME or sidecar: PREFIX-*; " +
		"tokens[0] (node) may join as any sidecar; name its node ids, as in sidecar: NAME or sidecar: PREFIX-*; tokens[1] (all) may"
	if !strings.Contains(log.String(), says) {
		t.Errorf("the log says:\n%s", log)
	}
	require.NoError(t, a.CheckListener("xds-listen", "127.0.0.1:0", false))
	for _, insecure := range []bool{false, true} {
		if err := a.CheckListener("xds-listen", "0.0.0.0:0", insecure); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("beyond loopback: %v", err)
		}
	}

	entry := "tokens: [{name: node, role: sidecar, sha256: " + sumOf(nodeToken) + ", sidecar: %s}]"
	f.writef("auth.yaml", entry, "a-*")
	a, log = f.open(ControlPlane)
	require.NoError(t, a.CheckListener("xds-listen", "0.0.0.0:0", true))
	require.NoError(t, a.CheckListener("http-listen", "0.0.0.0:0", true))
	stores := "tokens[0] (node) may report, and answer for, any store; name its stores, as in stores: [ID]"
	if n := strings.Count(log.String(), stores); n != 1 {
		t.Errorf("of an entry without stores the log says %d times:\n%s", n, log)
	}
	f.writef("auth.yaml", entry, "a-*, stores: [s1]")
	log.Take()
	a.settle()
	if strings.Contains(log.String(), "any store") {
		t.Errorf("of one with stores the log says:\n%s", log)
	}
	f.writef("auth.yaml", entry, "'*'")
	a.settle()
	id, err := a.Token(t.Context(), nodeToken, "")
	if err != nil || id.May(Join, "b-1", "") == nil || !strings.Contains(log.String(), "tokens[0] (node)") {
		t.Errorf("%v %v; the log says:\n%s", id, err, log)
	}
}
