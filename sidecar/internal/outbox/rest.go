package outbox

import (
	"sync"
	"time"
)

// maxRestingChains bounds how many single keys rest; a topic that has more of
// them rests as a whole.
const maxRestingChains = 10_000

// rests is what is not to be published for a while: topics that were refused, and keys whose first
// document failed. An entry rests for the remainder of the sweep at least: once one document of a
// key was skipped, the later ones have to wait until it is read again.
type rests struct {
	mu     sync.Mutex
	topics map[string]time.Time // until when
	chains map[string]time.Time
	lost   shardSet // shards of which a document was passed over in this sweep
}

// begin starts a sweep: whose time has come rests no more.
func (r *rests) begin(now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost = 0
	for _, m := range []*map[string]time.Time{&r.topics, &r.chains} {
		if *m == nil {
			*m = map[string]time.Time{}
		}
		for name, until := range *m {
			if !now.Before(until) {
				delete(*m, name)
			}
		}
	}
}

// resting tells whether a document has to wait.
func (r *rests) resting(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lost.has(e.shard) {
		return true
	}
	if _, rests := r.topics[e.topic]; rests {
		return true
	}
	_, rests := r.chains[e.chain]
	return rests
}

func (r *rests) topic(name string, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.topics[name] = until
}

// entry makes the document rest, and those of its key.
func (r *rests) entry(e *entry, until time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.chains) < maxRestingChains {
		r.chains[e.chain] = until
	} else {
		r.topics[e.topic] = until
	}
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

// next is when the first of those that rest has rested enough.
func (r *rests) next() (at time.Time, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range []map[string]time.Time{r.topics, r.chains} {
		for _, until := range m {
			if !any || until.Before(at) {
				at, any = until, true
			}
		}
	}
	return at, any
}
