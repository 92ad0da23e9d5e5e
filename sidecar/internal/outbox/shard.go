package outbox

import (
	"math/bits"
	"slices"
	"strconv"
)

// Shards is into how many parts an outbox is divided; each has at most one
// drainer at a time. It is part of the data format: drainers that do not agree
// on it would not keep the order of a key.
const Shards = 16

// shardOf places a document: by topic and key, or by topic and id where there
// is no key. It is part of the data format, too: FNV-1a with 64 bits over topic,
// a zero byte and key, modulo Shards.
func shardOf(topic, key string) int { return int(hash(topic, key) % Shards) }

func hash(a, b string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(a) {
		h = (h ^ uint64(a[i])) * prime
	}
	h *= prime // the zero byte
	for i := range len(b) {
		h = (h ^ uint64(b[i])) * prime
	}
	return h
}

// shardSet is a set of shards, a bit for each.
type shardSet uint16

const allShards shardSet = 1<<Shards - 1

func (s shardSet) has(shard int) bool { return s>>shard&1 == 1 }

func (s shardSet) with(shard int) shardSet { return s | 1<<shard }

func (s shardSet) len() int { return bits.OnesCount16(uint16(s)) }

// assign tells which shards self should have among all drainers, self among
// them. Whoever knows the same drainers comes to the same result. It is
// rendezvous hashing, but that nobody gets more than an even share: a shard
// goes to the drainer with the highest score for it of those that have room.
func assign(self string, drainers []string) shardSet {
	slices.Sort(drainers)
	drainers = slices.Compact(drainers)
	share, odd := Shards/len(drainers), Shards%len(drainers) // odd drainers get one more
	got := make([]int, len(drainers))
	var mine shardSet
	for shard := range Shards {
		best, most := -1, uint64(0)
		for i, d := range drainers {
			room := got[i] < share || got[i] == share && odd > 0
			if score := mix(hash(d, strconv.Itoa(shard))); room && (best < 0 || score > most) {
				best, most = i, score
			}
		}
		if got[best] == share {
			odd--
		}
		got[best]++
		if drainers[best] == self {
			mine = mine.with(shard)
		}
	}
	return mine
}

// mix spreads what differs in few low bits over all of them (the finalizer of
// MurmurHash3).
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
