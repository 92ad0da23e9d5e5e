package sluicetest

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// A Sidecar is a stand-in for one. All three APIs are on one listener, at URL.
type Sidecar struct {
	URL string

	opts    Options
	server  *httptest.Server
	serving sync.WaitGroup // the goroutines of sockets

	mu      sync.Mutex
	topics  map[string]*topic
	sockets map[*socket]struct{}
	down    bool
}

// Fate is what becomes of a request.
type Fate int

// A request is served; or its connection breaks before it has an effect, or
// after that and before the answer; or it is overheard.
const (
	Served Fate = iota
	BrokenBefore
	BrokenAfter
	Overheard
)

// Options of a stand-in.
type Options struct {
	// Refuse is asked before an event is accepted; an error refuses it. Calls come
	// one at a time.
	Refuse func(*wire.Event) *wire.Error
	// RefuseSettling is asked before an ACK or NACK has an effect; an error refuses
	// it. Calls come one at a time.
	RefuseSettling func(op string, ids []string) *wire.Error
	// Fate decides what becomes of a request, by its op. It may be called by
	// several goroutines at once.
	Fate func(op string) Fate
	// AckDeadline is what is told of events' deadlines (30 s). Nothing happens at
	// its end.
	AckDeadline time.Duration
	// FrameBytes ends connections that send a longer frame, with the status 1009;
	// 0 takes any.
	FrameBytes int
	// Burst refuses larger batches, as a sidecar does whose token bucket they can
	// never fit; 0 takes any.
	Burst int
	// Forget keeps no events: a publish is answered, and that is all.
	Forget bool
	// BreakExportAfter ends every export abnormally behind that many lines; 0
	// breaks none.
	BreakExportAfter int
}

// Start starts a stand-in. Close ends it.
func Start(opts Options) *Sidecar {
	s := &Sidecar{opts: opts, topics: map[string]*topic{}, sockets: map[*socket]struct{}{}}
	s.server = httptest.NewServer(s.routes())
	s.URL = s.server.URL
	return s
}

// Close breaks all connections and waits for the stand-in's goroutines.
func (s *Sidecar) Close() {
	s.Disconnect()
	s.server.Close()
	s.serving.Wait()
}

// Disconnect breaks all WebSocket connections without a good-bye.
func (s *Sidecar) Disconnect() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for socket := range s.sockets {
		_ = socket.conn.Close()
	}
}

// SetDown breaks all connections and makes new ones fail, or takes them again.
func (s *Sidecar) SetDown(down bool) {
	s.mu.Lock()
	s.down = down
	s.mu.Unlock()
	if down {
		s.Disconnect()
	}
}

// Connections returns how many WebSocket connections there are.
func (s *Sidecar) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

// Extended returns how often a group's deadlines were extended.
func (s *Sidecar) Extended(topic, group string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[topic]; t != nil && t.groups[group] != nil {
		return t.groups[group].extended
	}
	return 0
}

// Events returns what a topic holds, in order.
func (s *Sidecar) Events(name string) []wire.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.topics[name]
	if t == nil {
		return nil
	}
	events := make([]wire.Event, len(t.events))
	for i, e := range t.events {
		events[i] = *e
	}
	return events
}

// Acked returns how many events a group has acked.
func (s *Sidecar) Acked(topic, group string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.topics[topic]; t != nil && t.groups[group] != nil {
		return t.groups[group].acked
	}
	return 0
}

// topic is one topic's log: the event with seq n is events[n-1].
type topic struct {
	events []*wire.Event
	byID   map[string]*wire.Event
	groups map[string]*group
	subs   []*member // of all groups and of none
	seq    uint64
}

func (s *Sidecar) topic(name string) *topic {
	t := s.topics[name]
	if t == nil {
		t = &topic{byID: map[string]*wire.Event{}, groups: map[string]*group{}}
		s.topics[name] = t
	}
	return t
}

// publish accepts one event. The lock is held.
func (s *Sidecar) publish(item *wire.PublishItem) wire.ResultItem {
	if item.Err != nil {
		return wire.ResultItem{Err: item.Err}
	}
	e := &item.Event
	if s.opts.Refuse != nil {
		if err := s.opts.Refuse(e); err != nil {
			return wire.ResultItem{Err: err}
		}
	}
	t := s.topic(e.Topic)
	if old := t.byID[e.ID]; old != nil {
		return wire.ResultItem{Receipt: wire.Receipt{ID: old.ID, TS: old.TS, Seq: old.Seq, Duplicate: true}}
	}
	t.seq++
	if e.ID == "" {
		e.ID = e.Topic + "-" + strconv.FormatUint(t.seq, 10)
	}
	if !item.HasTS {
		e.TS = time.Now().UnixMilli()
	}
	e.Seq = t.seq
	if !s.opts.Forget {
		kept := *e
		t.events = append(t.events, &kept)
		t.byID[e.ID] = &kept
	}
	return wire.ResultItem{Receipt: wire.Receipt{ID: e.ID, TS: e.TS, Seq: e.Seq}}
}

// publishAll accepts several events and delivers them.
func (s *Sidecar) publishAll(name string, items []wire.PublishItem) []wire.ResultItem {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]wire.ResultItem, len(items))
	for i := range items {
		if items[i].Event.Topic == "" {
			items[i].Event.Topic = name
		}
		results[i] = s.publish(&items[i])
	}
	for i := range items {
		s.topic(items[i].Event.Topic).deliver()
	}
	return results
}

func (s *Sidecar) serveSocket(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	down := s.down
	s.mu.Unlock()
	if down {
		refuse(w, wire.Errorf(wire.StoreUnavailable, "down"))
		return
	}
	socket, err := upgrade(w, r)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.sockets[socket] = struct{}{}
	s.mu.Unlock()
	s.serving.Go(socket.write)
	s.serving.Go(func() {
		session := session{sidecar: s, socket: socket}
		session.serve()
		socket.close()
		s.mu.Lock()
		delete(s.sockets, socket)
		s.mu.Unlock()
	})
}
