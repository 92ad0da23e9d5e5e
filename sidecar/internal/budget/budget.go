// Package budget bounds the memory that all connections of a sidecar use together.
package budget

import "sync/atomic"

// Budget is a number of bytes that several users share. A nil one has no bound. Its methods are
// safe for concurrent use.
type Budget struct {
	limit int64
	used  atomic.Int64
}

// New makes a budget of so many bytes.
func New(limit int64) *Budget { return &Budget{limit: limit} }

// TryTake takes n bytes if that many are left.
func (b *Budget) TryTake(n int) bool {
	fits := b.add(n) <= b.Limit()
	if !fits {
		b.Give(n)
	}
	return fits
}

// Take takes n bytes, also beyond the limit: for data that is in memory already. Callers check Full
// before they cause more of it.
func (b *Budget) Take(n int) { b.add(n) }

// Give gives back n bytes that were taken.
func (b *Budget) Give(n int) { b.add(-n) }

func (b *Budget) add(n int) (used int64) {
	if b == nil {
		return 0
	}
	return b.used.Add(int64(n))
}

// Full reports whether nothing is left.
func (b *Budget) Full() bool { return b != nil && b.used.Load() >= b.limit }

// Scarce reports whether less than half is left. Callers then do without optional memory.
func (b *Budget) Scarce() bool { return b != nil && b.used.Load() > b.limit/2 }

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.add(0) }

// Limit is how many bytes there are in all.
func (b *Budget) Limit() int64 {
	if b == nil {
		return 0
	}
	return b.limit
}
