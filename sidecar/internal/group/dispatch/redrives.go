package dispatch

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// RedrivesAhead bounds the redriven dead letters of a partition that are in memory.
const RedrivesAhead = 512

// redrives are the redriven dead letters of a partition: they are independent of the cursor, and
// delivered like other events. A redrive inserts them into the store, where they stay until their
// dead letters are gone; the owner of the partition reads them there. Their state so far is part of
// its progress.
//
// An ack is saved first (done), and the dead letter is removed only after that: an owner that was
// fenced removes nothing. The ack is answered after the removal, so no list shows an acked event.
// If an event dies again, its next dead letter is appended, under the next id, before the earlier
// one is removed.
type redrives struct {
	// events are those in memory, by arrival, until their dead letters are gone.
	events []*Event
	// known is the stored progress of others, by letter.
	known map[string]knownRedrive
	// Look says that the store may have further redrives.
	Look bool
	// more says that the store has redrives that are not in memory.
	more bool
}

// knownRedrive is a redrive that is not in memory, and when its delay ends.
type knownRedrive struct {
	eventlog.RedriveProgress
	wakeAt time.Time
}

func (q *redrives) restore(rs []eventlog.RedriveProgress, now time.Time) {
	*q = redrives{known: map[string]knownRedrive{}, Look: true}
	for _, r := range rs {
		q.known[r.Letter] = knownRedrive{r, fromWall(r.Until, now)}
	}
}

// progress is the progress to save.
func (q *redrives) progress(now time.Time) (rs []eventlog.RedriveProgress) {
	for _, e := range q.events {
		r := eventlog.RedriveProgress{
			Seq: e.Seq, Letter: e.Letter, Attempts: e.Attempts,
			Out: e.State == InFlight, Unsure: e.unsure, Done: e.State == Settled,
		}
		if e.State == Delayed {
			r.Until, r.Left = toWall(e.wakeAt, now)
		}
		if r.Attempts > 0 || r.Done || r.Until != 0 {
			rs = append(rs, r)
		}
	}
	for _, letter := range slices.Sorted(maps.Keys(q.known)) {
		k := q.known[letter]
		if !k.wakeAt.IsZero() {
			k.Until, k.Left = toWall(k.wakeAt, now)
		}
		rs = append(rs, k.RedriveProgress)
	}
	return rs
}

// Begin begins to look for redrives, and returns the letters in memory.
func (q *redrives) Begin() map[string]bool {
	q.Look = false
	have := map[string]bool{}
	for _, e := range q.events {
		have[e.Letter] = true
	}
	return have
}

// Gone forgets settled redrives whose dead letters are gone, and reports whether there is room for
// others.
func (q *redrives) Gone(letters map[string]bool) (look bool) {
	before := len(q.events)
	q.events = slices.DeleteFunc(q.events, func(e *Event) bool { return e.State == Settled && letters[e.Letter] })
	maps.DeleteFunc(q.known, func(letter string, _ knownRedrive) bool { return letters[letter] })
	if look = len(q.events) < before && q.more; look {
		q.Look = true
	}
	return look
}

// Wanted reports whether there may be redrives that are not in memory, and room for them.
func (q *redrives) Wanted() bool { return q.Look && q.open() < RedrivesAhead/2 }

// ToEnd returns the redrives that were settled since its last call.
func (q *redrives) ToEnd(topic, group string, partition int) (rs []eventlog.Redrive) {
	for _, e := range q.events {
		if e.State == Settled && !e.ending {
			e.ending = true
			rs = append(rs, eventlog.Redrive{
				GroupPartition: eventlog.GroupPartition{Topic: topic, Group: group, Partition: partition}, Seq: e.Seq, Letter: e.Letter,
			})
		}
	}
	return rs
}

// EndAgain makes toEnd return all of them again.
func (q *redrives) EndAgain() {
	for _, e := range q.events {
		e.ending = false
	}
}

// open is the number of redrives in memory that are not settled.
func (q *redrives) open() (n int) {
	for _, e := range q.events {
		if e.State != Settled {
			n++
		}
	}
	return n
}

// fromWall converts a stored time, in milliseconds since the epoch by the wall clock, with now's
// monotonic reading: the time stays as far away if the wall clock is set. 0 is none.
func fromWall(until int64, now time.Time) (at time.Time) {
	if until == 0 {
		return at
	}
	return now.Add(time.UnixMilli(until).Sub(now))
}

// toWall returns such a time by the wall clock of now, and how far away it is.
func toWall(at, now time.Time) (until, left int64) {
	d := at.Sub(now)
	return now.Add(d).UnixMilli(), max(d.Milliseconds(), 0)
}
