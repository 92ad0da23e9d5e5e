package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestRefusesToListenBeyondLoopback starts control planes that every client on the network could
// use, and one that every sidecar could join under any name.
func TestRefusesToListenBeyondLoopback(t *testing.T) {
	t.Parallel()
	unbound := testkit.Write(t, filepath.Join(t.TempDir(), "auth.yaml"), "tokens: [{name: node, role: sidecar, sha256: "+digest("x")+"}]")
	for setting, c := range map[string]struct{ args, says []string }{
		"xds-listen":  {nil, []string{"--auth-config", "--insecure"}},
		"http-listen": {nil, []string{"--auth-config", "--insecure"}},
		"an entry of any sidecar": {[]string{"--xds-listen", "0.0.0.0:0", "--insecure", "--auth-config", unbound},
			[]string{"xds-listen", "tokens[0] (node)", "sidecar: PREFIX-*"}},
	} {
		if c.args == nil {
			c.args, c.says = []string{"--" + setting, "0.0.0.0:0"}, append(c.says, setting)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var stdout, stderr bytes.Buffer
		// If a flag is given twice the last one counts.
		cmd := exec.CommandContext(ctx, testkit.ControlPlaneProgram.Binary(t), append([]string{"--data-dir", t.TempDir(),
			"--xds-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0"}, c.args...)...)
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 2 {
			t.Errorf("%s: %v, want the exit status 2", setting, err)
		}
		for _, want := range append(c.says, "0.0.0.0") {
			if !strings.Contains(stderr.String(), want) {
				t.Errorf("%s: standard error does not say %q: %s", setting, want, &stderr)
			}
		}
		if stdout.Len() > 0 {
			t.Errorf("%s: standard output %q", setting, &stdout)
		}
	}
}

// guarded is a control plane beyond loopback, with TLS and tokens.
type guarded struct {
	*plane
	*secrets
	tokens map[string]string // by role
	xds    string            // its address, on loopback
	http   string
}

// connect are the flags of a sidecar that speaks to the control plane at an address, with these
// keys in its section of the file.
func (g *guarded) connect(t *testing.T, xds, keys string) []string {
	t.Helper()
	file := testkit.Write(t, g.path("sidecar-"+digest(keys)+".yaml"), "control_plane: {ca: ca.pem, "+keys+"}\n")
	return []string{"--control-plane", xds, "--auth-config", file}
}

// nodesOf are the node ids of the token of the role sidecar.
var nodesOf = map[string]string{"sidecar": ", sidecar: [in, out, a, b, mallory]"}

func startGuarded(t *testing.T, more string) *guarded {
	t.Helper()
	g := &guarded{secrets: newSecrets(t), tokens: map[string]string{}}
	g.issueFor(t, "server")
	auth := "tls: {cert: server.pem, key: server.key, client_ca: ca.pem}\n" + more + "tokens:\n"
	for _, role := range []string{"viewer", "editor", "admin", "sidecar"} {
		g.tokens[role] = g.token(t, role)
		auth += fmt.Sprintf("  - {name: the-%s, role: %s, sha256: %s%s}\n", role, role, digest(g.tokens[role]), nodesOf[role])
	}
	p := &plane{args: []string{"--auth-config", testkit.Write(t, g.path("auth.yaml"), auth), "--xds-listen", "0.0.0.0:0", "--http-listen",
		"0.0.0.0:0"}}
	p.start(t)
	g.plane = p
	g.xds, g.http = onLoopback(t, p.XDS()), onLoopback(t, strings.TrimPrefix(p.URL(), "http://"))
	p.api = g.as(t, "admin")
	return g
}

// onLoopback is the address on loopback of a listener on all interfaces.
func onLoopback(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	require.NoError(t, err)
	return net.JoinHostPort("127.0.0.1", port)
}

// as is the REST API with a role's token; "" has no token.
func (g *guarded) as(t *testing.T, role string) *admin.ControlPlane {
	return &admin.ControlPlane{URL: "https://" + g.http, Token: g.tokens[role], Client: g.client(t), User: "mallory"}
}

// TestRolesOfTheControlPlane changes policies as each role.
func TestRolesOfTheControlPlane(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "")
	for _, c := range []struct {
		role             string
		read, put, prune wire.Code
	}{
		{"", wire.Unauthorized, wire.Unauthorized, wire.Unauthorized},
		{"sidecar", wire.Forbidden, wire.Forbidden, wire.Forbidden},
		{"viewer", "", wire.Forbidden, wire.Forbidden},
		{"editor", "", "", wire.Forbidden},
		{"admin", "", "", ""},
	} {
		api := g.as(t, c.role)
		_, read := api.Policies(t.Context())
		_, put := api.PutPolicy(t.Context(), "a", json.RawMessage(fmt.Sprintf(`{"publish":{"burst":%d}}`, len(c.role))), admin.Condition{})
		_, prune := api.ApplyPolicies(t.Context(), admin.ApplyRequest{Prune: true})
		for what, pair := range map[string][2]wire.Code{"read": {code(t, read), c.read}, "PUT": {code(t, put), c.put},
			"prune": {code(t, prune), c.prune}} {
			if pair[0] != pair[1] {
				t.Errorf("%s as %q: %q, want %q", what, c.role, pair[0], pair[1])
			}
		}
	}
	audit, err := g.api.Audit(t.Context(), 10, 0)
	require.NoError(t, err)
	var by []string
	for _, e := range audit.Entries {
		by = append(by, e.By+" "+e.Action)
	}
	if got, want := strings.Join(by, ", "), "the-admin deleted, the-admin updated, the-editor created"; got != want {
		t.Errorf("audit log: %s; want %s", got, want)
	}
}

const notLetIn = "no connection to the control plane"

// TestSidecarsNeedTheirToken connects sidecars with and without the token of their role.
func TestSidecarsNeedTheirToken(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "")
	g.put(t, "*", unlimited)
	g.put(t, "a", `{"publish":{"rate":100,"burst":7}}`)
	in := startSidecar(t, "in", g.connect(t, g.xds, "token_file: sidecar.token")...)
	if got := in.burst(t, "a"); got != 7 {
		t.Errorf("burst %d at a sidecar with its token", got)
	}
	refused := []struct {
		name, why string
		keys      string
		m         *member
	}{
		{name: "no-token", why: "no token"},
		{name: "viewer", why: "role", keys: "token_file: viewer.token"},
	}
	for i := range refused {
		c := &refused[i]
		c.m = startSidecar(t, c.name, g.connect(t, g.xds, c.keys)...)
		if err := c.m.publish(t.Context(), "a"); err != nil {
			t.Errorf("%s: it serves nothing: %v", c.name, err)
		}
		eventually(t, c.name+" knows why it is refused", func() bool { return strings.Contains(c.m.connection(t).Error, c.why) })
	}
	pause.For(t.Context(), time.Second) // in which they try again, more than once
	for _, c := range refused {
		if n := strings.Count(c.m.Log(), notLetIn); n != 1 || !strings.Contains(c.m.Log(), c.why) {
			t.Errorf("%s: it says %d times that it is refused: %s", c.name, n, c.m.Log())
		}
		if len(c.m.inForce(t)) > 0 {
			t.Errorf("%s: a sidecar that was not let in has policies: %v", c.name, c.m.inForce(t))
		}
	}
	sidecars, err := g.api.Sidecars(t.Context())
	if err != nil || len(sidecars) != 1 || sidecars[0].NodeID != "in" {
		t.Errorf("the control plane knows %v, %v", sidecars, err)
	}
	// The token is changed at both ends, without any restart.
	fresh := g.token(t, "sidecar")
	testkit.Write(t, g.path("auth.yaml"), fmt.Sprintf("tls: {cert: server.pem, key: server.key, client_ca: ca.pem}\ntokens:\n"+
		"  - {name: the-admin, role: admin, sha256: %s}\n  - {name: the-sidecar, role: sidecar, sha256: %s%s}\n", digest(g.tokens["admin"]),
		digest(fresh), nodesOf["sidecar"]))
	eventually(t, "the old tokens end", func() bool {
		_, err := g.as(t, "viewer").Policies(t.Context())
		return code(t, err) == wire.Unauthorized
	})
	g.put(t, "a", `{"publish":{"rate":100,"burst":8}}`)
	eventually(t, "the sidecar goes on with its new token", func() bool { return in.burst(t, "a") == 8 })
}

// TestMutualTLS lets sidecars in by their certificates alone, and replaces the certificates of both
// sides.
func TestMutualTLS(t *testing.T) {
	t.Parallel()
	g := startGuarded(t, "xds: {require_client_cert: true}\n")
	g.issueFor(t, "node-7")
	g.put(t, "*", unlimited)
	proxy := faultproxy.New(t, g.xds)
	connectAs := g.connect(t, proxy.Addr(), "cert: node-7.pem, key: node-7.key")
	in := startSidecar(t, "node-7", connectAs...)
	other := startSidecar(t, "node-8", connectAs...)
	eventually(t, "a certificate is not another sidecar's", func() bool {
		return strings.Contains(other.connection(t).Error, `may not join as node "node-8"; allowed are node-7`)
	})
	out := startSidecar(t, "out", g.connect(t, proxy.Addr(), "token_file: sidecar.token")...)
	eventually(t, "a token is not enough", func() bool { return strings.Contains(out.connection(t).Error, "certificate") })
	bursts := 0
	change := func(what string) {
		t.Helper()
		bursts++
		g.put(t, "a", fmt.Sprintf(`{"publish":{"rate":100,"burst":%d}}`, bursts))
		eventually(t, what, func() bool { return in.burst(t, "a") == bursts })
	}
	change("a sidecar with a certificate is let in")
	since := in.connection(t).Since

	want := g.issueFor(t, "server").SerialNumber.Int64()
	eventually(t, "the server's new certificate", func() bool { return g.serial(t, g.xds) == want && g.serial(t, g.http) == want })
	change("a change after the server's rotation")
	if c := in.connection(t); !c.Since.Equal(since) {
		t.Errorf("the connection of %v ended when the server's certificate was replaced: %+v", since, c)
	}

	g.issueFor(t, "node-7")
	proxy.Cut()
	eventually(t, "the sidecar comes back with its new certificate", func() bool {
		c := in.connection(t)
		return c.Connected && c.Since.After(since)
	})
	change("a change after the sidecar's rotation")
}

// TestTokensOfASidecar publishes with tokens that may do so by topic.
func TestTokensOfASidecar(t *testing.T) {
	t.Parallel()
	s := newSecrets(t)
	orders := s.token(t, "orders")
	m := startSidecar(t, "s", "--auth-config", testkit.Write(t, s.path("auth.yaml"),
		fmt.Sprintf(`tokens: [{name: orders-service, sha256: %s, publish: ["orders.*"]}]`, digest(orders))))
	for _, c := range []struct {
		token, topic string
		want         wire.Code
	}{
		{orders, "orders.created", ""},
		{orders, "payments", wire.Forbidden},
		{orders, "orders", wire.Forbidden},
		{"", "orders.created", wire.Unauthorized},
		{orders + "x", "orders.created", wire.Unauthorized},
	} {
		event := &wire.Event{Topic: c.topic, Payload: []byte("1")}
		api := &admin.HTTP{AppURL: m.URL(), Token: c.token}
		_, err := api.Publish(t.Context(), event)
		if got := code(t, err); got != c.want {
			t.Errorf("HTTP to %s with %.6q: %q, want %q", c.topic, c.token, got, c.want)
		}
		api.CloseIdle()
		conn, err := sluice.DialConn(t.Context(), m.URL(), &sluice.ConnOptions{Token: c.token})
		if err == nil {
			_, err = conn.Publish(t.Context(), event)
			if closing := conn.Close(); closing != nil && !errors.Is(closing, sluice.ErrClosed) {
				t.Error(closing)
			}
		}
		if got := code(t, err); got != c.want {
			t.Errorf("WebSocket to %s with %.6q: %q, want %q", c.topic, c.token, got, c.want)
		}
	}
}
