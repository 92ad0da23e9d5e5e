package federation

import (
	"hash/maphash"
	"unsafe"

	"github.com/sluice-bus/sluice/internal/budget"
)

// seen remembers the ids of one stream. It remembers the last rememberedIDs exactly, as
// fingerprints of 128 bits with a seed of the stream's own: two ids with the same fingerprint are
// less likely than a memory error. Older ids are only in a filter, which can only suspect them. So
// the memory is bounded, however long the stream is.
type seen struct {
	seeds     [2]maphash.Seed
	young     idSet
	old       idSet // full, or empty
	forgotten filters
	room      int // ids of one idSet
	memory    *budget.Share
	counted   int // bytes of the memory
}

// rememberedIDs is how many of the last ids are remembered exactly, at least while none was
// forgotten: both halves together, 4 MiB.
const rememberedIDs = 1 << 17

func newSeen(room int, memory *budget.Share) *seen {
	return &seen{seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, room: room / 2, memory: memory}
}

// any reports whether it remembers an id.
func (s *seen) any() bool { return s.young.n > 0 || s.old.n > 0 }

// look reports whether the id was added before: known, or maybe, if only the filter suspects it.
// With add it is remembered from now on.
func (s *seen) look(id string, add bool) (known, maybe bool) {
	f := s.fingerprint(id)
	if s.old.n > 0 && s.old.has(f) {
		return true, false
	}
	if !add {
		known = s.young.n > 0 && s.young.has(f)
	} else if known = !s.young.add(f); !known && s.young.n >= s.room {
		s.turn()
	}
	if size := s.size(); size != s.counted {
		s.memory.Take(size - s.counted)
		s.counted = size
	}
	return known, !known && s.forgotten.has(f)
}

// size is how many bytes there are of ids and filters.
func (s *seen) size() int {
	n := (len(s.young.slots) + len(s.old.slots)) * int(unsafe.Sizeof(fingerprint{}))
	for _, each := range s.forgotten {
		n += len(each.blocks) * int(unsafe.Sizeof(each.blocks[0]))
	}
	return n
}

// turn makes room: it moves the older half into the filter.
func (s *seen) turn() {
	for _, f := range s.old.slots {
		if f != (fingerprint{}) {
			s.forgotten.add(f)
		}
	}
	s.old, s.young = s.young, s.old
	s.young.clear()
}

type fingerprint [2]uint64

func (s *seen) fingerprint(id string) fingerprint {
	// The lowest bit is set, since zero is an empty slot.
	return fingerprint{maphash.String(s.seeds[0], id), maphash.String(s.seeds[1], id) | 1}
}

// idSet is a hash table with open addressing, at most half full.
type idSet struct {
	slots []fingerprint
	n     int
}

const firstSlots = 1 << 10

// find returns the slot that has f, or that is free for it.
func (s *idSet) find(f fingerprint) *fingerprint {
	for i := f[0]; ; i++ {
		slot := &s.slots[i&uint64(len(s.slots)-1)]
		if *slot == f || *slot == (fingerprint{}) {
			return slot
		}
	}
}

func (s *idSet) has(f fingerprint) bool { return *s.find(f) == f }

// add returns false if f was there already.
func (s *idSet) add(f fingerprint) bool {
	if 2*s.n >= len(s.slots) {
		s.grow()
	}
	slot := s.find(f)
	if *slot == f {
		return false
	}
	*slot = f
	s.n++
	return true
}

func (s *idSet) grow() {
	old := s.slots
	s.slots = make([]fingerprint, max(firstSlots, 2*len(old)))
	for _, f := range old {
		if f != (fingerprint{}) {
			*s.find(f) = f
		}
	}
}

func (s *idSet) clear() {
	clear(s.slots)
	s.n = 0
}

// filters has all ids in Bloom filters, each with twice the room of the one before, so that they
// use only the memory that they need. The last one takes all further ids. With 10 million ids, less
// than 1 in 20 new ids is suspected.
type filters []*filter

const (
	firstBlocks = 1 << 14 // 1 MiB
	maxFilters  = 4       // 15 MiB together
)

func (l *filters) add(f fingerprint) {
	n := len(*l)
	switch {
	case n == 0:
		*l = append(*l, newFilter(firstBlocks))
	case n < maxFilters && (*l)[n-1].full():
		*l = append(*l, newFilter(2*len((*l)[n-1].blocks)))
	}
	(*l)[len(*l)-1].add(f)
}

func (l filters) has(f fingerprint) bool {
	for _, each := range l {
		if each.has(f) {
			return true
		}
	}
	return false
}

// filter is a Bloom filter in blocks of one cache line each (Putze, Sanders and Singler, "Cache-,
// hash- and space-efficient Bloom filters"). Until it is full, it suspects less than 1 in 200 new
// ids.
type filter struct {
	blocks [][8]uint64 // their number is a power of two
	n      int
}

const (
	bitsSet  = 5  // for each id
	bitsRoom = 16 // for each id, when it is full
)

func newFilter(blocks int) *filter { return &filter{blocks: make([][8]uint64, blocks)} }

func (b *filter) full() bool { return b.n*bitsRoom >= len(b.blocks)*512 }

func (b *filter) block(f fingerprint) *[8]uint64 { return &b.blocks[f[0]>>32&uint64(len(b.blocks)-1)] }

func (b *filter) add(f fingerprint) {
	block := b.block(f)
	for i := range bitsSet {
		h := f[1] >> (1 + 9*i)
		block[h>>6&7] |= 1 << (h & 63)
	}
	b.n++
}

func (b *filter) has(f fingerprint) bool {
	block := b.block(f)
	for i := range bitsSet {
		h := f[1] >> (1 + 9*i)
		if block[h>>6&7]&(1<<(h&63)) == 0 {
			return false
		}
	}
	return true
}
