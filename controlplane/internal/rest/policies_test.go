package rest

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// answered fails unless the answer is a policy at that version.
func answered(t *testing.T, w *httptest.ResponseRecorder, status int, tag, body string) {
	t.Helper()
	want(t, w, status, body)
	if got := w.Header().Get("ETag"); got != tag {
		t.Errorf("ETag %s, want %s", got, tag)
	}
}

func TestPolicyFromPutToDelete(t *testing.T) {
	a := newAPI(t)
	want(t, a.send("GET", "/v1/policies", ""), 200, `{"policies":[],"revision":0}`)
	refused(t, a.send("GET", "/v1/policies/orders.*", ""), wire.NotFound)

	first := `{"name":"orders.*","publish":{"rate":100,"scope":"fleet"},"partitions":4,"version":1,"updated_at":"T","updated_by":"anonymous"}`
	answered(t, a.send("PUT", "/v1/policies/orders.*", `{"partitions":4,"publish":{"scope":"fleet","rate":1e2}}`), 201, `"1"`, first)
	answered(t, a.send("GET", "/v1/policies/orders.*", ""), 200, `"1"`, first)
	if w := a.send("GET", "/v1/policies/order.*", ""); !strings.Contains(w.Body.String(), `did you mean \"orders.*\"?`) {
		t.Errorf("the nearest policy is not named: %s", w.Body)
	}
	want(t, a.send("GET", "/v1/policies", ""), 200, `{"policies":[`+first+`],"revision":1}`)

	// An answer may be sent back, and changes nothing.
	answered(t, a.send("PUT", "/v1/policies/orders.*", strings.ReplaceAll(first, `"T"`, `"2001-01-01T00:00:00.000Z"`)), 200, `"1"`, first)
	want(t, a.send("GET", "/v1/policies", ""), 200, `{"policies":[`+first+`],"revision":1}`)

	second := `{"name":"orders.*","paused":true,"version":2,"updated_at":"T","updated_by":"alice (not verified)"}`
	answered(t, a.send("PUT", "/v1/policies/orders.*", `{"paused":true,"version":"x","updated_at":7,"updated_by":null}`,
		"Sluice-User", "alice"), 200, `"2"`, second)
	want(t, a.send("DELETE", "/v1/policies/orders.*", ""), 204, "")
	refused(t, a.send("GET", "/v1/policies/orders.*", ""), wire.NotFound)
	refused(t, a.send("DELETE", "/v1/policies/orders.*", ""), wire.NotFound)
	refused(t, a.send("DELETE", "/v1/policies/orders.*", "", "If-Match", `"2"`), wire.NotFound)
	want(t, a.send("GET", "/v1/policies", ""), 200, `{"policies":[],"revision":3}`)
	answered(t, a.send("PUT", "/v1/policies/orders.*", `{}`), 201, `"4"`,
		`{"name":"orders.*","version":4,"updated_at":"T","updated_by":"anonymous"}`)
}

// TestPolicyListsAreShared: requests at a time share the bytes of their answers, until a policy changes. One identity has
// them counted, as long as anybody reads them.
func TestPolicyListsAreShared(t *testing.T) {
	a := newAPI(t)
	all := budget.New(budget.Bounds{Memory: 1 << 20, Identities: true})
	ann, bob := all.Of("ann"), all.Of("bob")
	var lists policyLists
	enter := func(reader *budget.Share) *policyList {
		t.Helper()
		list, err := lists.enter(a.cfg.Catalog.State(), reader)
		require.NoError(t, err)
		return list
	}
	a.send("PUT", "/v1/policies/a", `{}`)
	first, again := enter(ann), enter(ann)
	other := enter(bob)
	size := int64(len(first.body))
	if first != again || first != other || ann.Used() != size || bob.Used() != 0 {
		t.Errorf("%p, %p and %p are read, and %d and %d of %d bytes counted", first, again, other, ann.Used(), bob.Used(), size)
	}
	a.send("PUT", "/v1/policies/b", `{}`)
	changed := enter(ann)
	if changed == first || !strings.Contains(string(changed.body), `"b"`) {
		t.Error("the list is that before the change")
	}
	for range 2 {
		lists.leave(first, ann)
	}
	lists.leave(changed, ann)
	if ann.Used() != 0 || bob.Used() != size {
		t.Errorf("%d and %d bytes are counted; want %d, of who still reads", ann.Used(), bob.Used(), size)
	}
	lists.leave(first, bob)
	if all.Used() != 0 || lists.last != nil {
		t.Errorf("%d bytes are counted that nobody reads", all.Used())
	}
}

// A dry run is for all who read, answers as that of an apply, and changes nothing.
func TestPlans(t *testing.T) {
	a := newAPI(t, func(c *Config) { c.Access = tokens{} })
	as := func(role, method, path, body string, header ...string) *httptest.ResponseRecorder {
		return a.send(method, path, body, append(header, "Authorization", "Bearer "+role)...)
	}
	as(admin, "PUT", "/v1/policies/a", `{"partitions":1}`)
	one := `{"name":"a","partitions":1,"version":1,"updated_at":"T","updated_by":"the admin"}`
	two := `{"name":"a","partitions":2,"version":2,"updated_at":"T","updated_by":"the viewer"}`
	plan := func(change string) string {
		return `{"dry_run":true,"revision":1,"changes":[{"name":"a",` + change + `}],"events":null}`
	}
	update := plan(`"action":"update","from":` + one + `,"to":` + two)
	want(t, as(viewer, "PUT", "/v1/policies/a?dry_run=1", `{"partitions":2}`), 200, update)
	want(t, as(viewer, "POST", "/v1/apply", `{"policies":[{"name":"a","partitions":2}],"dry_run":true}`), 200, update)
	want(t, as(viewer, "PUT", "/v1/policies/a?dry_run=1", `{"partitions":1}`), 200, plan(`"action":"unchanged","from":`+one+`,"to":`+one))
	want(t, as(viewer, "DELETE", "/v1/policies/a?dry_run=1", "", "If-Match", `"1"`), 200, plan(`"action":"delete","from":`+one+`,"to":null`))
	created := as(viewer, "PUT", "/v1/policies/b?dry_run=1", `{"retention":{"ttl":"1h"}}`)
	if created.Code != 200 || !strings.Contains(created.Body.String(), `{"name":"b","action":"create","from":null,"to":{"name":"b",`) {
		t.Errorf("%d %s", created.Code, created.Body)
	}
	refused(t, as(viewer, "PUT", "/v1/policies/a?dry_run=1", `{}`, "If-Match", `"2"`), wire.PreconditionFailed)
	refused(t, as(viewer, "DELETE", "/v1/policies/a?dry_run=1", "", "If-Match", `"2"`), wire.PreconditionFailed)
	refused(t, as(viewer, "DELETE", "/v1/policies/b?dry_run=1", ""), wire.NotFound)
	refused(t, as(admin, "DELETE", "/v1/policies/a?dry_run=yes", ""), wire.BadRequest)
	refused(t, as(admin, "PUT", "/v1/policies/a?dry_run=", `{}`), wire.BadRequest)
	if got := refused(t, as(viewer, "PUT", "/v1/policies/a?dry_run=1", `{"publish":{"rate":1,"burst":0}}`),
		wire.InvalidPolicy); !slices.Equal(got, []string{"publish.burst"}) {
		t.Errorf("fields %q", got)
	}
	refused(t, as(viewer, "PUT", "/v1/policies/a?dry_run=0", `{}`), wire.Forbidden)
	refused(t, as(editor, "DELETE", "/v1/policies/a?dry_run=0", ""), wire.Forbidden)
	want(t, as(viewer, "GET", "/v1/policies", ""), 200, `{"policies":[`+one+`],"revision":1}`)
}

func TestHistoryAndRollback(t *testing.T) {
	a := newAPI(t)
	refused(t, a.send("GET", "/v1/policies/a/history", ""), wire.NotFound)
	refused(t, a.send("POST", "/v1/policies/a/rollback", `{"version":1}`), wire.NotFound)
	a.send("PUT", "/v1/policies/a", `{"partitions":1}`)
	a.send("PUT", "/v1/policies/a", `{"partitions":2}`)
	a.send("DELETE", "/v1/policies/a", "")
	answered(t, a.send("POST", "/v1/policies/a/rollback", `{"version":1}`, "Sluice-User", "bob"), 200, `"4"`,
		`{"name":"a","partitions":1,"version":4,"updated_at":"T","updated_by":"bob (not verified)"}`)
	p := func(partitions, version, by string) string {
		return `{"name":"a","partitions":` + partitions + `,"version":` + version + `,"updated_at":"T","updated_by":"` + by + `"}`
	}
	want(t, a.send("GET", "/v1/policies/a/history", ""), 200, `{"versions":[`+
		`{"version":4,"at":"T","by":"bob (not verified)","policy":`+p("1", "4", "bob (not verified)")+`,"action":"rolled_back","to":1},`+
		`{"version":3,"at":"T","by":"anonymous","policy":null,"action":"deleted"},`+
		`{"version":2,"at":"T","by":"anonymous","policy":`+p("2", "2", "anonymous")+`,"action":"updated"},`+
		`{"version":1,"at":"T","by":"anonymous","policy":`+p("1", "1", "anonymous")+`,"action":"created"}]}`)

	refused(t, a.send("POST", "/v1/policies/a/rollback", `{"version":3}`), wire.NotFound) // a deletion
	refused(t, a.send("POST", "/v1/policies/a/rollback", `{"version":5}`), wire.NotFound)
	refused(t, a.send("POST", "/v1/policies/a/rollback", `{"version":2}`, "If-Match", `"3"`), wire.PreconditionFailed)
	answered(t, a.send("POST", "/v1/policies/a/rollback", `{"version":2}`, "If-Match", `"4"`), 200, `"5"`, p("2", "5", "anonymous"))
	for _, body := range []string{`{}`, `{"version":0}`, `{"version":-1}`, `{"version":"1"}`, `{"version":1.5}`, `{"version":null}`,
		`{"version":99999999999999999999}`, `{"version":1,"vresion":1}`, `{"version":1,"version":2}`, `[1]`, `1`, `null`} {
		refused(t, a.send("POST", "/v1/policies/a/rollback", body), wire.BadRequest)
	}
	refused(t, a.send("POST", "/v1/policies/a/rollback", `{"version":1`), wire.BadJSON)
}

func TestRollbackToWhatNoLongerFits(t *testing.T) {
	a := newAPI(t)
	a.send("PUT", "/v1/policies/*", `{"publish":{"rate":0}}`)
	a.send("PUT", "/v1/policies/a", `{"publish":{"burst":0}}`) // fine while there is no rate
	a.send("PUT", "/v1/policies/a", `{}`)
	a.send("PUT", "/v1/policies/*", `{"publish":{"rate":10}}`)
	if fields := refused(t, a.send("POST", "/v1/policies/a/rollback", `{"version":1}`), wire.InvalidPolicy); !slices.Contains(fields,
		"publish.burst") {
		t.Errorf("fields %q", fields)
	}
	want(t, a.send("GET", "/v1/policies/a", ""), 200, `{"name":"a","version":2,"updated_at":"T","updated_by":"anonymous"}`)
}

func TestConditionalRequests(t *testing.T) {
	for _, tc := range []struct {
		method, header, value string
		there                 bool // the policy, at version 2
		status                int
	}{
		{"PUT", "If-Match", `"2"`, true, 200},
		{"PUT", "If-Match", `"1", "2"`, true, 200},
		{"PUT", "If-Match", `*`, true, 200},
		{"PUT", "If-Match", `"1"`, true, 412},
		{"PUT", "If-Match", `"3"`, true, 412},
		{"PUT", "If-Match", `W/"2"`, true, 412},
		{"PUT", "If-Match", `"2"`, false, 412},
		{"PUT", "If-Match", `*`, false, 412},
		{"PUT", "If-Match", `2`, true, 400},
		{"PUT", "If-Match", ``, true, 400},
		{"PUT", "If-None-Match", `*`, true, 412},
		{"PUT", "If-None-Match", `*`, false, 201},
		{"PUT", "If-None-Match", `"2"`, true, 412},
		{"PUT", "If-None-Match", `"1"`, true, 200},
		{"PUT", "If-None-Match", `x`, false, 400},
		{"DELETE", "If-Match", `"2"`, true, 204},
		{"DELETE", "If-Match", `"1"`, true, 412},
		{"DELETE", "If-Match", `*`, true, 204},
		{"DELETE", "If-Match", `*`, false, 404},
		{"DELETE", "If-Match", `nonsense`, true, 400},
		{"GET", "If-None-Match", `"2"`, true, 304},
		{"GET", "If-None-Match", `W/"2"`, true, 304},
		{"GET", "If-None-Match", `"1", "2"`, true, 304},
		{"GET", "If-None-Match", `*`, true, 304},
		{"GET", "If-None-Match", `"1"`, true, 200},
		{"GET", "If-None-Match", `*`, false, 404},
		{"GET", "If-None-Match", `2`, true, 400},
		{"GET", "If-Match", `"2"`, true, 200},
		{"GET", "If-Match", `"1"`, true, 412},
		{"HEAD", "If-None-Match", `"2"`, true, 304},
	} {
		a := newAPI(t)
		if tc.there {
			a.send("PUT", "/v1/policies/a", `{"partitions":1}`)
			a.send("PUT", "/v1/policies/a", `{"partitions":2}`)
		}
		body := ""
		if tc.method == "PUT" {
			body = `{"partitions":3}`
		}
		w := a.send(tc.method, "/v1/policies/a", body, tc.header, tc.value)
		if w.Code != tc.status {
			t.Errorf("%s with %s: %s, there %t: %d %s", tc.method, tc.header, tc.value, tc.there, w.Code, w.Body)
		}
		if w.Code == 304 && (w.Body.Len() > 0 || w.Header().Get("ETag") != `"2"`) {
			t.Errorf("304 with %v %q", w.Header(), w.Body)
		}
		if tc.there && tc.status >= 400 {
			answered(t, a.send("GET", "/v1/policies/a", ""), 200, `"2"`,
				`{"name":"a","partitions":2,"version":2,"updated_at":"T","updated_by":"anonymous"}`)
		}
	}
}

// An unchanged policy under a condition that does not hold is refused as well: its sender believes
// something that is not so.
func TestConditionsOfWhatChangesNothing(t *testing.T) {
	a := newAPI(t)
	a.send("PUT", "/v1/policies/a", `{"partitions":1}`)
	refused(t, a.send("PUT", "/v1/policies/a", `{"partitions":1}`, "If-None-Match", "*"), wire.PreconditionFailed)
	refused(t, a.send("PUT", "/v1/policies/a", `{"partitions":1}`, "If-Match", `"7"`), wire.PreconditionFailed)
	answered(t, a.send("PUT", "/v1/policies/a", `{"partitions":1}`, "If-Match", `"1"`), 200, `"1"`,
		`{"name":"a","partitions":1,"version":1,"updated_at":"T","updated_by":"anonymous"}`)
}

func TestNames(t *testing.T) {
	long := strings.Repeat("x", 255)
	for path, name := range map[string]string{
		"orders.created": "orders.created",
		"orders.*":       "orders.*",
		"orders.%2A":     "orders.*",
		"orders%2e%2a":   "orders.*",
		"*":              "*",
		"%2A":            "*",
		"%2E%2e":         "..",
		"%2e":            ".",
		"A_b-9.":         "A_b-9.",
		"%6frders":       "orders",
		"history":        "history",
		long:             long,
		long[1:] + "*":   long[1:] + "*",
	} {
		a := newAPI(t)
		if w := a.send("PUT", "/v1/policies/"+path, `{"name":"`+name+`"}`); w.Code != 201 {
			t.Errorf("PUT %s: %d %s", path, w.Code, w.Body)
			continue
		}
		for _, below := range []string{"", "/history"} {
			if w := a.send("GET", "/v1/policies/"+path+below, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"name":"`+name+`"`) {
				t.Errorf("GET %s%s: %d %s", path, below, w.Code, w.Body)
			}
		}
		if w := a.send("DELETE", "/v1/policies/"+path, ""); w.Code != 204 {
			t.Errorf("DELETE %s: %d %s", path, w.Code, w.Body)
		}
	}
	a := newAPI(t)
	for _, path := range []string{"a%20b", "a%2Fb", "a*b", "**", "*a", "%C3%A9", "%FF", "%00", "a%0Ab", long + "x", "a%3Fb"} {
		if fields := refused(t, a.send("PUT", "/v1/policies/"+path, `{}`), wire.InvalidPolicy); !slices.Equal(fields, []string{"name"}) {
			t.Errorf("PUT %s: fields %q", path, fields)
		}
		refused(t, a.send("GET", "/v1/policies/"+path, ""), wire.NotFound)
		refused(t, a.send("DELETE", "/v1/policies/"+path, ""), wire.NotFound)
		refused(t, a.send("GET", "/v1/policies/"+path+"/history", ""), wire.NotFound)
		refused(t, a.send("POST", "/v1/policies/"+path+"/rollback", `{"version":1}`), wire.NotFound)
	}
	refused(t, a.send("GET", "/v1/policies/", ""), wire.NotFound)
}

func TestBadPolicies(t *testing.T) {
	a := newAPI(t)
	a.send("PUT", "/v1/policies/t", `{"partitions":1}`)
	for _, tc := range []struct {
		body   string
		fields []string
	}{
		{`{"publish":{"rate":-1,"burst":1.5,"brust":1},"partitions":0,"colour":"red"}`,
			[]string{"publish.rate", "publish.burst", "publish.brust", "partitions", "colour"}},
		{`{"publish":{"rate":10,"burst":0}}`, []string{"publish.burst"}},
		{`{"delivery":{"backoff":{"min":"1m","max":"1s"}}}`, []string{"delivery.backoff.min"}},
		{`{"delivery":{"ack_timeout":"soon"}}`, []string{"delivery.ack_timeout"}},
		{`{"publish":5}`, []string{"publish"}},
		{`{"name":"u"}`, []string{"name"}},
		{`{"name":"u","partitions":0}`, []string{"name", "partitions"}},
		{`{"name":5}`, []string{"name"}},
		{`{"name":""}`, []string{"name"}},
		{`{"partitions":1,"partitions":2}`, []string{"partitions"}},
		{`{"publish":{"rate":1,"rate":1}}`, []string{"publish.rate"}},
		{`{"dedupe":{"version":1}}`, []string{"dedupe.version"}},
		{`[]`, []string{"policy"}},
		{`[{"name":"t"}]`, []string{"policy"}},
		{`"t"`, []string{"policy"}},
		{`null`, []string{"policy"}},
	} {
		fields := refused(t, a.send("PUT", "/v1/policies/t", tc.body), wire.InvalidPolicy)
		slices.Sort(fields)
		slices.Sort(tc.fields)
		if !slices.Equal(fields, tc.fields) {
			t.Errorf("%s: fields %q, want %q", tc.body, fields, tc.fields)
		}
	}
	for body, code := range map[string]wire.Code{
		``:                           wire.BadJSON,
		`{`:                          wire.BadJSON,
		`{"partitions":1}}`:          wire.BadJSON,
		`{"partitions":1} {}`:        wire.BadJSON,
		`{partitions: 1}`:            wire.BadJSON,
		`{"partitions":01}`:          wire.BadJSON,
		"{\"name\":\"\xff\"}":        wire.BadJSON,
		strings.Repeat("[", 100_000): wire.BadJSON,
		nested(513):                  wire.BadRequest,
		nested(100_000):              wire.BadRequest,
		`{}` + strings.Repeat(" ", policy.MaxDocumentBytes): wire.PayloadTooLarge,
	} {
		refused(t, a.send("PUT", "/v1/policies/t", body), code)
	}
	answered(t, a.send("GET", "/v1/policies/t", ""), 200, `"1"`,
		`{"name":"t","partitions":1,"version":1,"updated_at":"T","updated_by":"anonymous"}`)
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// A change of one policy that makes another one invalid is refused whole, and says which.
func TestPolicyThatBreaksAnother(t *testing.T) {
	a := newAPI(t)
	a.send("PUT", "/v1/policies/*", `{"publish":{"rate":0}}`)
	a.send("PUT", "/v1/policies/a", `{"publish":{"burst":0}}`)
	for _, w := range []*httptest.ResponseRecorder{
		a.send("PUT", "/v1/policies/*", `{"publish":{"rate":5}}`),
		a.send("DELETE", "/v1/policies/*", ""),
	} {
		refused(t, w, wire.InvalidPolicy)
		if !strings.Contains(w.Body.String(), `a`) {
			t.Errorf("who is broken is not said: %s", w.Body)
		}
	}
	want(t, a.send("GET", "/v1/policies/*", ""), 200,
		`{"name":"*","publish":{"rate":0},"version":1,"updated_at":"T","updated_by":"anonymous"}`)
}

// Every field goes in and comes out as it was.
func TestWholePolicy(t *testing.T) {
	a := newAPI(t)
	doc := `"publish":{"rate":1000,"burst":1000,"bytes_per_second":0,"scope":"sidecar","on_limit":"reject","max_wait":"0s"},` +
		`"connection":{"rate":200,"burst":200},` +
		`"delivery":{"rate":0,"max_inflight":100,"ack_timeout":"30s","max_attempts":25,"backoff":{"min":"100ms","max":"5m"}},` +
		`"partitions":8,"dedupe":{"window":"168h","by":"id"},` +
		`"retention":{"ttl":"0s","compact":false,"max_bytes":0,"expired":"dead_letter","dead_letters":"720h"},` +
		`"durability":{"write_concern":"majority","on_store_unavailable":"spool","spool_max_bytes":1073741824},` +
		`"schema":{"json_schema":{"type":"object","title":"a\"b"},"compatibility":"backward"},"tracing":{"sample_ratio":1},"paused":false`
	answered(t, a.send("PUT", "/v1/policies/*", "{"+doc+"}"), 201, `"1"`,
		`{"name":"*",`+doc+`,"version":1,"updated_at":"T","updated_by":"anonymous"}`)
	answered(t, a.send("PUT", "/v1/policies/*", `{"schema":{"json_schema":null}}`), 200, `"2"`,
		`{"name":"*","schema":{"json_schema":null},"version":2,"updated_at":"T","updated_by":"anonymous"}`)
}
