package replay

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

func TestFleetReplaySelects(t *testing.T) {
	f := twoPlaces()
	h := newFleetHandler(f)
	for _, tc := range []struct{ params, want string }{
		{"", "a b c d e f"},
		{"order=desc", "f e d c b a"},
		{"key=k", "c d"},
		{"from=ts&ts=2", "b c d e f"},
		{"from=ts&ts=3&order=desc", "f e d"},
		{"from=afterId&afterId=b", "c d e f"},
		{"from=afterId&afterId=d&order=desc", "f e"},
		{"from=afterId&afterId=c&order=desc&key=k", "d"},
		{"partial=ok", "a b c d e f"},
	} {
		w := get(h, "/replay?topic=orders&scope=fleet&"+tc.params)
		var p page
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 200 || strings.Contains(w.Body.String(), "partial") {
			t.Errorf("%s: %d %s, %v", tc.params, w.Code, w.Body, err)
		}
		equalIDs(t, tc.params, p.ids(), strings.Fields(tc.want))
	}
	if len(f.asked) != f.closed {
		t.Errorf("%d streams opened, %d closed", len(f.asked), f.closed)
	}
	if w := get(h, "/replay?topic=orders&scope=fleet&from=afterId&afterId=none"); w.Code != 404 {
		t.Errorf("unknown afterId: %d %s", w.Code, w.Body)
	}
	if w := get(h, "/replay?topic=orders"); w.Code != 500 {
		t.Errorf("scope=store does not read the store: %d", w.Code)
	}
}

func TestFleetTextsPassThroughAsTheyAre(t *testing.T) {
	f := twoPlaces()
	f.places[1].events[0].Payload = []byte(`{"b":1e400,"a":12345678901234567890}`)
	want := string(codec.AppendEventJSON(nil, &f.places[1].events[0].Event))
	for _, target := range []string{"/replay?topic=orders&scope=fleet", "/export?topic=orders&scope=fleet",
		"/export?topic=orders&scope=fleet&ndjson=0"} {
		if w := get(newFleetHandler(f), target); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %s", target, w.Body)
		}
	}
}

func TestAMissingPart(t *testing.T) {
	f := twoPlaces()
	f.places[1].away = true
	h := newFleetHandler(f)
	name := "node-2 (10.0.0.2:8083)"
	for _, target := range []string{
		"/replay?topic=orders&scope=fleet", "/export?topic=orders&scope=fleet", "/replay?topic=orders&scope=fleet&from=afterId&afterId=a",
	} {
		w := get(h, target)
		if e := codec.ParseErrorBody(w.Code, w.Body.Bytes()); w.Code != 502 || e.Code != wire.PartialFleet ||
			!slices.Equal(e.Missing, []string{name}) {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	var p struct {
		page
		Partial bool
		Missing []string
	}
	w := get(h, "/replay?topic=orders&scope=fleet&partial=ok")
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || !p.Partial || !slices.Equal(p.Missing, []string{name}) {
		t.Errorf("%s, %v", w.Body, err)
	}
	equalIDs(t, "partial page", p.ids(), []string{"a", "c", "f"})

	resp := fetch(t, serve(t, h), "/export?topic=orders&scope=fleet&partial=ok", "gzip")
	equalIDs(t, "partial export", lineIDs(t, decoded(t, resp)), []string{"a", "c", "f"})
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Fatal(err)
	}
	if resp.Trailer.Get(HeaderMissing) != name || resp.Header.Get(HeaderMissing) != name ||
		resp.Trailer.Get(HeaderParts) != "node-1=3, "+name+"=0" {
		t.Errorf("trailer %v, header %v", resp.Trailer, resp.Header)
	}
	for _, bad := range []string{"/replay?topic=orders&scope=fleet&partial=yes", "/export?topic=orders&scope=fleet&partial=",
		"/export?topic=orders&partial=no"} {
		if w := get(h, bad); w.Code != 400 || !strings.Contains(w.Body.String(), "partial") {
			t.Errorf("%s: %d %s", bad, w.Code, w.Body)
		}
	}
}

func TestAWholeExportNamesNothingMissing(t *testing.T) {
	resp := fetch(t, serve(t, newFleetHandler(twoPlaces())), "/export?topic=orders&scope=fleet", "identity")
	equalIDs(t, "export", lineIDs(t, resp.Body), []string{"a", "b", "c", "d", "e", "f"})
	if _, there := resp.Trailer[HeaderMissing]; there && resp.Trailer.Get(HeaderMissing) != "" || resp.Header.Get(HeaderMissing) != "" {
		t.Errorf("trailer %v, header %v", resp.Trailer, resp.Header)
	}
	if got := resp.Trailer.Get(HeaderParts); got != "node-1=3, node-2 (10.0.0.2:8083)=3" {
		t.Errorf("parts %q", got)
	}
	if resp.Header.Get(HeaderNodeID) != "node-1" || resp.Header.Get(HeaderStoreID) != "s-1" {
		t.Errorf("header %v", resp.Header)
	}
}

func TestNamesInHeaders(t *testing.T) {
	if got := missingText([]string{"a,b=c%", "ü\n"}); got != "a%2Cb%3Dc%25, %C3%BC%0A" {
		t.Errorf("%q", got)
	}
}

// TestPagingAFleetOfWhichPartsComeAndGo: over all pages, every event of a part that is there on the
// last ones is handed out once, however often it was away.
func TestPagingAFleetOfWhichPartsComeAndGo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fakeFleet{}
		var want []string
		for p := range rapid.IntRange(1, 3).Draw(t, "parts") {
			here := &place{name: fmt.Sprintf("node-%d", p)}
			for i := range rapid.IntRange(0, 12).Draw(t, "events") {
				id := fmt.Sprintf("%d-%02d", p, i)
				here.events = append(here.events, record(rapid.Int64Range(0, 5).Draw(t, "ts"), id, ""))
				want = append(want, id)
			}
			slices.SortFunc(here.events, func(a, b *eventlog.Record) int { return pointOf(a).Compare(pointOf(b)) })
			f.places = append(f.places, here)
		}
		h := newFleetHandler(f)
		params := values("topic", "orders", "scope", "fleet", "partial", "ok", "order",
			rapid.SampledFrom([]string{"asc", "desc"}).Draw(t, "order"))
		var got []string
		for range 200 {
			anyAway := false
			for _, p := range f.places {
				p.away = len(got) < len(want)/2 && rapid.Bool().Draw(t, "away")
				anyAway = anyAway || p.away
			}
			params.Set("limit", fmt.Sprint(rapid.IntRange(1, 4).Draw(t, "limit")))
			before := params.Get("cursor")
			p := replayPage(t, h, params)
			if p.Next == nil && anyAway {
				params.Set("cursor", before) // the client asks again later
				if before == "" {
					params.Del("cursor")
				}
				continue
			}
			if got = append(got, p.ids()...); p.Next == nil {
				break
			}
			params.Set("cursor", *p.Next)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("got %q, want %q", got, want)
		}
	})
}

func TestFleetQueries(t *testing.T) {
	f := twoPlaces()
	h := newFleetHandler(f)
	next := *replayPage(t, h, values("topic", "orders", "scope", "fleet", "limit", "2", "from", "afterId", "afterId", "a")).Next
	get(h, "/replay?cursor="+next+"&partial=ok")
	get(h, "/export?topic=orders&scope=fleet&fromTs=2&toTs=4&afterTs=2&afterId=c&order=desc&key=k")
	a := eventlog.Point{TS: 1, ID: "a"}
	c := eventlog.Point{TS: 2, ID: "c"}
	k := "k"
	for i, want := range []FleetQuery{
		{Topic: "orders", Scan: eventlog.ScanQuery{MinTS: 1, After: &a}, Start: &a, Limit: 3},
		{Topic: "orders", Scan: eventlog.ScanQuery{MinTS: 1, After: &c}, Start: &a, Limit: 1001, Partial: true, Continued: true},
		{Topic: "orders", Scan: eventlog.ScanQuery{MinTS: 2, MaxTS: 4, HasMaxTS: true, After: &c, Key: &k, Descending: true}, Continued: true},
	} {
		if got, want := fmt.Sprintf("%+v", shown(f.asked[i])), fmt.Sprintf("%+v", shown(want)); got != want {
			t.Errorf("query %d:\n%s\nwant\n%s", i, got, want)
		}
	}
}

// shown is a query without pointers.
func shown(q FleetQuery) []any {
	var out []any
	for _, p := range []*eventlog.Point{q.Scan.After, q.Start} {
		if p != nil {
			out = append(out, *p)
		} else {
			out = append(out, nil)
		}
	}
	if q.Scan.Key != nil {
		out = append(out, *q.Scan.Key)
	}
	q.Scan.After, q.Scan.Key, q.Start = nil, nil, nil
	return append(out, q)
}

func TestAFleetThatFailsMidway(t *testing.T) {
	for _, target := range []string{"/export?topic=orders&scope=fleet", "/export?topic=orders&scope=fleet&partial=ok"} {
		f := twoPlaces()
		f.ready = func(n int) bool { return n != 2 }
		f.block = func(n int) error {
			if n == 3 {
				return partialError([]string{"node-2"})
			}
			return nil
		}
		srv := serve(t, newFleetHandler(f))
		resp := fetch(t, srv, target, "identity")
		body, err := io.ReadAll(resp.Body)
		srv.Close()
		if resp.StatusCode != 200 || !errors.Is(err, io.ErrUnexpectedEOF) || strings.Count(string(body), "\n") != 2 {
			t.Errorf("%s: %s, %q, %v", target, resp.Status, body, err)
		}
		if f.closed != 1 {
			t.Errorf("%d of 1 streams closed", f.closed)
		}
	}
}

// TestFleetExportHandsOutWhatItHas waits for a part after each event, and reads what was there
// before.
func TestFleetExportHandsOutWhatItHas(t *testing.T) {
	for accept := range codings {
		f := twoPlaces()
		release := make(chan struct{})
		f.ready = func(int) bool { return false }
		f.block = func(n int) error {
			if n > 0 {
				<-release
			}
			return nil
		}
		resp := fetch(t, serve(t, newFleetHandler(f)), "/export?topic=orders&scope=fleet", accept)
		lines := bufio.NewScanner(decoded(t, resp))
		for i := range 6 {
			if !lines.Scan() || !strings.Contains(lines.Text(), fmt.Sprintf(`"id":"%c"`, 'a'+i)) {
				t.Fatalf("in %q: line %d is %q, %v", accept, i, lines.Text(), lines.Err())
			}
			release <- struct{}{}
		}
		if lines.Scan() {
			t.Errorf("in %q: more: %q", accept, lines.Text())
		}
	}
}

func TestExportProgress(t *testing.T) {
	f := twoPlaces()
	w := get(newFleetHandler(f), "/export?topic=orders&scope=fleet&progress=1")
	lines := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
	last := `{"progress":[{"part":"node-1","events":3},{"part":"node-2 (10.0.0.2:8083)","events":3}]}`
	if len(lines) < 7 || lines[len(lines)-1] != last {
		t.Errorf("%s", w.Body)
	}
	for _, target := range []string{"/export?topic=orders&scope=fleet&progress=1&ndjson=0", "/export?topic=orders&progress=yes"} {
		if w := get(newFleetHandler(f), target); w.Code != 400 || !strings.Contains(w.Body.String(), "progress") {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	alone := newHandler(newMemory(record(1, "a", "")))
	if w := get(alone, "/export?topic=orders&scope=fleet&progress=1"); strings.Count(w.Body.String(), "\n") != 1 {
		t.Errorf("a fleet of one: %s", w.Body)
	}
}

// TestHTTP10LearnsWhatIsMissing by the header, since it has no trailers.
func TestHTTP10LearnsWhatIsMissing(t *testing.T) {
	f := twoPlaces()
	f.places[1].away = true
	srv := serve(t, newFleetHandler(f))
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /export?topic=orders&scope=fleet&partial=ok HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(text), "Sluice-Missing: node-2 (10.0.0.2:8083)\r\n") || !strings.HasSuffix(string(text), "\n") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestFleetHead(t *testing.T) {
	for _, target := range []string{"/replay?topic=orders&scope=fleet", "/export?topic=orders&scope=fleet",
		"/export?topic=orders&scope=fleet&progress=1"} {
		w := httptest.NewRecorder()
		newFleetHandler(twoPlaces()).ServeHTTP(w, httptest.NewRequest(http.MethodHead, target, nil))
		if w.Code != 200 || w.Body.Len() > 0 {
			t.Errorf("HEAD %s: %d %q", target, w.Code, w.Body)
		}
	}
}

// TestTooMuchIsMissingForACursor has more parts away than a URL can tell of.
func TestTooMuchIsMissingForACursor(t *testing.T) {
	f := twoPlaces()
	for i := range 600 {
		f.places = append(f.places, &place{name: fmt.Sprintf("node-%040d", i), away: true})
	}
	w := get(newFleetHandler(f), "/replay?topic=orders&scope=fleet&partial=ok&limit=2")
	if w.Code != 502 || !strings.Contains(w.Body.String(), "cursor") {
		t.Errorf("%d %.200s", w.Code, w.Body)
	}
}
