package rest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestRoles(t *testing.T) {
	body := map[string]string{
		"PUT /v1/policies/b":           `{}`,
		"POST /v1/policies/a/rollback": `{"version":1}`,
		"POST /v1/apply":               `{"policies":[{"name":"c"}]}`,
		"POST /v1/apply prune":         `{"policies":[{"name":"c"}],"prune":true}`,
		"POST /v1/apply dry":           `{"policies":[{"name":"d"}],"dry_run":true}`,
		"POST /v1/apply prune dry":     `{"policies":[{"name":"d"}],"prune":true,"dry_run":true}`,
	}
	for route, least := range map[string]int{
		"GET /v1/policies":             1,
		"GET /v1/policies/a":           1,
		"GET /v1/policies/a/history":   1,
		"GET /v1/audit":                1,
		"GET /v1/sidecars":             1,
		"GET /v1/topics":               1,
		"GET /v1/whoami":               1,
		"GET /v1/status":               1,
		"GET /metrics":                 1,
		"GET /debug/pprof/heap":        3,
		"POST /v1/apply dry":           1,
		"POST /v1/apply prune dry":     1,
		"PUT /v1/policies/b":           2,
		"POST /v1/policies/a/rollback": 2,
		"POST /v1/apply":               2,
		"DELETE /v1/policies/a":        3,
		"POST /v1/apply prune":         3,
		"POST /v1/series":              3,
		"DELETE /v1/sidecars/gone":     3,
	} {
		method, path, _ := strings.Cut(route, " ")
		path, _, _ = strings.Cut(path, " ")
		for have, role := range []string{"", viewer, editor, admin} {
			a := newAPI(t, func(c *Config) { c.Access = tokens{} })
			a.send("PUT", "/v1/policies/a", `{}`, "Authorization", "Bearer admin")
			if role == "" {
				w := a.send(method, path, body[route])
				refused(t, w, wire.Unauthorized)
				if w.Header().Get("WWW-Authenticate") == "" {
					t.Errorf("%s: no challenge", route)
				}
				for _, stranger := range []string{"sidecar", "", "Admin", "root"} {
					refused(t, a.send(method, path, body[route], "Authorization", "Bearer "+stranger), wire.Forbidden)
				}
				continue
			}
			w := a.send(method, path, body[route], "Authorization", "Bearer "+role)
			if have < least {
				refused(t, w, wire.Forbidden)
			} else if w.Code >= 300 {
				t.Errorf("%s as %s: %d %s", route, role, w.Code, w.Body)
			}
		}
	}
	a := newAPI(t, func(c *Config) { c.Access = tokens{} })
	for _, path := range []string{"/healthz", "/readyz", "/", "/app.js"} { // nobody's secrets
		if w := a.send("GET", path, ""); w.Code != 200 {
			t.Errorf("%s without a token: %d", path, w.Code)
		}
	}
}

// Editors cannot shorten what events are kept, in any way.
func TestEditorsShortenNothing(t *testing.T) {
	a := newAPI(t, func(c *Config) { c.Access = tokens{} })
	as := func(role, method, path, body string) *httptest.ResponseRecorder {
		return a.send(method, path, body, "Authorization", "Bearer "+role)
	}
	as(admin, "PUT", "/v1/policies/orders", `{"retention":{"ttl":"1h"}}`)
	as(admin, "PUT", "/v1/policies/orders", `{"retention":{"ttl":"2h"}}`)
	for _, try := range [][3]string{
		{"PUT", "/v1/policies/orders", `{"retention":{"ttl":"1h"}}`},
		{"POST", "/v1/policies/orders/rollback", `{"version":1}`},
		{"POST", "/v1/apply", `{"policies":[{"name":"orders","retention":{"ttl":"1h"}}]}`},
	} {
		w := as(editor, try[0], try[1], try[2])
		refused(t, w, wire.Forbidden)
		if !strings.Contains(w.Body.String(), "retention.ttl") {
			t.Errorf("%s %s: %s", try[0], try[1], w.Body)
		}
	}
	if w := as(editor, "POST", "/v1/apply", `{"policies":[{"name":"orders","retention":{"ttl":"1h"}}],"dry_run":true}`); w.Code != 200 {
		t.Errorf("what would change: %d %s", w.Code, w.Body)
	}
	answered(t, as(viewer, "GET", "/v1/policies/orders", ""), 200, `"2"`,
		`{"name":"orders","retention":{"ttl":"2h"},"version":2,"updated_at":"T","updated_by":"the admin"}`)
	if w := as(editor, "PUT", "/v1/policies/orders", `{"retention":{"ttl":"3h"}}`); w.Code != 200 {
		t.Errorf("a ttl that is raised: %d %s", w.Code, w.Body)
	}
}

// someOf makes of the editor one of the policies orders.* alone.
type someOf struct{ tokens }

func (s someOf) Identify(r *http.Request) (Identity, error) {
	id, err := s.tokens.Identify(r)
	if id.Role == editor {
		id.Policies = []string{"orders.*"}
	}
	id.Edit = func(policy string) error {
		if id.Role == editor && !strings.HasPrefix(policy, "orders.") {
			return wire.Errorf(wire.Forbidden, "allowed are orders.*")
		}
		return nil
	}
	return id, err
}

func TestEditorsOfSomePolicies(t *testing.T) {
	a := newAPI(t, func(c *Config) { c.Access = someOf{} })
	as := func(role, method, path, body string) *httptest.ResponseRecorder {
		return a.send(method, path, body, "Authorization", "Bearer "+role)
	}
	for _, name := range []string{"orders.*", "*"} {
		as(admin, "PUT", "/v1/policies/"+name, `{"partitions":1}`)
		for _, try := range [][3]string{
			{"PUT", "/v1/policies/" + name, `{"partitions":2}`},
			{"POST", "/v1/policies/" + name + "/rollback", `{"version":1}`},
			{"POST", "/v1/apply", `{"policies":[{"name":"orders.a"},{"name":"` + name + `","partitions":3}]}`},
		} {
			if w := as(editor, try[0], try[1], try[2]); name == "*" {
				refused(t, w, wire.Forbidden)
			} else if w.Code >= 300 {
				t.Errorf("%q: %d %s", try, w.Code, w.Body)
			}
		}
	}
	answered(t, as(editor, "GET", "/v1/policies/*", ""), 200, `"1"`,
		`{"name":"*","partitions":1,"version":1,"updated_at":"T","updated_by":"the admin"}`)
	want(t, as(editor, "GET", "/v1/whoami", ""), 200, `{"name":"the editor","role":"editor","auth":true,"policies":["orders.*"]}`)
	if w := as(editor, "PUT", "/v1/policies/*?dry_run=1", `{}`); w.Code != 200 {
		t.Errorf("what would change: %d %s", w.Code, w.Body)
	}
}

func TestWhoAmI(t *testing.T) {
	a := newAPI(t)
	want(t, a.send("GET", "/v1/whoami", ""), 200, `{"name":"anonymous","role":"admin","auth":false}`)
	for claim, name := range map[string]string{
		"alice":                  "alice",
		"  Ann Lee ":             "Ann Lee",
		"Zoë":                    "Zoë",
		"Zo\xeb":                 "Zoë", // Latin-1, as browsers send it
		"a (not verified)":       "a (not verified)",
		strings.Repeat("é", 128): strings.Repeat("é", 128),
	} {
		want(t, a.send("GET", "/v1/whoami", "", "Sluice-User", claim), 200,
			`{"name":"`+name+` (not verified)","role":"admin","auth":false}`)
	}
	for _, claim := range []string{"", "  ", "a\tb", "a\x00", "a\u200bb", strings.Repeat("x", 129)} {
		refused(t, a.send("GET", "/v1/whoami", "", "Sluice-User", claim), wire.BadRequest)
	}
	refused(t, a.send("GET", "/v1/whoami", "", "Sluice-User", "a", "Sluice-User", "b"), wire.BadRequest)

	a = newAPI(t, func(c *Config) { c.Access = tokens{} })
	want(t, a.send("GET", "/v1/whoami", "", "Authorization", "Bearer editor", "Sluice-User", "mallory"), 200,
		`{"name":"the editor","role":"editor","auth":true}`)
}

func TestPagesOfElsewhereAreKeptOut(t *testing.T) {
	const own = "http://127.0.0.1:7080"
	for _, tc := range []struct {
		what   string
		header []string
		pass   bool
	}{
		{"a program", nil, true},
		{"the console", []string{"Origin", own, "Sec-Fetch-Site", "same-origin"}, true},
		{"the console in an old browser", []string{"Origin", own}, true},
		{"typed into the address bar", []string{"Sec-Fetch-Site", "none"}, true},
		{"an allowed origin", []string{"Origin", "https://ops.example", "Sec-Fetch-Site", "cross-site"}, true},
		{"a foreign page", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, false},
		{"a foreign page in an old browser", []string{"Origin", "https://evil.example"}, false},
		{"another port of this machine", []string{"Origin", "http://127.0.0.1:9999", "Sec-Fetch-Site", "same-site"}, false},
		{"another name of this machine", []string{"Origin", "http://localhost:7080", "Sec-Fetch-Site", "cross-site"}, false},
		{"a page that hides where it is from", []string{"Origin", "null", "Sec-Fetch-Site", "cross-site"}, false},
		{"a page that sends no Origin", []string{"Sec-Fetch-Site", "cross-site"}, false},
	} {
		a := newAPI(t, func(c *Config) { c.AllowedOrigins = []string{"https://Ops.example:443"} })
		for _, change := range [][2]string{
			{"PUT", "/v1/policies/a"}, {"POST", "/v1/policies/a/rollback"}, {"POST", "/v1/apply"}, {"DELETE", "/v1/policies/a"},
		} {
			body := `{"version":1}`
			switch change[1] {
			case "/v1/policies/a":
				body = `{}`
			case "/v1/apply":
				body = `{"policies":[]}`
			}
			w := a.send(change[0], change[1], body, append(tc.header, "Content-Type", "application/json")...)
			if !tc.pass {
				refused(t, w, wire.Forbidden)
			} else if w.Code >= 300 {
				t.Errorf("%s: %s %s: %d %s", tc.what, change[0], change[1], w.Code, w.Body)
			}
		}
	}
}

func TestHostIsChecked(t *testing.T) {
	public := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7080}
	for _, tc := range []struct {
		addr net.Addr
		host string
		pass bool
	}{
		{loopback, "localhost:7080", true},
		{loopback, "evil.example:7080", false},
		{public, "sluice.example:7080", true},
	} {
		for _, path := range []string{"/v1/policies", "/healthz", "/", "/app.js"} {
			a := newAPI(t, func(c *Config) { c.Addr = tc.addr })
			r := httptest.NewRequest("GET", path, nil)
			r.Host = tc.host
			w := httptest.NewRecorder()
			a.ServeHTTP(w, r)
			if (w.Code == 200) != tc.pass || !tc.pass && w.Code != 403 {
				t.Errorf("%s on %s, Host %s: %d", path, tc.addr, tc.host, w.Code)
			}
		}
	}
}

func TestContentTypes(t *testing.T) {
	a := newAPI(t)
	browser := []string{"Origin", "http://127.0.0.1:7080", "Sec-Fetch-Site", "same-origin"}
	for _, tc := range []struct {
		kind             string
		program, browser bool
	}{
		{"application/json", true, true},
		{"application/json; charset=utf-8", true, true},
		{"Application/JSON", true, true},
		{"application/merge-patch+json", true, true},
		{"", true, false},
		{"application/x-www-form-urlencoded", true, false}, // curl's default
		{"text/plain", false, false},
		{"multipart/form-data; boundary=x", false, false},
		{"application/yaml", false, false},
		{"application/json;;", false, false},
		{"text/plain; application/json", false, false},
	} {
		for _, from := range []struct {
			header []string
			pass   bool
		}{{nil, tc.program}, {browser, tc.browser}} {
			header := from.header
			if tc.kind != "" {
				header = append([]string{"Content-Type", tc.kind}, header...)
			}
			for _, change := range [][3]string{
				{"PUT", "/v1/policies/a", `{}`}, {"POST", "/v1/policies/a/rollback", `{"version":1}`}, {"POST", "/v1/apply", `{"policies":[]}`},
			} {
				w := a.send(change[0], change[1], change[2], header...)
				if from.pass != (w.Code < 300) {
					t.Errorf("%s with %q, %q: %d %s", change[0], tc.kind, header, w.Code, w.Body)
				}
				if !from.pass {
					refused(t, w, wire.BadRequest)
				}
			}
		}
	}
}
