// Package positions keeps a reader's position in each partition of a topic, and wakes goroutines
// that wait until it has moved on.
package positions

import (
	"maps"
	"sync"
)

// Positions are the seqs that a reader has come to, by partition. The zero value is the beginning
// of a topic. Its methods may be called by several goroutines at once.
type Positions struct {
	mu    sync.Mutex
	at    map[int]uint64
	moved chan struct{} // closed when at changes; nil: nobody waits for that
}

// Replace sets all positions.
func (p *Positions) Replace(at map[int]uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at = maps.Clone(at)
	p.wake()
}

// Advance notes that the reader has come to these, unless it is further.
func (p *Positions) Advance(to map[int]uint64) {
	for partition, seq := range to {
		p.AdvanceOne(partition, seq)
	}
}

// AdvanceOne is Advance of one partition.
func (p *Positions) AdvanceOne(partition int, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil {
		p.at = map[int]uint64{}
	}
	p.at[partition] = max(p.at[partition], seq)
	p.wake()
}

func (p *Positions) wake() {
	if p.moved != nil {
		close(p.moved)
		p.moved = nil
	}
}

// All returns a copy of the positions.
func (p *Positions) All() map[int]uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make(map[int]uint64, len(p.at))
	maps.Copy(all, p.at)
	return all
}

// Behind returns nil if the reader has come to all heads, else a channel that is closed when the
// positions change.
func (p *Positions) Behind(heads map[int]uint64) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	for partition, head := range heads {
		if p.at[partition] >= head {
			continue
		}
		if p.moved == nil {
			p.moved = make(chan struct{})
		}
		return p.moved
	}
	return nil
}
