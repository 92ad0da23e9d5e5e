package limit

import (
	"math"
	"sync"
	"time"
)

const (
	// idleAfter is how long a topic's buckets stay unused, once full, before they may be forgotten.
	idleAfter = time.Minute
	// sweepAt is the number of topics below which nothing is forgotten.
	sweepAt = 1024
)

// TopicRates is how a topic's buckets are tuned.
type TopicRates struct {
	Events Rate
	// BytesPerSecond limits payload bytes; 0: no limit.
	BytesPerSecond int64
}

// TopicBuckets are the buckets of one topic. The caller uses them for one publish: after a minute
// other callers may have new ones.
type TopicBuckets struct {
	Events *Bucket
	Bytes  *Bucket
}

// Set has the buckets of all topics in use. It makes a topic's buckets when they are first
// requested, and forgets them when they are full and idle, since a full bucket equals a new one. It
// holds at most a thousand topics, or twice those that were in use within a minute or are still
// refilling. It is safe for concurrent use.
type Set struct {
	largestPublish int64

	mu      sync.Mutex
	topics  map[string]*topicEntry
	sweepAt int // the number of topics at which it next looks for idle ones
	// tenants are those of all topics. The last look for idle ones among them was at sweptAll.
	tenants  int
	sweptAll time.Time
}

type topicEntry struct {
	TopicBuckets
	rates   TopicRates
	used    time.Time
	tenants tenants
}

// NewSet makes an empty set. A bytes bucket holds one second's worth, or largestPublish bytes if
// that is more. Otherwise the largest publish, a batch, could never pass a small limit.
func NewSet(largestPublish int) *Set {
	return &Set{largestPublish: int64(largestPublish), topics: map[string]*topicEntry{}, sweepAt: sweepAt}
}

// Topic returns the buckets of a topic, tuned to rates.
func (s *Set) Topic(name string, rates TopicRates, now time.Time) TopicBuckets {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.topics[name]
	if !ok {
		if len(s.topics) >= s.sweepAt {
			s.forgetIdle(now)
		}
		t = &topicEntry{rates: rates, TopicBuckets: TopicBuckets{
			Events: NewBucket(rates.Events, now),
			Bytes:  NewBucket(s.bytes(rates), now),
		}}
		s.topics[name] = t
	}
	if t.rates != rates {
		t.rates = rates
		t.Events.Retune(rates.Events, now)
		t.Bytes.Retune(s.bytes(rates), now)
	}
	t.used = now
	return t.TopicBuckets
}

// Forget drops the buckets of a topic that was deleted.
func (s *Set) Forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t, ok := s.topics[name]; ok {
		s.tenants -= len(t.tenants.buckets)
		delete(s.topics, name)
	}
}

func (s *Set) bytes(r TopicRates) Rate {
	if r.BytesPerSecond <= 0 {
		return Rate{}
	}
	return Rate{PerSecond: float64(r.BytesPerSecond), Burst: int(min(max(r.BytesPerSecond, s.largestPublish), math.MaxInt))}
}

// forgetIdle drops the buckets of topics that are idle and full. The next sweep comes when the
// number of topics has doubled, so that its cost per topic stays the same. It requires s.mu.
func (s *Set) forgetIdle(now time.Time) {
	for name, t := range s.topics {
		if now.Sub(t.used) < idleAfter {
			continue
		}
		s.forgetTenants(t, now)
		if len(t.tenants.buckets) == 0 && t.Events.Full(now) && t.Bytes.Full(now) {
			delete(s.topics, name)
		}
	}
	s.sweepAt = max(sweepAt, 2*len(s.topics))
}
