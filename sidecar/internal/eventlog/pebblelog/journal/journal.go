// Package journal keeps frames of bytes in files that are only appended, in one order for all of a store. A frame
// survives a kill once it is written, and a power failure once it is synced; one sync serves all frames before it.
// It must not know what frames mean. format.go draws the files, and recover.go says what a start makes of them.
package journal

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
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

	// The locks are taken in this order. syncing is held during a sync, so that there is one at a time.
	syncing sync.Mutex

	// writing is held during a write, which a full disk may hold up.
	writing  pause.Mutex
	active   vfs.File
	fileBase uint64 // of active

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
		if _, err = j.active.Write(frames); err != nil {
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
	j.syncing.Lock()
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
	j.active, j.fileBase = file, base
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

// ErrDropped says that a position is in a segment that was dropped: what it had is elsewhere, or was removed.
var ErrDropped = errors.New("the segment was dropped")

// segments are the files that can be read, by base.
type segments struct {
	mu   sync.RWMutex
	list []*segment
}

type segment struct {
	base uint64

	mu      sync.RWMutex // held for reading during a read
	file    vfs.File     // nil until the first read
	dropped bool
}

func (s *segments) add(base uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, found := s.index(base)
	if !found {
		s.list = slices.Insert(s.list, i, &segment{base: base})
	}
}

// index finds a base; mu is held.
func (s *segments) index(base uint64) (int, bool) {
	return slices.BinarySearchFunc(s.list, base, func(seg *segment, base uint64) int {
		switch {
		case seg.base < base:
			return -1
		case seg.base > base:
			return 1
		}
		return 0
	})
}

// at is the segment that has a position; nil if none has.
func (s *segments) at(at uint64) *segment {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, found := s.index(at)
	if found {
		return s.list[i]
	}
	if i == 0 {
		return nil
	}
	return s.list[i-1]
}

func (s *segments) read(j *Journal, b []byte, at uint64, least int) (int, error) {
	seg := s.at(at)
	if seg == nil {
		return 0, ErrDropped
	}
	seg.mu.RLock()
	for seg.file == nil && !seg.dropped {
		seg.mu.RUnlock()
		if err := seg.open(j); err != nil {
			return 0, err
		}
		seg.mu.RLock()
	}
	defer seg.mu.RUnlock()
	if seg.dropped {
		return 0, ErrDropped
	}
	offset := int64(at - seg.base)
	n, err := seg.file.ReadAt(b, offset)
	switch {
	case n >= least:
		return n, nil
	case ignoreEnd(err) == nil:
		return n, &eventlog.DamageError{File: j.path(seg.base), Offset: offset, What: "it ends too early"}
	}
	return n, err
}

func (seg *segment) open(j *Journal) error {
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if seg.file != nil || seg.dropped {
		return nil
	}
	file, err := j.fsys.Open(j.path(seg.base), vfs.RandomReadsOption)
	if err != nil {
		return err
	}
	seg.file = file
	return nil
}

func (seg *segment) isDropped() bool {
	seg.mu.RLock()
	defer seg.mu.RUnlock()
	return seg.dropped
}

func (s *segments) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, seg := range s.list {
		seg.drop()
	}
	s.list = nil
}

// drop closes the file, once the reads under way have ended.
func (seg *segment) drop() {
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if seg.dropped = true; seg.file != nil {
		_ = seg.file.Close()
		seg.file = nil
	}
}

// Closed are the bases of the segments before the active one, in order, and the position behind the last of them.
func (j *Journal) Closed() (bases []uint64, end uint64) {
	_ = j.writing.Lock(context.Background())
	end = j.fileBase
	j.writing.Unlock()
	j.segs.mu.RLock()
	defer j.segs.mu.RUnlock()
	for _, seg := range j.segs.list {
		if seg.base < end && !seg.isDropped() {
			bases = append(bases, seg.base)
		}
	}
	return bases, end
}

// File is a segment's file, as it is at one moment.
type File struct {
	Name string
	Size int64 // of what counts; -1: all of it
}

// Files are the segments, up to the end of what is synced, and the content of ACKED that goes with them.
func (j *Journal) Files() (files []File, acked []byte) {
	j.syncing.Lock()
	defer j.syncing.Unlock()
	bases, active := j.Closed()
	for _, base := range bases {
		files = append(files, File{Name: fileName(base), Size: -1})
	}
	upTo := j.synced.Load()
	return append(files, File{Name: fileName(active), Size: int64(upTo - active)}), appendAcked(nil, upTo)
}

// Adopt reads a segment's file of one store as one of another.
func Adopt(in io.Reader, name string, was, store [16]byte) (io.Reader, error) {
	base, ok := baseOf(name)
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(in, header); !ok || err != nil || !bytes.Equal(header, appendHeader(nil, was, base)) {
		return nil, fmt.Errorf("%s is no segment of the journal of this backup", name)
	}
	return io.MultiReader(bytes.NewReader(appendHeader(nil, store, base)), in), nil
}

// Drop removes a segment, once the reads of it under way have ended. It stays in the list, so that its positions
// are not taken for the segment's before it.
func (j *Journal) Drop(base uint64) error {
	if seg := j.segs.at(base); seg != nil && seg.base == base {
		seg.drop()
	}
	return j.fsys.Remove(j.path(base))
}

// Damaged names the file and the place of damage that a reader has found at a position.
func (j *Journal) Damaged(at uint64, what string) error {
	seg := j.segs.at(at)
	if seg == nil {
		return ErrDropped
	}
	return &eventlog.DamageError{File: j.path(seg.base), Offset: int64(at - seg.base), What: what}
}

// frameAt reads the frame at an offset of a segment that ends at an offset: the body, and whether it is whole.
func frameAt(r io.Reader, at uint64, left int64, buf []byte) (body []byte, whole bool, err error) {
	var head [frameHeader]byte
	if left < frameHeader {
		return nil, false, nil
	}
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, false, ignoreEnd(err)
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	if n == 0 || n > left-frameHeader {
		return nil, false, nil
	}
	body = slices.Grow(buf[:0], int(n))[:n]
	if _, err := io.ReadFull(r, body); err != nil {
		return nil, false, ignoreEnd(err)
	}
	return body, frameSum(at, head[:4], body, nil) == binary.LittleEndian.Uint32(head[4:]), nil
}

func ignoreEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}
