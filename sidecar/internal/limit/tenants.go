package limit

import "time"

// Bounds of the tenants with buckets of their own.
const (
	// MaxTenants bounds those of one topic.
	MaxTenants = 10_000
	// MaxTenantsInAll bounds those of all topics.
	MaxTenantsInAll = 20_000
	// sweepTenantsAt is the number of a topic's tenants below which none is forgotten.
	sweepTenantsAt = 64
	// sweepAgain is the least time between two looks for idle tenants of a topic that is at a
	// bound.
	sweepAgain = time.Second
)

// tenants are the buckets of a topic's tenants.
type tenants struct {
	buckets map[string]*tenantEntry
	sweepAt int       // the number of them at which to look for idle ones
	swept   time.Time // when the last look was
}

type tenantEntry struct {
	bucket *Bucket
	rate   Rate
	used   time.Time
}

// Tenant returns the bucket of a topic's tenant, tuned to rate. It reports false if there is none,
// since the number of tenants with buckets of their own is at its bound. A bucket that is full and
// was idle for a minute may be forgotten. The caller has just requested the topic's buckets from
// [Set.Topic].
func (s *Set) Tenant(topic, tenant string, rate Rate, now time.Time) (*Bucket, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, ok := s.topics[topic]
	if !ok {
		return nil, false
	}
	e, ok := t.tenants.buckets[tenant]
	if !ok {
		switch {
		case s.tenants >= MaxTenantsInAll && now.Sub(s.sweptAll) >= sweepAgain:
			s.sweptAll = now
			for _, t := range s.topics {
				s.forgetTenants(t, now)
			}
		case len(t.tenants.buckets) >= max(t.tenants.sweepAt, sweepTenantsAt):
			s.forgetTenants(t, now)
		}
		if len(t.tenants.buckets) >= MaxTenants || s.tenants >= MaxTenantsInAll {
			return nil, false
		}
		if t.tenants.buckets == nil {
			t.tenants.buckets = map[string]*tenantEntry{}
		}
		e = &tenantEntry{rate: rate, bucket: NewBucket(rate, now)}
		t.tenants.buckets[tenant] = e
		s.tenants++
	}
	if e.rate != rate {
		e.rate = rate
		e.bucket.Retune(rate, now)
	}
	e.used = now
	return e.bucket, true
}

// Tenants is how many tenants have buckets of their own, by topic, without topics that have none.
func (s *Set) Tenants() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	if s.tenants == 0 {
		return counts
	}
	for name, t := range s.topics {
		if n := len(t.tenants.buckets); n > 0 {
			counts[name] = n
		}
	}
	return counts
}

// forgetTenants drops the idle tenants of a topic, unless it was called just before. Like
// forgetIdle it has a constant cost per tenant. It requires s.mu.
func (s *Set) forgetTenants(t *topicEntry, now time.Time) {
	if now.Sub(t.tenants.swept) < sweepAgain {
		return
	}
	for name, e := range t.tenants.buckets {
		if now.Sub(e.used) >= idleAfter && e.bucket.Full(now) {
			delete(t.tenants.buckets, name)
			s.tenants--
		}
	}
	t.tenants.swept = now
	t.tenants.sweepAt = min(max(sweepTenantsAt, 2*len(t.tenants.buckets)), MaxTenants)
}
