package consume

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/sendbuffer"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// streams are the open streams, and what the last ended ones sent.
type streams struct {
	running sync.WaitGroup

	mu     sync.Mutex
	live   map[*stream]struct{}
	trails []*trail // of streams that ended, the oldest first
}

// admit registers a stream, unless its rights are gone or the sidecar stops.
func (x *streams) admit(s *stream) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s.caller.Stopping() {
		return refusal.Stopping()
	}
	if err := s.caller.MayStill(s.Topic, s.Group); err != nil {
		return err // from now on rightsChanged checks it
	}
	x.live[s] = struct{}{}
	x.running.Add(1)
	return nil
}

// close finishes a stream, and keeps its trail.
func (x *streams) close(s *stream) {
	s.finish()
	x.mu.Lock()
	delete(x.live, s)
	x.keep(s.trail)
	x.mu.Unlock()
	close(s.finished)
	x.running.Done()
}

// keep remembers the trail of an ended stream, if need be in place of the oldest one: of the same
// client, or of any. It requires mu.
func (x *streams) keep(t *trail) {
	if len(t.steps) == 0 {
		return
	}
	for t.memory.Enter(budget.Trails) != nil {
		i := max(slices.IndexFunc(x.trails, func(old *trail) bool { return old.memory == t.memory }), 0)
		x.trails[i].free()
		x.trails[i].memory.Leave(budget.Trails)
		x.trails = slices.Delete(x.trails, i, i+1)
	}
	x.trails = append(x.trails, t)
}

func (x *streams) count() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.live)
}

// rightsChanged ends the streams that their callers may not have any more, unless all are ending.
func (x *streams) rightsChanged() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for s := range x.live {
		if !s.caller.Stopping() && s.caller.MayStill(s.Topic, s.Group) != nil {
			s.end(group.Disconnected, time.Now().Add(sendbuffer.Linger))
		}
	}
}

// end ends all streams. A stream that is writing has until ctx ends to finish.
func (x *streams) end(ctx context.Context) {
	endAll := func(by time.Time) {
		x.mu.Lock()
		defer x.mu.Unlock()
		for s := range x.live {
			s.end(group.Unsubscribed, by)
		}
	}
	endAll(time.Now().Add(sendbuffer.Linger))
	defer context.AfterFunc(ctx, func() { endAll(time.Now()) })()
	x.running.Wait()
}

// resume returns where a client without a group continues after the last event that it got from a
// stream of this sidecar; nil: no stream remembers the event. Streams may have sent events of
// several partitions in different orders, and resume does not know which stream was the client's.
// So the client misses no event of any partition, and may get an event again.
func (x *streams) resume(k session.SubscriptionKey, id string) (starts []uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range x.trails {
		if t.SubscriptionKey == k {
			starts = lowest(starts, t.behind(id))
		}
	}
	for s := range x.live {
		if s.SubscriptionKey == k {
			s.mu.Lock()
			starts = lowest(starts, s.trail.behind(id))
			s.mu.Unlock()
		}
	}
	return starts
}

// unseen returns the events that a stream of a group wrote, and so acked, after the last event that
// its client saw. The client has come back, and no longer reads from that stream: if the stream is
// still open, unseen ends it.
func (x *streams) unseen(ctx context.Context, k session.SubscriptionKey, last string) []step {
	x.mu.Lock()
	var old *stream
	for s := range x.live {
		if s.SubscriptionKey == k && s.sent(last) {
			old = s
			s.end(group.Disconnected, time.Now())
		}
	}
	x.mu.Unlock()
	if old != nil {
		select {
		case <-old.finished:
		case <-ctx.Done():
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, t := range slices.Backward(x.trails) { // the latest trail has the most events
		if t.SubscriptionKey != k {
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
