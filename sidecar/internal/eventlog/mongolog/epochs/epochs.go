package epochs

import (
	"fmt"
	"sync"
	"sync/atomic"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// byPartition is the order of epochs, by their unique index.
var byPartition = bson.D{{Key: "topic", Value: 1}, {Key: "group", Value: 1}, {Key: "partition", Value: 1}, {Key: "number", Value: 1}}

// Epochs is the progress of the groups of a store.
type Epochs struct {
	store   *core.Store
	catalog *topics.Catalog
	fences  fences
	// saves numbers the saves of epochs. It begins with the time, so that an owner can continue
	// with another Epochs.
	saves   atomic.Int64
	savings core.Batcher[*saving]
}

// New makes Epochs.
func New(s *core.Store, c *topics.Catalog) *Epochs {
	es := &Epochs{store: s, catalog: c, fences: fences{latest: map[eventlog.GroupPartition]uint64{}}}
	es.saves.Store(s.Clock.Now().UnixNano())
	return es
}

func refusal(e *eventlog.Epoch, why error, latest uint64) error {
	return fmt.Errorf("epoch %d of topic %q, group %q, partition %d: %w (the latest is %d)",
		e.Number, e.Topic, e.Group, e.Partition, why, latest)
}

// maxFences bounds the partitions that fences remember. A forgotten partition costs at most a write
// without effect.
const maxFences = 1 << 14

// fences are the latest epochs that this log knows of, so that a save by an owner that it knows to
// be replaced is refused before it writes anything.
type fences struct {
	mu     sync.Mutex
	latest map[eventlog.GroupPartition]uint64
}

func (f *fences) learn(at eventlog.GroupPartition, number uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.latest[at]; !known && len(f.latest) >= maxFences {
		for some := range f.latest {
			delete(f.latest, some)
			break
		}
	}
	f.latest[at] = max(f.latest[at], number)
}

func (f *fences) check(epochs []eventlog.Epoch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range epochs {
		if latest := f.latest[epochs[i].GroupPartition]; latest > epochs[i].Number {
			return refusal(&epochs[i], eventlog.ErrFenced, latest)
		}
	}
	return nil
}
