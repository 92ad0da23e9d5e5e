package pebblelog

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// The log has an entry for every partition that a group has had an epoch of: the latest (keys.go has its key). In
// its value all whole numbers are unsigned varints; the seqs of a list are written as distances from the one
// before, so that long lists stay small.
//
//	flags    1 byte: bit 0 released, bit 1 deleted, bit 2 there is a reach
//	number   n
//	owner    text
//	beat     n
//	cursor   n
//	settled  n, then of each: first − last seq before it, last − first
//	attempts n, then of each: the same two, attempts
//	out      as settled
//	out by   text
//	unsure   as settled
//	delays   n, then of each: seq, until and left as signed varints
//	since    signed varint
//	redrives n, then of each: seq, letter as text, attempts, until and left as
//	         signed varints, 1 for out + 2 for unsure + 4 for done
//	by       text
//	unused   signed varint
//	reach    with bit 2: n, and the life as text
const (
	flagReleased = 1 << 0
	flagDeleted  = 1 << 1
	flagReach    = 1 << 2
)

// epochID is the content of an epoch's key.
type epochID struct {
	topic     uint32
	partition int
	group     string
}

func epochKey(id epochID) []byte {
	b := binary.BigEndian.AppendUint16(topicPrefix(nil, kindEpoch, id.topic), uint16(id.partition))
	return append(b, id.group...)
}

func decodeEpochKey(key []byte) (epochID, error) {
	if len(key) < 1+4+2 || key[0] != kindEpoch {
		return epochID{}, fmt.Errorf("epoch's key: %w", errTruncated)
	}
	return epochID{
		topic:     binary.BigEndian.Uint32(key[1:]),
		partition: int(binary.BigEndian.Uint16(key[5:])),
		group:     string(key[7:]),
	}, nil
}

func appendEpoch(b []byte, e *eventlog.Epoch) []byte {
	flags := byte(0)
	if e.Released {
		flags |= flagReleased
	}
	if e.Deleted {
		flags |= flagDeleted
	}
	if e.Progress.Reach > 0 {
		flags |= flagReach
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, e.Number)
	b = appendString(b, e.Owner)
	b = binary.AppendUvarint(b, e.Beat)
	b = binary.AppendUvarint(b, e.Progress.Cursor)
	b = appendRanges(b, e.Progress.Settled)
	b = binary.AppendUvarint(b, uint64(len(e.Progress.Attempts)))
	var before uint64
	for _, r := range e.Progress.Attempts {
		b, before = appendRange(b, before, r.SeqRange), r.Last
		b = binary.AppendUvarint(b, uint64(r.Attempts))
	}
	b = appendRanges(b, e.Progress.Out)
	b = appendString(b, e.Progress.OutBy)
	b = appendRanges(b, e.Progress.Unsure)
	b = binary.AppendUvarint(b, uint64(len(e.Progress.Delays)))
	for _, d := range e.Progress.Delays {
		b = binary.AppendUvarint(b, d.Seq)
		b = binary.AppendVarint(b, d.Until)
		b = binary.AppendVarint(b, d.Left)
	}
	b = binary.AppendVarint(b, e.Progress.Since)
	b = binary.AppendUvarint(b, uint64(len(e.Progress.Redrives)))
	for _, r := range e.Progress.Redrives {
		b = appendString(binary.AppendUvarint(b, r.Seq), r.Letter)
		b = binary.AppendUvarint(b, uint64(r.Attempts))
		b = binary.AppendVarint(b, r.Until)
		b = binary.AppendVarint(b, r.Left)
		var flags uint64
		for i, is := range []bool{r.Out, r.Unsure, r.Done} {
			if is {
				flags |= 1 << i
			}
		}
		b = binary.AppendUvarint(b, flags)
	}
	b = appendString(b, e.Progress.By)
	b = binary.AppendVarint(b, e.Progress.Unused)
	if e.Progress.Reach > 0 {
		b = appendString(binary.AppendUvarint(b, e.Progress.Reach), e.Progress.ReachBy)
	}
	return b
}

func appendRanges(b []byte, ranges []eventlog.SeqRange) []byte {
	b = binary.AppendUvarint(b, uint64(len(ranges)))
	var before uint64
	for _, r := range ranges {
		b, before = appendRange(b, before, r), r.Last
	}
	return b
}

func appendRange(b []byte, before uint64, r eventlog.SeqRange) []byte {
	b = binary.AppendUvarint(b, r.First-before)
	return binary.AppendUvarint(b, r.Last-r.First)
}

func (d *decoder) seqRanges() []eventlog.SeqRange {
	n := d.count(2)
	if n == 0 {
		return nil
	}
	ranges := make([]eventlog.SeqRange, n)
	var before uint64
	for i := range ranges {
		ranges[i] = d.seqRange(before)
		before = ranges[i].Last
	}
	return ranges
}

func (d *decoder) seqRange(before uint64) eventlog.SeqRange {
	first := before + d.uvarint()
	return eventlog.SeqRange{First: first, Last: first + d.uvarint()}
}

// decodeEpoch reads what appendEpoch wrote: all but the GroupPartition.
func decodeEpoch(value []byte) (eventlog.Epoch, error) {
	var e eventlog.Epoch
	d := decoder{rest: value}
	flags := d.byte()
	e.Released, e.Deleted = flags&flagReleased != 0, flags&flagDeleted != 0
	e.Number = d.uvarint()
	e.Owner = d.string()
	e.Beat, e.Progress.Cursor = d.uvarint(), d.uvarint()
	e.Progress.Settled = d.seqRanges()
	if n := d.count(3); n > 0 {
		e.Progress.Attempts = make([]eventlog.AttemptRange, n)
		var before uint64
		for i := range e.Progress.Attempts {
			r := d.seqRange(before)
			e.Progress.Attempts[i] = eventlog.AttemptRange{SeqRange: r, Attempts: int(d.uvarint())}
			before = r.Last
		}
	}
	e.Progress.Out = d.seqRanges()
	e.Progress.OutBy = d.string()
	e.Progress.Unsure = d.seqRanges()
	for range d.count(3) {
		e.Progress.Delays = append(e.Progress.Delays, eventlog.Delay{Seq: d.uvarint(), Until: d.varint(), Left: d.varint()})
	}
	e.Progress.Since = d.varint()
	for range d.count(6) {
		r := eventlog.RedriveProgress{Seq: d.uvarint(), Letter: d.string(), Attempts: int(d.uvarint()), Until: d.varint(), Left: d.varint()}
		flags := d.uvarint()
		r.Out, r.Unsure, r.Done = flags&1 != 0, flags&2 != 0, flags&4 != 0
		e.Progress.Redrives = append(e.Progress.Redrives, r)
	}
	e.Progress.By, e.Progress.Unused = d.string(), d.varint()
	if flags&flagReach != 0 {
		e.Progress.Reach, e.Progress.ReachBy = d.uvarint(), d.string()
	}
	if d.err != nil {
		return e, fmt.Errorf("epoch: %w", d.err)
	}
	return e, nil
}

// highestSeq is the highest seq of an event that progress names; 0: none. The lists ascend, except for redrives.
func highestSeq(p *eventlog.Progress) uint64 {
	seq := max(p.Cursor, 1) - 1
	for _, ranges := range [][]eventlog.SeqRange{p.Settled, p.Out, p.Unsure} {
		if n := len(ranges); n > 0 {
			seq = max(seq, ranges[n-1].Last)
		}
	}
	if n := len(p.Attempts); n > 0 {
		seq = max(seq, p.Attempts[n-1].Last)
	}
	if n := len(p.Delays); n > 0 {
		seq = max(seq, p.Delays[n-1].Seq)
	}
	for i := range p.Redrives {
		seq = max(seq, p.Redrives[i].Seq)
	}
	return seq
}
