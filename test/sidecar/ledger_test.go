package sidecar

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// ledger is all promises and deliveries of the sidecar, over all its lives. In the end the test
// holds them against the log.
type ledger struct {
	mu       sync.Mutex
	receipts map[string]wire.Receipt // by id, of publishes answered OK
	seen     map[string]int          // by id: the attempt of the last delivery
	acked    map[string]bool         // acks answered OK
	faults   []string

	// moving says that partitions change hands. An ack that comes after that is answered OK, and
	// settles nothing. Events in flight come again under the same attempt, for a rebalance and a
	// graceful stop count none.
	moving bool
}

func newLedger() *ledger {
	return &ledger{receipts: map[string]wire.Receipt{}, seen: map[string]int{}, acked: map[string]bool{}}
}

func (l *ledger) fault(format string, args ...any) {
	if len(l.faults) < 20 {
		l.faults = append(l.faults, fmt.Sprintf(format, args...))
	}
}

// accepted notes the receipt of a publish. It may be a later answer to the same id, which must then
// be the same once the event has its place in the log. A spool cannot ask the store, so an answer
// from a spool says nothing of an earlier one.
func (l *ledger) accepted(r wire.Receipt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, again := l.receipts[r.ID]
	switch {
	case !again, before.Spooled && !r.Spooled:
		l.receipts[r.ID] = r
	case r.Spooled:
	case r.TS != before.TS || !r.Duplicate || before.Seq != r.Seq || before.Partition != r.Partition:
		l.fault("event %s was accepted as %+v and later as %+v", r.ID, before, r)
	}
}

// spooled counts the events that were answered from a spool.
func (l *ledger) spooled() int {
	return l.count(func(r wire.Receipt) bool { return r.Spooled })
}

// stored counts accepted events that went into the store at once, or were found there.
func (l *ledger) stored() int {
	return l.count(func(r wire.Receipt) bool { return !r.Spooled })
}

func (l *ledger) count(is func(wire.Receipt) bool) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, r := range l.receipts {
		if is(r) {
			n++
		}
	}
	return n
}

// delivered notes a delivery. Its attempt is above the last one's, and the event is not acked yet,
// unless the delivery was late or partitions change hands.
func (l *ledger) delivered(d wire.Delivery, late bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if late {
		l.seen[d.Event.ID] = max(l.seen[d.Event.ID], d.Attempt)
		return
	}
	if l.acked[d.Event.ID] && !l.moving {
		l.fault("event %s was delivered again after its ack was answered OK", d.Event.ID)
	}
	if last := l.seen[d.Event.ID]; d.Attempt < last || d.Attempt == last && !l.moving {
		l.fault("event %s was delivered as attempt %d after attempt %d", d.Event.ID, d.Attempt, last)
	}
	l.seen[d.Event.ID] = d.Attempt
}

func (l *ledger) ackedOK(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[id] = true
}

// unseen counts accepted events that never came to the group. An event whose ack got no answer may
// be settled, so unseen does not count acks: the group's lag says whether all are settled.
func (l *ledger) unseen() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for id := range l.receipts {
		if l.seen[id] == 0 {
			n++
		}
	}
	return n
}

// redelivered counts the events that were delivered more than once.
func (l *ledger) redelivered() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, attempt := range l.seen {
		if attempt > 1 {
			n++
		}
	}
	return n
}

// checkExport compares the log with the receipts: every accepted event is there once, at its seq.
// No seq is there twice. A publisher's events of one key are in the order in which it sent them.
func (l *ledger) checkExport(events []wire.Event, number func(id string) (stream string, n int)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	type place struct {
		partition int
		seq       uint64
	}
	places := map[place]string{}
	byID := map[string]wire.Event{}
	for _, e := range events {
		if _, twice := byID[e.ID]; twice {
			l.fault("event %s is exported twice", e.ID)
		}
		byID[e.ID] = e
		at := place{e.Partition, e.Seq}
		if other, taken := places[at]; taken {
			l.fault("events %s and %s are both at %+v", other, e.ID, at)
		}
		places[at] = e.ID
	}
	for id, r := range l.receipts {
		e, ok := byID[id]
		if !ok {
			l.fault("event %s was answered OK with seq %d and is lost", id, r.Seq)
		} else if !r.Spooled && (e.Seq != r.Seq || e.Partition != r.Partition) {
			l.fault("event %s was answered with partition %d seq %d and is at partition %d seq %d", id, r.Partition, r.Seq, e.Partition, e.Seq)
		}
	}
	latest := map[string]wire.Event{}
	slices.SortFunc(events, func(a, b wire.Event) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Seq, b.Seq))
	})
	for _, e := range events {
		stream, n := number(e.ID)
		if before, ok := latest[stream]; ok {
			if _, m := number(before.ID); m > n {
				l.fault("events of one key are out of order: %s (seq %d) before %s (seq %d)", before.ID, before.Seq, e.ID, e.Seq)
			}
		}
		latest[stream] = e
	}
}
