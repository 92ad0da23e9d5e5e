package eventlog

import (
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/google/uuid"
)

// A timed id is one that a sidecar made for an event: a UUID of version 7 whose time is the event's ts. So a log can find
// the event without an entry for its id. From the first byte on:
//
//	ts       6 bytes, big-endian: milliseconds since the epoch
//	counter  26 bits around the version and the variant: how many the process had made, so that its ids rise
//	random   5 bytes
//	check    1 byte: the lowest of the Hash of the bytes before it
//
// Ids of others may look like one, about one in 256 of version 7 does: it says where to look and proves nothing.
const timedCheck = 15

// timedIDs is the counter.
var timedIDs atomic.Uint32

// NewTimedID makes the id of an event with a ts.
func NewTimedID(ts int64) string {
	var id uuid.UUID
	n := timedIDs.Add(1)
	binary.BigEndian.PutUint64(id[:], uint64(ts)<<16|7<<12|uint64(n>>14&0xfff))
	binary.BigEndian.PutUint64(id[8:], 2<<62|uint64(n&0x3fff)<<48|rand.Uint64()>>16)
	id[timedCheck] = timedSum(&id)
	return id.String()
}

// TimeOfID is the ts of the event that an id was made for, if it is a timed id.
func TimeOfID(id string) (ts int64, timed bool) {
	const version = 14 // where its digit is
	if len(id) != 36 || id[version] != '7' || strings.ContainsAny(id, "ABCDEF") {
		return 0, false
	}
	u, err := uuid.Parse(id)
	if err != nil || u[timedCheck] != timedSum(&u) {
		return 0, false
	}
	return int64(binary.BigEndian.Uint64(u[:]) >> 16), true
}

func timedSum(id *uuid.UUID) byte { return byte(Hash(HashStart, string(id[:timedCheck]))) }
