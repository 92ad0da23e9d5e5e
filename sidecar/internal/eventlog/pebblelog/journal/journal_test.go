package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

var store = [16]byte{1, 2, 3}

// start opens a journal in folder data, and returns the frames that it has from a position on.
func start(disk vfs.FS, from uint64) (j *Journal, frames []string, torn int64, err error) {
	r, err := Open(disk, "data", store, func(error) {}, 200)
	if err != nil {
		return nil, nil, 0, err
	}
	if err := r.Replay(from, func(_ Frame, body []byte) error {
		frames = append(frames, string(body))
		return nil
	}); err != nil {
		return nil, frames, r.Torn, err
	}
	j, err = r.Start()
	return j, frames, r.Torn, err
}

// written makes a journal of n frames in several segments, and returns their ends.
func written(t *testing.T, n int) (disk *vfs.MemFS, ends []uint64) {
	t.Helper()
	disk = vfs.NewMem()
	require.NoError(t, disk.MkdirAll("data", 0o700))
	j, _, _, err := start(disk, 0)
	require.NoError(t, err)
	for i := range n {
		f, err := j.Append([]byte("frame "), fmt.Append(nil, i))
		require.NoError(t, errors.Join(err, j.Sync()))
		ends = append(ends, f.End)
	}
	require.NoError(t, j.Close())
	return disk, ends
}

// edit changes a file.
func edit(t *testing.T, disk vfs.FS, name string, change func([]byte) []byte) {
	t.Helper()
	f, err := disk.Open(name)
	require.NoError(t, err)
	text, err := io.ReadAll(f)
	require.NoError(t, errors.Join(err, f.Close()))
	f, err = disk.Create(name, vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	_, err = f.Write(change(slices.Clone(text)))
	require.NoError(t, errors.Join(err, f.Close()))
}

func lastSegment(t *testing.T, disk vfs.FS) string {
	t.Helper()
	r, err := Open(disk, "data", store, nil, 200)
	require.NoError(t, err)
	for i := len(r.Bases) - 1; i >= 0; i-- {
		if size, err := r.Size(r.Bases[i]); err == nil && size > headerSize {
			return r.Path(r.Bases[i])
		}
	}
	t.Fatal("no segment has a frame")
	return ""
}

func TestFramesComeBackInOrder(t *testing.T) {
	const n = 30
	disk, ends := written(t, n)
	j, frames, torn, err := start(disk, 0)
	if err != nil || torn != 0 || len(frames) != n || frames[n-1] != fmt.Sprint("frame ", n-1) {
		t.Fatalf("%q, %d, %v", frames, torn, err)
	}
	require.NoError(t, j.Close())
	j, frames, _, err = start(disk, ends[9])
	if err != nil || len(frames) != n-10 || frames[0] != "frame 10" {
		t.Errorf("from a position: %q, %v", frames, err)
	}
	require.NoError(t, j.Close())
}

// TestTail: what was never acknowledged may be torn; everything else is damage.
func TestTail(t *testing.T) {
	flipLast := func(b []byte) []byte { b[len(bytes.TrimRight(b, "\x00"))-1] ^= 1; return b }
	cases := map[string]struct {
		change func(t *testing.T, disk *vfs.MemFS, last string)
		from   uint64 // the index has everything up to there
		damage bool
	}{
		"an acknowledged frame": {func(t *testing.T, disk *vfs.MemFS, last string) { edit(t, disk, last, flipLast) }, 0, true},
		"garbage behind the last frame": {func(t *testing.T, disk *vfs.MemFS, last string) {
			edit(t, disk, last, func(b []byte) []byte { return append(b, "garbage"...) })
		}, 0, false},
		"garbage, and nothing says what was acknowledged": {func(t *testing.T, disk *vfs.MemFS, last string) {
			edit(t, disk, last, func(b []byte) []byte { return append(b, "garbage"...) })
			require.NoError(t, disk.Remove("data/ACKED"))
		}, 0, true},
		"nothing says what was acknowledged": {func(t *testing.T, disk *vfs.MemFS, _ string) {
			require.NoError(t, disk.Remove("data/ACKED"))
		}, 0, false},
		"the index has more": {func(*testing.T, *vfs.MemFS, string) {}, 1 << 20, true},
		"the last segment is missing": {func(t *testing.T, disk *vfs.MemFS, last string) {
			require.NoError(t, disk.Remove(last))
		}, 0, true},
		"all segments are missing": {func(t *testing.T, disk *vfs.MemFS, _ string) {
			require.NoError(t, disk.RemoveAll("data/journal"))
		}, 0, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			disk, _ := written(t, 12)
			c.change(t, disk, lastSegment(t, disk))
			j, frames, _, err := start(disk, c.from)
			if err == nil {
				defer j.Close()
			}
			var damage *eventlog.DamageError
			if errors.As(err, &damage) != c.damage || !c.damage && (err != nil || len(frames) != 12) {
				t.Errorf("%d frames, %v", len(frames), err)
			}
		})
	}
}

// TestSyncsSeldomChangeTheSize: the file grows by zeros that frames then replace. Reads end with what is written, and a start
// takes the zeros for no tail.
func TestSyncsSeldomChangeTheSize(t *testing.T) {
	const roll, n = 64 << 10, 1000
	disk := vfs.NewMem()
	require.NoError(t, disk.MkdirAll("data", 0o700))
	r, err := Open(disk, "data", store, func(err error) { t.Error(err) }, roll)
	require.NoError(t, err)
	j, err := r.Start()
	require.NoError(t, err)
	sizes := map[int64]bool{}
	var last Frame
	for i := range n {
		last, err = j.Append([]byte("frame "), fmt.Append(nil, i))
		require.NoError(t, errors.Join(err, j.Sync()))
		size, err := r.Size(last.Segment)
		require.NoError(t, err)
		sizes[size] = true
	}
	if most := int(last.End)/(roll/reservePart) + 1; len(sizes) > most {
		t.Errorf("%d frames in %d bytes have given the file %d sizes, more than %d", n, last.End, len(sizes), most)
	}
	b := make([]byte, 100)
	if n, err := j.Read(b, last.Body, 1); err != nil || string(b[:n]) != "frame 999" {
		t.Errorf("read %q, %v", b[:n], err)
	}
	require.NoError(t, disk.Remove("data/ACKED")) // as after a kill whose tail nobody can judge
	j, frames, torn, err := start(disk, 0)
	if err != nil || torn != 0 || len(frames) != n {
		t.Errorf("after a kill: %d frames, %d bytes torn, %v", len(frames), torn, err)
	}
	if n, err := j.Read(b, last.Body, 1); err != nil || string(b[:n]) != "frame 999" { // the next segment begins there
		t.Errorf("read after a start %q, %v", b[:n], err)
	}
	require.NoError(t, j.Close())
}

// TestReadOfWhatIsNotWritten reads frames in memory, in a file, and behind the end.
func TestReadOfWhatIsNotWritten(t *testing.T) {
	disk := vfs.NewMem()
	require.NoError(t, disk.MkdirAll("data", 0o700))
	j, _, _, err := start(disk, 0)
	require.NoError(t, err)
	defer j.Close()
	f, err := j.Append([]byte("abc"), nil)
	require.NoError(t, err)
	for _, flushed := range []bool{false, true} {
		if flushed {
			require.NoError(t, j.Flush(t.Context()))
		}
		b := make([]byte, 10)
		if n, err := j.Read(b, f.Body, 3); err != nil || string(b[:n]) != "abc" {
			t.Errorf("flushed %v: %q, %v", flushed, b[:n], err)
		}
	}
	var damage *eventlog.DamageError
	if _, err := j.Read(make([]byte, 4), f.Body, 4); !errors.As(err, &damage) {
		t.Errorf("behind the end: %v", err)
	}
}

// However many segments are read, few files stay open.
func TestReadsKeepFewFilesOpen(t *testing.T) {
	disk, ends := written(t, 3*maxOpen*12)
	j, _, _, err := start(disk, 0)
	require.NoError(t, err)
	defer j.Close()
	for range 2 {
		for i, end := range ends {
			body := fmt.Sprint("frame ", i)
			b := make([]byte, len(body))
			if _, err := j.Read(b, end-uint64(len(b)), len(b)); err != nil || string(b) != body {
				t.Fatalf("frame %d: %q, %v", i, b, err)
			}
		}
	}
	open := 0
	for _, seg := range j.segs.list {
		if seg.file != nil {
			open++
		}
	}
	if len(j.segs.list) <= maxOpen || open > maxOpen {
		t.Errorf("%d files of %d segments are open; %d may be", open, len(j.segs.list), maxOpen)
	}
}
