package pebblelog

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// The layout of the index. A key is one letter for the kind of entry, then its parts
// without separators. Topics are interned: t is the topic's number, 4 bytes. Whole numbers in keys
// are big-endian, so that the order of the bytes is the order of the numbers: partition p 2 bytes,
// seq 8, times 8 with the sign bit flipped. Text in the middle of a key (key, group) is escaped and
// terminated, see appendText; text at its end stands as it is.
//
//	kind  key                     value
//	t     name                    the topic's number, partitions and state (catalog.go)
//	e     t p seq                 a run of events, by its first seq (run.go)
//	i     t id                    where the id is, or what remains of it (index.go); none where the id tells (timed.go)
//	s     t ts id                 p seq: the events that are out of order (order.go)
//	n     t p level number        ts id: the highest of the events out of order of a block (strays.go)
//	c     t p ts id               seq: some of the events in order
//	k     t key ts id             p seq: the same order within one key
//	l     t key p seq             nothing: the log order within one key
//	h     t p                     seq: the highest that retention has removed
//	g     t p                     seq: one that was given, where the events may not tell
//	r     t accepted id           nothing: ids without event, oldest first
//	m     t group id              when the mark expires
//	x     expires t group id      nothing: marks in the order they expire
//	d     t group p seq letter    nothing: dead letters that are to be delivered again
//	j     t name                  nothing: the topics that have its dead letters, beside its own
//	w     t due id                a scheduled event (record.go)
//	q     due order t id          its key: the scheduled events of all topics by time, then as they were accepted
//	p     t p group               the latest epoch of a group's partition (epoch.go)
//	f     name                    a small text, see Log.SetText
//	b     base                    a segment of the journal (reclaim.go)
//	a                             the position in the journal up to which the index has everything
//
// What an event costs is the number of its entries. It shares an e with up to 63 others. Without a key it has i, unless the
// sidecar has made its id; one with a key has i, k and l. l is separate from k because the latest by seq is not the latest by ts.
const (
	kindCatalog  = 't'
	kindEvent    = 'e'
	kindID       = 'i'
	kindTime     = 's'
	kindKeyTime  = 'k'
	kindKeySeq   = 'l'
	kindFloor    = 'h'
	kindGiven    = 'g'
	kindRemnant  = 'r'
	kindMark     = 'm'
	kindMarkTime = 'x'
	kindRedrive  = 'd'
	kindLetters  = 'j'
	kindWaiting  = 'w'
	kindDue      = 'q'
	kindOrder    = 'c'
	kindNode     = 'n'
	kindEpoch    = 'p'
	kindText     = 'f'
	kindSegment  = 'b'
	kindPosition = 'a'
)

func topicPrefix(b []byte, kind byte, topic uint32) []byte {
	return binary.BigEndian.AppendUint32(append(b, kind), topic)
}

func catalogKey(name string) []byte { return append([]byte{kindCatalog}, name...) }

func eventKey(b []byte, topic uint32, partition int, seq uint64) []byte {
	return appendPlace(topicPrefix(b, kindEvent, topic), partition, seq)
}

// seqOf is the seq at the end of an event's key.
func seqOf(key []byte) uint64 { return binary.BigEndian.Uint64(key[len(key)-8:]) }

func idKey(b []byte, topic uint32, id string) []byte {
	return append(topicPrefix(b, kindID, topic), id...)
}

func timeKey(b []byte, topic uint32, ts int64, id string) []byte {
	return appendPoint(topicPrefix(b, kindTime, topic), ts, id)
}

func orderPrefix(b []byte, topic uint32, partition int) []byte {
	return binary.BigEndian.AppendUint16(topicPrefix(b, kindOrder, topic), uint16(partition))
}

func nodePrefix(topic uint32, partition int) []byte {
	return binary.BigEndian.AppendUint16(topicPrefix(nil, kindNode, topic), uint16(partition))
}

func segmentKey(base uint64) []byte { return binary.BigEndian.AppendUint64([]byte{kindSegment}, base) }

func keyPrefix(b []byte, kind byte, topic uint32, key string) []byte {
	return appendText(topicPrefix(b, kind, topic), key)
}

func keyTimeKey(b []byte, topic uint32, key string, ts int64, id string) []byte {
	return appendPoint(keyPrefix(b, kindKeyTime, topic, key), ts, id)
}

func keySeqKey(b []byte, topic uint32, key string, partition int, seq uint64) []byte {
	return appendPlace(keyPrefix(b, kindKeySeq, topic, key), partition, seq)
}

func appendPlace(b []byte, partition int, seq uint64) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(partition))
	return binary.BigEndian.AppendUint64(b, seq)
}

// locationAt reads the partition and seq at the end of a key.
func locationAt(b []byte) location {
	return location{partition: int(binary.BigEndian.Uint16(b)), seq: binary.BigEndian.Uint64(b[2:])}
}

func floorKey(topic uint32, partition int) []byte {
	return binary.BigEndian.AppendUint16(topicPrefix(nil, kindFloor, topic), uint16(partition))
}

func givenKey(topic uint32, partition int) []byte {
	return binary.BigEndian.AppendUint16(topicPrefix(nil, kindGiven, topic), uint16(partition))
}

func waitingKey(b []byte, topic uint32, due int64, id string) []byte {
	return appendPoint(topicPrefix(b, kindWaiting, topic), due, id)
}

func dueKey(e idEntry, topic uint32, id string) []byte {
	b := appendTime([]byte{kindDue}, e.due)
	b = binary.BigEndian.AppendUint64(b, uint64(e.order))
	return append(binary.BigEndian.AppendUint32(b, topic), id...)
}

func remnantKey(b []byte, topic uint32, acceptedAt int64, id string) []byte {
	return appendPoint(topicPrefix(b, kindRemnant, topic), acceptedAt, id)
}

func groupPrefix(kind byte, topic uint32, group string) []byte {
	return appendText(topicPrefix(nil, kind, topic), group)
}

func markKey(topic uint32, group, id string) []byte {
	return append(groupPrefix(kindMark, topic, group), id...)
}

func markTimeKey(expiresAt int64, topic uint32, group, id string) []byte {
	b := appendTime([]byte{kindMarkTime}, expiresAt)
	b = binary.BigEndian.AppendUint32(b, topic)
	return append(appendText(b, group), id...)
}

// appendTime writes a time so that negative ones sort first.
func appendTime(b []byte, ms int64) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(ms)^(1<<63))
}

func timeAt(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ (1 << 63)) }

func appendPoint(b []byte, ts int64, id string) []byte { return append(appendTime(b, ts), id...) }

// pointAt reads the (time, id) at the end of a key, given from its first byte on.
func pointAt(b []byte) eventlog.Point {
	return eventlog.Point{TS: timeAt(b), ID: string(b[8:])}
}

// appendText writes text in the middle of a key: a zero byte becomes 00 FF, and 00 01 ends the
// text. So texts sort by their bytes, none is the prefix of another, and the rest of the key cannot
// be mistaken for text.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] == 0 {
			b = append(b, 0, 0xff)
			continue
		}
		b = append(b, s[i])
	}
	return append(b, 0, 1)
}

// cutText is what appendText has put at the beginning of b, and the rest; nil: its end is missing.
func cutText(b []byte) (text string, rest []byte) {
	var s []byte
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 || i+1 == len(b) {
			return "", nil
		}
		if s = append(s, b[:i]...); b[i+1] == 1 {
			return string(s), b[i+2:]
		}
		s = append(s, 0)
		b = b[i+2:]
	}
}

// after is the lowest key above all keys with a prefix.
func after(prefix []byte) []byte {
	end := append([]byte(nil), prefix...)
	for i := len(end) - 1; i >= 0; i-- {
		if end[i] != math.MaxUint8 {
			end[i]++
			return end[:i+1]
		}
	}
	return nil
}
