package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// ErrDropped says that a position is in a segment that was dropped: what it had is elsewhere, or was removed.
var ErrDropped = errors.New("the segment was dropped")

// segments are the files that can be read, by base.
type segments struct {
	mu   sync.RWMutex
	list []*segment

	opening sync.Mutex
	opened  []*segment // those that have a file, in the order in which they were opened, and some that had one
}

// maxOpen bounds the files that are open for reading.
const maxOpen = 128

// hold closes the file that has been open for longest, if there are too many with that of seg.
func (s *segments) hold(seg *segment) {
	s.opening.Lock()
	s.opened = append(s.opened, seg)
	var oldest *segment
	if len(s.opened) > maxOpen {
		oldest = s.opened[0]
		s.opened = slices.Delete(s.opened, 0, 1)
	}
	s.opening.Unlock()
	if oldest != nil {
		oldest.close(false)
	}
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

func (s *segments) remove(base uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i, found := s.index(base); found {
		s.list = slices.Delete(s.list, i, i+1)
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
	seg, _ := s.upTo(at)
	return seg
}

// upTo is the segment that has a position, and where the next one begins.
func (s *segments) upTo(at uint64) (seg *segment, end uint64) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, found := s.index(at)
	if !found {
		i--
	}
	if i < 0 {
		return nil, 0
	}
	if end = math.MaxUint64; i+1 < len(s.list) {
		end = s.list[i+1].base
	}
	return s.list[i], end
}

func (s *segments) read(j *Journal, b []byte, at uint64, least int) (int, error) {
	seg, end := s.upTo(at)
	if seg == nil {
		return 0, ErrDropped
	}
	if uint64(len(b)) > end-at {
		b = b[:end-at] // what the file has behind that is no part of the journal
	}
	seg.mu.RLock()
	for seg.file == nil && !seg.dropped {
		seg.mu.RUnlock()
		opened, err := seg.open(j)
		if err != nil {
			return 0, err
		}
		if opened {
			s.hold(seg)
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

// open opens the file, unless another call has.
func (seg *segment) open(j *Journal) (opened bool, err error) {
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if seg.file != nil || seg.dropped {
		return false, nil
	}
	file, err := j.fsys.Open(j.path(seg.base), vfs.RandomReadsOption)
	if err != nil {
		return false, err
	}
	seg.file = file
	return true, nil
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
		seg.close(true)
	}
	s.list = nil
}

// close closes the file, once the reads under way have ended. With drop, it is not opened again.
func (seg *segment) close(drop bool) {
	seg.mu.Lock()
	defer seg.mu.Unlock()
	if seg.dropped = seg.dropped || drop; seg.file != nil {
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
	_ = j.syncing.Lock(context.Background())
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
		seg.close(true)
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
