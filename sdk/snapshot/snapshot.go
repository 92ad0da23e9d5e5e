package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// A Snapshot is a state, and the positions by partition of the events that are in it.
type Snapshot struct {
	State     []byte
	Positions map[int]uint64
	At        time.Time // when it was made
}

// A Store keeps the snapshots of one consumer. One process at a time saves.
type Store interface {
	// Save keeps a snapshot; when it returns nil, Load returns that one, even if the process is
	// killed.
	Save(context.Context, Snapshot) error
	// Load returns the last good snapshot. The error is ErrNone if none was saved, and another one
	// if none of the saved ones is good.
	Load(context.Context) (Snapshot, error)
}

// ErrNone is matched by the error of a store that has no snapshot.
var ErrNone = errors.New("snapshot: there is none")

// ErrCorrupt is matched by the error of a snapshot that is incomplete or damaged.
var ErrCorrupt = errors.New("snapshot: it is torn or corrupt")

// head comes before the state.
type head struct {
	At        int64          `json:"at"` // in milliseconds since the epoch
	Positions map[int]uint64 `json:"positions"`
	Bytes     int            `json:"bytes"` // of the state
}

// magic begins each snapshot; another format has another one.
const magic = "sluice snapshot 1\n"

// Encode returns a snapshot as bytes:
//
//	"sluice snapshot 1\n"
//	4 bytes   the size of the head, big-endian
//	head      JSON: {"at":1723140000000,"positions":{"0":1042},"bytes":17}
//	state
//	32 bytes  SHA-256 of all before
func Encode(s Snapshot) ([]byte, error) {
	text, err := json.Marshal(head{At: s.At.UnixMilli(), Positions: s.Positions, Bytes: len(s.State)})
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(magic)+4+len(text)+len(s.State)+sha256.Size)
	b = binary.BigEndian.AppendUint32(append(b, magic...), uint32(len(text)))
	b = append(append(b, text...), s.State...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// Decode reads a snapshot that Encode has written; where it is incomplete or damaged the error
// matches [ErrCorrupt]. The state is part of b.
func Decode(b []byte) (Snapshot, error) {
	end := len(b) - sha256.Size
	if end < len(magic)+4 || !bytes.HasPrefix(b, []byte(magic)) {
		return Snapshot{}, fmt.Errorf("%w: it does not begin as one", ErrCorrupt)
	}
	if sum := sha256.Sum256(b[:end]); !bytes.Equal(sum[:], b[end:]) {
		return Snapshot{}, fmt.Errorf("%w: its checksum does not match", ErrCorrupt)
	}
	rest := b[len(magic):end]
	size := int(binary.BigEndian.Uint32(rest))
	if rest = rest[4:]; size > len(rest) {
		return Snapshot{}, fmt.Errorf("%w: its head does not fit", ErrCorrupt)
	}
	var h head
	if err := json.Unmarshal(rest[:size], &h); err != nil {
		return Snapshot{}, fmt.Errorf("%w: its head: %w", ErrCorrupt, err)
	}
	if state := rest[size:]; h.Bytes == len(state) {
		return Snapshot{State: state, Positions: h.Positions, At: time.UnixMilli(h.At)}, nil
	}
	return Snapshot{}, fmt.Errorf("%w: its state has another size than its head says", ErrCorrupt)
}
