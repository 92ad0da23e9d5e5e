package replay

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// cursor is where a page ended, with all parameters that the next page needs to continue the
// replay. Clients see it as opaque text.
//
// It is base64url of
//
//	version  1 byte, 1 or 2
//	flags    1 byte: 1 descending, 2 scope=fleet, 4 from=ts, 8 from=afterId
//	start    its ts (varint), its id
//	last     its ts (varint), its id
//	topic
//	key
//	behind   in version 2 alone: how many (uvarint), and of each its name, then 0
//	         or 1 and a ts (varint) and an id
//	sum      4 bytes, CRC-32C of all before
//
// with each text as its length (uvarint) and its bytes. Version 2 is for a replay of the fleet in
// which parts could not be asked. The sum detects a cursor that was cut off or mistyped. It does
// not prevent forgery, and need not: a cursor gives access to nothing that the same parameters
// would not.
type cursor struct {
	view
	last   eventlog.Point
	behind []Behind // parts that have not come as far as last
}

// pass advances the cursor to an event that was handed out. An event from a part that is behind may
// be before last.
func (c *cursor) pass(p eventlog.Point) {
	if order := p.Compare(c.last); c.last == (eventlog.Point{}) || order > 0 != c.desc && order != 0 {
		c.last = p
	}
}

// maxCursorBytes is the longest cursor that is handed out and accepted: it fits into a request
// together with the other parameters.
const maxCursorBytes = 32 << 10

const (
	cursorVersion       = 1
	cursorVersionBehind = 2
)

const (
	flagDesc = 1 << iota
	flagFleet
	flagFromTS
	flagFromAfterID
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (c cursor) encode() string {
	var flags byte
	if c.desc {
		flags |= flagDesc
	}
	if c.scope == scopeFleet {
		flags |= flagFleet
	}
	switch c.from {
	case wire.FromTS:
		flags |= flagFromTS
	case wire.FromAfterID:
		flags |= flagFromAfterID
	}
	b := []byte{cursorVersion, flags}
	if len(c.behind) > 0 {
		b[0] = cursorVersionBehind
	}
	b = appendPoint(b, c.start)
	b = appendPoint(b, c.last)
	b = appendText(b, c.topic)
	b = appendText(b, c.key)
	if len(c.behind) > 0 {
		b = appendBehind(b, c.behind)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	return base64.RawURLEncoding.EncodeToString(b)
}

// decodeCursor accepts only the texts that encode makes. Its errors continue a sentence.
func decodeCursor(s string) (cursor, error) {
	if len(s) > maxCursorBytes {
		return cursor{}, errors.New("it is longer than any of them")
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) < 4 {
		return cursor{}, errors.New("it is not base64url text")
	}
	b, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	if crc32.Checksum(b, castagnoli) != sum {
		return cursor{}, errors.New("it was cut off or changed")
	}
	d := decoder{rest: b}
	version := d.byte()
	if version != cursorVersion && version != cursorVersionBehind {
		return cursor{}, errors.New("it is of another version; start the replay again")
	}
	c := cursor{view: view{scope: scopeStore, from: wire.FromEarliest}}
	flags := d.byte()
	c.desc = flags&flagDesc != 0
	if flags&flagFleet != 0 {
		c.scope = scopeFleet
	}
	switch {
	case flags&flagFromTS != 0:
		c.from = wire.FromTS
	case flags&flagFromAfterID != 0:
		c.from = wire.FromAfterID
	}
	c.start = d.point()
	c.last = d.point()
	c.topic = d.text()
	c.key = d.text()
	if version == cursorVersionBehind {
		c.behind = d.behind()
	}
	// A cursor has only one text: encode did not make any other.
	misplaced := len(c.behind) > 0 && c.scope != scopeFleet
	if d.short || misplaced || codec.CheckReadTopic(c.topic) != nil || c.encode() != s {
		return cursor{}, errors.New("it was cut off or changed")
	}
	return c, nil
}

func appendPoint(b []byte, p eventlog.Point) []byte {
	return appendText(binary.AppendVarint(b, p.TS), p.ID)
}

func appendBehind(b []byte, behind []Behind) []byte {
	b = binary.AppendUvarint(b, uint64(len(behind)))
	for _, part := range behind {
		b = appendText(b, part.Part)
		if part.At == nil {
			b = append(b, 0)
		} else {
			b = appendPoint(append(b, 1), *part.At)
		}
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// decoder takes values off the front of rest; short is set once a value is incomplete.
type decoder struct {
	rest  []byte
	short bool
}

func (d *decoder) byte() byte {
	if len(d.rest) == 0 {
		d.short = true
		return 0
	}
	c := d.rest[0]
	d.rest = d.rest[1:]
	return c
}

func (d *decoder) point() eventlog.Point {
	ts, n := binary.Varint(d.rest)
	if n <= 0 {
		d.short = true
		return eventlog.Point{}
	}
	d.rest = d.rest[n:]
	return eventlog.Point{TS: ts, ID: d.text()}
}

func (d *decoder) behind() (all []Behind) {
	count, n := binary.Uvarint(d.rest)
	if n <= 0 || count > uint64(len(d.rest)) { // each takes some bytes
		d.short = true
		return nil
	}
	d.rest = d.rest[n:]
	for range count {
		part := Behind{Part: d.text()}
		if d.byte() != 0 {
			part.At = new(d.point())
		}
		if all = append(all, part); d.short {
			return nil
		}
	}
	return all
}

func (d *decoder) text() string {
	size, n := binary.Uvarint(d.rest)
	if n <= 0 || size > uint64(len(d.rest)-n) {
		d.short = true
		return ""
	}
	s := string(d.rest[n : n+int(size)])
	d.rest = d.rest[n+int(size):]
	return s
}
