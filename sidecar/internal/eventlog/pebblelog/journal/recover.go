package journal

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// The names in the store's folder.
const (
	Folder    = "journal"
	AckedFile = "ACKED"
)

// Recovered is a journal at a start, before anything is written.
type Recovered struct {
	j *Journal
	// Bases are the segments that are there, in order.
	Bases []uint64
	acked uint64
	// ackedKnown says that ACKED was there and whole.
	ackedKnown bool
	end        uint64
	// Torn is how many bytes behind the last frame were never acknowledged, once Replay has returned.
	Torn int64
}

// Open finds the segments in a store's folder. fail is called with the first error of a write or sync. A segment of
// at least roll bytes is followed by the next one.
func Open(fsys vfs.FS, dir string, store [16]byte, fail func(error), roll int64) (*Recovered, error) {
	j := &Journal{fsys: fsys, dir: dir, store: store, fail: fail, roll: roll, syncing: pause.NewMutex(), writing: pause.NewMutex()}
	r := &Recovered{j: j}
	names, err := fsys.List(j.folder())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, name := range names {
		if base, ok := baseOf(name); ok {
			r.Bases = append(r.Bases, base)
		}
	}
	slices.Sort(r.Bases)
	for _, base := range r.Bases {
		j.segs.add(base)
	}
	return r, r.readAcked()
}

func (r *Recovered) readAcked() error {
	text, err := readFile(r.j.fsys, r.j.fsys.PathJoin(r.j.dir, AckedFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(text) == ackedSize {
		acked := binary.LittleEndian.Uint64(text)
		if r.ackedKnown = bytes.Equal(text, appendAcked(nil, acked)); r.ackedKnown {
			r.acked = acked
		}
	}
	return nil
}

func readFile(fsys vfs.FS, name string) ([]byte, error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// New says that the folder has neither segments nor ACKED.
func (r *Recovered) New() bool { return len(r.Bases) == 0 && !r.ackedKnown }

// Replay gives do the frames from a position on. It ends without an error at the end of the
// last segment, or where an incomplete frame begins that was never acknowledged. Everything else that is not whole
// is damage. What it gives survives a power failure.
func (r *Recovered) Replay(from uint64, do func(f Frame, body []byte) error) error {
	j := r.j
	if len(r.Bases) == 0 {
		if from > 0 || r.acked > 0 {
			return &eventlog.DamageError{File: j.folder(), What: fmt.Sprintf("it has no segments, and had %d bytes", max(from, r.acked))}
		}
		return nil
	}
	last := r.Bases[len(r.Bases)-1]
	// A kill may have left its end in the page cache alone.
	file, err := j.fsys.OpenReadWrite(j.path(last), vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return err
	}
	first, found := slices.BinarySearch(r.Bases, from)
	if !found {
		if first == 0 {
			return &eventlog.DamageError{File: j.path(r.Bases[0]),
				What: fmt.Sprintf("the journal is needed from position %d on, and begins here", from)}
		}
		first--
	}
	for i := first; i < len(r.Bases); i++ {
		if err := r.replaySegment(i, from, do); err != nil {
			return err
		}
	}
	if from > r.end || r.acked > r.end {
		return &eventlog.DamageError{File: j.path(last), Offset: int64(r.end - last),
			What: fmt.Sprintf("%d acknowledged bytes are missing or not as they were written", max(from, r.acked)-r.end)}
	}
	if !r.ackedKnown && r.Torn > 0 {
		return &eventlog.DamageError{File: j.fsys.PathJoin(j.dir, AckedFile),
			What: fmt.Sprintf("it does not say whether the last %d bytes of %s were acknowledged", r.Torn, j.path(last))}
	}
	return nil
}

// replaySegment gives do the frames of one segment from a position on.
func (r *Recovered) replaySegment(i int, from uint64, do func(f Frame, body []byte) error) error {
	j, base := r.j, r.Bases[i]
	last := i == len(r.Bases)-1
	file, err := j.fsys.Open(j.path(base), vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if !last {
		size = min(size, int64(r.Bases[i+1]-base))
	}
	in := bufio.NewReaderSize(io.NewSectionReader(file, 0, size), 256<<10)
	header := make([]byte, headerSize)
	if _, err := io.ReadFull(in, header); err != nil || !bytes.Equal(header, appendHeader(nil, j.store, base)) {
		if last && from <= base && r.acked <= base { // its creation was cut short
			r.end = base
			return nil
		}
		return &eventlog.DamageError{File: j.path(base), What: "its header is not this store's"}
	}
	at := base + headerSize
	if skip := int64(from) - int64(at); skip > 0 {
		if skip > size-headerSize {
			return &eventlog.DamageError{File: j.path(base), Offset: size, What: fmt.Sprintf("it ends before position %d", from)}
		}
		if _, err := io.CopyN(io.Discard, in, skip); err != nil {
			return err
		}
		at = from
	}
	var buf []byte
	for stop := base + uint64(size); at < stop; {
		skipped, whole, err := skipHeader(in, at)
		if skipped && whole {
			at += headerSize
			continue
		}
		var body []byte
		if err == nil && whole {
			body, whole, err = frameAt(in, at, int64(stop-at), buf)
		}
		if err != nil {
			return err
		}
		if !whole {
			if last {
				r.Torn, err = torn(file, int64(at-base), size)
				if err != nil {
					return err
				}
				break
			}
			return &eventlog.DamageError{File: j.path(base), Offset: int64(at - base), What: "the frame there is not whole"}
		}
		f := Frame{Segment: base, Body: at + frameHeader, End: end(at, len(body))}
		if err := do(f, body); err != nil {
			return err
		}
		at, buf = f.End, body
	}
	if r.end = at; !last && at != r.Bases[i+1] {
		return &eventlog.DamageError{File: j.path(base), Offset: int64(at - base), What: "it ends before the next segment begins"}
	}
	return nil
}

// torn is how many bytes of a file from an offset on were written: zeros at its end were not (Journal.reserve).
func torn(file io.ReaderAt, from, size int64) (n int64, err error) {
	buf := make([]byte, 64<<10)
	for at := from; at < size; at += int64(len(buf)) {
		page := buf[:min(int64(len(buf)), size-at)]
		if _, err := file.ReadAt(page, at); err != nil {
			return 0, err
		}
		if last := len(bytes.TrimRight(page, "\x00")); last > 0 {
			n = at + int64(last) - from
		}
	}
	return n, nil
}

// Start begins a new segment behind the last frame.
func (r *Recovered) Start() (*Journal, error) {
	j := r.j
	if err := j.fsys.MkdirAll(j.folder(), 0o700); err != nil {
		return nil, err
	}
	// An end that is the base of an empty segment is where that begins.
	end := r.end
	if n := len(r.Bases); n > 0 && end <= r.Bases[n-1]+headerSize {
		end = r.Bases[n-1]
	}
	var err error
	if j.acked, err = j.fsys.OpenReadWrite(j.fsys.PathJoin(j.dir, AckedFile), vfs.WriteCategoryUnspecified); err != nil {
		return nil, err
	}
	if err := j.begin(end); err != nil {
		return nil, errors.Join(err, j.acked.Close())
	}
	j.base, j.added = end, end+headerSize
	return j, syncFolder(j.fsys, j.dir)
}

// Close gives up a journal that was not started.
func (r *Recovered) Close() { r.j.segs.close() }

// Size is the size of a segment's file; fs.ErrNotExist if it is not there.
func (r *Recovered) Size(base uint64) (int64, error) {
	info, err := r.j.fsys.Stat(r.j.path(base))
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// Path is the path of a segment's file.
func (r *Recovered) Path(base uint64) string { return r.j.path(base) }

// omit leaves out a segment that has no file any more.
func (r *Recovered) omit(base uint64) {
	r.Bases = slices.DeleteFunc(r.Bases, func(b uint64) bool { return b == base })
}

// Frames gives do the frames of a closed segment, which ends at a position.
func (j *Journal) Frames(base, end uint64, do func(f Frame, body []byte) error) error {
	r := &Recovered{j: j, Bases: []uint64{base, end}}
	return r.replaySegment(0, base, do)
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
