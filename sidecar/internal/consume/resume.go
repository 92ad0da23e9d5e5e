package consume

import (
	"slices"
	"strings"
	"unsafe"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// trailSteps is how many events a stream remembers. A client that comes back continues exactly after
// the last event that it saw, if the stream sent fewer than this many since.
const trailSteps = 1024

// trail has the last events that a stream sent. The id of the last event that a client saw does not
// show what else it saw. Events of other partitions with the same ts, or a lower one, may have been
// stored before or after that event was sent. And events that a group's stream wrote after it are
// acked.
type trail struct {
	session.SubscriptionKey
	memory *budget.Share
	bytes  int      // of steps
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

func newTrail(k session.SubscriptionKey, starts []uint64, memory *budget.Share) *trail {
	return &trail{SubscriptionKey: k, next: starts, memory: memory}
}

// size is the memory of a step.
func (s *step) size() int { return int(unsafe.Sizeof(*s)) + len(s.id) }

// stepOf does not keep the event's text.
func stepOf(e *wire.Event) step {
	return step{id: strings.Clone(e.ID), partition: e.Partition, seq: e.Seq}
}

// add records that an event was sent. While there is no memory, a trail gets no longer.
func (t *trail) add(s step) {
	if t.next != nil {
		t.next[s.partition] = s.seq + 1
	}
	grows := t.oldest == 0 && len(t.steps) < trailSteps && (len(t.steps) == 0 || !t.memory.Full())
	more := s.size()
	if !grows {
		more -= t.steps[t.oldest].size()
	}
	t.bytes += more
	t.memory.Take(more)
	if grows {
		t.steps = append(t.steps, s)
		return
	}
	t.steps[t.oldest] = s
	t.oldest = (t.oldest + 1) % len(t.steps)
}

// free gives the memory of a trail back that is forgotten.
func (t *trail) free() { t.memory.Give(t.bytes) }

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
