package gateway

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

const (
	// trailSteps is how many events a stream remembers. A client that comes back continues exactly
	// after the last event that it saw, if the stream sent fewer than this many since.
	trailSteps = 1024
	// keptTrails is how many trails of ended streams are remembered.
	keptTrails = 128
)

// trail has the last events that a stream sent. The id of the last event that a client saw does not
// show what else it saw. Events of other partitions with the same ts, or a lower one, may have been
// stored before or after that event was sent. And events that a group's stream wrote after it are
// acked.
type trail struct {
	subKey
	next   []uint64 // by partition, the seq after the last sent one; nil with a group
	steps  []step   // a ring once it is full
	oldest int      // of steps
}

// step is one sent event.
type step struct {
	id        string
	partition int
	seq       uint64
}

func newTrail(k subKey, starts []uint64) *trail { return &trail{subKey: k, next: starts} }

// stepOf does not keep the event's text.
func stepOf(e *wire.Event) step {
	return step{id: strings.Clone(e.ID), partition: e.Partition, seq: e.Seq}
}

// add records that an event was sent.
func (t *trail) add(s step) {
	if t.next != nil {
		t.next[s.partition] = s.seq + 1
	}
	if len(t.steps) < trailSteps {
		t.steps = append(t.steps, s)
		return
	}
	t.steps[t.oldest] = s
	t.oldest = (t.oldest + 1) % len(t.steps)
}

// behind returns where a client whose last event is id continues in each partition; nil: the event
// is not remembered.
func (t *trail) behind(id string) (starts []uint64) {
	starts = append(starts, t.next...)
	for i := len(t.steps) - 1; i >= 0; i-- {
		s := &t.steps[(t.oldest+i)%len(t.steps)]
		if s.id == id {
			return starts
		}
		starts[s.partition] = s.seq
	}
	return nil
}

// after returns the events that were sent after the one with that id, the oldest first.
func (t *trail) after(id string) (steps []step, known bool) {
	for i := len(t.steps) - 1; i >= 0; i-- {
		s := t.steps[(t.oldest+i)%len(t.steps)]
		if s.id == id {
			slices.Reverse(steps)
			return steps, true
		}
		steps = append(steps, s)
	}
	return nil, false
}

// resume returns where a client without a group continues after the last event that it got from a
// stream of this sidecar; nil: no stream remembers the event. Streams may have sent events of
// several partitions in different orders, and resume does not know which stream was the client's.
// So the client misses no event of any partition, and may get an event again.
func (g *Gateway) resume(k subKey, id string) (starts []uint64) {
	g.mu.Lock()
	ended := append([]*trail(nil), g.trails...) // they do not change any more
	var live []*stream
	for s := range g.streams {
		if s.subKey == k {
			live = append(live, s)
		}
	}
	g.mu.Unlock()
	for _, t := range ended {
		if t.subKey == k {
			starts = lowest(starts, t.behind(id))
		}
	}
	for _, s := range live {
		s.mu.Lock()
		starts = lowest(starts, s.trail.behind(id))
		s.mu.Unlock()
	}
	return starts
}

// lowest sets each start in a to the lower one of a and b. A nil list does not count.
func lowest(a, b []uint64) []uint64 {
	if a == nil {
		return b
	}
	for i := range b {
		a[i] = min(a[i], b[i])
	}
	return a
}

// keepTrail remembers the trail of an ended stream. The caller holds g.mu.
func (g *Gateway) keepTrail(t *trail) {
	if t == nil || len(t.steps) == 0 {
		return
	}
	if len(g.trails) == keptTrails {
		g.trails = append(g.trails[:0], g.trails[1:]...)
	}
	g.trails = append(g.trails, t)
}

// unseen returns the events that a stream of a group wrote, and so acked, after the last event that
// its client saw. The client has come back, and no longer reads from that stream: if the stream is
// still open, unseen ends it.
func (g *Gateway) unseen(ctx context.Context, k subKey, last string) []step {
	g.mu.Lock()
	var old *stream
	for s := range g.streams {
		if s.subKey == k && s.sent(last) {
			old = s
			s.end(group.Disconnected, time.Now())
		}
	}
	g.mu.Unlock()
	if old != nil {
		select {
		case <-old.finished:
		case <-ctx.Done():
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, t := range slices.Backward(g.trails) { // the latest trail has the most events
		if t.subKey != k {
			continue
		}
		if steps, known := t.after(last); known {
			return steps
		}
	}
	return nil
}

// sent reports whether the stream remembers that it sent the event.
func (s *stream) sent(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.trail.after(id)
	return known
}

// resend writes the events that an earlier stream of the group wrote and the client has not seen,
// if the topic still has them.
func (s *stream) resend(w http.ResponseWriter, r *http.Request, g *Gateway) error {
	if s.group == "" || s.last == "" {
		return nil
	}
	steps := g.unseen(r.Context(), s.subKey, s.last)
	s.note(append([]step{{id: s.last}}, steps...)) // first, as the client may leave before it has read them
	for _, st := range steps {
		rec, err := g.cfg.Lookup(r.Context(), s.topic, st.id)
		if errors.Is(err, eventlog.ErrNotFound) || err == nil && (rec.Partition != st.partition || rec.Seq != st.seq) {
			continue
		}
		if err != nil {
			return err
		}
		if err := s.write(w, appendSent(nil, &rec.Event), g.cfg.Bounds.SlowClientTimeout); err != nil {
			return err
		}
	}
	return nil
}

// note puts steps on the trail.
func (s *stream) note(steps []step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range steps {
		s.trail.add(st)
	}
}
