package access

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

const patience = 20 * time.Second

// serveHTTP serves h behind a on loopback, and returns the base of its URLs.
func serveHTTP(t *testing.T, a *Access, h http.Handler) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	base := "https://" + ln.Addr().String()
	ctx, cancel := context.WithCancel(t.Context())
	server := httpapi.Server{Handler: a.Authenticate(h), Logger: slog.New(slog.DiscardHandler)}
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Serve(ctx, a.Listener("listen", ln)); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return base
}

// fetch asks for the name that the server knows the client by.
func fetch(c *Client, base string) (string, error) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	c.UseIn(transport)
	r, err := http.NewRequest("GET", base+"/", nil)
	if err != nil {
		return "", err
	}
	if token := c.Token(); token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := (&http.Client{Transport: transport, Timeout: patience}).Do(r)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, body)
	}
	return string(body), err
}

func (a *Access) echoName() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, a.From(r.Context()).Name) })
}

// withTLS writes certificates of an authority for a server and a client.
func (f folder) withTLS(ca *authority, client string) {
	cert, key := ca.issue("server")
	f.write("server.pem", cert)
	f.write("server.key", key)
	f.write("ca.pem", ca.pem)
	cert, key = ca.issue(client)
	f.write("client.pem", cert)
	f.write("client.key", key)
}

const tlsSection = "\ntls: {cert: server.pem, key: server.key, client_ca: ca.pem}\n"

func (f folder) client(c ClientConfig) *Client {
	f.t.Helper()
	for _, name := range []*string{&c.CA, &c.Cert, &c.Key, &c.TokenFile} {
		if *name != "" {
			*name = f.path(*name)
		}
	}
	client, err := c.Open()
	if err != nil {
		f.t.Fatal(err)
	}
	return client
}

func TestMutualTLS(t *testing.T) {
	f := newFolder(t)
	f.withTLS(newAuthority(t, "test authority"), "orders")
	f.writef("token", "%s", aliceToken)
	f.writef("auth.yaml", "tokens: [{name: alice, sha256: %s}]\ncerts: [{name: orders, publish: [a]}]"+tlsSection, sumOf(aliceToken))
	a, _ := f.open(Sidecar)
	base := serveHTTP(t, a, a.echoName())

	stranger := newAuthority(t, "another authority")
	cert, key := stranger.issue("orders")
	f.write("stranger.pem", cert)
	f.write("stranger.key", key)
	f.write("stranger-ca.pem", stranger.pem)
	for _, tc := range []struct {
		name   string
		client ClientConfig
		want   string
		fails  string
	}{
		{"a token", ClientConfig{CA: "ca.pem", TokenFile: "token"}, "alice", ""},
		{"a certificate", ClientConfig{CA: "ca.pem", Cert: "client.pem", Key: "client.key"}, "orders", ""},
		{"both", ClientConfig{CA: "ca.pem", Cert: "client.pem", Key: "client.key", TokenFile: "token"}, "alice", ""},
		{"neither", ClientConfig{CA: "ca.pem"}, "", "401"},
		{"a certificate of another authority", ClientConfig{CA: "ca.pem", Cert: "stranger.pem", Key: "stranger.key"}, "", "401"},
		// which is not sent
		{"a server of another authority", ClientConfig{CA: "stranger-ca.pem", TokenFile: "token"}, "", "unknown authority"},
		{"a server that nobody vouches for", ClientConfig{TLS: true, TokenFile: "token"}, "", "unknown authority"},
		{"in clear", ClientConfig{TokenFile: "token"}, "", "unknown authority"}, // https by the URL alone
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := fetch(f.client(tc.client), base)
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("%q, %v; want %q", got, err, tc.fails)
				}
			} else if err != nil || got != tc.want {
				t.Errorf("%q, %v; want %q", got, err, tc.want)
			}
		})
	}
	// The name of the server counts, and not only who vouches for it.
	if _, err := fetch(f.client(ClientConfig{CA: "ca.pem", TokenFile: "token"}),
		strings.Replace(base, "127.0.0.1", "127.0.0.2", 1)); err == nil {
		t.Error("a server of another name was believed")
	}
}

func TestCertificateLosesItsRights(t *testing.T) {
	f := newFolder(t)
	old := newAuthority(t, "old")
	f.withTLS(old, "node-7")
	f.writef("auth.yaml", "certs: [{name: node-7, publish: [a]}]"+tlsSection)
	a, _ := f.open(Sidecar)
	id := a.handshake(t, f)
	if now, err := a.Renew(&id); err != nil || now.May(Publish, "a", "") != nil {
		t.Fatal(err)
	}
	f.writef("auth.yaml", "certs: [{name: node-7, publish: [b]}]"+tlsSection)
	a.settle()
	if now, err := a.Renew(&id); err != nil || now.May(Publish, "a", "") == nil || now.May(Publish, "b", "") != nil {
		t.Errorf("other rights: %v", err)
	}
	f.writef("auth.yaml", "certs: [{name: node-8}]"+tlsSection)
	a.settle()
	if _, err := a.Renew(&id); !errors.Is(err, &wire.Error{Code: wire.Unauthorized}) {
		t.Errorf("not listed any more: %v", err)
	}
	f.writef("auth.yaml", "certs: [{name: node-7, publish: [a]}]"+tlsSection)
	f.write("ca.pem", newAuthority(t, "new").pem)
	a.settle()
	if _, err := a.Renew(&id); !errors.Is(err, &wire.Error{Code: wire.Unauthorized}) {
		t.Errorf("nobody vouches for it any more: %v", err)
	}
}

// handshake identifies the client of the folder by a real handshake.
func (a *Access) handshake(t *testing.T, f folder) Identity {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	var dialing sync.WaitGroup
	defer dialing.Wait()
	dialing.Go(func() {
		config := f.client(ClientConfig{CA: "ca.pem", Cert: "client.pem", Key: "client.key"}).config()
		conn, err := tls.Dial("tcp", ln.Addr().String(), config)
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	})
	conn, err := a.Listener("listen", ln).Accept()
	require.NoError(t, err)
	defer conn.Close()
	secured := conn.(*tls.Conn)
	require.NoError(t, secured.Handshake())
	cs := secured.ConnectionState()
	id, err := a.identify(t.Context(), nil, &cs, "")
	require.NoError(t, err)
	return id
}

func TestUnlistedCertificateIsASidecarsAtTheControlPlane(t *testing.T) {
	f := newFolder(t)
	f.withTLS(newAuthority(t, "ca"), "node-9")
	f.writef("auth.yaml", "certs: [{name: node-7, role: viewer}]"+tlsSection)
	a, _ := f.open(ControlPlane)
	if id := a.handshake(t, f); id.Name != "node-9" || id.Role != RoleSidecar || id.May(Join, "", "") != nil || id.May(View, "", "") == nil {
		t.Errorf("%+v", id)
	}
	f.writef("auth.yaml", "certs: [{name: localhost, role: viewer}]"+tlsSection)
	a.settle()
	if id := a.handshake(t, f); id.Name != "localhost" || id.Role != RoleViewer { // one of its other names
		t.Errorf("%+v", id)
	}
}

// TestRotationUnderLoad replaces everything, the authority too, while clients make a connection for
// each request.
func TestRotationUnderLoad(t *testing.T) {
	f := newFolder(t)
	old, young := newAuthority(t, "old"), newAuthority(t, "young")
	f.withTLS(old, "node-7")
	f.writef("token", "%s", aliceToken)
	entry := func(token string) string { return " - {name: alice, sha256: " + sumOf(token) + "}\n" }
	f.writef("auth.yaml", "%s", "tokens:\n"+entry(aliceToken)+"certs: [{name: node-7}]"+tlsSection)
	a, _ := f.open(Sidecar)
	base := serveHTTP(t, a, a.echoName())
	byToken := f.client(ClientConfig{CA: "ca.pem", TokenFile: "token"})
	byCert := f.client(ClientConfig{CA: "ca.pem", Cert: "client.pem", Key: "client.key"})

	var requests [2]atomic.Int64 // of each client
	var stop atomic.Bool
	var load sync.WaitGroup
	for i, c := range []struct {
		*Client
		name string
	}{{byToken, "alice"}, {byCert, "node-7"}} {
		load.Go(func() {
			for !stop.Load() {
				if got, err := fetch(c.Client, base); err != nil || got != c.name {
					t.Errorf("%q, %v", got, err)
					return
				}
				requests[i].Add(1)
			}
		})
	}
	// Each step is in force, and used by each client, before the next. A client's first request may have begun before it.
	step := func(change func()) {
		t.Helper()
		change()
		a.settle()
		deadline := time.Now().Add(patience)
		for i := range requests {
			for target := requests[i].Load() + 3; requests[i].Load() < target && !t.Failed(); time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("no requests any more")
				}
			}
		}
	}
	step(func() {})
	step(func() { f.write("ca.pem", slices.Concat(old.pem, young.pem)) }) // both are trusted
	step(func() {
		cert, key := young.issue("server")
		f.write("server.pem", cert)
		a.settle() // the key does not go with it yet
		f.write("server.key", key)
	})
	step(func() {
		cert, key := young.issue("node-7")
		f.write("client.key", key) // the client has the old pair until both are there
		f.write("client.pem", cert)
	})
	step(func() { f.write("ca.pem", young.pem) })
	step(func() {
		f.writef("auth.yaml", "%s", "tokens:\n"+entry(aliceToken)+entry(nodeToken)+"certs: [{name: node-7}]"+tlsSection)
	})
	step(func() { f.writef("token", "%s", nodeToken) })
	step(func() {
		f.writef("auth.yaml", "%s", "tokens:\n"+entry(nodeToken)+"certs: [{name: node-7}]"+tlsSection)
	})
	stop.Store(true)
	load.Wait()

	pool := x509.NewCertPool()
	pool.AddCert(young.cert)
	conn, err := tls.Dial("tcp", strings.TrimPrefix(base, "https://"), &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatalf("the new certificate is not served: %v", err)
	}
	defer conn.Close()
	if cs := conn.ConnectionState(); cs.Version != tls.VersionTLS13 || cs.NegotiatedProtocol != "h2" {
		t.Errorf("%x %s", cs.Version, cs.NegotiatedProtocol)
	}
	if _, err := tls.Dial("tcp", strings.TrimPrefix(base, "https://"),
		&tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}); err == nil {
		t.Error("TLS 1.1 is served")
	}
}

func TestListenerInClearWarns(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", "tokens: []")
	a, log := f.open(Sidecar)
	for addr, warned := range map[net.Addr]bool{
		&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}: false,
		&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}:  true,
		&net.UnixAddr{Net: "unix", Name: "/run/s"}:        false,
	} {
		log.Take()
		ln := boundTo{addr: addr}
		if got := a.Listener("listen", ln); got != net.Listener(ln) || strings.Contains(log.String(), "unencrypted") != warned {
			t.Errorf("%v: %v\n%s", addr, got, log)
		}
	}
}

type boundTo struct {
	net.Listener
	addr net.Addr
}

func (b boundTo) Addr() net.Addr { return b.addr }

func TestClientConfigRefuses(t *testing.T) {
	f := newFolder(t)
	f.writef("empty", "")
	for _, c := range []ClientConfig{
		{Cert: f.path("empty")}, {Key: f.path("empty")}, {CA: f.path("empty")}, {CA: f.path("nowhere")},
		{TokenFile: f.path("empty")}, {TokenFile: f.path("nowhere")}, {Cert: f.path("empty"), Key: f.path("empty")},
	} {
		if client, err := c.Open(); err == nil || client != nil {
			t.Errorf("%+v: taken", c)
		}
	}
	if c, err := (ClientConfig{}).Open(); err != nil || c != nil || c.Secure() || c.Token() != "" {
		t.Errorf("%v %v", c, err)
	}
}
