package rest

import (
	"encoding/json"
	"testing"
)

// After any bytes the answer is a policy that is in force, or an error with its reasons and no
// change.
func FuzzPut(f *testing.F) {
	for _, body := range []string{
		`{}`, `{"publish":{"rate":1,"burst":0}}`, `{"name":"t","partitions":1e1}`, `{"schema":{"json_schema":{"a":[1,"\ud800"]}}}`,
		`{"delivery":{"backoff":{"min":"1h"}}}`, `{"publish":{"rate":1e400}}`, `{"publish":{"rate":-0}}`, `[`, `{"a":`, "\xff", `null`,
		`{"durability":{"write_concern":2}}`, `{"dedupe":{"window":0}}`, `{"partitions":9223372036854775808}`, `{"publish":null}`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a := newAPI(t)
		a.send("PUT", "/v1/policies/t", `{"partitions":3}`)
		before := a.send("GET", "/v1/policies", "").Body.String()
		w := a.send("PUT", "/v1/policies/t", string(body))
		after := a.send("GET", "/v1/policies", "").Body.String()
		if w.Code != 200 {
			if w.Code < 400 || w.Code >= 500 || after != before {
				t.Fatalf("%q: %d %s; before %s, after %s", body, w.Code, w.Body, before, after)
			}
			var e struct {
				Error, Code string
				Fields      []struct{ Field, Message string }
			}
			if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || e.Error == "" || (e.Code == "invalid_policy") != (len(e.Fields) > 0) {
				t.Fatalf("%q: %s: %v", body, w.Body, err)
			}
			return
		}
		// A policy that was read may be written again, and changes nothing.
		read := a.send("GET", "/v1/policies/t", "")
		if read.Code != 200 || read.Body.String() != w.Body.String() {
			t.Fatalf("%q: put %s, read %s", body, w.Body, read.Body)
		}
		again := a.send("PUT", "/v1/policies/t", read.Body.String(), "If-Match", w.Header().Get("ETag"))
		if again.Code != 200 || again.Body.String() != read.Body.String() {
			t.Fatalf("%q: once more: %d %s", body, again.Code, again.Body)
		}
	})
}

func FuzzApply(f *testing.F) {
	for _, body := range []string{
		`{"policies":[{"name":"t","partitions":4},{"name":"*"}]}`, `{"policies":[],"prune":true}`, `{"policies":[{"name":"a"},{"name":"a"}]}`,
		`{"policies":[{"name":"b","publish":{"rate":1,"burst":0}}],"dry_run":false}`, `{"policies":[{}]}`, `{"policies":{}}`, `[]`,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		a := newAPI(t)
		a.send("PUT", "/v1/policies/t", `{"partitions":3}`)
		before := a.send("GET", "/v1/policies", "").Body.String()
		w := a.send("POST", "/v1/apply", string(body))
		after := a.send("GET", "/v1/policies", "").Body.String()
		if w.Code != 200 && (w.Code < 400 || w.Code >= 500 || after != before) {
			t.Fatalf("%q: %d %s; before %s, after %s", body, w.Code, w.Body, before, after)
		}
	})
}
