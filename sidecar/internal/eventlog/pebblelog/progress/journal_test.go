package progress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const path = "data/PROGRESS"

func folder(t testing.TB) *vfs.MemFS {
	t.Helper()
	disk := vfs.NewCrashableMem()
	require.NoError(t, disk.MkdirAll("data", 0o755))
	for _, dir := range []string{"", "data"} {
		d, err := disk.OpenDir(dir)
		require.NoError(t, errors.Join(err, d.Sync(), d.Close()))
	}
	return disk
}

// mustOpen opens a journal that is rewritten above least bytes and must not fail.
func mustOpen(t testing.TB, disk vfs.FS, least int64) *Journal {
	t.Helper()
	j, _, err := open(disk, path, func(err error) { t.Errorf("the journal has failed: %v", err) }, least)
	require.NoError(t, err)
	return j
}

// content is what a journal on the disk holds.
func content(t testing.TB, disk vfs.FS) map[string]string {
	t.Helper()
	j := mustOpen(t, disk, rewriteAbove)
	defer j.Close()
	all := map[string]string{}
	for key, value := range j.All() {
		all[key] = string(value)
	}
	return all
}

func put(t testing.TB, j *Journal, pairs ...string) {
	t.Helper()
	var entries []Entry
	for pair := range slices.Chunk(pairs, 2) {
		entries = append(entries, Entry{pair[0], []byte(pair[1])})
	}
	require.NoError(t, j.Put(entries))
}

// TestTornTail cuts the last record at every byte. Its entries are gone together, the entries
// before it stay, and entries that are put then are found later.
func TestTornTail(t *testing.T) {
	disk := folder(t)
	j := mustOpen(t, disk, rewriteAbove)
	put(t, j, "a", "1", "b", "1")
	whole := readAll(t, disk)
	put(t, j, "a", "2", "b", "2", "c", "2")
	log := readAll(t, disk)
	j.Close()
	for cut := len(whole); cut <= len(log); cut++ {
		for _, zeros := range []int{0, 100} {
			disk := folder(t)
			writeAllTo(t, disk, slices.Concat(log[:cut], make([]byte, zeros)))
			j, torn, err := Open(disk, path, func(error) {})
			require.NoError(t, err)
			want := map[string]string{"a": "1", "b": "1", "new": "3"}
			dropped := cut - len(whole) + zeros
			if cut == len(log) {
				want = map[string]string{"a": "2", "b": "2", "c": "2", "new": "3"}
				dropped = zeros
			}
			if torn != int64(dropped) {
				t.Errorf("cut at %d with %d zeros: %d bytes are torn; want %d", cut, zeros, torn, dropped)
			}
			put(t, j, "new", "3")
			j.Close()
			if got := content(t, disk); !reflect.DeepEqual(got, want) {
				t.Errorf("cut at %d with %d zeros: %v; want %v", cut, zeros, got, want)
			}
		}
	}
}

func readAll(t *testing.T, disk vfs.FS) []byte {
	t.Helper()
	f, err := disk.Open(path)
	require.NoError(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	require.NoError(t, err)
	return b
}

func writeAllTo(t *testing.T, disk vfs.FS, b []byte) {
	t.Helper()
	f, err := disk.Create(path, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = f.Write(b)
	}
	require.NoError(t, errors.Join(err, f.Sync(), f.Close()))
}

// script is puts, syncs and several rewrites; it stops at the first error. It returns the last
// generation of values that was put and that was synced, and whether another was begun.
func script(j *Journal) (put, synced int, begun bool) {
	for n := 1; n <= 30; n++ {
		entries := []Entry{
			{"a", fmt.Appendf(nil, "%d", n)}, {"b", fmt.Appendf(nil, "%d", n)},
			{fmt.Sprintf("c%d", n%3), fmt.Appendf(nil, "%40d", n)},
		}
		if j.Put(entries) != nil {
			return put, synced, true
		}
		put = n
		if n%3 == 0 {
			if j.Sync(context.Background()) != nil {
				return put, synced, false
			}
			synced = n
		}
	}
	return put, synced, false
}

// TestCrashAnywhere fails each operation on the disk in turn, in the journal's opening, puts, syncs
// and rewrites, and looks at what a kill and a power cut would leave then.
func TestCrashAnywhere(t *testing.T) { testkit.Rounds(t, crashAnywhere) }

func crashAnywhere(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	renames, index := 0, int32(0)
	for ; ; index++ {
		disk := folder(t)
		renames = 0
		broken := false
		inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpRename {
				renames++
			}
			return nil
		})
		var failures atomic.Int32
		fail := func(error) { failures.Add(1) }
		j, _, err := open(errorfs.Wrap(disk, errorfs.Any(inject, errorfs.OnIndex(index))), path, fail, 100)
		written, synced, begun := 0, 0, false
		if err == nil {
			written, synced, begun = script(j)
			broken = j.Close() != nil
			if broken != (failures.Load() == 1) {
				t.Fatalf("operation %d: fail was called %d times", index, failures.Load())
			}
		}
		killed := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rng})
		checkGeneration(t, fmt.Sprintf("killed at operation %d", index), content(t, killed), written, written, begun)
		for _, kept := range []int{0, 50} {
			cut := disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng})
			checkGeneration(t, fmt.Sprintf("power cut at operation %d, keeping %d%%", index, kept), content(t, cut), synced, written, begun)
		}
		if err == nil && !broken {
			break
		}
	}
	if renames < 3 || index < 60 {
		t.Errorf("%d renames, %d operations: does anything rewrite?", renames, index)
	}
}

// checkGeneration: a and b are of one generation, which is neither older than the oldest allowed
// nor newer than the newest that may be there.
func checkGeneration(t *testing.T, when string, got map[string]string, oldest, newest int, begun bool) {
	t.Helper()
	if begun {
		newest++
	}
	var a int
	if text, ok := got["a"]; ok {
		if _, err := fmt.Sscan(text, &a); err != nil {
			t.Fatal(err)
		}
	}
	if got["a"] != got["b"] || a < oldest || a > newest {
		t.Errorf("%s: a is %q and b %q; want %d to %d", when, got["a"], got["b"], oldest, newest)
	}
}

// TestCrashUnderLoad clones the disk again and again under puts and syncs that never rest, with a
// rewrite every few puts.
func TestCrashUnderLoad(t *testing.T) { testkit.Rounds(t, crashUnderLoad) }

func crashUnderLoad(t *testing.T, seed uint64) {
	disk := folder(t)
	j := mustOpen(t, disk, 400)
	defer j.Close()
	var stop atomic.Bool
	var work sync.WaitGroup
	const writers = 3
	var written, synced [writers]atomic.Uint64
	for w := range writers {
		work.Go(func() {
			for n := uint64(1); !stop.Load(); n++ {
				if err := j.Put([]Entry{{fmt.Sprint(w), fmt.Append(nil, n)}}); err != nil {
					t.Errorf("Put: %v", err)
					return
				}
				written[w].Store(n)
			}
		})
	}
	for range 2 {
		work.Go(func() {
			for !stop.Load() {
				var before [writers]uint64
				for w := range writers {
					before[w] = written[w].Load()
				}
				if err := j.Sync(t.Context()); err != nil {
					t.Errorf("Sync: %v", err)
					return
				}
				for w := range writers {
					for old := synced[w].Load(); old < before[w] && !synced[w].CompareAndSwap(old, before[w]); old = synced[w].Load() {
					}
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 4))
	for i := range 60 {
		for enough := written[i%writers].Load() + 20; written[i%writers].Load() < enough && !t.Failed(); {
			runtime.Gosched()
		}
		promised := &synced
		kept := []int{0, 50, 100}[i%3]
		if kept == 100 {
			promised = &written
		}
		var least [writers]uint64
		for w := range writers {
			least[w] = promised[w].Load()
		}
		got := content(t, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: kept, RNG: rng}))
		for w := range writers {
			var n uint64
			_, _ = fmt.Sscan(got[fmt.Sprint(w)], &n)
			if n < least[w] {
				t.Errorf("with %d%% of what was not synced writer %d is at %d; %d was promised", kept, w, n, least[w])
			}
		}
	}
	stop.Store(true)
	work.Wait()
}
