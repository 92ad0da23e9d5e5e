package contract

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// fill publishes n events on four partitions with ties: three share each millisecond. It returns
// their ids in (ts, id) order.
func fill(t *testing.T, s *server, topic string, n int) []string {
	t.Helper()
	var lines strings.Builder
	var want []string
	for i := range n {
		id := fmt.Sprintf("%04d-%c", i/3, "bac"[i%3])
		fmt.Fprintf(&lines, `{"payload":%d,"opts":{"id":%q,"ts":%d,"key":"k%d"}}`+"\n", i, id, 1000+i/3, i%2)
		want = append(want, id)
	}
	slices.Sort(want)
	if a := s.post(t, topic, lines.String(), "Content-Type: application/x-ndjson"); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return want
}

// pages follows next to the end.
func (s *server) pages(t *testing.T, query string, more ...string) []string {
	t.Helper()
	var got []string
	for page := s.replay(t, query); ; {
		events := page.List("events")
		if page.Number(t, "count") != int64(len(events)) {
			t.Errorf("count %v with %d events", page["count"], len(events))
		}
		got = append(got, ids(events)...)
		if page["next"] == nil {
			return got
		}
		if len(got) > 10000 {
			t.Fatal("the pages do not end")
		}
		page = s.replay(t, strings.Join(append(more, "cursor="+url.QueryEscape(page.Text("next"))), "&"))
	}
}

// "cursor=<next> continues exactly where this page ended, however many events share a millisecond";
// "Events ascend by (ts,id)".
func TestReplayPages(t *testing.T) {
	t.Parallel()
	s := shared(t)
	n := fewer(t, 100, 25)
	want := fill(t, s, "replay.pages", n)
	for _, limit := range []int{1, 2, 3, 7, n - 1, n, n + 1} {
		if got := s.pages(t, fmt.Sprint("topic=replay.pages&limit=", limit), fmt.Sprint("limit=", limit)); !slices.Equal(got, want) {
			t.Errorf("limit %d: %v", limit, got)
		}
	}
	if got := s.pages(t, "topic=replay.pages&limit=1"); !slices.Equal(got, want) { // "limit may change"
		t.Errorf("limit left out: %v", got)
	}
	if got := s.pages(t, "topic=replay.pages&limit=7&order=desc&scope=store", "limit=3", "order=desc", "topic=replay.pages",
		"scope=store"); !slices.Equal(got, reversed(want)) {
		t.Errorf("desc: %v", got)
	}
	byKey := map[string]int{}
	for _, id := range append(s.pages(t, "topic=replay.pages&limit=4&key=k0", "limit=5", "key=k0"),
		s.pages(t, "topic=replay.pages&limit=4&key=k1")...) {
		byKey[id]++
	}
	if len(byKey) != n {
		t.Errorf("by key: %d of %d", len(byKey), n)
	}
	if p := s.replay(t, "topic=replay.pages&key=none"); p.Number(t, "count") != 0 || p["next"] != nil || fmt.Sprint(p["events"]) != "[]" ||
		p["topic"] != "replay.pages" {
		t.Errorf("no such key: %v", p)
	}
	if p := s.replay(t, "topic=replay.none"); p.Number(t, "count") != 0 || fmt.Sprint(p["events"]) != "[]" {
		t.Errorf("no such topic: %v", p)
	}
	if p := s.replay(t, "topic=replay.pages"); p.Number(t, "count") != int64(n) || p["next"] != nil {
		t.Errorf("default: %v, next %v", p["count"], p["next"])
	}
}

func reversed(s []string) []string {
	s = slices.Clone(s)
	slices.Reverse(s)
	return s
}

// "ts is inclusive, afterId exclusive; an unknown afterId is 404"
func TestReplayFrom(t *testing.T) {
	t.Parallel()
	s := shared(t)
	all := fill(t, s, "replay.from", 12)
	for query, want := range map[string][]string{
		"from=earliest": all, "": all, "from=ts&ts=0": all, "from=ts&ts=1001": all[3:], "from=ts&ts=1004": nil,
		"from=ts&ts=9007199254740991":    nil,
		"from=afterId&afterId=" + all[0]: all[1:], "from=afterId&afterId=" + all[4]: all[5:], "from=afterId&afterId=" + all[11]: nil,
		"from=ts&ts=1001&limit=2": all[3:5],
	} {
		if got := ids(s.replay(t, "topic=replay.from&"+query).List("events")); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	if a := testkit.Call(t, "GET", s.ReplayURL()+"/replay?topic=replay.from&from=afterId&afterId=none", ""); a.Status != 404 ||
		a.JSON(t)["code"] != "not_found" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// "Default limit 1000, at most 10,000"
func TestReplayDefaultLimit(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for range 2 {
		if a := s.post(t, "replay.many", strings.Repeat(`{"payload":1}`+"\n", 600), "Content-Type: application/x-ndjson"); a.Status != 200 {
			t.Fatal(a.Status)
		}
	}
	if p := s.replay(t, "topic=replay.many"); p.Number(t, "count") != 1000 || p["next"] == nil {
		t.Errorf("%v %v", p["count"], p["next"])
	}
	if p := s.replay(t, "topic=replay.many&limit=10000"); p.Number(t, "count") != 1200 || p["next"] != nil {
		t.Errorf("%v %v", p["count"], p["next"])
	}
}

// "Bad input is 400 and names the parameter"
func TestReplayBadInput(t *testing.T) {
	t.Parallel()
	s := shared(t)
	fill(t, s, "replay.bad", 9)
	next := "cursor=" + url.QueryEscape(s.replay(t, "topic=replay.bad&limit=2&key=k0").Text("next"))
	for query, name := range map[string]string{
		"replay?": "topic", "replay?topic=": "topic", "replay?topic=a/b": "topic", "replay?topic=t&topic=t": "topic",
		"replay?topic=t&from=latest": "from", "replay?topic=t&from=ts": "ts", "replay?topic=t&from=afterId": "afterId",
		"replay?topic=t&from=":        "from",
		"replay?topic=t&from=ts&ts=x": "ts", "replay?topic=t&from=ts&ts=1.5": "ts", "replay?topic=t&from=ts&ts=-1": "ts",
		"replay?topic=t&from=ts&ts=99999999999999999999": "ts",
		"replay?topic=t&limit=0":                         "limit", "replay?topic=t&limit=10001": "limit", "replay?topic=t&limit=ten": "limit",
		"replay?topic=t&limit=1e2": "limit", "replay?topic=t&limit=-1": "limit",
		"replay?topic=t&order=up": "order", "replay?topic=t&scope=planet": "scope", "replay?topic=t&limit=1&limit=1": "limit",
		"replay?topic=t&key=a&key=a":     "key",
		"replay?topic=t&cursor=nonsense": "cursor", "replay?" + next + "&topic=other": "topic", "replay?" + next + "&key=k1": "key",
		"replay?" + next + "&order=desc": "order", "replay?" + next + "&limit=0": "limit", "replay?" + next + "x": "cursor",
		"replay?" + next + "&" + next: "cursor",
		"export?":                     "topic", "export?topic=t&fromTs=x": "fromTs", "export?topic=t&toTs=x": "toTs",
		"export?topic=t&fromTs=2&toTs=1": "fromTs", "export?topic=t&fromTs=-1": "fromTs",
		"export?topic=t&ndjson=2": "ndjson", "export?topic=t&scope=x": "scope", "export?topic=t&toTs=1&toTs=1": "toTs",
		"export?topic=t&fromTs=1.0": "fromTs",
	} {
		a := testkit.Call(t, "GET", s.ReplayURL()+"/"+query, "")
		if a.Status != 400 || a.JSON(t)["code"] != "bad_request" || !strings.Contains(a.JSON(t).Text("error"), name) {
			t.Errorf("%s: want 400 naming %s, got %d %s", query, name, a.Status, a.Body)
		}
	}
	if p := s.replay(t, next+"&topic=replay.bad&key=k0&order=asc&scope=store&limit=1"); p.Number(t, "count") != 1 {
		t.Errorf("repeating what the cursor carries: %v", p)
	}
}

// "DELETE …/events?id= or ?key=: erased for good": no way to read has an erased event any more, also
// at the sidecar that has just delivered it from memory.
func TestErasedIsReadNoMore(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0}, partitions: 1}]`)
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"t"}`)
	k.ok(`{"op":"SUBSCRIBE","topic":"t","group":"g","opts":{"from":"earliest"}}`)
	for _, id := range []string{"a", "b", "c"} {
		s.put(t, "t", id, `"of `+id+`"`, "Sluice-Key: key-"+id)
		k.event() // of the topic, and of the group
		k.event()
	}
	for _, query := range []string{"id=a", "key=key-b"} {
		if a := testkit.Call(t, "DELETE", s.URL()+"/v1/topics/t/events?"+query, ""); a.Status != 200 {
			t.Fatalf("%s: %d %s", query, a.Status, a.Body)
		}
	}
	again := s.dial(t)
	again.ok(`{"op":"SUBSCRIBE","topic":"t","group":"new","opts":{"from":"earliest"}}`)
	if e := again.event(); e.Text("event.id") != "c" {
		t.Errorf("a new group gets %v", e)
	}
	pulled := fmt.Sprint(s.pulled(t, "t", "pulls", `{"wait_ms":5000,"opts":{"from":"earliest"}}`, 1))
	replayed := fmt.Sprint(s.replay(t, "topic=t"))
	latest := string(testkit.Call(t, "GET", s.URL()+"/v1/topics/t/latest", "").Body)
	for how, got := range map[string]string{"pull": pulled, "replay": replayed, "latest": latest} {
		if strings.Contains(got, "of a") || strings.Contains(got, "of b") || !strings.Contains(got, "of c") {
			t.Errorf("%s: %s", how, got)
		}
	}
	for _, id := range []string{"a", "b"} {
		if a := testkit.Call(t, "GET", s.URL()+"/v1/topics/t/events/"+id, ""); a.Status != 404 {
			t.Errorf("event %s: %d %s", id, a.Status, a.Body)
		}
	}
}

// "GET /export …: one event per line, ascending by (ts,id), both bounds inclusive; ndjson=0 one
// JSON array"
func TestExport(t *testing.T) {
	t.Parallel()
	s := shared(t)
	all := fill(t, s, "export.all", 60)
	for query, want := range map[string][]string{
		"": all, "&ndjson=1": all, "&fromTs=0&toTs=now": all, "&fromTs=1001": all[3:], "&toTs=1001": all[:6], "&fromTs=1001&toTs=1001": all[3:6],
		"&fromTs=2000&toTs=3000": nil, "&scope=store": all,
	} {
		a := testkit.Call(t, "GET", s.ReplayURL()+"/export?topic=export.all"+query, "")
		if kind := a.Header.Get("Content-Type"); a.Status != 200 || !strings.HasPrefix(kind, "application/x-ndjson") {
			t.Errorf("%s: %d %s %s", query, a.Status, kind, a.Body)
			continue
		}
		var got []string
		for line := range strings.Lines(string(a.Body)) {
			got = append(got, testkit.ParseObject(t, []byte(line)).Text("id"))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
		array := testkit.Call(t, "GET", s.ReplayURL()+"/export?topic=export.all&ndjson=0"+strings.Replace(query, "&ndjson=1", "", 1), "")
		var items []object
		if err := json.Unmarshal(array.Body, &items); err != nil || items == nil || !slices.Equal(ids(items), want) ||
			!strings.HasPrefix(array.Header.Get("Content-Type"), "application/json") {
			t.Errorf("%s as an array: %v %s", query, err, array.Body)
		}
	}
	if a := testkit.Call(t, "GET", s.ReplayURL()+"/export?topic=export.none", ""); a.Status != 200 || len(a.Body) != 0 {
		t.Errorf("a topic without events: %d %s", a.Status, a.Body)
	}
}

// "honours Accept-Encoding: gzip, zstd"
func TestExportEncodings(t *testing.T) {
	t.Parallel()
	s := shared(t)
	fill(t, s, "export.encoded", fewer(t, 500, 100))
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	link := s.ReplayURL() + "/export?topic=export.encoded"
	plain := testkit.CallWith(t, client, "GET", link, "")
	if plain.Header.Get("Content-Encoding") != "" {
		t.Errorf("not asked for: %v", plain.Header)
	}
	for accept, want := range map[string]string{"gzip": "gzip", "zstd": "zstd", "gzip, zstd": "any", "br": "", "gzip;q=0": "", "identity": "",
		"gzip;q=0, zstd": "zstd", "GZIP": "gzip"} {
		a := testkit.CallWith(t, client, "GET", link, "", "Accept-Encoding: "+accept)
		encoding := a.Header.Get("Content-Encoding")
		if want != "any" && encoding != want || want == "any" && encoding == "" {
			t.Errorf("Accept-Encoding: %s: %q", accept, encoding)
		}
		var body io.Reader = bytes.NewReader(a.Body)
		switch encoding {
		case "gzip":
			z, err := gzip.NewReader(body)
			require.NoError(t, err)
			body = z
		case "zstd":
			z, err := zstd.NewReader(body)
			require.NoError(t, err)
			defer z.Close()
			body = z
		}
		if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, plain.Body) {
			t.Errorf("Accept-Encoding: %s: %v, %d bytes of %d", accept, err, len(got), len(plain.Body))
		}
	}
}
