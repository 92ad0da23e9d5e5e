package replay

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

func TestReplaySelects(t *testing.T) {
	h := newHandler(newMemory(
		record(1, "a", ""), record(2, "c", "k"), record(2, "b", ""), record(2, "d", "k"), record(3, "a2", "")))
	for _, tc := range []struct {
		params []string
		want   string
	}{
		{nil, "a b c d a2"},
		{[]string{"order", "desc"}, "a2 d c b a"},
		{[]string{"key", "k"}, "c d"},
		{[]string{"key", "none"}, ""},
		{[]string{"from", "ts", "ts", "2"}, "b c d a2"},
		{[]string{"from", "ts", "ts", "2", "order", "desc"}, "a2 d c b"},
		{[]string{"from", "ts", "ts", "4"}, ""},
		{[]string{"from", "afterId", "afterId", "b"}, "c d a2"},
		{[]string{"from", "afterId", "afterId", "b", "order", "desc"}, "a2 d c"},
		{[]string{"from", "afterId", "afterId", "b", "order", "desc", "key", "k"}, "d c"},
		{[]string{"from", "afterId", "afterId", "a2"}, ""},
		{[]string{"scope", "fleet"}, "a b c d a2"},
	} {
		p := replayPage(t, h, values(append(tc.params, "topic", "orders")...))
		equalIDs(t, fmt.Sprint(tc.params), p.ids(), strings.Fields(tc.want))
		if p.Next != nil {
			t.Errorf("%v: next without more events", tc.params)
		}
	}
}

func TestReplayOfATopicWithoutEvents(t *testing.T) {
	w := get(newHandler(newMemory()), "/replay?topic=nothing")
	if want := `{"topic":"nothing","events":[],"count":0}` + "\n"; w.Code != 200 || w.Body.String() != want {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestReplayEventIsTheSubscribersObject(t *testing.T) {
	rec := record(5, "x", "k")
	rec.Partition, rec.Seq = 3, 9
	rec.Payload = []byte(`{"b":1e400,"a":12345678901234567890}`)
	w := get(newHandler(newMemory(rec)), "/replay?topic=orders")
	if want := string(codec.AppendEventJSON(nil, &rec.Event)); !strings.Contains(w.Body.String(), `"events":[`+want+`]`) {
		t.Errorf("body %s lacks %s", w.Body, want)
	}
	if got := w.Header().Get("Content-Length"); got != strconv.Itoa(w.Body.Len()) {
		t.Errorf("Content-Length %s of %d bytes", got, w.Body.Len())
	}
}

func TestReplayLimits(t *testing.T) {
	h := newHandler(newMemory(many(10_050, 1)...))
	for limit, want := range map[string]int{"": 1000, "1": 1, "1023": 1023, "1024": 1024, "10000": 10_000} {
		params := values("topic", "orders")
		if limit != "" {
			params.Set("limit", limit)
		}
		if p := replayPage(t, h, params); *p.Count != want || p.Next == nil {
			t.Errorf("limit %q: %d events, next %t; want %d", limit, *p.Count, p.Next != nil, want)
		}
	}
}

// TestPagingIsTheWhole states the promise of next: pages of any sizes make up exactly the selected
// events, in order, however many share a ts.
func TestPagingIsTheWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 60).Draw(t, "events")
		var events []*eventlog.Record
		for i := range n {
			id := fmt.Sprintf("%s-%d", rapid.StringMatching(`[a-c]{1,2}`).Draw(t, "id"), i)
			events = append(events, record(rapid.Int64Range(0, 3).Draw(t, "ts"), id, rapid.SampledFrom([]string{"", "k1", "k2"}).Draw(t, "key")))
		}
		h := newHandler(newMemory(slices.Clone(events)...))

		params := values("topic", "orders")
		keep := func(*eventlog.Record) bool { return true }
		switch from := rapid.SampledFrom([]string{"", "ts", "afterId"}).Draw(t, "from"); {
		case from == "ts":
			ts := rapid.Int64Range(0, 4).Draw(t, "start")
			params.Set("from", from)
			params.Set("ts", fmt.Sprint(ts))
			keep = func(r *eventlog.Record) bool { return r.TS >= ts }
		case from == "afterId" && n > 0:
			after := rapid.SampledFrom(events).Draw(t, "after")
			params.Set("from", from)
			params.Set("afterId", after.ID)
			keep = func(r *eventlog.Record) bool { return pointOf(r).Compare(pointOf(after)) > 0 }
		}
		key := rapid.SampledFrom([]string{"", "k1"}).Draw(t, "filter")
		if key != "" {
			params.Set("key", key)
		}
		sign := 1
		if rapid.Bool().Draw(t, "desc") {
			params.Set("order", "desc")
			sign = -1
		}
		var want []string
		slices.SortFunc(events, func(a, b *eventlog.Record) int {
			return sign * cmp.Or(cmp.Compare(a.TS, b.TS), strings.Compare(a.ID, b.ID))
		})
		for _, r := range events {
			if keep(r) && (key == "" || r.Key == key) {
				want = append(want, r.ID)
			}
		}

		var got []string
		for {
			params.Set("limit", fmt.Sprint(rapid.IntRange(1, 9).Draw(t, "limit")))
			p := replayPage(t, h, params)
			got = append(got, p.ids()...)
			if (p.Next != nil) != (len(got) < len(want)) {
				t.Fatalf("after %d of %d events: next %t", len(got), len(want), p.Next != nil)
			}
			if p.Next == nil {
				break
			}
			if rapid.Bool().Draw(t, "bare") {
				params = values("cursor", *p.Next) // else everything is repeated
			}
			params.Set("cursor", *p.Next)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func TestReplayGoesOnPastRemovedEvents(t *testing.T) {
	m := newMemory(record(1, "a", ""), record(2, "b", ""), record(3, "c", ""))
	h := newHandler(m)
	p := replayPage(t, h, values("topic", "orders", "from", "afterId", "afterId", "a", "limit", "1"))
	m.topics["orders"] = m.topics["orders"][2:] // retention takes a and b
	equalIDs(t, "after retention", replayPage(t, h, values("cursor", *p.Next)).ids(), []string{"c"})
}

func TestBadInput(t *testing.T) {
	h := newHandler(newMemory(many(20, 1)...))
	next := *replayPage(t, h, values("topic", "orders", "limit", "2", "from", "ts", "ts", "1")).Next
	afterID := *replayPage(t, h, values("topic", "orders", "limit", "2", "from", "afterId", "afterId", "id-00000003")).Next
	long := strings.Repeat("x", 256)
	for _, tc := range []struct{ target, names string }{
		{"/replay", "topic"},
		{"/replay?topic=", "topic"},
		{"/replay?topic=a/b", "topic"},
		{"/replay?topic=" + long, "topic"},
		{"/replay?topic=orders&topic=orders", "topic"},
		{"/replay?topic=orders&from=latest", "from"},
		{"/replay?topic=orders&from=", "from"},
		{"/replay?topic=orders&from=ts", "ts"},
		{"/replay?topic=orders&from=ts&ts=", "ts"},
		{"/replay?topic=orders&from=ts&ts=1.5", "ts"},
		{"/replay?topic=orders&from=ts&ts=-1", "ts"},
		{"/replay?topic=orders&from=ts&ts=9007199254740992", "ts"},
		{"/replay?topic=orders&from=ts&ts=99999999999999999999", "ts"},
		{"/replay?topic=orders&ts=x", "ts"},
		{"/replay?topic=orders&from=afterId", "afterId"},
		{"/replay?topic=orders&from=afterId&afterId=", "afterId"},
		{"/replay?topic=orders&from=afterId&afterId=" + long, "afterId"},
		{"/replay?topic=orders&limit=0", "limit"},
		{"/replay?topic=orders&limit=10001", "limit"},
		{"/replay?topic=orders&limit=ten", "limit"},
		{"/replay?topic=orders&limit=", "limit"},
		{"/replay?topic=orders&limit=1&limit=1", "limit"},
		{"/replay?topic=orders&order=up", "order"},
		{"/replay?topic=orders&scope=all", "scope"},
		{"/replay?topic=orders&key=%ff", "key"},
		{"/replay?topic=orders&key=%", "key"},
		{"/replay?cursor=", "cursor"},
		{"/replay?cursor=abc", "cursor"},
		{"/replay?cursor=" + next[:len(next)-1], "cursor"},
		{"/replay?cursor=" + next + "A", "cursor"},
		{"/replay?cursor=" + next[:4] + "zz" + next[6:], "cursor"},
		{"/replay?cursor=" + next + "&topic=other", "topic"},
		{"/replay?cursor=" + next + "&scope=fleet", "scope"},
		{"/replay?cursor=" + next + "&key=k", "key"},
		{"/replay?cursor=" + next + "&order=desc", "order"},
		{"/replay?cursor=" + next + "&from=earliest", "from"},
		{"/replay?cursor=" + next + "&ts=2", "ts"},
		{"/replay?cursor=" + afterID + "&from=afterId&afterId=id-00000004", "afterId"},
		{"/replay?cursor=" + next + "&limit=0", "limit"},
		{"/replay?cursor=" + next + "&cursor=" + next, "cursor"},
		{"/export", "topic"},
		{"/export?topic=a+b", "topic"},
		{"/export?topic=orders&fromTs=5&toTs=4", "fromTs"},
		{"/export?topic=orders&fromTs=x", "fromTs"},
		{"/export?topic=orders&fromTs=-1", "fromTs"},
		{"/export?topic=orders&toTs=later", "toTs"},
		{"/export?topic=orders&toTs=", "toTs"},
		{"/export?topic=orders&toTs=1&toTs=1", "toTs"},
		{"/export?topic=orders&ndjson=yes", "ndjson"},
		{"/export?topic=orders&scope=x", "scope"},
		{"/export?topic=orders&key=", "key"},
	} {
		w := get(h, tc.target)
		var p page
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Errorf("%s: %v in %s", tc.target, err, w.Body)
		}
		if w.Code != 400 || p.Code != "bad_request" || !strings.Contains(p.Error, tc.names) {
			t.Errorf("%s: %d %s; want 400 naming %s", tc.target, w.Code, w.Body, tc.names)
		}
	}
}

func TestUnknownAfterIDIsNotFound(t *testing.T) {
	h := newHandler(newMemory(record(1, "a", "")))
	for _, target := range []string{"/replay?topic=orders&from=afterId&afterId=b", "/replay?topic=other&from=afterId&afterId=a"} {
		if w := get(h, target); w.Code != 404 || !strings.Contains(w.Body.String(), `"not_found"`) ||
			!strings.Contains(w.Body.String(), "afterId") {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}

func TestErrorsBeforeTheFirstByteAreAnswers(t *testing.T) {
	for err, want := range map[error]struct {
		status int
		code   wire.Code
	}{
		fmt.Errorf("scan: %w", eventlog.ErrUnavailable): {503, wire.StoreUnavailable},
		errors.New("disk on fire"):                      {500, wire.Internal},
	} {
		m := newMemory(record(1, "a", ""))
		m.onScan = func(int) error { return err }
		h := newHandler(m)
		for _, target := range []string{"/replay?topic=orders", "/export?topic=orders", "/export?topic=orders&ndjson=0"} {
			w := get(h, target)
			var p page
			if json.Unmarshal(w.Body.Bytes(), &p) != nil || w.Code != want.status || p.Code != string(want.code) ||
				strings.Contains(p.Error, "fire") {
				t.Errorf("%s, %v: %d %s", target, err, w.Code, w.Body)
			}
			if (w.Header().Get("Retry-After") != "") != (want.code == wire.StoreUnavailable) {
				t.Errorf("%s: Retry-After %q", target, w.Header().Get("Retry-After"))
			}
		}
	}
}

func TestMethods(t *testing.T) {
	h := newHandler(newMemory(many(3000, 10)...))
	for _, path := range []string{"/replay?topic=orders&limit=3000", "/export?topic=orders"} {
		srv := httptest.NewServer(h)
		resp, err := srv.Client().Head(srv.URL + path)
		require.NoError(t, err)
		_ = resp.Body.Close()
		srv.Close()
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") == "" || resp.Header.Get("Vary") != "Accept-Encoding" {
			t.Errorf("HEAD %s: %d %v", path, resp.StatusCode, resp.Header)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, nil))
		if w.Code != 405 || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("POST %s: %d, Allow %q", path, w.Code, w.Header().Get("Allow"))
		}
	}
	if w := get(h, "/elsewhere"); w.Code != 404 || !strings.Contains(w.Body.String(), `"not_found"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodHead, "/replay?topic=orders&limit=0", nil))
	if w.Code != 400 {
		t.Errorf("HEAD with bad input: %d", w.Code)
	}
}
