package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// planeTest is a stand-in for a control plane and what asks it.
type planeTest struct {
	*sluicetest.ControlPlane
	t *testing.T
}

func startPlane(t *testing.T, opts sluicetest.ControlPlaneOptions) planeTest {
	t.Helper()
	plane := sluicetest.StartControlPlane(opts)
	t.Cleanup(plane.Close)
	return planeTest{plane, t}
}

// run runs a command to its end.
func (p planeTest) run(stdin string, args ...string) outcome {
	p.t.Helper()
	var stdout, stderr bytes.Buffer
	status := program.Run(spec(), program.Process{
		Args: args,
		LookupEnv: func(name string) (string, bool) {
			value, ok := map[string]string{"SLUICE_CONTROL_PLANE_URL": p.URL, "SLUICE_USER": "alice"}[name]
			return value, ok
		},
		Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr,
	})
	return outcome{status, stdout.String(), stderr.String()}
}

// ok runs a command that succeeds, and returns what it printed.
func (p planeTest) ok(args ...string) string {
	p.t.Helper()
	return p.run("", args...).wantOK(p.t).stdout
}

// days is how long ago something was that tests date back.
var days = regexp.MustCompile(`\d{3,}d ago`)

func want(t *testing.T, got, want string) {
	t.Helper()
	got, want = days.ReplaceAllString(got, "DAYS ago"), days.ReplaceAllString(want, "DAYS ago")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "policies.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestPolicyByHand(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{})
	want(t, plane.ok("policy", "list"), "no policies: the defaults hold for every topic\n")
	want(t, plane.ok("policy", "set", "orders.created", "publish.rate=1000", "retention.ttl=1h", "dedupe.window=0s"), `    publish.rate: 1000
    dedupe.window: 0s
    retention.ttl: 1h
orders.created is now at version 1
`)
	want(t, plane.ok("policy", "set", "orders.created", "publish.rate=500", "publish.burst=500", "retention.ttl="),
		`    publish.rate: 1000 -> 500
    publish.burst: 500
    retention.ttl: 1h -> not set
orders.created is now at version 2
`)
	want(t, plane.ok("policy", "set", "orders.created", "publish.rate=500"), "orders.created is at version 2, as before: nothing to change\n")
	want(t, plane.ok("policy", "pause", "orders.*"), "    paused: true\norders.* is now at version 1\n")
	want(t, plane.ok("policy", "resume", "orders.*"), "    paused: true -> false\norders.* is now at version 2\n")
	want(t, plane.ok("policy", "list"), `NAME            VERSION  CHANGED   BY                    SETS
orders.*        2        DAYS ago  alice (not verified)  paused=false
orders.created  2        DAYS ago  alice (not verified)  publish.rate=500, publish.burst=500, dedupe.window=0s
`)
	want(t, plane.ok("policy", "get", "orders.created"), `# version 2, changed 2026-01-02T15:04:06Z by alice (not verified)
- name: orders.created
  publish:
    rate: 500
    burst: 500
  dedupe:
    window: 0s
`)
	want(t, plane.ok("policy", "rollback", "orders.created", "1"), `    publish.rate: 500 -> 1000
    publish.burst: 500 -> not set
    retention.ttl: 1h
orders.created is now at version 3
`)
	plane.run("", "policy", "delete", "orders.created").wantFailure(t, 2, "--yes")
	want(t, plane.ok("policy", "delete", "orders.created", "--yes"),
		"deleted orders.created; to bring it back: sluice policy rollback 'orders.created' 3\n")
	want(t, plane.ok("policy", "rollback", "orders.created", "2", "-o", "json"),
		`{"dedupe":{"window":"0s"},"name":"orders.created","publish":{"burst":500,"rate":500},`+
			`"updated_at":"2026-01-02T15:04:11Z","updated_by":"alice (not verified)","version":5}`+"\n")
	want(t, plane.ok("policy", "history", "orders.created"), `VERSION  ACTION            AT        BY                    CHANGES
5        rolled back to 2  DAYS ago  alice (not verified)  publish.rate=500, publish.burst=500, dedupe.window=0s
4        deleted           DAYS ago  alice (not verified)  -
3        rolled back to 1  DAYS ago  alice (not verified)  publish.rate=500->1000, publish.burst=not set, retention.ttl=1h
2        updated           DAYS ago  alice (not verified)  publish.rate=1000->500, publish.burst=500, retention.ttl=not set
1        created           DAYS ago  alice (not verified)  publish.rate=1000, dedupe.window=0s, retention.ttl=1h
`)
	want(t, plane.ok("policy", "new-series"), "a new series begins with revision 8; sidecars take it within seconds\n")
	want(t, plane.ok("policy", "new-series", "-o", "json"), `{"series":2,"revision":9}`+"\n")
	for _, args := range [][]string{{"list"}, {"history", "orders.created"}} {
		for _, line := range strings.Split(strings.TrimSpace(plane.ok(append([]string{"policy", "-o", "json"}, args...)...)), "\n") {
			if !json.Valid([]byte(line)) || !strings.Contains(line, `"version":`) {
				t.Errorf("%v: %q", args, line)
			}
		}
	}
}

// A dry run shows what a command would change, and changes nothing.
func TestPolicyDryRun(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{})
	plane.ok("policy", "set", "orders.created", "publish.rate=1000", "retention.ttl=48h")
	before := plane.ok("policy", "history", "orders.created")
	want(t, plane.ok("policy", "set", "orders.created", "retention.ttl=24h", "paused=true", "--dry-run"), `~ orders.created (version 1)
    retention.ttl: 48h -> 24h
    paused: true

0 to create, 1 to update, 0 to delete, 0 unchanged
`)
	want(t, plane.ok("policy", "pause", "orders.*", "--dry-run"), `+ orders.*
    paused: true

1 to create, 0 to update, 0 to delete, 0 unchanged
`)
	want(t, plane.ok("policy", "set", "orders.created", "publish.rate=1000", "--dry-run"),
		"0 to create, 0 to update, 0 to delete, 1 unchanged\n")
	want(t, plane.ok("policy", "delete", "orders.created", "--dry-run"), `- orders.created (version 1)
    publish.rate: 1000 -> not set
    retention.ttl: 48h -> not set

0 to create, 0 to update, 1 to delete, 0 unchanged
`)
	for _, args := range [][]string{{"set", "orders.created", "paused=true"}, {"delete", "orders.created"}} {
		var plan admin.ApplyResult
		text := plane.ok(append(append([]string{"policy"}, args...), "-o", "json", "--dry-run")...)
		if err := json.Unmarshal([]byte(text), &plan); err != nil || !plan.DryRun || len(plan.Changes) != 1 {
			t.Errorf("%v: %q %v", args, text, err)
		}
	}
	if out := plane.run("", "policy", "delete", "payments", "--dry-run"); out.status != statusNotFound {
		t.Errorf("a policy that is not there: %+v", out)
	}
	want(t, plane.ok("policy", "history", "orders.created"), before)
}

// Apply accepts the output of get, and finds no difference.
func TestPolicyGetIsWhatApplyTakes(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{})
	plane.ok("policy", "set", "*", "publish.rate=0.5", "publish.scope=fleet", "delivery.backoff.min=1s", "delivery.backoff.max=2s",
		`schema.json_schema={"type":"object","pattern":"\ud83d\ude00: #"}`, "durability.write_concern=w:2", "paused=false", "connection.rate=1e3")
	name := file(t, plane.ok("policy", "get", "*"))
	want(t, plane.ok("policy", "get", "*")[len("# version 1, changed 2026-01-02T15:04:05Z by alice (not verified)\n"):], `- name: '*'
  publish:
    rate: 0.5
    scope: fleet
  connection:
    rate: 1000
  delivery:
    backoff:
      min: 1s
      max: 2s
  durability:
    write_concern: w:2
  schema:
    json_schema: "{\"pattern\":\"\U0001F600: #\",\"type\":\"object\"}"
  paused: false
`)
	want(t, plane.ok("policy", "diff", "-f", name), "0 to create, 0 to update, 0 to delete, 1 unchanged\n")
}

func TestPolicySetRefusesWhatMakesNoSense(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{Refuse: func(_ string, document json.RawMessage) []wire.FieldError {
		if strings.Contains(string(document), `"rate":"fast"`) {
			return []wire.FieldError{{Field: "publish.rate", Message: `must be a number, not "fast"`},
				{Field: "publish.brst", Message: "unknown key\x1b[2J"}}
		}
		return nil
	}})
	for want, args := range map[string][]string{
		`"publish.rate": expected FIELD=VALUE`: {"publish.rate"},
		`"publish..rate=1": expected`:          {"publish..rate=1"},
		"version cannot be set":                {"version=3"},
		"1 is a value, and has no field x":     {"paused=1", "paused.x=1"},
	} {
		plane.run("", append([]string{"policy", "set", "orders"}, args...)...).wantFailure(t, 2, want)
	}
	got := plane.run("", "policy", "set", "orders", "publish.rate=fast", "publish.brst=3")
	want(t, got.stderr, `  publish.rate: must be a number, not "fast"
  publish.brst: "unknown key\x1b[2J"
sluice: invalid_policy: 2 fields are not valid, so nothing was changed
`)
	plane.run("", "policy", "set", "orders", "publish.rate=").wantFailure(t, 3, "not_found")
	plane.run("", "policy", "get", "orders").wantFailure(t, 3, "not_found")
	plane.run("", "policy", "delete", "orders", "--yes").wantFailure(t, 3, "not_found")
	plane.run("", "policy", "rollback", "orders", "1").wantFailure(t, 3, "not_found")
}

// Two who set different fields at once both get what they want.
func TestPolicySetAgainstOthers(t *testing.T) {
	var plane planeTest
	others := 0
	plane = startPlane(t, sluicetest.ControlPlaneOptions{})
	plane.ok("policy", "set", "orders", "publish.rate=1")
	front := between(t, plane.URL, func() {
		if others++; others <= 2 { // then they are done
			plane.ok("policy", "set", "orders", "publish.burst="+strings.Repeat("1", others))
		}
	})
	got := plane.ok("policy", "set", "orders", "publish.rate=2", "--control-plane", front)
	want(t, got, "    publish.rate: 1 -> 2\norders is now at version 4\n")
	plane.ok("policy", "set", "orders", "paused=true", "--control-plane", front)
	want(t, plane.ok("policy", "get", "orders")[len("# version 5, changed 2026-01-02T15:04:09Z by alice (not verified)\n"):],
		"- name: orders\n  publish:\n    rate: 2\n    burst: 11\n  paused: true\n")
}

func TestControlPlaneFlags(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{Token: "secret"})
	plane.run("", "policy", "list").wantFailure(t, 1, "give a token with --token or --token-file")
	plane.run("", "policy", "list", "--token", "secret").wantFailure(t, 0, "instead=\"--token-file")
	plane.run("", "policy", "list", "--token", "other", "--token-file", file(t, "secret\n")).wantFailure(t, 0, "instead=\"--token-file")
	plane.ok("policy", "list", "--token-file", file(t, "secret\n"))
	plane.run("", "policy", "list", "--token-file", file(t, "\n")).wantFailure(t, 2, "is empty")
	plane.run("", "policy", "list", "--token-file", "not-there").wantFailure(t, 2, "not-there")
	plane.run("", "policy", "list", "--ca", file(t, "x")).wantFailure(t, 2, "no certificate in PEM form")
	got := plane.run("", "fleet", "--control-plane", "http://127.0.0.1:1").wantFailure(t, 1, "http://127.0.0.1:1")
	if strings.Count(got.stderr, "\n") != 1 || !strings.Contains(got.stderr, "refused") {
		t.Errorf("%q", got.stderr)
	}
}

func TestControlPlaneOverTLS(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"policies":[],"revision":0}`))
	}))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // of the handshake that fails
	secure.StartTLS()
	defer secure.Close()
	ca := file(t, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	plane := planeTest{&sluicetest.ControlPlane{URL: secure.URL}, t}
	plane.run("", "policy", "list").wantFailure(t, 1, "certificate")
	want(t, plane.ok("policy", "list", "--ca", ca), "no policies: the defaults hold for every topic\n")
}

func TestWithMember(t *testing.T) {
	for _, c := range []struct{ object, path, value, want string }{
		{`{}`, "a", `1`, `{"a":1}`},
		{`{"a":1}`, "b.c.d", `{"z":1,"a":2}`, `{"a":1,"b":{"c":{"d":{"z":1,"a":2}}}}`},
		{`{"a":{"b":1,"c":2}}`, "a.b", ``, `{"a":{"c":2}}`},
		{`{"a":{"b":{"c":2}}}`, "a.b.c", ``, `{}`},
		{`{}`, "a.b", ``, `{}`},
		{`{"a":null}`, "a.b", `1`, ``},
		{`{"a":[]}`, "a.b", `1`, ``},
	} {
		var value json.RawMessage
		if c.value != "" {
			value = json.RawMessage(c.value)
		}
		got, err := withMember(json.RawMessage(c.object), strings.Split(c.path, "."), value)
		if string(got) != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s of %s: %s, %v", c.path, c.object, got, err)
		}
	}
}

// An assignment changes its own field alone.
func TestWithMemberProperty(t *testing.T) {
	path := rapid.StringMatching(`[ab](\.[cd](\.[ef])?)?`)
	rapid.Check(t, func(t *rapid.T) {
		document, model := json.RawMessage(`{}`), map[string]string{}
		for range rapid.IntRange(0, 8).Draw(t, "assignments") {
			at, n := path.Draw(t, "path"), rapid.IntRange(0, 3).Draw(t, "value")
			var value json.RawMessage
			if n > 0 {
				value = fmt.Append(nil, n)
			}
			next, err := withMember(document, strings.Split(at, "."), value)
			if err != nil {
				continue // a section is in the place of a value
			}
			document = next
			for other := range model { // a value takes a section's place
				if strings.HasPrefix(other, at+".") {
					delete(model, other)
				}
			}
			model[at] = string(value)
			if value == nil {
				delete(model, at)
			}
		}
		got := settings(&admin.Policy{Document: document})
		if len(got) != len(model) {
			t.Fatalf("%s, want %v", document, model)
		}
		for at, value := range model {
			if string(got[at]) != value {
				t.Fatalf("%s, want %v", document, model)
			}
		}
	})
}

func TestParseAssignment(t *testing.T) {
	for text, want := range map[string]string{
		`publish.rate=500`:                           `["publish","rate"] 500`,
		`publish.per=header:x=y`:                     `["publish","per"] "header:x=y"`,
		`groups.billing.v2.rate=5`:                   `["groups","billing.v2","rate"] 5`,
		`groups.rate.rate=`:                          `["groups","rate","rate"] null`,
		`groups.billing.v2=`:                         `["groups","billing.v2"] null`,
		`groups."x.rate"=`:                           `["groups","x.rate"] null`,
		`groups."a=b \"c\"".paused=true`:             `["groups","a=b \"c\"","paused"] true`,
		`delivery.fairness.weights.acme.com=3`:       `["delivery","fairness","weights","acme.com"] 3`,
		`delivery.fairness.weights."delivery.rate"=`: `["delivery","fairness","weights","delivery.rate"] null`,
		`delivery.fairness={"by":"k","weights":{}}`:  `["delivery","fairness"] {"by":"k","weights":{}}`,
		`publish`:       "",
		`publish.=1`:    "",
		`.rate=1`:       "",
		`=1`:            "",
		`groups."a=1`:   "",
		`groups."a"b=1`: "",
		`version=3`:     "",
	} {
		got, err := parseAssignment(text)
		said := ""
		if err == nil {
			path, _ := json.Marshal(got.path)
			value := cmp.Or(string(got.value), "null")
			said = string(path) + " " + value
		}
		if said != want {
			t.Errorf("%s: %s, %v; want %s", text, said, err, want)
		}
	}
}
