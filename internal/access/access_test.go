package access

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

func coded(code wire.Code) error { return &wire.Error{Code: code} }

// asks is a request with the header, where one is given.
func asks(authorization ...string) *http.Request {
	r := httptest.NewRequest("GET", "/v1/policies", nil)
	if authorization != nil {
		r.Header["Authorization"] = authorization
	}
	return r
}

// settle has two looks find what there is.
func (a *Access) settle() {
	a.look()
	a.look()
}

func TestNilLetsEverybodyDoEverything(t *testing.T) {
	var a *Access
	id, err := a.Identify(asks())
	if err != nil || id.Name != "anonymous" || id.Role != RoleAdmin || id.Verified {
		t.Fatalf("%+v %v", id, err)
	}
	if again, err := a.Renew(&id); err != nil || again != &id {
		t.Fatalf("%+v %v", again, err)
	}
	if byToken, err := a.Token(t.Context(), "whatever", ""); err != nil || byToken != id || a.From(t.Context()) != id {
		t.Fatalf("%+v %v", byToken, err)
	}
	for _, do := range []Action{Publish, Subscribe, Replay, Admin, Operate, View, Edit, Administer, Join} {
		if err := id.May(do, "t", "g"); err != nil {
			t.Errorf("%d: %v", do, err)
		}
	}
	if a.TLS() != nil || a.ServerOptions("x", nil) != nil {
		t.Error("nothing asked for TLS")
	}
	a.OnChange(nil)
	if h := http.NotFoundHandler(); a.Authenticate(h) == nil {
		t.Error("no handler")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestNobodyMayDoNothing(t *testing.T) {
	for _, do := range []Action{Publish, Subscribe, Replay, Admin, Operate, View, Edit, Administer, Join} {
		if err := (Identity{}).May(do, "t", "g"); !errors.Is(err, coded(wire.Unauthorized)) {
			t.Errorf("%d: %v", do, err)
		}
	}
	f := newFolder(t)
	f.writef("auth.yaml", "tokens: []")
	a, _ := f.open(Sidecar)
	if id := a.From(t.Context()); id != (Identity{}) {
		t.Errorf("a context that nobody has authenticated is %+v's", id)
	}
	if _, err := a.Renew(&Identity{}); !errors.Is(err, coded(wire.Unauthorized)) {
		t.Error(err)
	}
}

func TestIdentifyByToken(t *testing.T) {
	f := newFolder(t)
	f.writef("node", " %s\n", nodeToken)
	f.writef("auth.yaml", "tokens:\n - {name: alice, role: editor, sha256: %s}\n - {name: node, role: sidecar, token_file: node}",
		strings.ToUpper(sumOf(aliceToken)))
	a, log := f.open(ControlPlane)
	for _, tc := range []struct {
		header []string
		name   string // "": unauthorized
		role   Role
	}{
		{[]string{"Bearer " + aliceToken}, "alice", RoleEditor},
		{[]string{"bearer  " + nodeToken}, "node", RoleSidecar},
		{[]string{"Bearer " + aliceToken[1:]}, "", ""},
		{[]string{"Bearer " + sumOf(aliceToken)}, "", ""},
		{[]string{"Bearer "}, "", ""},
		{[]string{""}, "", ""},
		{[]string{"Basic " + aliceToken}, "", ""},
		{[]string{aliceToken}, "", ""},
		{[]string{"Bearer " + aliceToken, "Bearer " + aliceToken}, "", ""},
		{nil, "", ""},
	} {
		id, err := a.Identify(asks(tc.header...))
		if id.Name != tc.name || id.Role != tc.role || id.Verified != (tc.name != "") {
			t.Errorf("%q: %+v, want %s as %s", tc.header, id, tc.name, tc.role)
		}
		if (err != nil) != (tc.name == "") || err != nil && !errors.Is(err, coded(wire.Unauthorized)) {
			t.Errorf("%q: %v", tc.header, err)
		}
	}
	if strings.Contains(log.String(), aliceToken) || strings.Contains(log.String(), nodeToken) {
		t.Errorf("a token is in the log:\n%s", log)
	}
}

// An editor of some policies changes those that the prefixes cover whole, however it comes in.
func TestEditorsOfSomePolicies(t *testing.T) {
	i, ca := newIssuer(t, "one"), newAuthority(t, "fleet")
	f := newFolder(t)
	f.write("keys.json", i.keys())
	entry := `role: editor, policies: ["orders.*", payments]`
	f.writef("auth.yaml", `
tokens: [{name: alice, sha256: %s, %s}]
certs: [{name: node-7, %s}]
jwt: {issuer: "https://issuer.example", audience: sluice, jwks_file: keys.json}
subjects: [{name: orders-service, %s}]
`, sumOf(aliceToken), entry, entry, entry)
	a, _ := f.open(ControlPlane)
	cert, key := ca.issue("node-7")
	pair, err := tls.X509KeyPair(cert, key)
	require.NoError(t, err)
	rules := *a.now.Load()
	rules.roots = map[digest]bool{sha256.Sum256(pair.Leaf.Raw): true}
	byToken, err1 := a.Token(t.Context(), aliceToken, "127.0.0.1:1")
	byJWT, err2 := a.Token(t.Context(), i.sign(nil), "127.0.0.1:1")
	byCert, err3 := rules.byCertificate(&tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{pair.Leaf}}})
	require.NoError(t, errors.Join(err1, err2, err3))
	for _, id := range []Identity{byToken, byJWT, byCert} {
		for _, name := range []string{"orders.created", "orders.*", "orders.a*", "payments"} {
			if err := id.May(Edit, name, ""); err != nil {
				t.Errorf("%s: %v", id.Name, err)
			}
		}
		for _, name := range []string{"*", "ord*", "orders*", "orders", "payments*", "payments.a", "customers"} {
			if err := id.May(Edit, name, ""); !errors.Is(err, coded(wire.Forbidden)) ||
				!strings.Contains(err.Error(), "allowed are orders.*, payments") {
				t.Errorf("%s, policy %s: %v", id.Name, name, err)
			}
		}
		if id.May(View, "", "") != nil || id.May(Administer, "", "") == nil {
			t.Errorf("%s is no editor", id.Name)
		}
	}
}

func TestRoles(t *testing.T) {
	may := map[Role]string{RoleViewer: "V", RoleReader: "V", RoleOperator: "V", RoleEditor: "VE", RoleAdmin: "VEAJ", RoleSidecar: "J"}
	for role, all := range may {
		id := Identity{Name: "x", Role: role, Verified: true}
		for do, letter := range map[Action]string{View: "V", Edit: "E", Administer: "A", Join: "J"} {
			err := id.May(do, "", "")
			if (err == nil) != strings.Contains(all, letter) || err != nil &&
				(!errors.Is(err, coded(wire.Forbidden)) || !strings.Contains(err.Error(), string(role))) {
				t.Errorf("%s, %s: %v", role, letter, err)
			}
		}
	}
}

func TestRights(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", `
tokens:
  - {name: orders, sha256: %s, publish: [orders.*], subscribe: [orders.*, customers.created],
     groups: [billing, billing-*], replay: [orders.created],
     admin: [orders.temp.*]}
  - {name: all, sha256: %s, subscribe: ["*"], ops: true}
  - {name: none, sha256: %s, subscribe: [a], groups: []}`, sumOf("orders"), sumOf("all"), sumOf("none"))
	a, _ := f.open(Sidecar)
	for _, tc := range []struct {
		token        string
		do           Action
		topic, group string
		refusal      string // part of it
	}{
		{"orders", Publish, "orders.created", "", ""},
		{"orders", Publish, "orders", "", `"orders" may not publish to topic "orders"; allowed are orders.*`},
		{"orders", Publish, "customers.created", "", `topic "customers.created"`},
		{"orders", Subscribe, "customers.created", "", ""},
		{"orders", Subscribe, "customers.created.dlq", "", ""},
		{"orders", Subscribe, "customers.created.dlq.dlq", "", ""},
		{"orders", Subscribe, "customers.dlq", "", `may not subscribe to topic "customers.dlq"; allowed are orders.*, customers.created`},
		{"orders", Subscribe, "orders.dlq", "", `may not subscribe to topic "orders.dlq"`},
		{"orders", Subscribe, "orders.created.dlq", "other", `may not use group "other" of topic "orders.created.dlq"`},
		{"orders", Replay, "orders.created.dlq", "", ""},
		{"orders", Admin, "orders.dlq", "", `has no right admin on topic "orders.dlq"`},
		{"orders", Subscribe, "orders.x", "billing", ""},
		{"orders", Subscribe, "orders.x", "billing-2", ""},
		{"orders", Subscribe, "orders.x", "other", `may not use group "other" of topic "orders.x"; allowed are the groups billing, billing-*`},
		{"orders", Replay, "orders.created", "", ""},
		{"orders", Replay, "orders.x", "", `may not replay or export topic "orders.x"; allowed are orders.created`},
		{"orders", Admin, "orders.temp.a", "", ""},
		{"orders", Admin, "orders.created", "", `"orders" has no right admin on topic "orders.created"; allowed are orders.temp.*`},
		{"all", Admin, "a", "", "allowed are none"},
		{"orders", Operate, "", "", "no ops: true"},
		{"orders", View, "", "", "may not read here"},
		{"all", Subscribe, "_sys", "any", ""},
		{"all", Publish, "a", "", "allowed are none"},
		{"all", Operate, "", "", ""},
		{"none", Subscribe, "a", "", ""},
		{"none", Subscribe, "a", "g", "allowed are the groups none"},
	} {
		id, err := a.Token(t.Context(), tc.token, "")
		require.NoError(t, err)
		err = id.May(tc.do, tc.topic, tc.group)
		if tc.refusal == "" && err != nil ||
			tc.refusal != "" && (!errors.Is(err, coded(wire.Forbidden)) || !strings.Contains(err.Error(), tc.refusal)) {
			t.Errorf("%s, %d, %s, %s: %v; want %q", tc.token, tc.do, tc.topic, tc.group, err, tc.refusal)
		}
	}
}

func TestPatterns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		literal := rapid.StringMatching(`[ab.]{0,4}`)
		p, name := literal.Draw(t, "pattern"), rapid.StringMatching(`[ab.]{1,5}`).Draw(t, "name")
		if got := (patterns{p}).match(name); got != (p == name) {
			t.Errorf("%q matches %q: %t", p, name, got)
		}
		if got := (patterns{"x", p + "*"}).match(name); got != strings.HasPrefix(name, p) {
			t.Errorf("%q matches %q: %t", p+"*", name, got)
		}
	})
}

func TestChangesAct(t *testing.T) {
	f := newFolder(t)
	f.writef("token", "%s\n", nodeToken)
	f.writef("auth.yaml", "tokens:\n - {name: node, token_file: token, publish: [a]}")
	a, log := f.open(Sidecar)
	changes := 0
	a.OnChange(func() { changes++ })
	id, err := a.Token(context.Background(), nodeToken, "")
	require.NoError(t, err)

	// Rights change also for clients that have authenticated already.
	f.writef("auth.yaml", "tokens:\n - {name: node, token_file: token, publish: [b]}")
	a.look()
	if now, err := a.Renew(&id); err != nil || now.May(Publish, "a", "") != nil || changes != 0 {
		t.Fatalf("one look is enough for a change: %v", err)
	}
	a.look()
	now, err := a.Renew(&id)
	if err != nil || now.May(Publish, "a", "") == nil || now.May(Publish, "b", "") != nil || changes != 1 {
		t.Fatalf("the change does not act: %+v %v", now, err)
	}
	if again, err := a.Renew(now); err != nil || again != now {
		t.Errorf("what is in force is renewed: %+v %v", again, err)
	}

	// A second token for the same name, then the first one's end.
	f.writef("auth.yaml", "tokens:\n - {name: node, token_file: token, publish: [b]}\n - {name: node, sha256: %s, publish: [b]}",
		sumOf(aliceToken))
	a.settle()
	if byNew, err := a.Token(context.Background(), aliceToken, ""); err != nil || byNew.Name != "node" {
		t.Errorf("%+v %v", byNew, err)
	}
	if _, err := a.Renew(now); err != nil {
		t.Error(err)
	}
	f.writef("auth.yaml", "tokens:\n - {name: node, sha256: %s, publish: [b]}", sumOf(aliceToken))
	a.settle()
	if _, err := a.Renew(now); !errors.Is(err, coded(wire.Unauthorized)) {
		t.Errorf("a token that is gone: %v", err)
	}
	if strings.Contains(log.String(), nodeToken) || strings.Contains(log.String(), sumOf(aliceToken)) {
		t.Errorf("a secret is in the log:\n%s", log)
	}
}

func TestBadChangesDoNot(t *testing.T) {
	f := newFolder(t)
	f.writef("token", "%s", nodeToken)
	good := "tokens: [{name: node, token_file: token}, {name: alice, sha256: " + sumOf(aliceToken) + "}]"
	for _, tc := range []struct {
		name   string
		change func()
		logged string
	}{
		{"a mistake", func() { f.writef("auth.yaml", "tokens: [{name: x}]\nfoo: 1") }, "line 2: foo: unknown key"},
		{"no file", func() { _ = os.Remove(f.path("auth.yaml")) }, "the authorization file cannot be read"},
		{"a folder", func() { _ = os.Remove(f.path("auth.yaml")); _ = os.Mkdir(f.path("auth.yaml"), 0o700) }, "not a regular file"},
		{"no token file", func() { _ = os.Remove(f.path("token")) }, "line 1: tokens[0].token_file: open"},
		{"an empty token file", func() { f.writef("token", "\n") }, "tokens[0].token_file: token is empty"},
		{"two lines", func() { f.writef("token", "a\nb") }, "token holds no token"},
		{"the same token twice", func() { f.writef("token", "%s", aliceToken) }, "it is the token of tokens[0] already"},
		{"TLS", func() {
			cert, key := newAuthority(t, "ca").issue("server")
			f.write("cert", cert)
			f.write("key", key)
			f.writef("auth.yaml", "%s", good+"\ntls: {cert: cert, key: key}")
		}, "cannot be added or removed while the program runs"},
		{"no more clients", func() { f.writef("auth.yaml", "control_plane: {tls: true}") }, "cannot come or go while the program runs"},
		{"another control plane", func() { f.writef("auth.yaml", "%s", good+"\ncontrol_plane: {tls: true}") },
			"control_plane, peers: they cannot change"},
		{"bad TLS", func() { f.writef("auth.yaml", "tls: {cert: token, key: nowhere, client_ca: token}") }, "tls.key: open"},
		{"the same certificate twice", func() { f.writef("auth.yaml", "certs: [{name: a}, {name: a}]") }, `is the name of certs[0] already`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_ = os.Remove(f.path("auth.yaml"))
			f.writef("token", "%s", nodeToken)
			f.writef("auth.yaml", "%s", good)
			a, log := f.open(Sidecar)
			a.OnChange(func() { t.Error("it was put in force") })
			id, err := a.Token(context.Background(), nodeToken, "")
			require.NoError(t, err)
			tc.change()
			a.settle()
			if now, err := a.Renew(&id); err != nil || now != &id {
				t.Errorf("%+v %v", now, err)
			}
			if !strings.Contains(log.String(), tc.logged) {
				t.Errorf("the log does not say %q:\n%s", tc.logged, log)
			}
			before := log.String()
			a.settle()
			if log.String() != before {
				t.Errorf("it was logged again:\n%s", log)
			}
		})
	}
}

func TestOpenSaysEverythingThatIsWrong(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", "tokens:\n - {name: a, token_file: no}\n - {name: b, token_file: no-either}\ntls: {cert: c, key: k, client_ca: ca}")
	_, err := Open(f.path("auth.yaml"), Sidecar, nil)
	bad, ok := errors.AsType[*FileError](err)
	if !ok || len(bad.Problems) != 5 || !strings.Contains(err.Error(), f.path("auth.yaml")) {
		t.Errorf("%v", err)
	}
	if _, err := Open(f.path("nowhere"), Sidecar, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestSecretsThatOthersReadAreToldOf(t *testing.T) {
	f := newFolder(t)
	f.writef("token", "short")
	require.NoError(t, os.Chmod(f.path("token"), 0o644))
	f.writef("auth.yaml", "tokens: [{name: a, token_file: token}]")
	_, log := f.open(Sidecar)
	for _, want := range []string{"can be read by every user", "so short that it can be guessed"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("no word of %q:\n%s", want, log)
		}
	}
}

func TestRunFollowsTheFiles(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", "tokens: []")
	synctest.Test(t, func(t *testing.T) {
		a, _ := f.open(Sidecar)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := a.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		f.writef("auth.yaml", "tokens: [{name: alice, sha256: %s}]", sumOf(aliceToken))
		time.Sleep(2*pollEvery + time.Millisecond)
		synctest.Wait()
		if _, err := a.Token(context.Background(), aliceToken, ""); err != nil {
			t.Errorf("after two polls: %v", err)
		}
		cancel()
		running.Wait()
	})
}

// Sections on how a sidecar speaks to others change nothing for its clients.
func TestSectionsForOthersAlone(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", "control_plane: {tls: true, ca: ca.pem, cert: /c.pem, key: key.pem, token_file: token}\npeers: {ca: /ca.pem}")
	a, _ := f.open(Sidecar)
	want := ClientConfig{TLS: true, CA: f.path("ca.pem"), Cert: "/c.pem", Key: f.path("key.pem"), TokenFile: f.path("token")}
	if got := a.ControlPlane(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := a.Peers(); got != (ClientConfig{CA: "/ca.pem"}) {
		t.Errorf("%+v", got)
	}
	id, err := a.Token(t.Context(), "whatever", "")
	if err != nil || id.May(Operate, "", "") != nil || a.Authenticates() {
		t.Errorf("%+v, %v", id, err)
	}
	s, err := read(f.path("auth.yaml"), ControlPlane)
	require.NoError(t, err)
	if _, err := build(s, ControlPlane, nil); err == nil || !strings.Contains(err.Error(), "means nothing") {
		t.Errorf("the control plane takes it: %v", err)
	}
}

func TestCheckListener(t *testing.T) {
	cert, key := newAuthority(t, "ca").issue("server")
	f := newFolder(t)
	f.write("cert", cert)
	f.write("key", key)
	f.writef("auth.yaml", "tokens: []\ntls: {cert: cert, key: key}")
	authenticated, _ := f.open(Sidecar)
	f.writef("auth.yaml", "tls: {cert: cert, key: key}")
	open, _ := f.open(Sidecar)
	states := map[bool]*Access{true: authenticated, false: open}
	for _, tc := range []struct {
		addr                    string
		authenticated, insecure bool
		refused                 bool
	}{
		{"127.0.0.1:7070", false, false, false},
		{"[::1]:0", false, false, false},
		{"unix:/run/s", false, false, false},
		{"0.0.0.0:7070", false, false, true},
		{":7070", false, false, true},
		{"10.1.2.3:7070", false, false, true},
		{"10.1.2.3:7070", true, false, false},
		{"10.1.2.3:7070", false, true, false},
	} {
		err := states[tc.authenticated].CheckListener("listen", tc.addr, tc.insecure)
		if (err != nil) != tc.refused || err != nil && !strings.Contains(err.Error(), "listen: "+tc.addr) {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}

func BenchmarkRenewAndMay(b *testing.B) {
	for name, text := range map[string]string{"off": "", "on": "tokens: [{name: a, sha256: " + sumOf(aliceToken) +
		", publish: [a.*, orders.*]}]"} {
		b.Run(name, func(b *testing.B) {
			var a *Access
			if text != "" {
				f := newFolder(b)
				f.writef("auth.yaml", "%s", text)
				a, _ = f.open(Sidecar)
			}
			id, err := a.Token(context.Background(), aliceToken, "")
			require.NoError(b, err)
			b.ReportAllocs()
			for b.Loop() {
				now, err := a.Renew(&id)
				if err != nil || now.May(Publish, "orders.created", "") != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
