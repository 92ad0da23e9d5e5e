package pebblelog

import (
	"bytes"
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Where ts jumps, the first seq whose event has a ts or a later one is found by a tree: its nodes have the highest
// (ts, id) of the events out of order of a block. A block of level 0 has 64 seqs, one of the next level 64 of these, and so
// on. A block without events out of order has no node, so a topic whose ts rises has none at all.
//
//   - An append raises the nodes of its blocks in the batch that makes its events visible. A start does so with the
//     events that the index lacks. So the tree follows from the journal.
//   - No node is too low, so a search passes only blocks that have nothing for it. It looks at up to 64 nodes of a
//     level, and reads the events of one block.
//   - A node may be too high where the floor is in its block, where events were damaged, and where a kill came between the
//     removal of single events and the lowering of their nodes. Such a block is read in vain.
const (
	blockBits = 6
	levels    = 4 // 64 nodes of the highest level are a billion seqs
)

// node is the place of a block in the tree.
type node struct {
	topic     uint32
	partition int
	level     int
	number    uint64
}

func nodeOf(topic uint32, partition, level int, seq uint64) node {
	return node{topic: topic, partition: partition, level: level, number: (seq - 1) >> (blockBits * (level + 1))}
}

// seqs are the first and the last seq of the block.
func (n node) seqs() (first, last uint64) {
	bits := blockBits * (n.level + 1)
	return n.number<<bits + 1, (n.number + 1) << bits
}

func (n node) parent() node {
	n.level, n.number = n.level+1, n.number>>blockBits
	return n
}

func (n node) key() []byte { return binary.BigEndian.AppendUint64(n.levelPrefix(), n.number) }

func (n node) levelPrefix() []byte { return append(nodePrefix(n.topic, n.partition), byte(n.level)) }

// highest is the highest (ts, id) out of order, by block.
type highest map[node]eventlog.Point

func (h highest) add(n node, at eventlog.Point) {
	if was, found := h[n]; !found || at.Compare(was) > 0 {
		h[n] = at
	}
}

// raise adds to a batch the nodes that are missing or too low. Where one is high enough, so are those above it.
func (h highest) raise(l *Log, b *pebble.Batch) error {
	for level := 0; level < levels && len(h) > 0; level++ {
		above := highest{}
		for n, at := range h {
			key, value := n.key(), appendPoint(nil, at.TS, at.ID)
			was, found, err := l.get(key)
			if err != nil {
				return err
			}
			if !found || bytes.Compare(was, value) < 0 {
				_ = b.Set(key, value, nil)
				above.add(n.parent(), at)
			}
		}
		h = above
	}
	return nil
}

// search looks for the events out of order of a partition within an interval without an end.
type search struct {
	view
	topic     *topic
	partition int
	within    interval
	nodes     *pebble.Iterator
}

// first is the lowest seq from one seq to another, 0 if there is none; level is where it begins.
func (s *search) first(level int, from, to uint64) (uint64, error) {
	for from <= to {
		n, found := s.next(nodeOf(s.topic.id, s.partition, level, from))
		first, last := n.seqs()
		if !found || first > to {
			break
		}
		low, high := max(from, first), min(to, last)
		seq, err := uint64(0), error(nil)
		if level > 0 {
			seq, err = s.first(level-1, low, high)
		} else {
			seq, err = s.read(low, high)
		}
		if seq != 0 || err != nil {
			return seq, err
		}
		from = last + 1
	}
	return 0, failed(s.nodes.Error())
}

// next is the first node of a level, from n on, whose block may have an event.
func (s *search) next(n node) (node, bool) {
	level, low := n.levelPrefix(), appendPoint(nil, s.within.low.TS, s.within.low.ID)
	if s.within.lowOpen {
		low = append(low, 0)
	}
	for valid := s.nodes.SeekGE(n.key()); valid && bytes.HasPrefix(s.nodes.Key(), level); valid = s.nodes.Next() {
		if bytes.Compare(s.nodes.Value(), low) >= 0 {
			n.number = seqOf(s.nodes.Key())
			return n, true
		}
	}
	return n, false
}

// read is first among the events of a block.
func (s *search) read(from, to uint64) (uint64, error) {
	c, err := s.open(s.topic, s.partition, s.nodes)
	if err != nil {
		return 0, failed(err)
	}
	defer c.close()
	c.limit = to
	for c.seek(from); c.seq() != 0 && c.seq() <= to; c.next() {
		r, err := c.event()
		if err != nil {
			return 0, failed(err)
		}
		if r.outOfOrder && !s.within.below(r.point()) {
			return r.Seq, nil
		}
	}
	return 0, failed(c.err)
}
