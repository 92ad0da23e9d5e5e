package rest

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestApply(t *testing.T) {
	a := newAPI(t)
	a.send("PUT", "/v1/policies/a", `{"partitions":1}`)
	a.send("PUT", "/v1/policies/b", `{"partitions":1}`)
	p := func(name, partitions, version string) string {
		return `{"name":"` + name + `","partitions":` + partitions + `,"version":` + version + `,"updated_at":"T","updated_by":"anonymous"}`
	}
	// An answer may be sent back here, too.
	list := `"policies":[` + strings.ReplaceAll(p("a", "1", "1"), `"T"`, "1") + `,{"name":"b","partitions":2},{"name":"c","partitions":3}]`
	plan := a.send("POST", "/v1/apply", `{`+list+`,"dry_run":true}`)
	if plan.Code != 200 || !strings.HasPrefix(plan.Body.String(), `{"dry_run":true,"revision":2,"changes":[`) {
		t.Errorf("%d %s", plan.Code, plan.Body)
	}
	for _, action := range []string{`{"name":"a","action":"unchanged","from":{"name":"a",`,
		`{"name":"b","action":"update","from":{"name":"b",`, `{"name":"c","action":"create","from":null,"to":{"name":"c",`} {
		if !strings.Contains(plan.Body.String(), action) {
			t.Errorf("not in the plan: %s\n%s", action, plan.Body)
		}
	}
	want(t, a.send("GET", "/v1/policies", ""), 200, `{"policies":[`+p("a", "1", "1")+`,`+p("b", "1", "1")+`],"revision":2}`)

	want(t, a.send("POST", "/v1/apply", `{`+list+`}`), 200, `{"dry_run":false,"revision":3,"changes":[`+
		`{"name":"a","action":"unchanged","from":`+p("a", "1", "1")+`,"to":`+p("a", "1", "1")+`},`+
		`{"name":"b","action":"update","from":`+p("b", "1", "1")+`,"to":`+p("b", "2", "2")+`},`+
		`{"name":"c","action":"create","from":null,"to":`+p("c", "3", "1")+`}]}`)
	// Once more changes nothing.
	again := a.send("POST", "/v1/apply", `{`+list+`,"prune":null,"dry_run":false}`)
	if again.Code != 200 || !strings.Contains(again.Body.String(), `"revision":3`) || strings.Contains(again.Body.String(), `"update"`) {
		t.Errorf("%d %s", again.Code, again.Body)
	}
	want(t, a.send("POST", "/v1/apply", `{"policies":[{"name":"c","partitions":3}],"prune":true}`), 200,
		`{"dry_run":false,"revision":4,"changes":[`+
			`{"name":"a","action":"delete","from":`+p("a", "1", "1")+`,"to":null},`+
			`{"name":"b","action":"delete","from":`+p("b", "2", "2")+`,"to":null},`+
			`{"name":"c","action":"unchanged","from":`+p("c", "3", "1")+`,"to":`+p("c", "3", "1")+`}]}`)
	want(t, a.send("GET", "/v1/policies", ""), 200, `{"policies":[`+p("c", "3", "1")+`],"revision":4}`)
	want(t, a.send("POST", "/v1/apply", `{"policies":[]}`), 200, `{"dry_run":false,"revision":4,"changes":[]}`)
}

func TestBadApply(t *testing.T) {
	a := newAPI(t)
	a.send("PUT", "/v1/policies/a", `{"partitions":1}`)
	for _, dry := range []string{"", `,"dry_run":true`, `,"prune":true`} {
		for list, fields := range map[string][]string{
			`[{"name":"b"},{"name":"c","partitions":0,"colour":1},{"publish":{"rate":-1}}]`: {
				"policies[1].partitions", "policies[1].colour", "policies[2].publish.rate", "policies[2].name"},
			`[{"name":"b"},{"name":"b"}]`:                                {"policies[1].name"},
			`[{"name":"b"},{"name":"c","publish":{"rate":1,"burst":0}}]`: {"policies[1].publish.burst"},
			`[{"name":"x y"}]`:                                           {"policies[0].name"},
			`[5]`:                                                        {"policies[0]"},
			`[null]`:                                                     {"policies[0]"},
		} {
			got := refused(t, a.send("POST", "/v1/apply", `{"policies":`+list+dry+`}`), wire.InvalidPolicy)
			slices.Sort(got)
			slices.Sort(fields)
			if !slices.Equal(got, fields) {
				t.Errorf("%s: fields %q, want %q", list, got, fields)
			}
		}
	}
	for body, code := range map[string]wire.Code{
		`{}`:                             wire.BadRequest,
		`{"prune":true}`:                 wire.BadRequest,
		`{"policies":null}`:              wire.BadRequest,
		`{"policies":{}}`:                wire.BadRequest,
		`{"policies":{"policies":[]}}`:   wire.BadRequest,
		`{"policies":"[]"}`:              wire.BadRequest,
		`{"policies":[],"policies":[]}`:  wire.BadRequest,
		`{"policies":[],"dryrun":true}`:  wire.BadRequest,
		`{"policies":[],"Dry_Run":true}`: wire.BadRequest,
		`{"policies":[],"dry_run":1}`:    wire.BadRequest,
		`{"policies":[],"prune":"true"}`: wire.BadRequest,
		`[{"name":"b"}]`:                 wire.BadRequest,
		`[]`:                             wire.BadRequest,
		`{"policies":[`:                  wire.BadJSON,
		``:                               wire.BadJSON,
	} {
		refused(t, a.send("POST", "/v1/apply", body), code)
	}
	want(t, a.send("GET", "/v1/policies", ""), 200,
		`{"policies":[{"name":"a","partitions":1,"version":1,"updated_at":"T","updated_by":"anonymous"}],"revision":1}`)
}

// A policy that goes only with others of the same change is taken with them.
func TestApplyIsOneChange(t *testing.T) {
	a := newAPI(t)
	a.send("PUT", "/v1/policies/*", `{"publish":{"rate":0}}`)
	if w := a.send("POST", "/v1/apply", `{"policies":[{"name":"a","publish":{"burst":0}}]}`); w.Code != 200 {
		t.Errorf("with * as it is: %d %s", w.Code, w.Body)
	}
	refused(t, a.send("POST", "/v1/apply", `{"policies":[{"name":"*","publish":{"rate":5}}]}`), wire.InvalidPolicy)
	if w := a.send("POST", "/v1/apply", `{"policies":[{"name":"*","publish":{"rate":5}},{"name":"a"}]}`); w.Code != 200 {
		t.Errorf("both at once: %d %s", w.Code, w.Body)
	}
}
