package pebblelog

import (
	"encoding/binary"
	"fmt"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// The value of a g entry; topic, group, partition and number are in its key.
// All whole numbers are unsigned varints; the seqs of a list are written as
// distances from the one before, so that long lists stay small.
//
//	version  1 byte, 1
//	released 1 byte, 0 or 1
//	owner    text
//	beat     n
//	cursor   n
//	settled  n, then of each: first − last seq before it, last − first
//	attempts n, then of each: the same two, attempts
const epochVersion = 1

func appendEpoch(b []byte, e *eventlog.Epoch) []byte {
	released := byte(0)
	if e.Released {
		released = 1
	}
	b = append(b, epochVersion, released)
	b = appendString(b, e.Owner)
	b = binary.AppendUvarint(b, e.Beat)
	b = binary.AppendUvarint(b, e.Progress.Cursor)
	b = binary.AppendUvarint(b, uint64(len(e.Progress.Settled)))
	var before uint64
	for _, r := range e.Progress.Settled {
		b, before = appendRange(b, before, r), r.Last
	}
	b = binary.AppendUvarint(b, uint64(len(e.Progress.Attempts)))
	before = 0
	for _, r := range e.Progress.Attempts {
		b, before = appendRange(b, before, r.SeqRange), r.Last
		b = binary.AppendUvarint(b, uint64(r.Attempts))
	}
	return b
}

func appendRange(b []byte, before uint64, r eventlog.SeqRange) []byte {
	b = binary.AppendUvarint(b, r.First-before)
	return binary.AppendUvarint(b, r.Last-r.First)
}

func (d *decoder) seqRange(before uint64) eventlog.SeqRange {
	first := before + d.uvarint()
	return eventlog.SeqRange{First: first, Last: first + d.uvarint()}
}

func decodeEpoch(value []byte) (eventlog.Epoch, error) {
	var e eventlog.Epoch
	if len(value) < 2 {
		return e, fmt.Errorf("epoch: %w", errTruncated)
	}
	if value[0] != epochVersion {
		return e, fmt.Errorf("epoch: version %d is not known", value[0])
	}
	e.Released = value[1] != 0
	d := decoder{rest: value[2:]}
	e.Owner = d.string()
	e.Beat, e.Progress.Cursor = d.uvarint(), d.uvarint()
	if n := d.count(2); n > 0 {
		e.Progress.Settled = make([]eventlog.SeqRange, n)
		var before uint64
		for i := range e.Progress.Settled {
			r := d.seqRange(before)
			e.Progress.Settled[i], before = r, r.Last
		}
	}
	if n := d.count(3); n > 0 {
		e.Progress.Attempts = make([]eventlog.AttemptRange, n)
		var before uint64
		for i := range e.Progress.Attempts {
			r := d.seqRange(before)
			e.Progress.Attempts[i] = eventlog.AttemptRange{SeqRange: r, Attempts: int(d.uvarint())}
			before = r.Last
		}
	}
	if d.err != nil {
		return e, fmt.Errorf("epoch: %w", d.err)
	}
	return e, nil
}
