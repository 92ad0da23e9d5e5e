package appends

import (
	"context"
	"encoding/binary"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// pending is a document that is not stored yet: of an event, or the void that takes the seq of an
// event that is not stored.
type pending struct {
	call   *call // nil: a void
	index  int   // in the call's batch
	record *eventlog.Record
	raw    bson.Raw // nil: a scheduled event is moved to the seq
	seq    uint64   // the reserved seq; 0: none
	// token is the number of the scheduled event, or of a cancelled one, whose place this takes; 0:
	// the document is inserted.
	token int64
}

// line holds a batch's documents of one partition, in order.
type line struct {
	p       int
	pending []*pending
	since   core.Moment // before the seqs were reserved
	lone    bool        // the seqs are not reserved: this process is the lone writer
	// patience is the wait that the next reservation asks of readers; 0: none beyond the present
	// one.
	patience time.Duration
}

// unplaced reports whether the events in front have no seqs.
func (ln *line) unplaced() bool { return len(ln.pending) > 0 && ln.pending[0].seq == 0 }

// moves reports whether events that have no seqs take the places of other documents.
func (ln *line) moves() bool {
	return ln.unplaced() && slices.ContainsFunc(ln.pending, func(d *pending) bool { return d.token != 0 })
}

// give gives the events the seqs that end with last.
func (ln *line) give(last uint64, since core.Moment) {
	ln.since, ln.patience, ln.lone = since, 0, false
	seq := last - uint64(len(ln.pending))
	for _, d := range ln.pending {
		seq++
		d.seq = seq
		if d.raw == nil {
			continue
		}
		binary.LittleEndian.PutUint64(d.raw.Lookup(document.FieldSeq).Value, seq)
	}
}

// restart takes the seqs back from the events, so that the events reserve again. It drops the
// voids: the batch abandons their seqs.
func (ln *line) restart() {
	ln.lone = false
	var events []*pending
	for _, d := range ln.pending {
		if d.call != nil {
			d.seq = 0
			events = append(events, d)
		}
	}
	ln.pending = events
}

// call is one call of Append.
type call struct {
	ctx   context.Context
	topic *topics.Topic
	p     int
	// generation is the topic's generation in the documents.
	generation int64
	events     []*pending // the events that have a document
	out        []eventlog.Outcome
	left       int // events without an outcome
	done       chan struct{}
}

// answer gives an event its outcome, and ends the call with the last one.
func (c *call) answer(index int, o eventlog.Outcome) {
	c.out[index] = o
	if c.left--; c.left == 0 {
		close(c.done)
	}
}
