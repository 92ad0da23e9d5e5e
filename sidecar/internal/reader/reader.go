// Package reader is how a partition is read on and on, from its tail where that has
// it, else from the log. It knows nothing of who reads.
package reader

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
)

const (
	// readAgain is the pause before a partition is read again that could not be.
	readAgain = 250 * time.Millisecond
	// readBehind is the pause before the log is asked again for events that it has
	// announced and does not show yet. It doubles, up to readAgain.
	readBehind = 5 * time.Millisecond
)

// Place is the position of a reader in a partition.
type Place struct {
	Index int    // of the partition
	Next  uint64 // the next seq to read
	Head  uint64 // the highest seq that is known of from the log or its tail

	due  time.Time // when to read again after the log could not be read
	vain int       // reads in a row that did not find what was announced
}

// Readable reports whether the log has, or was announced to have, more events.
func (p *Place) Readable(w *tail.Watch, now time.Time) bool {
	p.Head = max(p.Head, w.Head(p.Index))
	return p.Next <= p.Head && !p.due.After(now)
}

// Due is when the partition is to be read again that could not be; zero: it may
// be read now.
func (p *Place) Due(now time.Time) time.Time {
	if p.due.After(now) {
		return p.due
	}
	return time.Time{}
}

// Vain is how many reads in a row did not find what was announced.
func (p *Place) Vain() int { return p.vain }

// Failed has the partition be read again later.
func (p *Place) Failed(now time.Time) { p.due = now.Add(readAgain) }

// Passed takes note that the event with that seq was read.
func (p *Place) Passed(seq uint64) { p.Next, p.vain = seq+1, 0 }

// Empty takes note that the log has nothing below seq next, and reports whether
// that is a way forward. Where it is none, events were announced that the log does
// not show yet, since others before them are still to come, and it is read again:
// at first soon, as they mostly come at once.
func (p *Place) Empty(next uint64, now time.Time) (forward bool) {
	if next <= p.Next {
		p.due = now.Add(min(readBehind<<min(p.vain, 16), readAgain))
		p.vain++
		return false
	}
	p.vain = 0
	return true
}

// Page is what a read found: events, or the seq to go on at when there were none.
type Page struct {
	Records []*eventlog.Record
	Next    uint64
}

// Read reads from the log where the tail had nothing. When the log has
// nothing either, retention or compaction has removed what was announced, and
// the partition's extent, as it was before the log was read, says where to go
// on.
func Read(ctx context.Context, log eventlog.Reader, topic string, found []*eventlog.Record, partition int, from uint64, b eventlog.Bounds) (Page, error) {
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
