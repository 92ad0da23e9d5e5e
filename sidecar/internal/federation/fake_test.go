package federation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/test/require"
)

const topic = "orders"

// memory is a store, or a spool, with the events of one topic in order.
type memory struct {
	events []*eventlog.Record
	byID   map[string]*eventlog.Record
	err    error
}

func newMemory(events ...*eventlog.Record) *memory {
	m := &memory{events: slices.Clone(events), byID: map[string]*eventlog.Record{}}
	for _, r := range m.events {
		m.byID[r.ID] = r
	}
	slices.SortFunc(m.events, func(a, b *eventlog.Record) int { return pointOf(a).Compare(pointOf(b)) })
	return m
}

func pointOf(r *eventlog.Record) eventlog.Point { return eventlog.Point{TS: r.TS, ID: r.ID} }

func record(ts int64, id, key, payload string) *eventlog.Record {
	return &eventlog.Record{Event: wire.Event{ID: id, TS: ts, Topic: topic, Key: key, Payload: []byte(`"` + payload + `"`)}}
}

// series makes n events, ts rising from first by step, ids by ts.
func series(n int, first, step int64, origin string) []*eventlog.Record {
	var out []*eventlog.Record
	for i := range int64(n) {
		ts := first + i*step
		out = append(out, record(ts, fmt.Sprintf("%s-%08d", origin, ts), "", origin))
	}
	return out
}

func selects(q eventlog.ScanQuery, r *eventlog.Record) bool {
	inTime := r.TS >= q.MinTS && r.TS <= q.Upper()
	after := q.After == nil || precedes(*q.After, pointOf(r), q.Descending)
	return inTime && after && (q.Key == nil || *q.Key == r.Key)
}

func (m *memory) Scan(ctx context.Context, _ string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	if err := errors.Join(m.err, ctx.Err()); err != nil {
		return nil, err
	}
	from := 0
	if q.After != nil {
		var found bool
		from, found = slices.BinarySearchFunc(m.events, *q.After, func(r *eventlog.Record, p eventlog.Point) int { return pointOf(r).Compare(p) })
		if q.Descending {
			from--
		} else if found {
			from++
		}
	} else if q.Descending {
		from = len(m.events) - 1
	}
	step := 1
	if q.Descending {
		step = -1
	}
	var page []*eventlog.Record
	for size := 0; from >= 0 && from < len(m.events) && len(page) < b.Events && (b.Bytes == 0 || size < b.Bytes); from += step {
		if r := m.events[from]; selects(q, r) {
			page, size = append(page, r), size+r.Size()
		}
	}
	return page, nil
}

func (m *memory) Lookup(_ context.Context, _, id string) (*eventlog.Record, error) {
	if r := m.byID[id]; r != nil && m.err == nil {
		return r, nil
	}
	return nil, cmp.Or(m.err, eventlog.ErrNotFound)
}

func (m *memory) Close() {}

// node is a sidecar: its store, perhaps shared with others, and its spool.
type node struct {
	who   replay.Peer
	log   *memory
	spool *memory // nil: embedded
}

func newNode(name, store string, log, spool *memory) *node {
	return &node{who: replay.Peer{NodeID: name, Instance: "life-of-" + name, StoreID: store, Shared: spool != nil}, log: log, spool: spool}
}

func (n *node) Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	return nil, errors.New("the federation reads the parts")
}

func (n *node) Lookup(ctx context.Context, topic, id string) (*eventlog.Record, error) {
	rec, err := n.log.Lookup(ctx, topic, id)
	if errors.Is(err, eventlog.ErrNotFound) && n.spool != nil {
		return n.spool.Lookup(ctx, topic, id)
	}
	return rec, err
}

func (n *node) parts() replay.Parts {
	p := replay.Parts{Log: n.log}
	if n.spool != nil {
		p.Spool = func(context.Context, string) (eventlog.Snapshot, error) { return n.spool, n.spool.err }
	}
	return p
}

func (n *node) local() *local {
	return &local{self: func() replay.Peer { return n.who }, parts: n.parts(), store: n}
}

// config is of a fleet that self is in.
func config(self *node, peers ...Peer) Config {
	return Config{
		Self: self.local().self, Parts: self.parts(), Store: self,
		Peers: func() []Peer { return peers }, Logger: slog.New(slog.DiscardHandler),
	}
}

// inMemory is a fleet without HTTP.
func inMemory(c Config, others ...*node) *Fleet {
	byName := map[string]*node{}
	var peers []Peer
	for _, n := range others {
		byName[n.who.NodeID] = n
		peers = append(peers, Peer{NodeID: n.who.NodeID, StoreID: n.who.StoreID, Instance: n.who.Instance, Address: n.who.NodeID + ":1"})
	}
	c.Peers = func() []Peer { return peers }
	f := New(c)
	f.reach = func(p Peer) member {
		if n := byName[p.NodeID]; n.log != nil {
			return n.local()
		}
		return dead{}
	}
	return f
}

// dead is a sidecar that nobody reaches.
type dead struct{}

var errDead = errors.New("dead")

func (dead) hello(context.Context) (replay.Peer, error)             { return replay.Peer{}, errDead }
func (dead) open(context.Context, ask) (io.ReadCloser, bool, error) { return nil, false, errDead }
func (dead) times(context.Context, string, string, *string, []string) ([]*int64, error) {
	return nil, errDead
}

// server is a node behind HTTP, and what goes wrong with it.
type server struct {
	*node
	http    *httptest.Server
	address string

	trouble    string       // the part that has it
	dieAfter   atomic.Int64 // lines of the part, then the connection breaks; 0: never
	stallAfter atomic.Int64 // lines, then nothing comes; 0: never
	answer     atomic.Int64 // a status instead of a part; 0: none
	afterwards atomic.Int64 // answer from its death on; 0: it answers as before
	actualID   atomic.Pointer[string]
	sent       atomic.Int64 // bytes of parts
	exports    atomic.Int64
	asks       atomic.Int64 // POST /peer/ids
	lastQuery  atomic.Pointer[string]
	release    chan struct{} // closed at the end: stalled answers end
}

func serve(t testing.TB, n *node) *server {
	t.Helper()
	s := &server{node: n, trouble: replay.PartLog, release: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /peer", func(w http.ResponseWriter, r *http.Request) { _ = json.NewEncoder(w).Encode(n.who) })
	mux.HandleFunc("POST /peer/ids", s.ids)
	mux.HandleFunc("GET /export", s.export)
	s.http = httptest.NewServer(mux)
	s.address = strings.TrimPrefix(s.http.URL, "http://")
	t.Cleanup(func() { close(s.release); s.http.Close() })
	return s
}

func (s *server) peer() Peer {
	return Peer{NodeID: s.who.NodeID, Instance: s.who.Instance, StoreID: s.who.StoreID, Address: s.address}
}

func (s *server) ids(w http.ResponseWriter, r *http.Request) {
	s.asks.Add(1)
	var body replay.PeerIDs
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil || len(body.IDs) > replay.MaxPeerIDs {
		w.WriteHeader(400)
		return
	}
	var key *string
	if r.URL.Query().Has("key") {
		k := r.URL.Query().Get("key")
		key = &k
	}
	ts, err := s.local().times(r.Context(), r.URL.Query().Get("part"), r.URL.Query().Get("topic"), key, body.IDs)
	if err != nil {
		w.WriteHeader(503)
		return
	}
	_ = json.NewEncoder(w).Encode(replay.PeerTimes{TS: ts})
}

func scanOf(r *http.Request) eventlog.ScanQuery {
	p := r.URL.Query()
	number := func(name string) int64 {
		n, err := strconv.ParseInt(p.Get(name), 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	q := eventlog.ScanQuery{MinTS: number("fromTs"), MaxTS: number("toTs"), HasMaxTS: true, Descending: p.Get("order") == "desc"}
	if p.Has("key") {
		k := p.Get("key")
		q.Key = &k
	}
	if p.Has("afterId") {
		q.After = &eventlog.Point{TS: number("afterTs"), ID: p.Get("afterId")}
	}
	return q
}

func (s *server) export(w http.ResponseWriter, r *http.Request) {
	s.exports.Add(1)
	part := r.URL.Query().Get("part")
	if part == replay.PartLog {
		s.lastQuery.Store(&r.URL.RawQuery)
	}
	if status := s.answer.Load(); status != 0 && part == replay.PartLog {
		w.WriteHeader(int(status))
		_, _ = w.Write(codec.AppendErrorBody(nil, wire.Errorf(wire.CodeOfStatus(int(status)), "as the test says")))
		return
	}
	text, empty, err := s.local().open(r.Context(), ask{part: part, topic: r.URL.Query().Get("topic"), scan: scanOf(r)})
	if err != nil {
		w.WriteHeader(503)
		_, _ = w.Write(codec.AppendErrorBody(nil, &wire.Error{Code: wire.StoreUnavailable, Msg: "away", RetryAfter: time.Second}))
		return
	}
	defer text.Close()
	w.Header().Set(replay.HeaderNodeID, s.who.NodeID)
	w.Header().Set(replay.HeaderStoreID, s.who.StoreID)
	if empty {
		w.Header().Set(replay.HeaderEmpty, "1")
	}
	if id := s.actualID.Load(); id != nil {
		w.Header().Set(replay.HeaderStoreID, *id)
	}
	w.WriteHeader(200)
	_ = http.NewResponseController(w).Flush()
	s.send(w, r, part, text)
}

// send copies the text, a piece at a time, with what is to go wrong.
func (s *server) send(w http.ResponseWriter, r *http.Request, part string, text io.Reader) {
	buf := make([]byte, 64<<10)
	lines := int64(0)
	for {
		n, err := text.Read(buf)
		piece := buf[:n]
		for _, trouble := range []struct {
			after  int64
			happen func()
		}{
			{s.dieAfter.Load(), func() {
				s.answer.Store(s.afterwards.Load())
				panic(http.ErrAbortHandler)
			}},
			{s.stallAfter.Load(), func() {
				select {
				case <-s.release:
				case <-r.Context().Done():
				}
				panic(http.ErrAbortHandler)
			}},
		} {
			if trouble.after > 0 && part == s.trouble && lines+int64(strings.Count(string(piece), "\n")) > trouble.after {
				for ; lines < trouble.after; lines++ {
					end := slices.Index(piece, '\n') + 1
					_, _ = w.Write(piece[:end])
					piece = piece[end:]
				}
				_, _ = w.Write(piece[:min(len(piece), 5)]) // the beginning of a line
				_ = http.NewResponseController(w).Flush()
				trouble.happen()
			}
		}
		lines += int64(strings.Count(string(piece), "\n"))
		m, werr := w.Write(piece)
		s.sent.Add(int64(m))
		if err != nil || werr != nil {
			return
		}
	}
}

// got is an answer's events.
type got struct {
	places []eventlog.Point
	texts  []string
}

func (g *got) ids() []string {
	var out []string
	for _, p := range g.places {
		out = append(out, p.ID)
	}
	return out
}

// drain reads at most that many events, or all with 0; its error is not io.EOF.
func drain(s replay.FleetStream, most int) (g got, err error) {
	for most == 0 || len(g.places) < most {
		p, text, err := s.Next()
		if err == io.EOF {
			return g, nil
		}
		if err != nil {
			return g, err
		}
		g.places, g.texts = append(g.places, p), append(g.texts, string(text))
	}
	return g, nil
}

func mustOpen(t testing.TB, f *Fleet, q replay.FleetQuery) replay.FleetStream {
	t.Helper()
	q.Topic = topic
	s, err := f.Open(t.Context(), q)
	require.NoError(t, err)
	t.Cleanup(s.Close)
	return s
}

// newFleet is a fleet that is closed with the test.
func newFleet(t testing.TB, c Config) *Fleet {
	t.Helper()
	f := New(c)
	t.Cleanup(f.Close)
	return f
}
