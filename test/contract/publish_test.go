package contract

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/testkit"
)

// "OK {id,ts,partition,seq,duplicate?,durability}"; over HTTP "201 with the OK body of PUBLISH; 200
// when duplicate". "ts: … or the time of acceptance".
func TestPublishAnswers(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	before := time.Now().UnixMilli()
	r := k.ok(`{"op":"PUBLISH","topic":"publish.answers","payload":1}`)
	if ts := r.Number(t, "ts"); ts < before || ts > time.Now().UnixMilli() {
		t.Errorf("ts %d is not the time of acceptance", ts)
	}
	if _, has := r["duplicate"]; has || r["durability"] != "store" || r.Text("id") == "" {
		t.Errorf("%v", r)
	}
	r.Number(t, "partition")
	r.Number(t, "seq")

	first := s.put(t, "publish.answers", "twice", `{"a":1,"b":[1.0]}`, "Sluice-Ts: 5", "Sluice-Key: k", "Sluice-Header-X: y")
	if first.Text("ts") != "5" || first["durability"] != "store" {
		t.Errorf("%v", first)
	}
	again := s.post(t, "publish.answers", `{"b":[1],"a":1.0}`, "Sluice-Id: twice", "Sluice-Key: k", "Sluice-Header-X: y",
		"traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
	for _, d := range []object{again.JSON(t), k.ok(`{"op":"PUBLISH","topic":"publish.answers","payload":{"a":1,"b":[1e0]},` +
		`"opts":{"id":"twice","key":"k","headers":{"x":"y"}}}`)} {
		if again.Status != 200 || d["duplicate"] != true || d["seq"] != first["seq"] || d["partition"] != first["partition"] ||
			d["id"] != "twice" {
			t.Errorf("%d %v, first %v", again.Status, d, first)
		}
	}
	if n := s.replay(t, "topic=publish.answers").Number(t, "count"); n != 2 {
		t.Errorf("%d events stored, want 2", n)
	}
}

// "conflict 409: an id that this topic already holds, published again with another key, other
// headers or another payload; names the stored event's seq".
func TestConflict(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	r := s.put(t, "publish.conflict", "x", `{"a":1}`, "Sluice-Key: k", "Sluice-Header-H: v")
	for _, again := range []string{
		`"payload":{"a":2},"opts":{"id":"x","key":"k","headers":{"h":"v"}}`,
		`"payload":{"a":"1"},"opts":{"id":"x","key":"k","headers":{"h":"v"}}`,
		`"payload":{"a":1},"opts":{"id":"x","key":"l","headers":{"h":"v"}}`,
		`"payload":{"a":1},"opts":{"id":"x","headers":{"h":"v"}}`,
		`"payload":{"a":1},"opts":{"id":"x","key":"k"}`,
		`"payload":{"a":1},"opts":{"id":"x","key":"k","headers":{"h":"w"}}`,
		`"payload_base64":"eyJhIjoxfQ==","opts":{"id":"x","key":"k","headers":{"h":"v"}}`,
	} {
		e := k.refused("conflict", `{"op":"PUBLISH","topic":"publish.conflict",%s}`, again)
		if !strings.Contains(e.Text("msg"), r.Text("seq")) && e.Text("seq") != r.Text("seq") {
			t.Errorf("seq %s is not named: %v", r.Text("seq"), e)
		}
	}
	a := s.post(t, "publish.conflict", `2`, "Idempotency-Key: x")
	if a.Status != 409 || a.JSON(t)["code"] != "conflict" || !strings.Contains(string(a.Body), r.Text("seq")) {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	s.put(t, "publish.conflict.other", "x", "2") // "Unique per topic"
}

// The headers of an HTTP publish; "names are lower-cased when they come as HTTP headers"; "Two id
// headers that differ: bad_request".
func TestPublishHeaders(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const tp = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	a := s.post(t, "one.headers", `1`, "Idempotency-Key: a", "Sluice-Id: a", "Sluice-Key: K", "Sluice-Ts: 77",
		"Sluice-Header-Content-Language: de", "SLUICE-HEADER-x: Y z", "traceparent: "+tp, "tracestate: a=b", "baggage: c=d", "X-Other: no")
	if a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	e := s.replay(t, "topic=one.headers").List("events")[0]
	h, _ := e["headers"].(map[string]any)
	whole := e.Has(testkit.Members{"id": "a", "key": "K", "ts": "77", "headers.content-language": "de", "headers.x": "Y z",
		"headers.tracestate": "a=b", "headers.baggage": "c=d"})
	if !whole || !strings.HasPrefix(fmt.Sprint(h["traceparent"]), tp[:35]) || len(h) != 5 {
		t.Errorf("%v", e)
	}
	if a := s.post(t, "one.headers", `1`, "Idempotency-Key: a", "Sluice-Id: b"); a.Status != 400 || a.JSON(t)["code"] != "bad_request" {
		t.Errorf("two ids: %d %s", a.Status, a.Body)
	}
	if a := s.post(t, "one.headers", `2`, "Idempotency-Key: c"); a.JSON(t)["id"] != "c" {
		t.Errorf("Idempotency-Key: %d %s", a.Status, a.Body)
	}
}

// "application/x-ndjson: one event object per line (payload, opts), 200 {results} in order, an OK
// body or {code, error} each".
func TestLines(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a := s.post(t, "publish.lines", `{"payload":{"n":1},"opts":{"id":"a","key":"k"}}
{"payload":2,"opts":{"id":"b b"}}

not JSON
{"payload":{"n":1},"opts":{"id":"a","key":"k"}}
{"payload":3,"opts":{"id":"a","key":"k"}}
{"opts":{}}
{"payload_base64":"AA==","opts":{"id":"z"}}`, "Content-Type: application/x-ndjson")
	if a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	results := a.JSON(t).List("results")
	want := []string{"", "bad_request", "bad_json", "duplicate", "conflict", "bad_request", ""}
	if len(results) != len(want) {
		t.Fatalf("%d results: %s", len(results), a.Body)
	}
	for i, r := range results {
		switch want[i] {
		case "", "duplicate":
			if r.Text("seq") == "" || r["durability"] != "store" || (r["duplicate"] == true) != (want[i] != "") {
				t.Errorf("line %d: %v", i, r)
			}
		default:
			if r["code"] != want[i] || r.Text("error") == "" {
				t.Errorf("line %d: want %s, got %v", i, want[i], r)
			}
		}
	}
}

// "OK {results: [one OK body or {code, msg} each, in order]}", and a batch's events may name topics
// of their own.
func TestBatch(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	r := k.ok(`{"op":"PUBLISH","topic":"publish.batch","events":[{"payload":1,"opts":{"id":"a"}},{"payload":2,"opts":{"id":""}},
		{"payload":1,"opts":{"id":"a"}},{"topic":"publish.batch.b","payload":1,"opts":{"id":"a"}},{"payload":9,"opts":{"id":"a"}},
		{"topic":"_x","payload":1},{"topic":"paused.t","payload":1}, 7]}`)
	want := []string{"", "bad_request", "", "", "conflict", "bad_request", "topic_paused", "bad_request"}
	results := r.List("results")
	if len(results) != len(want) {
		t.Fatalf("%v", r)
	}
	for i, x := range results {
		if x.Text("code") != want[i] || (want[i] == "") != (x.Text("durability") == "store") || want[i] != "" && x.Text("msg") == "" {
			t.Errorf("%d: want %q, got %v", i, want[i], x)
		}
	}
	if results[2]["duplicate"] != true || results[3]["duplicate"] != nil {
		t.Errorf("duplicates: %v", results)
	}
	if x := k.ok(`{"op":"PUBLISH","events":[{"topic":"publish.batch","payload":1}]}`).List("results"); x[0].Text("seq") == "" {
		t.Errorf("a topic in the event alone: %v", x)
	}
}

// "Publishes of one connection with the same key are logged in the order they were sent", however
// far they are pipelined, and each has its one reply.
func TestPipelining(t *testing.T) {
	t.Parallel()
	s := shared(t)
	k := s.dial(t)
	const n = 600
	corrs := map[string]int{}
	for i := range n {
		corrs[k.send(`{"op":"PUBLISH","topic":"publish.pipe","payload":%d,"opts":{"key":"k%d","ts":%d}}`, i, i%5, i)] = i
	}
	seqs := make([]int64, n)
	for range n {
		f := k.await("a reply", func(f object) bool { return f["op"] == "OK" })
		i, waiting := corrs[f.Text("corr")]
		if !waiting {
			t.Fatalf("a second reply: %v", f)
		}
		delete(corrs, f.Text("corr"))
		seqs[i] = f.Number(t, "seq")
	}
	for i := 5; i < n; i++ {
		if seqs[i] <= seqs[i-5] {
			t.Fatalf("publish %d has seq %d, the one of the same key before it %d", i, seqs[i], seqs[i-5])
		}
	}
}

// Partition = hash of key: events of one key share one. Many publishers of one id at once store one
// event.
func TestOneIDFromManyPublishers(t *testing.T) {
	t.Parallel()
	s := shared(t)
	var mu sync.Mutex
	created := 0
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			a, err := http.Post(s.URL()+"/v1/topics/publish.race/events", "application/x-ndjson",
				strings.NewReader(`{"payload":1,"opts":{"id":"same","key":"k"}}`))
			if err != nil {
				t.Error(err)
				return
			}
			defer a.Body.Close()
			var o struct {
				Results []struct {
					Seq, Partition json.Number
					Duplicate      bool
				}
			}
			if err := json.NewDecoder(a.Body).Decode(&o); err != nil || len(o.Results) != 1 {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if !o.Results[0].Duplicate {
				created++
			}
		})
	}
	wg.Wait()
	if created != 1 || s.replay(t, "topic=publish.race").Number(t, "count") != 1 {
		t.Errorf("%d stored", created)
	}
}
