package replay

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-bus/sluice/internal/httpapi/coding"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

func TestExportRange(t *testing.T) {
	h := newHandler(newMemory(
		record(0, "a", ""), record(5, "c", "k"), record(5, "b", ""), record(1_000_000, "now", "k"), record(1_000_001, "later", "")))
	for _, tc := range []struct{ params, want string }{
		{"", "a b c now later"},
		{"&scope=fleet", "a b c now later"},
		{"&toTs=now", "a b c now"},
		{"&fromTs=5&toTs=5", "b c"},
		{"&fromTs=1&toTs=1000001", "b c now later"},
		{"&fromTs=6&toTs=7", ""},
		{"&toTs=0", "a"},
		{"&fromTs=1000001", "later"},
		{"&fromTs=1000001&toTs=now", ""},
		{"&fromTs=1000001", "later"},
		{"&fromTs=1000002", ""},
		{"&key=k", "c now"},
		{"&scope=fleet&ndjson=1&fromTs=0&toTs=5", "a b c"},
	} {
		w := get(h, "/export?topic=orders"+tc.params)
		if w.Code != 200 || w.Header().Get("Content-Type") != "application/x-ndjson" {
			t.Errorf("%s: %d %v", tc.params, w.Code, w.Header())
		}
		equalIDs(t, tc.params, lineIDs(t, w.Body), strings.Fields(tc.want))

		w = get(h, "/export?topic=orders&ndjson=0"+strings.Replace(tc.params, "&ndjson=1", "", 1))
		if w.Header().Get("Content-Type") != "application/json" {
			t.Errorf("array: Content-Type %q", w.Header().Get("Content-Type"))
		}
		equalIDs(t, "array "+tc.params, arrayIDs(t, w.Body), strings.Fields(tc.want))
	}
	if w := get(h, "/export?topic=nothing"); w.Code != 200 || w.Body.Len() != 0 {
		t.Errorf("a topic without events: %d %q", w.Code, w.Body)
	}
}

// An export without toTs ends although somebody publishes all the time, and has what was there
// before, also ahead of the clocks.
func TestExportEndsWhilePublished(t *testing.T) {
	for _, params := range []string{"", "&part=log", "&part=log&toTs=9007199254740991"} {
		m := newMemory(record(0, "a", ""), record(1_000_000, "now", ""), record(1_000_005, "ahead", ""))
		m.onScan = func(n int) error {
			if n > 100 {
				return errors.New("there is no end")
			}
			m.topics["orders"] = append(m.topics["orders"], record(int64(1_000_005+n), fmt.Sprintf("new-%03d", n), ""))
			return nil
		}
		w := get(New(Config{Store: m, Parts: Parts{Log: m}, Logger: slog.New(slog.DiscardHandler), Now: now}), "/export?topic=orders"+params)
		if ids := lineIDs(t, w.Body); w.Code != 200 || len(ids) < 3 || len(ids) > 10 || !slices.Equal(ids[:3], []string{"a", "now", "ahead"}) {
			t.Errorf("%q: %d %v", params, w.Code, ids)
		}
	}
}

// lineIDs reads NDJSON, which has a line feed after every line.
func lineIDs(t *testing.T, r io.Reader) (ids []string) {
	t.Helper()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF && len(line) == 0 {
			return ids
		}
		var e struct{ ID string }
		if err != nil || json.Unmarshal(line, &e) != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		ids = append(ids, e.ID)
	}
}

func arrayIDs(t *testing.T, r io.Reader) []string {
	t.Helper()
	var events []struct{ ID string }
	if err := json.NewDecoder(r).Decode(&events); err != nil || events == nil {
		t.Fatalf("no array: %v", err)
	}
	ids := make([]string, len(events))
	for i, e := range events {
		ids[i] = e.ID
	}
	return ids
}

// serve runs the handler behind a real socket.
func serve(t *testing.T, h http.Handler) *httptest.Server {
	srv := httptest.NewUnstartedServer(h)
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.Start()
	t.Cleanup(srv.Close)
	return srv
}

// fetch asks with an Accept-Encoding and without undoing the coding.
func fetch(t *testing.T, srv *httptest.Server, target, acceptEncoding string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+target, nil)
	require.NoError(t, err)
	req.Header.Set("Accept-Encoding", acceptEncoding)
	resp, err := srv.Client().Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// decoded undoes an answer's coding.
func decoded(t *testing.T, resp *http.Response) io.Reader {
	t.Helper()
	switch how := resp.Header.Get("Content-Encoding"); how {
	case coding.Identity:
		return resp.Body
	case coding.Gzip:
		r, err := gzip.NewReader(resp.Body)
		require.NoError(t, err)
		return r
	case coding.Zstd:
		r, err := zstd.NewReader(resp.Body, zstd.WithDecoderConcurrency(1))
		require.NoError(t, err)
		t.Cleanup(r.Close)
		return r
	default:
		t.Fatalf("Content-Encoding %q", how)
		return nil
	}
}

// codings is an Accept-Encoding for each Content-Encoding.
var codings = map[string]string{"identity": coding.Identity, "gzip": coding.Gzip, "gzip, zstd": coding.Zstd}

func TestExportInEveryCoding(t *testing.T) {
	events := many(5000, 100)
	var want []string
	for _, r := range events {
		want = append(want, r.ID)
	}
	srv := serve(t, newHandler(newMemory(events...)))
	for accept, how := range codings {
		for range 2 { // the second time with an encoder that was used before
			resp := fetch(t, srv, "/export?topic=orders", accept)
			if resp.Header.Get("Content-Encoding") != how || resp.Header.Get("Vary") != "Accept-Encoding" {
				t.Errorf("Accept-Encoding %q: %v", accept, resp.Header)
			}
			equalIDs(t, accept, lineIDs(t, decoded(t, resp)), want)
			equalIDs(t, accept+", array", arrayIDs(t, decoded(t, fetch(t, srv, "/export?topic=orders&ndjson=0", accept))), want)
		}
	}
}

func TestAnEmptyExportIsWholeInItsCoding(t *testing.T) {
	srv := serve(t, newHandler(newMemory()))
	for accept, how := range codings {
		resp := fetch(t, srv, "/export?topic=orders", accept)
		raw, err := io.ReadAll(resp.Body)
		if err != nil || (len(raw) > 0) != (how != coding.Identity) {
			t.Errorf("in %q: %d bytes, %v", accept, len(raw), err)
		}
		resp.Body = io.NopCloser(bytes.NewReader(raw))
		equalIDs(t, accept, lineIDs(t, decoded(t, resp)), nil)
	}
}

// failing yields pages and then an error.
func failing() *memory {
	m := newMemory(many(5000, 100)...)
	m.onScan = func(n int) error {
		if n == 3 {
			return errors.New("disk on fire")
		}
		return nil
	}
	return m
}

func TestAFailureMidwayCannotBeTakenForTheEnd(t *testing.T) {
	for _, target := range []string{"/export?topic=orders", "/export?topic=orders&ndjson=0", "/replay?topic=orders&limit=5000"} {
		for accept := range codings {
			resp := fetch(t, serve(t, newHandler(failing())), target, accept)
			if resp.StatusCode != 200 {
				t.Fatalf("%s: %s", target, resp.Status)
			}
			raw, err := io.ReadAll(resp.Body)
			if !errors.Is(err, io.ErrUnexpectedEOF) || len(raw) == 0 {
				t.Errorf("%s in %q: %d bytes, then %v", target, accept, len(raw), err)
			}
			if accept == "identity" {
				continue
			}
			// Nor does what arrived pass for a whole of its coding.
			resp.Body = io.NopCloser(bytes.NewReader(raw))
			if text, err := io.ReadAll(decoded(t, resp)); err == nil || len(text) == 0 {
				t.Errorf("%s in %q: decodes to %d bytes without an error", target, accept, len(text))
			}
		}
	}
}

func TestAFailureMidwayResetsHTTP10(t *testing.T) {
	srv := serve(t, newHandler(failing()))
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /export?topic=orders HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, conn); err == nil {
		t.Error("a broken export ended like a whole one")
	}
}

// watched reports when a request is over.
func watched(h http.Handler) (http.Handler, <-chan struct{}) {
	over := make(chan struct{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(over)
		h.ServeHTTP(w, r)
	}), over
}

// endless yields the same page over and over.
type endless struct{ *memory }

func (e endless) Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	q.After = nil
	return e.memory.Scan(ctx, topic, q, b)
}

func TestExportEndsWhenTheClientLeaves(t *testing.T) {
	for accept := range codings {
		h, over := watched(newHandler(endless{newMemory(many(2000, 100)...)}))
		resp := fetch(t, serve(t, h), "/export?topic=orders", accept)
		if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		<-over
	}
}

func TestExportCutsOffAClientThatDoesNotRead(t *testing.T) {
	h, over := watched(New(Config{
		Store: endless{newMemory(many(2000, 100)...)}, Logger: slog.New(slog.DiscardHandler), Now: now, StallTimeout: 20 * time.Millisecond,
	}))
	// It may be cut off before it has even seen the answer's head.
	srv := serve(t, h)
	if resp, err := srv.Client().Get(srv.URL + "/export?topic=orders"); err == nil {
		defer resp.Body.Close()
	}
	<-over
}

func TestExportHandsOutWhatItHasWhileTheStoreIsSlow(t *testing.T) {
	for accept := range codings {
		m := newMemory(many(3000, 10)...)
		asked, release := make(chan struct{}), make(chan struct{})
		m.onScan = func(n int) error {
			if n == 2 {
				close(asked)
				<-release
			}
			return nil
		}
		resp := fetch(t, serve(t, newHandler(m)), "/export?topic=orders&toTs=now", accept)
		lines := bufio.NewScanner(decoded(t, resp))
		for i := range pageEvents {
			if !lines.Scan() || !strings.Contains(lines.Text(), fmt.Sprintf("id-%08d", i)) {
				t.Fatalf("in %q: line %d is %q, %v", accept, i, lines.Text(), lines.Err())
			}
		}
		<-asked
		close(release)
	}
}

// TestExportMemoryIsFlat: an export ten times as long holds no more at a time, which shows in what
// it allocates per event.
func TestExportMemoryIsFlat(t *testing.T) {
	allocs := func(n int) float64 {
		h := newHandler(newMemory(many(n, 100)...))
		r := httptest.NewRequest("GET", "/export?topic=orders", nil)
		return testing.AllocsPerRun(3, func() { h.ServeHTTP(&sink{header: http.Header{}}, r) })
	}
	short, long := allocs(2_000), allocs(20_000)
	if perEvent := (long - short) / 18_000; perEvent > 0.1 {
		t.Errorf("%.2f allocations per event", perEvent)
	}
}

// sink is a client that takes everything and keeps nothing.
type sink struct {
	header http.Header
	bytes  int
}

func (s *sink) Header() http.Header         { return s.header }
func (s *sink) WriteHeader(int)             {}
func (s *sink) Write(p []byte) (int, error) { s.bytes += len(p); return len(p), nil }

func BenchmarkExport(b *testing.B) {
	const events = 100_000
	m := newMemory(many(events, 250)...)
	h := newHandler(m)
	for accept := range codings {
		b.Run(accept, func(b *testing.B) {
			r := httptest.NewRequest("GET", "/export?topic=orders", nil)
			r.Header.Set("Accept-Encoding", accept)
			b.ReportAllocs()
			for b.Loop() {
				h.ServeHTTP(&sink{header: http.Header{}}, r)
			}
			b.ReportMetric(float64(events*b.N)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
