package outbox

import (
	"maps"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// maxRestingChains bounds how many single keys rest; a topic that has more of them rests as a
// whole.
const maxRestingChains = 10_000

// rests are the topics that were refused and the keys whose first document failed: they are not
// published for a while. An entry rests for the remainder of the sweep at least: once one document
// of a key was skipped, the later ones have to wait until it is read again.
type rests struct {
	mu   sync.Mutex
	by   map[string]rest // by topic, or by chain
	lost shardSet        // shards with a document that was passed over in this sweep
}

type rest struct {
	until   time.Time
	refusal *wire.Error
}

// begin starts a sweep: topics and keys that have rested long enough can be published again.
func (r *rests) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = 0
	maps.DeleteFunc(r.by, func(_ string, x rest) bool { return !now.Before(x.until) })
}

// resting reports whether a document has to wait.
func (r *rests) resting(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, topic := r.by[e.topic]
	_, chain := r.by[e.chain]
	return topic || chain || r.lost.has(e.shard)
}

// topic makes a refused topic rest.
func (r *rests) topic(name string, refusal *wire.Error, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.by[name] = rest{until, refusal}
}

// entry makes the document rest, and those of its key.
func (r *rests) entry(e *entry, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := e.chain
	if len(r.by) >= maxRestingChains {
		name = e.topic
	}
	r.by[name] = rest{until: until}
}

// restShards makes all of the shards rest for the sweep.
func (r *rests) restShards(shards shardSet) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost |= shards
}

// passedOver are the shards that restShards was called with in this sweep.
func (r *rests) passedOver() shardSet {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// next is when the first topic or key has rested enough.
func (r *rests) next() (at time.Time, resting bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.by {
		if !resting || x.until.Before(at) {
			at, resting = x.until, true
		}
	}
	return at, resting
}

// missing returns the refusal of a topic that waits until an operator makes it.
func (r *rests) missing() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, x := range r.by {
		if x.refusal != nil && x.refusal.Code == wire.NotFound {
			return x.refusal
		}
	}
	return nil
}
