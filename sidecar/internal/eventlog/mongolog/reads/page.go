package reads

import (
	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// page holds the events read so far, up to its bounds.
type page struct {
	bounds eventlog.Bounds
	events []*eventlog.Record
	bytes  int
}

// full reports whether the page has reached its bounds.
func (p *page) full() bool {
	return len(p.events) >= p.bounds.Events || len(p.events) > 0 && p.bounds.Bytes > 0 && p.bytes >= p.bounds.Bytes
}

// add puts an event on the page.
func (p *page) add(raw bson.Raw) error {
	s, err := document.Decode(raw)
	if err != nil {
		return err
	}
	p.events = append(p.events, s.Record)
	p.bytes += s.Record.Size()
	return nil
}

// sized records the average size of the events.
func sized(t *topics.Topic, p page) {
	if len(p.events) > 0 {
		t.EventBytes.Store(int64(p.bytes / len(p.events)))
	}
}

// batchSize is how many documents to request at once, so that a page takes one round trip and
// transfers little more than the page.
func batchSize(t *topics.Topic, limit, bytes int) int32 {
	size := t.EventBytes.Load()
	if bytes <= 0 || size == 0 {
		return int32(min(limit, maxBatch))
	}
	return int32(min(int64(limit), int64(bytes)/size+1, maxBatch))
}

// maxBatch bounds the documents in one reply of the server. A reply never exceeds 16 MB.
const maxBatch = 10_000
