package load

import "sync"

// seen remembers which places of a topic's log were delivered: one bit each, so that duplicates are
// found exactly and at little cost.
type seen struct {
	mu         sync.Mutex
	partitions [][]uint64 // bits by seq
	unique     int
	again      int
	wanted     int
	complete   chan struct{} // closed when as many as wanted are there
}

func newSeen(wanted int) *seen { return &seen{wanted: wanted, complete: make(chan struct{})} }

// add notes a delivery, and reports whether it is the first of its event.
func (s *seen) add(partition int, seq uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.partitions) <= partition {
		s.partitions = append(s.partitions, nil)
	}
	word, bit := int(seq/64), uint64(1)<<(seq%64)
	bits := s.partitions[partition]
	if word >= len(bits) {
		bits = append(bits, make([]uint64, word+1-len(bits)+len(bits)/2)...)
		s.partitions[partition] = bits
	}
	if bits[word]&bit != 0 {
		s.again++
		return false
	}
	bits[word] |= bit
	if s.unique++; s.unique == s.wanted {
		close(s.complete)
	}
	return true
}

func (s *seen) count() (unique, again int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unique, s.again
}
