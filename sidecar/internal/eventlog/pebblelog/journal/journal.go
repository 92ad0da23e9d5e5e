// Package journal keeps frames of bytes in files that are only appended, in one order for all of a store. A frame
// survives a kill once it is written, and a power failure once it is synced; one sync serves all frames before it.
// It must not know what frames mean. format.go draws the files, and recover.go says what a start makes of them.
package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/pause"
)

// SegmentSize is the usual size from which on a segment is followed by the next one.
const SegmentSize = 64 << 20

// Journal is an open journal. After a failed write or sync the content of its files is not known until a restart,
// so all later writes get that error.
type Journal struct {
	fsys  vfs.FS
	dir   string
	store [16]byte
	fail  func(error)
	roll  int64 // the size of a segment
	acked vfs.File

	written atomic.Uint64 // the end of what is in files
	synced  atomic.Uint64 // the end of what survives a power failure
	closed  bool

	// The locks are taken in this order. syncing is held during a sync, so that there is one at a time, and waits as writing does.
	syncing pause.Mutex

	// writing is held during a write, which a full disk may hold up.
	writing  pause.Mutex
	active   vfs.File
	fileBase uint64 // of active
	reserved uint64 // up to which position active has zeros

	mu      sync.Mutex
	base    uint64 // of the segment that new frames go to
	added   uint64 // the end of what was added
	pending []byte // frames that are not written yet
	writes  []byte // frames that are being written, from position written on
	spare   []byte
	err     error

	segs segments
}

// Frame is where a frame is.
type Frame struct {
	Segment uint64 // the base of its segment
	Body    uint64 // the position of its body
	End     uint64 // the position behind it
}

// Append adds a frame, whose body is given in two parts. The frame is in no file yet.
func (j *Journal) Append(head, tail []byte) (Frame, error) {
	size := len(head) + len(tail)
	if size == 0 || size > maxBody {
		return Frame{}, fmt.Errorf("a frame of %d bytes; 1 to %d are allowed", size, maxBody)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return Frame{}, j.err
	}
	at := j.added
	j.pending = appendFrame(j.pending, at, head, tail)
	j.added = end(at, size)
	return Frame{Segment: j.base, Body: at + frameHeader, End: j.added}, nil
}

// end is the position behind the frame at a position with a body of that size.
func end(at uint64, body int) uint64 { return at + frameHeader + uint64(body) }

// Unsynced says that a power failure may lose frames that were added.
func (j *Journal) Unsynced() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.added > j.synced.Load()
}

// Flush writes the frames that were added before: they survive a kill of the process.
func (j *Journal) Flush(ctx context.Context) error {
	if err := j.writing.Lock(ctx); err != nil {
		return err
	}
	defer j.writing.Unlock()
	return j.flush(false)
}

// flush is Flush; writing is held. With roll, what is added from then on goes to the next segment.
func (j *Journal) flush(roll bool) error {
	j.mu.Lock()
	frames, err := j.pending, j.err
	j.pending, j.writes, j.spare = j.spare[:0], frames, nil
	if roll {
		j.base = j.added
		j.added += headerSize
	}
	j.mu.Unlock()
	if err == nil && len(frames) > 0 {
		if err = j.reserve(j.written.Load() + uint64(len(frames))); err == nil {
			_, err = j.active.Write(frames)
		}
		if err != nil {
			err = j.failed("write", j.fileBase, err)
		}
	}
	if err != nil {
		return err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.written.Add(uint64(len(frames)))
	if j.writes = nil; cap(frames) <= maxIdle {
		j.spare = frames
	}
	return nil
}

// reserve fills the active file with zeros from a position on, unless it has some there. A sync that makes a new size of
// the file durable, too, is two writes to the disk, one after the other.
func (j *Journal) reserve(from uint64) error {
	if from <= j.reserved {
		return nil
	}
	was := max(j.reserved, j.written.Load())
	j.reserved = from + uint64(j.roll/reservePart)
	_ = j.active.Preallocate(int64(was-j.fileBase), int64(j.reserved-was)) // a hint
	_, err := j.active.WriteAt([]byte{0}, int64(j.reserved-1-j.fileBase))
	return err
}

// reservePart is which part of a segment is reserved at a time.
const reservePart = 64

// maxIdle is the largest buffer that is kept for the next frames.
const maxIdle = 1 << 20

// failed makes an error the one of all later calls.
func (j *Journal) failed(what string, base uint64, err error) error {
	j.mu.Lock()
	first := j.err == nil
	if first {
		j.err = fmt.Errorf("%s %s: %w", what, j.path(base), err)
	}
	err = j.err
	j.mu.Unlock()
	if first {
		j.fail(err)
	}
	return err
}

// Sync returns nil once the frames that were added before survive a power failure.
func (j *Journal) Sync() error {
	_ = j.syncing.Lock(context.Background())
	defer j.syncing.Unlock()
	_ = j.writing.Lock(context.Background())
	err := j.flush(false)
	file, base, upTo := j.active, j.fileBase, j.written.Load()
	j.writing.Unlock()
	if err != nil || upTo == j.synced.Load() {
		return err
	}
	// Writes go on meanwhile.
	if err := file.SyncData(); err != nil {
		return j.failed("sync", base, err)
	}
	if _, err := j.acked.WriteAt(appendAcked(nil, upTo), 0); err != nil {
		return j.failed("acknowledge", base, err)
	}
	j.synced.Store(upTo)
	if int64(upTo-base) >= j.roll {
		return j.next()
	}
	return nil
}

// next begins the next segment, once all of the one before it is synced; syncing is held.
func (j *Journal) next() error {
	_ = j.writing.Lock(context.Background())
	defer j.writing.Unlock()
	old := j.active
	if err := j.flush(true); err != nil {
		return err
	}
	if err := old.SyncData(); err != nil {
		return j.failed("sync", j.fileBase, err)
	}
	if err := j.begin(j.written.Load()); err != nil {
		return j.failed("begin", j.written.Load(), err)
	}
	return old.Close()
}

// begin creates the active segment at a position, with its folder's entry.
func (j *Journal) begin(base uint64) error {
	file, err := j.fsys.Create(j.path(base), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if _, err = file.Write(appendHeader(nil, j.store, base)); err == nil {
		err = errors.Join(file.Sync(), syncFolder(j.fsys, j.folder()))
	}
	if err == nil {
		_, err = j.acked.WriteAt(appendAcked(nil, base), 0)
	}
	if err == nil {
		err = j.acked.Sync()
	}
	if err != nil {
		return errors.Join(err, file.Close())
	}
	j.active, j.fileBase, j.reserved = file, base, 0
	j.written.Store(base + headerSize)
	j.synced.Store(base + headerSize)
	j.segs.add(base)
	return nil
}

// Read reads what was added at a position: at least least bytes, and up to len(b) where the segment has them. A
// *eventlog.DamageError says that the file ends before.
func (j *Journal) Read(b []byte, at uint64, least int) (n int, err error) {
	if at >= j.written.Load() {
		if n := j.unwritten(b, at); n >= least {
			return n, nil
		}
	}
	if written := j.written.Load(); at < written && uint64(len(b)) > written-at {
		b = b[:written-at] // zeros follow
	}
	return j.segs.read(j, b, at, least)
}

// unwritten copies what is not in a file yet.
func (j *Journal) unwritten(b []byte, at uint64) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if from := j.added - uint64(len(j.pending)); at >= from && at < j.added {
		return copy(b, j.pending[at-from:])
	}
	if from := j.written.Load(); at >= from && at < from+uint64(len(j.writes)) {
		return copy(b, j.writes[at-from:])
	}
	return 0
}

// SegmentOf is the base of the segment that has a position.
func (j *Journal) SegmentOf(at uint64) uint64 {
	if seg := j.segs.at(at); seg != nil {
		return seg.base
	}
	return 0
}

// Close makes everything durable. No other call may be under way.
func (j *Journal) Close() error {
	if j.closed {
		return nil
	}
	j.closed = true
	err := j.err
	if err == nil {
		err = j.Sync()
	}
	if err == nil {
		err = j.acked.Sync()
	}
	j.segs.close()
	return errors.Join(err, j.active.Close(), j.acked.Close())
}

func (j *Journal) folder() string { return j.fsys.PathJoin(j.dir, Folder) }

func (j *Journal) path(base uint64) string { return j.fsys.PathJoin(j.dir, Folder, fileName(base)) }

func syncFolder(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
