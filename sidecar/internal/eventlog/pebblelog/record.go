package pebblelog

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// The value of an event's entry; topic, partition and seq are in its key. n is an unsigned and z a
// zigzag varint, text is n and that many bytes.
//
//	version  1 byte: 1, 2 for an event with a ttl, or 3 for one that is scheduled
//	flags    1 byte: bit 0 the payload is binary
//	ttl      n, from version 2 on; in version 3 0 where there is none
//	due      z, in version 3 alone
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
	recordVersion    = 1
	recordVersionTTL = 2
	recordVersionDue = 3
	flagBinary       = 1 << 0
)

var errTruncated = errors.New("it ends too early")

// appendRecord writes the event's value.
func appendRecord(b []byte, r *eventlog.Record) []byte {
	var flags byte
	if r.Binary {
		flags |= flagBinary
	}
	switch {
	case r.DeliverAt != 0:
		b = binary.AppendUvarint(append(b, recordVersionDue, flags), uint64(r.TTLMS))
		b = binary.AppendVarint(b, r.DeliverAt)
	case r.TTLMS > 0:
		b = binary.AppendUvarint(append(b, recordVersionTTL, flags), uint64(r.TTLMS))
	default:
		b = append(b, recordVersion, flags)
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
	if len(value) < 2 {
		return nil, fmt.Errorf("event %s/%d/%d: %w", topic, partition, seq, errTruncated)
	}
	if value[0] < recordVersion || value[0] > recordVersionDue {
		return nil, fmt.Errorf("event %s/%d/%d: record version %d is not known", topic, partition, seq, value[0])
	}
	flags := value[1]
	d := decoder{rest: value[2:]}
	r := &eventlog.Record{}
	r.Topic, r.Partition, r.Seq = topic, partition, seq
	r.TTLMS, r.DeliverAt = d.versioned(value[0])
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
	r.Binary = flags&flagBinary != 0
	r.Payload = bytes.Clone(d.rest)
	return r, nil
}

// identityOf is the id and the key in an event's value.
func identityOf(value []byte) (id, key string, err error) {
	if len(value) < 2 {
		return "", "", errTruncated
	}
	d := decoder{rest: value[2:]}
	d.versioned(value[0])
	d.varint()
	d.varint()
	id, key = d.string(), d.string()
	return id, key, d.err
}

// versioned reads what only later versions have.
func (d *decoder) versioned(version byte) (ttl, due int64) {
	if version >= recordVersionTTL {
		ttl = int64(d.uvarint())
	}
	if version >= recordVersionDue {
		due = d.varint()
	}
	return ttl, due
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
