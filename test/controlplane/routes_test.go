package controlplane

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/testkit"
)

// instant checks that a text is RFC 3339, in UTC.
func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil || !strings.HasSuffix(text, "Z") || time.Since(at).Abs() > time.Hour {
		t.Errorf("%q is not the present in UTC as RFC 3339 has it", text)
	}
	return at
}

// "GET|PUT|DELETE /v1/policies/{name} (PUT 201 or 200, DELETE 204)"; "each the policy as above in
// JSON with version, updated_at, updated_by".
func TestPutGetDelete(t *testing.T) {
	t.Parallel()
	p := start(t)
	if o := p.get(t, "/v1/policies"); o.At("policies") == nil || len(o.List("policies")) != 0 {
		t.Errorf("of nothing: %v, want an empty list", o)
	}
	refused(t, "one that is not there", p.call(t, "GET", "/v1/policies/t", ""), 404, "not_found")
	refused(t, "one that is not there", p.call(t, "DELETE", "/v1/policies/t", ""), 404, "not_found")

	for version, rate := range []string{"", "10", "20", "20.5"} {
		if version == 0 {
			continue
		}
		a := p.call(t, "PUT", "/v1/policies/t", `{"name":"t","publish":{"rate":`+rate+`}}`, "Content-Type: application/json")
		o := a.JSON(t)
		if want := map[bool]int{true: 201, false: 200}[version == 1]; a.Status != want {
			t.Errorf("PUT %d: %d, want %d", version, a.Status, want)
		}
		if o["name"] != "t" || o.Text("publish.rate") != rate || o.Text("version") != fmt.Sprint(version) || o.Text("updated_by") == "" {
			t.Errorf("PUT %d: %s", version, a.Body)
		}
		instant(t, o.Text("updated_at"))
		b := p.call(t, "GET", "/v1/policies/t", "")
		if b.Status != 200 || string(b.Body) != string(a.Body) || b.Header.Get("ETag") != a.Header.Get("ETag") ||
			!strings.Contains(b.Header.Get("ETag"), `"`) {
			t.Errorf("PUT %s %v\nGET %d %s %v", a.Body, a.Header, b.Status, b.Body, b.Header)
		}
		if list := p.get(t, "/v1/policies").List("policies"); len(list) != 1 || fmt.Sprint(list[0]) != fmt.Sprint(o) {
			t.Errorf("list %v, want %v", list, o)
		}
	}
	if a := p.call(t, "HEAD", "/v1/policies/t", ""); a.Status != 200 || len(a.Body) > 0 || a.Header.Get("ETag") == "" {
		t.Errorf("HEAD: %d %q %v", a.Status, a.Body, a.Header)
	}
	if a := p.call(t, "DELETE", "/v1/policies/t", ""); a.Status != 204 || len(a.Body) > 0 {
		t.Errorf("DELETE: %d %q", a.Status, a.Body)
	}
	refused(t, "after DELETE", p.call(t, "GET", "/v1/policies/t", ""), 404, "not_found")
	if a := p.call(t, "PUT", "/v1/policies/t", `{}`); a.Status != 201 {
		t.Errorf("PUT after DELETE: %d", a.Status)
	}
	// A client may send back what it has read, unchanged.
	read := p.call(t, "GET", "/v1/policies/t", "")
	if a := p.call(t, "PUT", "/v1/policies/t", string(read.Body), "If-Match: "+read.Header.Get("ETag")); a.Status != 200 {
		t.Errorf("PUT of what was GET: %d %s", a.Status, a.Body)
	}
}

// "ETag/If-Match"; "precondition_failed | 412 | a stale If-Match".
func TestPreconditions(t *testing.T) {
	t.Parallel()
	p := start(t)
	const path = "/v1/policies/t"
	refused(t, "If-Match where nothing is", p.call(t, "PUT", path, `{}`, `If-Match: "1"`), 412, "precondition_failed")
	refused(t, "If-Match: * where nothing is", p.call(t, "PUT", path, `{}`, `If-Match: *`), 412, "precondition_failed")
	if a := p.call(t, "PUT", path, `{"publish":{"rate":1}}`, `If-None-Match: *`); a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	old := p.call(t, "GET", path, "").Header.Get("ETag")
	refused(t, "If-None-Match: * where something is", p.call(t, "PUT", path, `{}`, `If-None-Match: *`), 412, "precondition_failed")
	a := p.call(t, "PUT", path, `{"publish":{"rate":2}}`, "If-Match: "+old)
	next := a.Header.Get("ETag")
	if a.Status != 200 || next == old || next == "" {
		t.Fatalf("%d %s, ETag %s after %s", a.Status, a.Body, next, old)
	}
	refused(t, "a stale PUT", p.call(t, "PUT", path, `{"publish":{"rate":3}}`, "If-Match: "+old), 412, "precondition_failed")
	refused(t, "a stale DELETE", p.call(t, "DELETE", path, "", "If-Match: "+old), 412, "precondition_failed")
	refused(t, "a weak tag", p.call(t, "PUT", path, `{"publish":{"rate":3}}`, "If-Match: W/"+next), 412, "precondition_failed")
	refused(t, "a tag that is none", p.call(t, "PUT", path, `{"publish":{"rate":3}}`, "If-Match: tag"), 400, "bad_request")
	if o := p.get(t, path); o.Text("publish.rate") != "2" || o.Text("version") != "2" {
		t.Errorf("changed by what was refused: %v", o)
	}
	if a := p.call(t, "GET", path, "", "If-None-Match: "+next); a.Status != 304 || len(a.Body) > 0 {
		t.Errorf("GET of what is known: %d %q", a.Status, a.Body)
	}
	if a := p.call(t, "PUT", path, `{"publish":{"rate":3}}`, "If-Match: "+old+", "+next); a.Status != 200 {
		t.Errorf("a list of tags: %d %s", a.Status, a.Body)
	}
	if a := p.call(t, "DELETE", path, "", "If-Match: "+p.call(t, "GET", path, "").Header.Get("ETag")); a.Status != 204 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// Several clients change a policy that they have all read. One succeeds, and the others are
// refused.
func TestOneOfManyWins(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "t", `{}`)
	for round := range 3 {
		tag := p.call(t, "GET", "/v1/policies/t", "").Header.Get("ETag")
		var answers [8]testkit.Answer
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() {
				answers[i] = p.call(t, "PUT", "/v1/policies/t", fmt.Sprintf(`{"partitions":%d}`, 10*round+i+1), "If-Match: "+tag)
			})
		}
		all.Wait()
		won := ""
		for _, a := range answers {
			if a.Status == 200 {
				won += a.JSON(t).Text("partitions")
			} else {
				refused(t, "one who came later", a, 412, "precondition_failed")
			}
		}
		if o := p.get(t, "/v1/policies/t"); won == "" || o.Text("partitions") != won || o.Text("version") != fmt.Sprint(round+2) {
			t.Errorf("%s won, and the policy is %v", won, o)
		}
	}
}

// "GET …/history → {"versions":[{"version","at","by","policy"}…]}, newest first; POST …/rollback
// {"version":n} → a new version with that content".
func TestHistoryAndRollback(t *testing.T) {
	t.Parallel()
	p := start(t)
	const path = "/v1/policies/t"
	refused(t, "no history", p.call(t, "GET", path+"/history", ""), 404, "not_found")
	refused(t, "nothing to roll back", p.call(t, "POST", path+"/rollback", `{"version":1}`), 404, "not_found")
	p.put(t, "t", `{"publish":{"rate":1}}`)
	p.put(t, "t", `{"publish":{"rate":2,"burst":7}}`)
	if a := p.call(t, "DELETE", path, ""); a.Status != 204 {
		t.Fatal(a.Status)
	}
	p.put(t, "t", `{"paused":true}`)

	a := p.call(t, "POST", path+"/rollback", `{"version":2}`, "Content-Type: application/json")
	o := a.JSON(t)
	now := p.call(t, "GET", path, "")
	back := o.Has(testkit.Members{"publish.rate": "2", "publish.burst": "7", "paused": ""}) && o.Number(t, "version") > 3
	same := string(now.Body) == string(a.Body) && now.Header.Get("ETag") == a.Header.Get("ETag")
	if a.Status != 200 || !back || !same {
		t.Errorf("rollback: %d %s %v\nthen %s %v", a.Status, a.Body, a.Header, now.Body, now.Header)
	}
	versions := p.get(t, path+"/history").List("versions")
	var rates []string
	for i, v := range versions {
		if v.Text("by") == "" || i > 0 && v.Number(t, "version") >= versions[i-1].Number(t, "version") {
			t.Errorf("not newest first, or nobody's: %v", versions)
		}
		instant(t, v.Text("at"))
		if _, there := v["policy"]; !there {
			t.Errorf("no policy: %v", v)
		}
		rates = append(rates, v.Text("policy.publish.rate")+v.Text("policy.paused"))
	}
	if want := []string{"2", "true", "", "2", "1"}; !slices.Equal(rates, want) {
		t.Errorf("history %v, want %v, where a deletion is null", rates, want)
	}
	if versions[0].Text("version") != o.Text("version") {
		t.Errorf("the newest is %v, not the rolled back %v", versions[0], o)
	}

	refused(t, "no such version", p.call(t, "POST", path+"/rollback", `{"version":99}`), 404, "not_found")
	for _, body := range []string{`{}`, `{"version":0}`, `{"version":"1"}`, `{"version":1.5}`, `{"version":1,"to":2}`, `[1]`, `1`} {
		refused(t, body, p.call(t, "POST", path+"/rollback", body), 400, "bad_request")
	}
	refused(t, "no JSON", p.call(t, "POST", path+"/rollback", `{`), 400, "bad_json")
	if a := p.call(t, "DELETE", path, ""); a.Status != 204 {
		t.Fatal(a.Status)
	}
	if a := p.call(t, "POST", path+"/rollback", `{"version":1}`); a.Status != 200 || a.JSON(t).Text("publish.rate") != "1" {
		t.Errorf("rollback of what was deleted: %d %s", a.Status, a.Body)
	}
	if h := p.get(t, path+"/history").List("versions"); len(h) != 7 {
		t.Errorf("%d versions: %v", len(h), h)
	}
}

// Unknown routes and methods are answered with an error like any other.
func TestNoSuchRoute(t *testing.T) {
	t.Parallel()
	p := start(t)
	p.put(t, "a", `{}`)
	for _, c := range []struct{ method, path, allow string }{
		{"POST", "/v1/policies", "GET"}, {"PATCH", "/v1/policies/a", "PUT"}, {"POST", "/v1/policies/a", "DELETE"},
		{"GET", "/v1/policies/a/rollback", "POST"}, {"PUT", "/v1/policies/a/history", "GET"},
		{"DELETE", "/v1/sidecars", "GET"}, {"POST", "/v1/topics", "GET"}, {"POST", "/v1/status", "GET"},
	} {
		a := p.call(t, c.method, c.path, `{}`, "Content-Type: application/json")
		refused(t, c.method+" "+c.path, a, 405, "not_found")
		if !strings.Contains(a.Header.Get("Allow"), c.allow) {
			t.Errorf("%s %s: Allow %q", c.method, c.path, a.Header.Get("Allow"))
		}
	}
	for _, path := range []string{"/v1", "/v1/", "/v1/none", "/v1/policies/", "/v1/policies/a/", "/v1/policies/a/none", "/v2/policies",
		"/none"} {
		refused(t, path, p.call(t, "GET", path, ""), 404, "not_found")
	}
}
