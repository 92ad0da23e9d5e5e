package pebblelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// An event as a run has it (run.go), or as the entry of a scheduled one; topic, partition and seq are known from
// there. n is an unsigned and z a zigzag varint, text is n and that many bytes.
//
//	flags    1 byte: bit 0 the payload is binary, 1 it has a ttl, 2 it is scheduled,
//	         3 it is out of order, 4 it is in the time index (see order.go), 5 its id has no entry (timed.go)
//	ttl      n, where there is one
//	due      z, of a scheduled event
//	ts       z
//	accepted z, relative to ts: most publishers let the sidecar set ts
//	id       text
//	key      text
//	sid      text
//	headers  n, then name and value of each, text
//	tags     n, then each, text
//	caused   n, then each, text
//	payload  the rest
const (
	flagBinary = 1 << iota
	flagTTL
	flagDue
	flagOutOfOrder
	flagTimeIndexed
	flagTimedID
)

var errTruncated = errors.New("it ends too early")

// appendRecord writes the event's value; flags are flagOutOfOrder, flagTimeIndexed and flagTimedID.
func appendRecord(b []byte, r *eventlog.Record, flags byte) []byte {
	if r.Binary {
		flags |= flagBinary
	}
	if r.TTLMS != 0 {
		flags |= flagTTL
	}
	if r.DeliverAt != 0 {
		flags |= flagDue
	}
	b = append(b, flags)
	if r.TTLMS != 0 {
		b = binary.AppendUvarint(b, uint64(r.TTLMS))
	}
	if r.DeliverAt != 0 {
		b = binary.AppendVarint(b, r.DeliverAt)
	}
	b = binary.AppendVarint(b, r.TS)
	b = binary.AppendVarint(b, r.AcceptedAt-r.TS)
	b = appendString(b, r.ID)
	b = appendString(b, r.Key)
	b = appendString(b, r.SID)
	b = binary.AppendUvarint(b, uint64(len(r.Headers)))
	for i := range r.Headers {
		b = appendString(b, r.Headers[i].Name)
		b = appendString(b, r.Headers[i].Value)
	}
	b = appendStrings(b, r.Tags)
	b = appendStrings(b, r.CausedBy)
	return append(b, r.Payload...)
}

func appendString(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func appendStrings(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = appendString(b, s)
	}
	return b
}

// decodeRecord reads an event's value. The record keeps nothing of value.
func decodeRecord(topic string, partition int, seq uint64, value []byte) (*eventlog.Record, error) {
	d := decoder{rest: value}
	r := &eventlog.Record{}
	r.Topic, r.Partition, r.Seq = topic, partition, seq
	r.Binary, r.TTLMS, r.DeliverAt = d.recordStart()
	r.TS = d.varint()
	r.AcceptedAt = d.varint() + r.TS
	r.ID, r.Key, r.SID = d.string(), d.string(), d.string()
	if n := d.count(2); n > 0 {
		r.Headers = make(wire.Headers, n)
		for i := range r.Headers {
			r.Headers[i] = wire.Header{Name: d.string(), Value: d.string()}
		}
	}
	r.Tags, r.CausedBy = d.strings(), d.strings()
	if d.err != nil {
		return nil, fmt.Errorf("event %s/%d/%d: %w", topic, partition, seq, d.err)
	}
	r.Payload = bytes.Clone(d.rest)
	return r, nil
}

// identityOf is the id and the key in an event's value.
func identityOf(value []byte) (id, key string, err error) {
	d := decoder{rest: value}
	d.recordStart()
	d.varint()
	d.varint()
	id, key = d.string(), d.string()
	return id, key, d.err
}

// recordStart reads the flags and what they announce.
func (d *decoder) recordStart() (isBinary bool, ttl, due int64) {
	flags := d.byte()
	if flags&flagTTL != 0 {
		ttl = int64(d.uvarint())
	}
	if flags&flagDue != 0 {
		due = d.varint()
	}
	return flags&flagBinary != 0, ttl, due
}

// decoder reads varints and texts off the front of rest. After an error rest is nil, so that it
// returns zero values and callers check err at the end only.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) skip(n int) {
	if n <= 0 {
		d.rest, d.err = nil, errTruncated
		return
	}
	d.rest = d.rest[n:]
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.skip(0)
		return 0
	}
	b := d.rest[0]
	d.rest = d.rest[1:]
	return b
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	d.skip(n)
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	d.skip(n)
	return v
}

// count reads the length of a list whose elements take at least size bytes each, so that damage
// cannot ask for more memory than the value has.
func (d *decoder) count(size int) int {
	n := d.uvarint()
	if n > uint64(len(d.rest)/size) {
		d.rest, d.err = nil, errTruncated
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.count(1)
	if n == 0 {
		return ""
	}
	s := string(d.rest[:n])
	d.rest = d.rest[n:]
	return s
}

func (d *decoder) strings() []string {
	n := d.count(1)
	if n == 0 {
		return nil
	}
	list := make([]string, n)
	for i := range list {
		list[i] = d.string()
	}
	return list
}
