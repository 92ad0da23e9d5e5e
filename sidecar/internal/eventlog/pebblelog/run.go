package pebblelog

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"sync"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
)

// A run is events of one partition whose seqs follow one another, up to maxRun of them. It is what the index has
// one entry for. The body of a journal's frame is a list of runs, and then further entries of the index, as
// Pebble's batch has them:
//
//	runs     n, then of each:
//	kind     1 byte: 1 the events are new, 2 the run was moved here from an older segment
//	topic    n: its number
//	partition n
//	first    n: the seq of the run's first event when it was new
//	span     n: how many seqs the run has had
//	size     n: of its records, in bytes
//	records  of each event that is there, by seq:
//	         checksum 4 bytes, little-endian: CRC-32C of topic, partition and first (4, 2 and 8 bytes, big-endian),
//	                  of the length and of what follows
//	         length   n: of what follows
//	         seq      n: its distance from first
//	         event    the rest (record.go)
//
// n is an unsigned varint. A run's entry in the index has its place, and which of its events are still there:
//
//	place n: the position of its records in the journal
//	size  n
//	span  n
//	live  8 bytes, little-endian: bit i is set while the event with seq first + i is there; absent where all are
const (
	runNew   = 1
	runMoved = 2

	maxRun      = 64
	maxRunBytes = 32 << 10 // of a run of several events
)

// run is a run's entry in the index.
type run struct {
	topic     uint32
	partition int
	first     uint64
	place     uint64
	size      int
	span      int
	live      uint64
}

func (r *run) last() uint64 { return r.first + uint64(r.span) - 1 }

// all is live of a run of which nothing was removed.
func all(span int) uint64 { return math.MaxUint64 >> (maxRun - span) }

func (r *run) has(seq uint64) bool { return r.live&(1<<(seq-r.first)) != 0 }

func (r *run) key(b []byte) []byte { return eventKey(b, r.topic, r.partition, r.first) }

func (r *run) value(b []byte) []byte {
	b = binary.AppendUvarint(b, r.place)
	b = binary.AppendUvarint(b, uint64(r.size))
	b = binary.AppendUvarint(b, uint64(r.span))
	if r.live != all(r.span) {
		b = binary.LittleEndian.AppendUint64(b, r.live)
	}
	return b
}

// decodeRun reads an entry of a run whose topic and partition are known.
func decodeRun(topic uint32, partition int, key, value []byte) (run, error) {
	d := decoder{rest: value}
	r := run{topic: topic, partition: partition, first: seqOf(key), place: d.uvarint(), size: int(d.uvarint()), span: int(d.uvarint())}
	if d.err == nil && (r.span < 1 || r.span > maxRun) {
		d.err = fmt.Errorf("it spans %d events", r.span)
	}
	if d.err != nil {
		return run{}, fmt.Errorf("run %d/%d/%d: %w", topic, partition, r.first, d.err)
	}
	if r.live = all(r.span); len(d.rest) == 8 {
		r.live = binary.LittleEndian.Uint64(d.rest)
	}
	return r, nil
}

// identitySum is the checksum that those of a run's records go on from.
func identitySum(topic uint32, partition int, first uint64) uint32 {
	var b [14]byte
	binary.BigEndian.PutUint32(b[:], topic)
	binary.BigEndian.PutUint16(b[4:], uint16(partition))
	binary.BigEndian.PutUint64(b[6:], first)
	return journal.Checksum(0, b[:])
}

// runWriter encodes runs. The places of its runs are relative to the beginning of what bytes returns.
type runWriter struct {
	body   []byte
	unused int // bytes at the beginning of body
	runs   []run

	identity uint32 // of the last run
	records  []byte // of the last run, while it goes on
	event    []byte
}

var runWriters = sync.Pool{New: func() any { return new(runWriter) }}

// maxCount is how many bytes the number of runs takes at most.
const maxCount = binary.MaxVarintLen32

// newRunWriter returns a writer of runs of new events, to be freed once what it has is not used any more. For each
// partition begin, add for each event, and finish follow, and then end.
func newRunWriter() *runWriter {
	w := runWriters.Get().(*runWriter)
	w.body, w.runs = append(w.body[:0], make([]byte, maxCount)...), w.runs[:0]
	return w
}

// free lets the memory be used again, except for what a large batch needed.
func (w *runWriter) free() {
	if cap(w.body) <= keepBytes {
		runWriters.Put(w)
	}
}

// keepBytes is how large a buffer may be to be used again: a usual append of many batches fits.
const keepBytes = 8 << 20

// begin begins a run.
func (w *runWriter) begin(topic uint32, partition int, first uint64) {
	w.runs = append(w.runs, run{topic: topic, partition: partition, first: first})
	w.identity, w.records = identitySum(topic, partition, first), w.records[:0]
}

// add adds the next event, to a run of its own where the last one is full.
func (w *runWriter) add(r *eventlog.Record, flags byte) {
	w.event = appendRecord(w.event[:0], r, flags)
	last := &w.runs[len(w.runs)-1]
	if last.span == maxRun || last.span > 0 && len(w.records)+len(w.event) > maxRunBytes {
		topic, partition, next := last.topic, last.partition, last.last()+1
		w.finish()
		w.begin(topic, partition, next)
		last = &w.runs[len(w.runs)-1]
	}
	w.records = appendRunRecord(w.records, w.identity, last.span, w.event)
	last.span++
}

// finish puts the last run into the body.
func (w *runWriter) finish() {
	r := &w.runs[len(w.runs)-1]
	r.size, r.live = len(w.records), all(r.span)
	w.body = appendRunHeader(w.body, runNew, r)
	r.place = uint64(len(w.body))
	w.body = append(w.body, w.records...)
}

// end puts the number of runs in front of them.
func (w *runWriter) end() {
	w.unused = maxCount - uvarintSize(uint64(len(w.runs)))
	binary.PutUvarint(w.body[w.unused:], uint64(len(w.runs)))
	for i := range w.runs {
		w.runs[i].place -= uint64(w.unused)
	}
}

// bytes are the runs as a frame has them.
func (w *runWriter) bytes() []byte { return w.body[w.unused:] }

// appendRunHeader is what precedes a run's records.
func appendRunHeader(b []byte, kind byte, r *run) []byte {
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(r.topic))
	b = binary.AppendUvarint(b, uint64(r.partition))
	b = binary.AppendUvarint(b, r.first)
	b = binary.AppendUvarint(b, uint64(r.span))
	return binary.AppendUvarint(b, uint64(r.size))
}

// appendRunRecord appends one record; event is its value.
func appendRunRecord(b []byte, identity uint32, delta int, event []byte) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.AppendUvarint(b, uint64(uvarintSize(uint64(delta))+len(event)))
	b = binary.AppendUvarint(b, uint64(delta))
	b = append(b, event...)
	binary.LittleEndian.PutUint32(b[start:], journal.Checksum(identity, b[start+4:]))
	return b
}

func uvarintSize(n uint64) int { return max(1, (bits.Len64(n)+6)/7) }

// runRecord is a record in the bytes of a run.
type runRecord struct {
	seq   uint64
	start int    // of its checksum
	sum   []byte // what the checksum is of, behind the identity
	event []byte
}

// runRecords splits a run's records into dst, those of events that were removed left out. It does not look at
// checksums.
func runRecords(dst []runRecord, r *run, records []byte) ([]runRecord, error) {
	dst = dst[:0]
	next := uint64(0) // the lowest distance that may follow
	for at := 0; at < len(records); {
		rest := records[at:]
		if len(rest) < 5 {
			return nil, errTruncated
		}
		n, used := binary.Uvarint(rest[4:])
		if used <= 0 || n > uint64(len(rest)-4-used) {
			return nil, errTruncated
		}
		end := 4 + used + int(n)
		delta, used2 := binary.Uvarint(rest[4+used : end])
		if used2 <= 0 || delta >= uint64(r.span) || delta < next {
			return nil, errTruncated
		}
		next = delta + 1
		if seq := r.first + delta; r.has(seq) {
			dst = append(dst, runRecord{seq: seq, start: at, sum: rest[4:end], event: rest[4+used+used2 : end]})
		}
		at += end
	}
	return dst, nil
}

// whole says that a record has what was written.
func (x *runRecord) whole(identity uint32, records []byte) bool {
	return journal.Checksum(identity, x.sum) == binary.LittleEndian.Uint32(records[x.start:])
}

// frameRun is a run as a frame has it.
type frameRun struct {
	run
	kind    byte
	records []byte
}

// frameRuns reads the runs of a frame's body, whose places are positions in the journal. rest is what follows
// them. Of a moved run live says which events were moved.
func frameRuns(body []byte, at uint64) (runs []frameRun, rest []byte, err error) {
	d := decoder{rest: body}
	for range d.count(6) {
		x := frameRun{kind: d.byte()}
		x.topic, x.partition, x.first = uint32(d.uvarint()), int(d.uvarint()), d.uvarint()
		x.span, x.size = int(d.uvarint()), d.count(1)
		if d.err != nil || x.span < 1 || x.span > maxRun {
			return nil, nil, fmt.Errorf("a run: %w", errTruncated)
		}
		x.place = at + uint64(len(body)-len(d.rest))
		x.records, d.rest = d.rest[:x.size], d.rest[x.size:]
		x.live = all(x.span)
		if x.kind == runMoved {
			there, err := runRecords(nil, &x.run, x.records)
			if err != nil {
				return nil, nil, err
			}
			x.live = 0
			for i := range there {
				x.live |= 1 << (there[i].seq - x.first)
			}
		}
		runs = append(runs, x)
	}
	return runs, d.rest, d.err
}

// damaged names the place of a record that is not whole.
func damaged(j *journal.Journal, r *run, seq uint64, start int) error {
	return fmt.Errorf("%w: the event of partition %d, seq %d: %w", eventlog.ErrUnavailable, r.partition, seq,
		j.Damaged(r.place+uint64(start), "the record there is not as it was written"))
}
