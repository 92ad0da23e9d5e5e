package rest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestAudit(t *testing.T) {
	a := newAPI(t)
	want(t, a.send("GET", "/v1/audit", ""), 200, `{"entries":[]}`)
	a.send("PUT", "/v1/policies/a", `{"partitions":1}`)
	a.send("PUT", "/v1/policies/a", `{"partitions":2}`, "Sluice-User", "alice")
	a.send("POST", "/v1/policies/a/rollback", `{"version":1}`)
	a.send("DELETE", "/v1/policies/a", "")
	p := func(partitions, version, by string) string {
		return `{"name":"a","partitions":` + partitions + `,"version":` + version + `,"updated_at":"T","updated_by":"` + by + `"}`
	}
	const alice = "alice (not verified)"
	entries := []string{
		`{"revision":4,"at":"T","by":"anonymous","action":"deleted","name":"a","version":4,"from":` + p("1", "3", "anonymous") + `,"to":null}`,
		`{"revision":3,"at":"T","by":"anonymous","action":"rolled_back","name":"a","version":3,"from":` + p("2", "2", alice) + `,"to":` +
			p("1", "3", "anonymous") + `}`,
		`{"revision":2,"at":"T","by":"` + alice + `","action":"updated","name":"a","version":2,"from":` + p("1", "1", "anonymous") +
			`,"to":` + p("2", "2", alice) + `}`,
		`{"revision":1,"at":"T","by":"anonymous","action":"created","name":"a","version":1,"from":null,"to":` + p("1", "1", "anonymous") + `}`,
	}
	want(t, a.send("GET", "/v1/audit", ""), 200, `{"entries":[`+strings.Join(entries, ",")+`]}`)
	want(t, a.send("GET", "/v1/audit?limit=2", ""), 200, `{"entries":[`+strings.Join(entries[:2], ",")+`],"next":3}`)
	want(t, a.send("GET", "/v1/audit?limit=2&before=3", ""), 200, `{"entries":[`+strings.Join(entries[2:], ",")+`]}`)
	want(t, a.send("GET", "/v1/audit?before=1", ""), 200, `{"entries":[]}`)
}

// Paging finds every entry once, also where one change has more of them than a page.
func TestAuditPages(t *testing.T) {
	a := newAPI(t)
	total := 0
	for i := range 4 {
		var list []string
		for j := range 5 {
			list = append(list, fmt.Sprintf(`{"name":"t%d","partitions":%d}`, j, i+1))
		}
		if w := a.send("POST", "/v1/apply", `{"policies":[`+strings.Join(list, ",")+`]}`); w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		a.send("PUT", "/v1/policies/single", fmt.Sprintf(`{"partitions":%d}`, i+1))
		total += 6
	}
	for limit := 1; limit <= total+1; limit++ {
		seen := map[string]bool{}
		last := int64(1 << 40)
		query := fmt.Sprintf("/v1/audit?limit=%d", limit)
		for {
			var page struct {
				Entries []struct {
					Revision int64
					Name     string
				}
				Next int64
			}
			w := a.send("GET", query, "")
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != 200 {
				t.Fatalf("%d %s: %v", w.Code, w.Body, err)
			}
			for _, e := range page.Entries {
				key := fmt.Sprint(e.Revision, e.Name)
				if seen[key] || e.Revision > last {
					t.Fatalf("limit %d: %s comes again or late", limit, key)
				}
				seen[key], last = true, e.Revision
			}
			if page.Next == 0 {
				break
			}
			if len(page.Entries) == 0 {
				t.Fatalf("limit %d: an empty page with a next", limit)
			}
			query = fmt.Sprintf("/v1/audit?limit=%d&before=%d", limit, page.Next)
		}
		if len(seen) != total {
			t.Errorf("limit %d: %d of %d entries", limit, len(seen), total)
		}
	}
}
