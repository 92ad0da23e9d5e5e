package pebblelog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
)

// A start brings the index up to date from the journal:
//
//  1. Open the index. If it is not there, or Pebble finds it damaged, and the journal is there from its beginning,
//     the index is made anew from that; otherwise the start is refused.
//  2. Replay the journal from the position that the index has. A position behind the journal's end, a gap, and a
//     frame that was acknowledged and is not whole are damage, and refused.
//  3. Look for the segments that the index says there are, and merge small ones.
//
// Until then nothing of the index is removed from the disk, so that a refused start destroys nothing.

// recovery is a start under way.
type recovery struct {
	log      *Log
	journal  *journal.Recovered
	fsys     guardedFS
	dir      string
	position uint64 // of the index
	end      uint64 // of the journal
	last     uint64 // the last segment that the index knows, or noSegment
}

// recoverLog opens the index and the journal of a log, and starts the journal. It returns the last segment that the
// index knows, or noSegment.
func recoverLog(l *Log, fsys guardedFS, f format, segmentSize int64) (segment uint64, err error) {
	id, err := uuid.Parse(f.StoreID)
	if err != nil {
		return 0, err
	}
	r := &recovery{last: noSegment, log: l, fsys: fsys, dir: fsys.PathJoin(l.dir, dbFolder)}
	if r.journal, err = journal.Open(fsys, l.dir, id, l.health.fail, segmentSize); err != nil {
		return 0, err
	}
	fsys.keepFiles()
	if err := r.openIndex(); err != nil {
		return 0, errors.Join(err, closeIndex(l))
	}
	if err = r.replay(); err == nil {
		err = r.checkSegments()
	}
	if err != nil {
		r.journal.Close()
		return 0, errors.Join(err, closeIndex(l))
	}
	fsys.removeKept()
	if r.journal.Torn > 0 {
		l.health.log.Warn("the journal ended in a frame that was not acknowledged, which is dropped", "folder", l.dir,
			"dropped_bytes", r.journal.Torn)
	}
	if err = r.mergeSegments(); err == nil {
		l.journal, err = r.journal.Start()
	}
	if err != nil {
		return 0, errors.Join(err, closeIndex(l))
	}
	fsys.journal.Store(l.journal)
	return r.last, nil
}

func closeIndex(l *Log) error {
	if l.db == nil {
		return nil
	}
	return l.db.Close()
}

// openIndex opens the index, or makes it anew.
func (r *recovery) openIndex() error {
	l := r.log
	there, err := r.indexed()
	if err == nil && (there || r.journal.New()) {
		l.db, err = openPebble(r.dir, r.fsys, l.health)
		if err == nil {
			r.position, err = r.storedPosition()
		}
	}
	if err == nil && (there || r.journal.New()) {
		return nil
	}
	if err != nil && !isDamage(err) {
		return err
	}
	if err == nil {
		err = errors.New("its files are missing")
	}
	damage := &eventlog.DamageError{File: r.dir, What: err.Error()}
	if len(r.journal.Bases) == 0 || r.journal.Bases[0] != 0 {
		return damage
	}
	l.health.log.Warn("the index is damaged and is made anew from the journal", "folder", r.dir, "error", err)
	if err := closeIndex(l); err != nil && !isDamage(err) {
		return err
	}
	l.db, r.position = nil, 0
	if err := r.fsys.FS.RemoveAll(r.dir); err != nil {
		return err
	}
	if err := r.fsys.MkdirAll(r.dir, 0o700); err != nil {
		return err
	}
	l.db, err = openPebble(r.dir, r.fsys, l.health)
	return err
}

// isDamage says that Pebble's error is about what its files have, and not about the machine.
func isDamage(err error) bool {
	var machine syscall.Errno
	if errors.As(err, &machine) {
		return machine == syscall.ENOENT
	}
	return !errors.Is(err, errAbandoned) && !errors.Is(err, eventlog.ErrUnavailable)
}

// indexed says that the folder has an index.
func (r *recovery) indexed() (bool, error) {
	desc, err := pebble.Peek(r.dir, r.fsys.FS)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && desc.Exists, err
}

func (r *recovery) storedPosition() (uint64, error) {
	return r.log.storedSeq([]byte{kindPosition})
}

// replay brings the index up to the journal's end.
func (r *recovery) replay() error {
	r.end = r.position
	return r.journal.Replay(r.position, func(f journal.Frame, body []byte) error {
		b := r.log.db.NewBatch()
		defer b.Close()
		err := r.index(b, f, body)
		if err == nil {
			err = b.Set([]byte{kindPosition}, binary.AppendUvarint(nil, f.End), nil)
		}
		if err == nil {
			err = r.log.db.Apply(b, pebble.NoSync)
		}
		r.end = f.End
		return err
	})
}

// index adds the entries that a frame has, and those that follow from its runs.
func (r *recovery) index(b *pebble.Batch, f journal.Frame, body []byte) error {
	runs, rest, err := frameRuns(body, f.Body)
	if err != nil {
		return err
	}
	in, strays := indexer{batch: b}, highest{}
	for i := range runs {
		x := &runs[i]
		if x.kind == runNew {
			if err := in.records(x, strays); err != nil {
				return err
			}
		}
		if err := b.Set(x.key(nil), x.value(nil), nil); err != nil {
			return err
		}
	}
	if err := strays.raise(r.log, b); err != nil {
		return err
	}
	if len(rest) == 0 {
		return nil
	}
	entries := r.log.db.NewBatch()
	if err := entries.SetRepr(append([]byte(nil), rest...)); err != nil {
		return err
	}
	return b.Apply(entries, nil)
}

// records adds the entries of a new run's events.
func (in *indexer) records(x *frameRun, strays highest) error {
	records, err := runRecords(nil, &x.run, x.records)
	if err != nil {
		return err
	}
	in.topic = x.topic
	for i := range records {
		r, err := decodeRecord("", x.partition, records[i].seq, records[i].event)
		if err != nil {
			return err
		}
		at, flags := location{partition: x.partition, seq: records[i].seq}, records[i].event[0]
		if in.add(r, at, flags); flags&flagOutOfOrder != 0 {
			strays.add(nodeOf(x.topic, at.partition, 0, at.seq), eventlog.Point{TS: r.TS, ID: r.ID})
		}
	}
	return nil
}

// A segment's entry has its size once the next one has begun, or 0, or says that the segment was dropped.
const segmentDropped = 1

// checkSegments looks for the files of the segments that the index knows. It tells the index of those that were merged, and notes
// those that it does not know yet. A file that a crash has kept from being removed stays for reclaim, since the index may know of
// that only by what was replayed: until it is flushed, the next start needs the file again.
func (r *recovery) checkSegments() error {
	l := r.log
	known := map[uint64]bool{}
	b := l.db.NewBatch()
	defer b.Close()
	all := pebble.IterOptions{LowerBound: []byte{kindSegment}, UpperBound: []byte{kindSegment + 1}}
	for e, err := range entries(context.Background(), l.db, &all) {
		if err != nil {
			return err
		}
		base := binary.BigEndian.Uint64(e.key[1:])
		d := decoder{rest: e.value}
		want := d.uvarint()
		known[base] = true
		if want != segmentDropped {
			r.last = base
		}
		size, err := r.journal.Size(base)
		switch {
		case want == segmentDropped:
			l.undropped = l.undropped || err == nil
		case errors.Is(err, fs.ErrNotExist):
			if err := r.checkMerged(b, base, want); err != nil {
				return err
			}
		case err != nil:
			return err
		case uint64(size) < want:
			return &eventlog.DamageError{File: r.journal.Path(base), Offset: size, What: fmt.Sprintf("it ends here, and had %d bytes", want)}
		}
	}
	l.unnoted = nil
	for _, base := range r.journal.Bases {
		if !known[base] && base < r.end {
			l.unnoted = append(l.unnoted, base)
		}
	}
	return l.db.Apply(b, pebble.NoSync)
}

// checkMerged looks for a segment that has no file in the file that it was merged into, which is as much larger.
func (r *recovery) checkMerged(b *pebble.Batch, base, size uint64) error {
	into, there, found, err := r.journal.Merged(base)
	if err != nil {
		return err
	}
	if end := base + size - into; found && size > segmentDropped && uint64(there) >= end {
		_ = b.Delete(segmentKey(base), nil)
		return b.Set(segmentKey(into), binary.AppendUvarint(nil, end), nil)
	}
	return &eventlog.DamageError{File: r.journal.Path(base), What: "the file is missing"}
}

// mergeSegments merges small segments that the index knows, and tells the index; not while the disk has no room, or
// reclaim still has to remove a file: nothing else may be in that.
func (r *recovery) mergeSegments() error {
	if r.last == noSegment || r.log.undropped || r.log.space.now().Short {
		return nil
	}
	if err := r.journal.Merge(r.last); err != nil {
		return err
	}
	return r.checkSegments()
}
