package appends

import (
	"encoding/binary"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

const (
	// maxInsert bounds the documents of one insert.
	maxInsert = 1000
	// maxInsertBytes bounds one insert, well below the server's 48 MB.
	maxInsertBytes = 16 << 20
	// maxRivalInsert bounds the documents of one insert while other sidecars also append to the
	// topic: concurrent inserts of neighbours in a unique index cost MongoDB much more than inserts
	// one after the other.
	maxRivalInsert = 100
	// rivalsFor is how long after its append another sidecar still counts as appending.
	rivalsFor = 10 * time.Second
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
	// patience is the wait that the next reservation asks of readers; 0: none beyond the present
	// one.
	patience time.Duration
}

// give gives the events the seqs that end with last.
func (ln *line) give(last uint64, since core.Moment) {
	ln.since, ln.patience = since, 0
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
	var events []*pending
	for _, d := range ln.pending {
		if d.call != nil {
			d.seq = 0
			events = append(events, d)
		}
	}
	ln.pending = events
}

// chunk returns the next documents to insert, and the line of each.
func (b *batch) chunk() (lines []*line, chunk []*pending) {
	most := b.most
	if b.store.Clock.Since(time.Unix(0, b.topic.Rivals.Load())) < rivalsFor {
		most = min(most, maxRivalInsert)
	}
	bytes := 0
	for _, ln := range b.lines {
		for _, d := range ln.pending {
			bytes += len(d.raw)
			full := len(chunk) == most || len(chunk) > 0 && bytes > maxInsertBytes
			otherWrite := len(chunk) > 0 && (d.token != 0) != (chunk[0].token != 0)
			if d.seq == 0 || full || otherWrite {
				return lines, chunk
			}
			lines, chunk = append(lines, ln), append(chunk, d)
		}
	}
	return lines, chunk
}
