// Package reader reads a partition continuously, from its tail where that has the events, else from
// the log.
package reader

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
)

const (
	// readAgain is the pause after a read that failed.
	readAgain = 250 * time.Millisecond
	// readBehind is the pause after a read that did not find announced events. It doubles, up to
	// readAgain.
	readBehind = 5 * time.Millisecond
)

// Place is the position of a reader in a partition.
type Place struct {
	Index int    // of the partition
	Next  uint64 // the next seq to read
	Head  uint64 // the highest seq known from the log or its tail

	retryAt time.Time // when to read again after a failure
	vain    int       // reads in a row that did not find announced events
}

// Readable reports whether the log has, or has announced, more events.
func (p *Place) Readable(w *tail.Watch, now time.Time) bool {
	p.Head = max(p.Head, w.Head(p.Index))
	return p.Next <= p.Head && !p.retryAt.After(now)
}

// RetryAt is when to read again after a failure; zero: now.
func (p *Place) RetryAt(now time.Time) time.Time {
	if p.retryAt.After(now) {
		return p.retryAt
	}
	return time.Time{}
}

// Vain is how many reads in a row did not find announced events.
func (p *Place) Vain() int { return p.vain }

// Failed notes that the partition could not be read.
func (p *Place) Failed(now time.Time) { p.retryAt = now.Add(readAgain) }

// Passed notes that the event with that seq was read.
func (p *Place) Passed(seq uint64) { p.Next, p.vain = seq+1, 0 }

// Empty notes that the log has no events below seq next, and reports whether next is behind the
// place. If not, the log does not show announced events yet, since others before them are still to
// come. Then it is read again, at first soon, as they mostly come at once.
func (p *Place) Empty(next uint64, now time.Time) (forward bool) {
	if next <= p.Next {
		p.retryAt = now.Add(min(readBehind<<min(p.vain, 16), readAgain))
		p.vain++
		return false
	}
	p.vain = 0
	return true
}

// Page is the result of a read: events, or the seq to go on at when there are none.
type Page struct {
	Records []*eventlog.Record
	Next    uint64
}

// Read reads from the log if the tail has found nothing. If the log has nothing either, retention
// or compaction has removed the announced events, and the partition's extent, as it was before the
// last read, says where to go on.
func Read(
	ctx context.Context, log eventlog.Reader, topic string, found []*eventlog.Record, partition int, from uint64, b eventlog.Bounds,
) (Page, error) {
	if len(found) > 0 {
		return Page{Records: found}, nil
	}
	recs, err := log.Read(ctx, topic, partition, from, b)
	if err != nil || len(recs) > 0 {
		return Page{Records: recs}, err
	}
	extents, err := log.Extents(ctx, topic)
	if err != nil {
		return Page{}, err
	}
	recs, err = log.Read(ctx, topic, partition, from, b)
	return Page{Records: recs, Next: extents[partition].Head + 1}, err
}
