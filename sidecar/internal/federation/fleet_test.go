package federation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

// soon makes peers that do not answer known within the test's time.
func soon(c Config) Config {
	c.HelloTimeout, c.StallTimeout = 5*time.Second, 2*time.Second
	c.SlowAfter, c.SlowEvery = 50*time.Millisecond, 100*time.Millisecond
	return c
}

// edge is an embedded sidecar with n events.
func edge(name string, n int, first, step int64) *node {
	return newNode(name, "store-of-"+name, newMemory(series(n, first, step, name)...), nil)
}

func merged(nodes ...*node) (want []string) {
	var all []*eventlog.Record
	seen := map[*memory]bool{}
	for _, n := range nodes {
		for _, m := range []*memory{n.log, n.spool} {
			if m != nil && !seen[m] {
				seen[m] = true
				all = append(all, m.events...)
			}
		}
	}
	for _, r := range newMemory(all...).events {
		want = append(want, r.ID)
	}
	return slices.Compact(want)
}

func wantExport(t *testing.T, f *Fleet, q replay.FleetQuery, want []string) {
	t.Helper()
	g, err := drain(mustOpen(t, f, q), 0)
	require.NoError(t, err)
	if !slices.Equal(g.ids(), want) {
		t.Fatalf("got %d events, want %d", len(g.ids()), len(want))
	}
}

func wantPartial(t *testing.T, err error, missing ...string) {
	t.Helper()
	var e *wire.Error
	if !errors.As(err, &e) {
		t.Fatalf("got %v; want partial_fleet without %q", err, missing)
	}
	if e.Code != wire.PartialFleet || !slices.Equal(e.Missing, missing) {
		t.Fatalf("got %v, missing %q; want partial_fleet without %q", err, e.Missing, missing)
	}
}

// TestCopiedStoreIsMissing: a folder that was copied keeps its store's id, and has gone its own way
// since: it is not taken for another way to the same events.
func TestCopiedStoreIsMissing(t *testing.T) {
	self, a, b := edge("self", 10, 1, 7), edge("a", 10, 2, 7), edge("b", 10, 3, 7)
	for _, id := range []string{a.who.StoreID, self.who.StoreID} {
		b.who.StoreID = id
		f := inMemory(config(self), a, b)
		_, err := f.Open(t.Context(), replay.FleetQuery{Topic: topic})
		wantPartial(t, err, "b (b:1)")
		if !strings.Contains(err.Error(), "copy") {
			t.Error(err)
		}
		wantExport(t, f, replay.FleetQuery{Partial: true}, merged(self, a))
	}
	// One that does not answer any more may have been where the other is now.
	late := edge("late", 10, 3, 7)
	late.who.StoreID, late.log = a.who.StoreID, nil
	wantExport(t, inMemory(config(self), late, a), replay.FleetQuery{Partial: true}, merged(self, a))
}

// TestPeersOverHTTP merges embedded stores and a shared one with spools.
func TestPeersOverHTTP(t *testing.T) {
	self, a := edge("self", 3000, 1, 7), edge("a", 5000, 2, 5)
	region := newMemory(series(4000, 3, 6, "region")...)
	b := newNode("b", "region", region, newMemory(series(10, 100_000, 1, "spool-b")...))
	c := newNode("c", "region", region, newMemory(region.events[5:9]...)) // drained, not yet removed
	c0 := config(self, serve(t, a).peer(), serve(t, b).peer(), serve(t, c).peer())
	wantExport(t, newFleet(t, c0), replay.FleetQuery{}, merged(self, a, b, c))

	key := "none"
	wantExport(t, newFleet(t, c0), replay.FleetQuery{Scan: eventlog.ScanQuery{Key: &key}}, nil)
	wantExport(t, newFleet(t, c0), replay.FleetQuery{Scan: eventlog.ScanQuery{MinTS: 5, MaxTS: 4}}, nil)

	down := merged(self, a, b, c)
	slices.Reverse(down)
	g, err := drain(mustOpen(t, newFleet(t, c0), replay.FleetQuery{Scan: eventlog.ScanQuery{Descending: true}}), 0)
	if err != nil || !slices.Equal(g.ids(), down) {
		t.Fatalf("descending: %d events, %v", len(g.ids()), err)
	}
}

// TestOneSidecarUnderManyAddresses is asked once.
func TestOneSidecarUnderManyAddresses(t *testing.T) {
	self, a := edge("self", 10, 1, 2), edge("a", 10, 2, 2)
	me, first, second := serve(t, self), serve(t, a), serve(t, a)
	f := newFleet(t, config(self, Peer{Address: me.address}, Peer{Address: first.address}, Peer{Address: second.address}))
	wantExport(t, f, replay.FleetQuery{}, merged(self, a))
	if n := me.exports.Load() + first.exports.Load() + second.exports.Load(); n != 1 {
		t.Errorf("%d exports were asked of peers, want 1", n)
	}
	if m := f.Members(t.Context()); len(m) != 2 || !m[0].Self || !m[1].Reachable || m[1].NodeID != "a" {
		t.Errorf("members %+v", m)
	}
}

// inOrder is a member whose store is asked for only when all spools are frozen.
type inOrder struct {
	member
	frozen *atomic.Int64
	all    int64
}

func (m inOrder) open(ctx context.Context, a ask) (io.ReadCloser, bool, error) {
	if a.part == replay.PartLog && m.frozen.Load() < m.all {
		return nil, false, errors.New("a spool is not frozen yet")
	}
	text, empty, err := m.member.open(ctx, a)
	if a.part == replay.PartSpool {
		m.frozen.Add(1)
	}
	return text, empty, err
}

// TestSpoolsAreFrozenFirst is what the package's comment builds on.
func TestSpoolsAreFrozenFirst(t *testing.T) {
	nodes := map[string]*node{}
	var peers []Peer
	for i := range 50 {
		name := fmt.Sprint("n", i)
		nodes[name] = newNode(name, fmt.Sprint("store-", i%3), newMemory(), newMemory())
		peers = append(peers, Peer{Address: name})
	}
	f := newFleet(t, config(edge("self", 5, 1, 1), peers...))
	var frozen atomic.Int64
	f.reach = func(p Peer) member { return inOrder{nodes[p.Address].local(), &frozen, int64(len(nodes))} }
	wantExport(t, f, replay.FleetQuery{}, merged(edge("self", 5, 1, 1)))
}

func TestMissing(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed.Close()
	nobody := closed.Addr().String()
	self, a := edge("self", 10, 1, 2), edge("a", 10, 2, 2)
	region := newMemory(series(10, 3, 2, "region")...)
	away := newMemory()
	away.err = eventlog.ErrUnavailable
	waiting := newMemory(series(3, 100, 1, "spool")...)

	for _, tc := range []struct {
		name    string
		peers   func(t *testing.T) []Peer
		missing []string
		want    []string // of the partial answer
	}{
		{"an address where nobody is", func(t *testing.T) []Peer { return []Peer{{Address: nobody}, serve(t, a).peer()} },
			[]string{nobody}, merged(self, a)},
		{"a sidecar of a store that another one has", func(t *testing.T) []Peer {
			return []Peer{{NodeID: "dead", Instance: "i", StoreID: "region", Address: nobody},
				serve(t, newNode("b", "region", region, newMemory())).peer()}
		}, []string{"dead (" + nobody + ")"}, merged(self, newNode("", "", region, nil))},
		{"a store that its sidecar cannot reach, not its spool", func(t *testing.T) []Peer {
			return []Peer{{Address: serve(t, newNode("b", "region", away, waiting)).address}}
		}, []string{"b"}, merged(self, newNode("", "", waiting, nil))},
		{"a store that its sidecar never reached", func(t *testing.T) []Peer {
			return []Peer{{Address: serve(t, newNode("b", "", away, waiting)).address}}
		}, []string{"b"}, merged(self, newNode("", "", waiting, nil))},
		{"a port that another sidecar has now", func(t *testing.T) []Peer {
			return []Peer{{NodeID: "b", Instance: "b", StoreID: "old", Address: serve(t, a).address}}
		}, []string{"b"}, merged(self, a)},
		{"a data folder that its sidecar has no more", func(t *testing.T) []Peer {
			back := serve(t, newNode("b", "region", region, newMemory()))
			back.who.FolderID = "fresh"
			lost := Peer{NodeID: "b", Instance: "its last life", StoreID: "region", FolderID: "lost", Address: back.address, Gone: true}
			return []Peer{lost, back.peer()}
		}, []string{"b"}, merged(self, newNode("", "", region, nil))},
		{"what never was a sidecar", func(t *testing.T) []Peer {
			s := httptest.NewServer(http.NotFoundHandler())
			t.Cleanup(s.Close)
			return []Peer{{Address: strings.TrimPrefix(s.URL, "http://")}}
		}, []string{""}, merged(self)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			peers := tc.peers(t)
			f := newFleet(t, soon(config(self, peers...)))
			_, err := f.Open(t.Context(), replay.FleetQuery{Topic: topic})
			var e *wire.Error
			if !errors.As(err, &e) || e.Code != wire.PartialFleet || len(e.Missing) != len(tc.missing) ||
				!strings.HasPrefix(e.Missing[0], tc.missing[0]) {
				t.Fatalf("got %v, want partial_fleet without %q", err, tc.missing)
			}
			s := mustOpen(t, f, replay.FleetQuery{Partial: true})
			g, err := drain(s, 0)
			if err != nil || !slices.Equal(g.ids(), tc.want) || !slices.Equal(s.Missing(), e.Missing) {
				t.Fatalf("%q, %v, missing %q; want %q", g.ids(), err, s.Missing(), tc.want)
			}
			if _, err := f.Lookup(t.Context(), topic, "self-00000001", false); !errors.Is(err, &wire.Error{Code: wire.PartialFleet}) {
				t.Errorf("look-up: %v", err)
			}
			if p, err := f.Lookup(t.Context(), topic, "self-00000001", true); err != nil || p.TS != 1 {
				t.Errorf("partial look-up: %v, %v", p, err)
			}
		})
	}
}

// TestWhatOfTheFleetIsNotKnown is named like a sidecar that does not answer.
func TestWhatOfTheFleetIsNotKnown(t *testing.T) {
	c := config(edge("self", 3, 1, 1))
	c.Unknown = func() string { return "the control plane (10.0.0.1:18000)" }
	f := newFleet(t, c)
	_, err := f.Open(t.Context(), replay.FleetQuery{Topic: topic})
	wantPartial(t, err, "the control plane (10.0.0.1:18000)")
	s := mustOpen(t, f, replay.FleetQuery{Partial: true, Limit: 2})
	if g, err := drain(s, 2); err != nil || len(g.places) != 2 {
		t.Fatal(g, err)
	}
	if b := s.Behind(); len(b) != 2 || b[0].Part != "asked:store:store-of-self" || b[1].Part != "rest:" {
		t.Errorf("behind %+v", b)
	}
}

// TestAlone: without peers it is the store's own error that counts.
func TestAlone(t *testing.T) {
	n := edge("self", 3, 1, 1)
	wantExport(t, newFleet(t, config(n)), replay.FleetQuery{}, merged(n))
	n.log.err, n.who.StoreID = eventlog.ErrUnavailable, ""
	for _, partial := range []bool{false, true} {
		_, err := newFleet(t, config(n)).Open(t.Context(), replay.FleetQuery{Topic: topic, Partial: partial})
		if !errors.Is(err, eventlog.ErrUnavailable) || errors.Is(err, &wire.Error{Code: wire.PartialFleet}) {
			t.Errorf("partial %v: %v", partial, err)
		}
	}
}

// TestAnEmbeddedSidecarThatDied has no spool to miss, once it was known.
func TestAnEmbeddedSidecarThatDied(t *testing.T) {
	self, a := edge("self", 3, 1, 1), edge("a", 3, 1, 1)
	s := serve(t, a)
	f := newFleet(t, soon(config(self, s.peer())))
	wantExport(t, f, replay.FleetQuery{}, merged(self, a))
	s.http.CloseClientConnections()
	s.http.Listener.Close()
	st := mustOpen(t, f, replay.FleetQuery{Partial: true})
	if b := st.Behind(); len(b) != 1 || b[0].Part != "store:store-of-a" {
		t.Errorf("behind %+v", b)
	}
}

// TestBackpressure: a client that does not read stops the peers, within what the stream may read
// ahead and what their connections hold.
func TestBackpressure(t *testing.T) {
	const events, payload = 30_000, 1000
	var log []*eventlog.Record
	for i := range int64(events) {
		log = append(log, record(i+1, "x-"+strings.Repeat("0", 8), "", strings.Repeat("p", payload)))
		log[i].ID = "x-" + string(rune('a'+i%26)) + "-" + time.UnixMilli(i).UTC().Format("150405.000")
	}
	s := serve(t, newNode("a", "a", newMemory(log...), nil))
	c := config(edge("self", 3, 1, 1), s.peer())
	c.BufferBytes = 1 << 20
	st := mustOpen(t, newFleet(t, c), replay.FleetQuery{})
	if _, err := drain(st, 10); err != nil {
		t.Fatal(err)
	}
	settled := s.sent.Load()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); {
		time.Sleep(100 * time.Millisecond) // a real connection: only time shows that nothing more comes
		if now := s.sent.Load(); now == settled {
			break
		} else {
			settled = now
		}
	}
	for _, p := range st.(*stream).parts {
		if held := p.buffered.Load(); held > p.share+chunkBytes {
			t.Errorf("%s holds %d bytes, its share is %d", p.name, held, p.share)
		}
	}
	if whole := int64(events * payload); settled > whole/2 {
		t.Errorf("the peer sent %d bytes of %d to a client that does not read", settled, whole)
	}
	if g, err := drain(st, 0); err != nil || len(g.places) != events+3-10 {
		t.Errorf("then %d events, %v", len(g.places), err)
	}
}

// TestCloseInTheMiddle leaves nothing behind, at any place of the readers.
func TestCloseInTheMiddle(t *testing.T) {
	stalls := serve(t, edge("stalls", 5000, 1, 3))
	stalls.stallAfter.Store(3000)
	c := config(edge("self", 5000, 1, 2), serve(t, edge("a", 50_000, 2, 2)).peer(), stalls.peer())
	c.BufferBytes = 1
	f := newFleet(t, c)
	s := mustOpen(t, f, replay.FleetQuery{})
	if _, err := drain(s, 100); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s.Close()
	if _, _, err := s.Next(); err == nil || err == io.EOF {
		t.Errorf("after the end: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	again, err := f.Open(ctx, replay.FleetQuery{Topic: topic})
	require.NoError(t, err)
	defer again.Close()
	cancel()
	if _, err := drain(again, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("with its client gone: %v", err)
	}
}

func TestStreamsAtATime(t *testing.T) {
	places := budget.DefaultPlaces()
	places[budget.FleetReplays] = 2
	all := budget.New(budget.Bounds{Memory: 1 << 30, Places: places})
	f := newFleet(t, config(edge("self", 3, 1, 1)))
	q := replay.FleetQuery{Topic: topic, Share: all.Of("a")}
	one, two := mustOpen(t, f, q), mustOpen(t, f, q)
	_, err := f.Open(t.Context(), q)
	var e *wire.Error
	if !errors.As(err, &e) || e.Code != wire.Overloaded || e.RetryAfter <= 0 {
		t.Fatal(err)
	}
	one.Close()
	mustOpen(t, f, q).Close()
	if g, err := drain(two, 0); err != nil || len(g.places) == 0 || all.Used() < 4<<20 {
		t.Errorf("%d events, %v; %d bytes are taken", len(g.places), err, all.Used())
	}
	two.Close()
	if all.Used() != 0 {
		t.Errorf("%d bytes are left taken", all.Used())
	}
}

// TestASlowPartIsNamed in the log while it is waited for.
func TestASlowPartIsNamed(t *testing.T) {
	t.Parallel()
	s := serve(t, edge("slow", 2500, 1, 3))
	s.stallAfter.Store(1000)
	var log lockedbuffer.Buffer
	c := soon(config(edge("self", 2500, 1, 3), s.peer()))
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	_, err := drain(mustOpen(t, newFleet(t, c), replay.FleetQuery{}), 0)
	if err != nil {
		t.Fatal(err) // it goes on each time, a thousand events further
	}
	if text := log.String(); !strings.Contains(text, `part="store of slow"`) || !strings.Contains(text, "waits for one part") {
		t.Errorf("the log says\n%s", text)
	}
}

// TestPagesAskForLittle: a peer is not made to send much more than a page, and a page is whole also
// where it is not all new.
func TestPagesAskForLittle(t *testing.T) {
	self, a := edge("self", 0, 1, 1), edge("a", 3000, 1, 1)
	for _, r := range a.log.events[:500] { // with a's ids, but elsewhere
		copied := *r
		copied.TS = max(1, r.TS-1)
		self.log.events = append(self.log.events, &copied)
	}
	self.log = newMemory(self.log.events...)
	s := serve(t, a)
	f := newFleet(t, config(self, s.peer()))
	var ids []string
	for q := (replay.FleetQuery{Limit: 100}); ; {
		st := mustOpen(t, f, q)
		g, err := drain(st, 100)
		require.NoError(t, err)
		if query := *s.lastQuery.Load(); !strings.Contains(query, "limit=101") {
			t.Fatalf("asked with %s", query)
		}
		ids = append(ids, g.ids()...)
		st.Close()
		if len(g.places) < 100 {
			break
		}
		q.Continued, q.Scan.After = true, &g.places[99]
	}
	if !slices.Equal(ids, merged(a)) {
		t.Errorf("%d ids of 3000", len(ids))
	}
	if s.asks.Load() == 0 {
		t.Error("the peer was never asked for ids")
	}
}

func TestExportParams(t *testing.T) {
	key, after := "a b", eventlog.Point{TS: 7, ID: `&"=`}
	q := exportParams(ask{part: replay.PartLog, topic: topic, limit: 3,
		scan: eventlog.ScanQuery{MaxTS: math.MaxInt64, Key: &key, After: &after, Descending: true}})
	const want = `afterId=%26%22%3D&afterTs=7&fromTs=0&key=a+b&limit=3&order=desc&part=log&scope=store&toTs=9007199254740991&topic=orders`
	if got := q.Encode(); got != want {
		t.Errorf("got %s", got)
	}
}

// TestUnixSocket reaches a peer by unix:/path, and shows it who asks.
func TestUnixSocket(t *testing.T) {
	n := edge("a", 100, 1, 1)
	path := filepath.Join(t.TempDir(), "a.sock")
	ln, err := net.Listen("unix", path)
	require.NoError(t, err)
	inner := serve(t, n).http.Config.Handler
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" || r.Host != "localhost" {
			w.WriteHeader(401)
			return
		}
		inner.ServeHTTP(w, r)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Serve(ln) }()
	t.Cleanup(func() { s.Close(); <-done })
	c := config(edge("self", 1, 1, 1), Peer{Address: "unix:" + path})
	_, err = newFleet(t, c).Open(t.Context(), replay.FleetQuery{Topic: topic})
	if wantPartial(t, err, "unix:"+path); !strings.Contains(err.Error(), "refuses the peer token") {
		t.Error(err)
	}
	c.Authorize = func(r *http.Request, _ string) { r.Header.Set("Authorization", "Bearer secret") }
	wrapped := 0
	c.Transport = func(next http.RoundTripper) http.RoundTripper { wrapped++; return next }
	g, err := drain(mustOpen(t, newFleet(t, c), replay.FleetQuery{}), 0)
	if err != nil || len(g.places) != 101 || wrapped != 1 {
		t.Errorf("%d events, %v, wrapped %d times", len(g.places), err, wrapped)
	}
}

func TestLookup(t *testing.T) {
	shared := newMemory(record(5, "x", "", "region"))
	b := newNode("b", "region", shared, newMemory(record(2, "y", "", "spool")))
	f := newFleet(t, config(newNode("self", "self", newMemory(record(7, "x", "", "self")), nil), serve(t, b).peer()))
	for id, ts := range map[string]int64{"x": 5, "y": 2} {
		if p, err := f.Lookup(t.Context(), topic, id, false); err != nil || p != (eventlog.Point{TS: ts, ID: id}) {
			t.Errorf("%s: %v, %v", id, p, err)
		}
	}
	if _, err := f.Lookup(t.Context(), topic, "z", false); !errors.Is(err, eventlog.ErrNotFound) {
		t.Error(err)
	}
}
