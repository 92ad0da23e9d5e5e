package pebblelog

import (
	"encoding/binary"
	"fmt"
)

// location is the value of the s and k entries: partition and seq, as unsigned varints.
type location struct {
	partition int
	seq       uint64
}

func appendLocation(b []byte, at location) []byte {
	b = binary.AppendUvarint(b, uint64(at.partition))
	return binary.AppendUvarint(b, at.seq)
}

func decodeLocation(value []byte) (location, error) {
	d := decoder{rest: value}
	at := location{partition: int(d.uvarint()), seq: d.uvarint()}
	if d.err != nil {
		return location{}, fmt.Errorf("index entry: %w", d.err)
	}
	return at, nil
}

// idEntry is the value of an i entry: where the id's event is or was. Once retention has removed
// the event, the data for the answer to a repeated publish remains.
//
//	state     1 byte: 1 the event is in the log, 2 only this remnant, 3 it is scheduled
//	partition unsigned varint
//	seq       unsigned varint
//	ts        varint            ⎫
//	accepted  varint            ⎬ remnant only
//	hash      32 bytes          ⎭ codec.ContentHash
//	due       varint            ⎱ scheduled only, in place of partition and seq
//	order     varint            ⎰
type idEntry struct {
	location
	remnant    bool
	ts         int64
	acceptedAt int64
	hash       [32]byte
	due        int64 // not 0: it is scheduled
	order      int64 // in which it was accepted, see eventlog.Acceptances
}

// inLog says that the id's event is in the log.
func (e idEntry) inLog() bool { return !e.remnant && e.due == 0 }

const (
	idStored  = 1
	idRemnant = 2
	idWaiting = 3
)

func appendIDEntry(b []byte, e idEntry) []byte {
	if e.due != 0 {
		b = binary.AppendVarint(append(b, idWaiting), e.due)
		return binary.AppendVarint(b, e.order)
	}
	if !e.remnant {
		return appendLocation(append(b, idStored), e.location)
	}
	b = appendLocation(append(b, idRemnant), e.location)
	b = binary.AppendVarint(b, e.ts)
	b = binary.AppendVarint(b, e.acceptedAt)
	return append(b, e.hash[:]...)
}

func decodeIDEntry(value []byte) (idEntry, error) {
	if len(value) == 0 || value[0] < idStored || value[0] > idWaiting {
		return idEntry{}, fmt.Errorf("id entry: its state is not known")
	}
	e := idEntry{remnant: value[0] == idRemnant}
	d := decoder{rest: value[1:]}
	if value[0] == idWaiting {
		e.due, e.order = d.varint(), d.varint()
	} else {
		e.partition, e.seq = int(d.uvarint()), d.uvarint()
	}
	if e.remnant {
		e.ts, e.acceptedAt = d.varint(), d.varint()
		if copy(e.hash[:], d.rest) < len(e.hash) {
			d.err = errTruncated
		}
	}
	if d.err != nil {
		return idEntry{}, fmt.Errorf("id entry: %w", d.err)
	}
	return e, nil
}
