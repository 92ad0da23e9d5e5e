package exactlyonce

import (
	"cmp"
	"container/list"
	"context"
	"sync"
	"time"
)

// DefaultMemoryIDs is how many ids a Memory remembers unless told otherwise.
const DefaultMemoryIDs = 1_000_000

// Memory is a Store in this process's memory, for tests and for programs that run alone: it knows
// nothing after a restart.
//
// It is bounded. Where it is full, it forgets the least recently used records first, before their
// time, and counts them (see Forgotten). It does not forget a held claim; with only such claims an
// Insert gets ErrFull.
type Memory struct {
	maxIDs int

	mu        sync.Mutex
	chains    map[string]*list.Element // by key, of *chain
	order     list.List                // touched longest ago first
	forgotten int64
}

// chain is a key's records.
type chain struct {
	key     string
	records []Record // that of number n at n-1
	touched time.Time
}

// NewMemory returns a store that remembers at most maxIDs ids of all scopes together; 0:
// DefaultMemoryIDs.
func NewMemory(maxIDs int) *Memory {
	return &Memory{maxIDs: cmp.Or(max(maxIDs, 0), DefaultMemoryIDs), chains: map[string]*list.Element{}}
}

// Len is how many ids it holds.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.chains)
}

// Forgotten is how many ids it has forgotten before their time, because it was full. If one of
// their events comes again, its effect runs again.
func (m *Memory) Forgotten() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.forgotten
}

// Insert implements Store.
func (m *Memory) Insert(ctx context.Context, r Record) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	c := m.chain(r.Key, now)
	if c == nil {
		if r.Number != 1 {
			return ErrNotFound
		}
		if err := m.room(now); err != nil {
			return err
		}
		c = &chain{key: r.Key}
		m.chains[r.Key] = m.order.PushBack(c)
	} else if r.Number > 1 && r.Chain != c.records[0].Chain {
		return ErrNotFound
	}
	if r.Number <= int64(len(c.records)) {
		return ErrExists
	}
	c.records = append(c.records, r)
	m.touch(c, now)
	return nil
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, s Slot) (Record, error) {
	if err := ctx.Err(); err != nil {
		return Record{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.record(s); r != nil {
		return *r, nil
	}
	return Record{}, ErrNotFound
}

// Extend implements Store.
func (m *Memory) Extend(ctx context.Context, s Slot, b Beat) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.record(s); r != nil && r.Chain == s.Chain {
		r.Beat, r.ExpireAt = b.Number, later(r.ExpireAt, b.ExpireAt)
		r.Released = r.Released || b.Released
		m.touch(m.chains[s.Key].Value.(*chain), time.Now())
	}
	return nil
}

// Keep implements Store.
func (m *Memory) Keep(ctx context.Context, s Slot, until time.Time) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.chain(s.Key, time.Now())
	if c == nil || c.records[0].Chain != s.Chain {
		return false, nil
	}
	for i := range min(int(s.Number)-1, len(c.records)) {
		c.records[i].ExpireAt = later(c.records[i].ExpireAt, until)
	}
	c.records[0].Head = max(c.records[0].Head, s.Number)
	return true, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// record returns the record in the slot, or nil.
func (m *Memory) record(s Slot) *Record {
	c := m.chain(s.Key, time.Now())
	if c == nil || s.Number < 1 || s.Number > int64(len(c.records)) || s.Number > 1 && c.records[0].Chain != s.Chain {
		return nil
	}
	return &c.records[s.Number-1]
}

// chain returns the chain of the key, or nil. It removes a chain that has expired.
func (m *Memory) chain(key string, now time.Time) *chain {
	e := m.chains[key]
	if e == nil {
		return nil
	}
	c := e.Value.(*chain)
	if !c.expired(now) {
		return c
	}
	m.remove(e)
	return nil
}

func (m *Memory) touch(c *chain, now time.Time) {
	c.touched = now
	m.order.MoveToBack(m.chains[c.key])
}

func (m *Memory) remove(e *list.Element) {
	delete(m.chains, e.Value.(*chain).key)
	m.order.Remove(e)
}

// room makes room for another chain. Each beat touches its claim, so held claims are at the end of
// the order.
func (m *Memory) room(now time.Time) error {
	for e := m.order.Front(); e != nil && e.Value.(*chain).expired(now); e = m.order.Front() {
		m.remove(e)
	}
	if len(m.chains) < m.maxIDs {
		return nil
	}
	for e := m.order.Front(); e != nil; e = e.Next() {
		if !e.Value.(*chain).held(now) {
			m.remove(e)
			m.forgotten++
			return nil
		}
	}
	return ErrFull
}

func (c *chain) last() *Record { return &c.records[len(c.records)-1] }

func (c *chain) expired(now time.Time) bool { return now.After(c.last().ExpireAt) }

// held tells whether a process may have the chain's claim.
func (c *chain) held(now time.Time) bool {
	r := c.last()
	return r.Kind == KindClaim && !r.Released && now.Sub(c.touched) <= 2*r.Lease
}
