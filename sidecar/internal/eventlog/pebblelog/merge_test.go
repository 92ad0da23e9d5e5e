package pebblelog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
	"github.com/sluice-bus/sluice/test/require"
)

// restarted is a folder whose log was restarted n times, and got an event each time.
func restarted(t *testing.T, disk vfs.FS, n int) {
	t.Helper()
	for i := range n {
		l := mustOpen(t, Options{Dir: "data", FS: disk})
		ensure(t, l, "t", 1)
		require.NoError(t, add(t, l, fmt.Sprint(i+1)))
		require.NoError(t, l.Close())
	}
}

// wantNumbered wants the events 1 to n of topic t, one by one and in a scan.
func wantNumbered(t *testing.T, l *Log, n int) {
	t.Helper()
	events, err := l.Read(t.Context(), "t", 0, 1, everything)
	require.NoError(t, err)
	scanned, err := l.Scan(t.Context(), "t", eventlog.ScanQuery{}, everything)
	require.NoError(t, err)
	if len(events) != n || len(scanned) != n {
		t.Fatalf("%d events are read and %d scanned; want %d", len(events), len(scanned), n)
	}
	for i, e := range events {
		if e.ID != fmt.Sprint(i+1) || e.Seq != uint64(i+1) {
			t.Fatalf("event %d is %q, seq %d", i+1, e.ID, e.Seq)
		}
	}
}

// Restarts leave a bounded number of files, which have everything from the beginning on: the index can be made of them,
// and a backup restored.
func TestManyRestartsLeaveFewFiles(t *testing.T) {
	const n = 200
	disk := vfs.NewMem()
	restarted(t, disk, n)
	if files := segmentFiles(t, disk); files > 70 {
		t.Errorf("%d files after %d restarts", files, n)
	}
	require.NoError(t, disk.RemoveAll(disk.PathJoin("data", dbFolder)))
	l := mustOpen(t, Options{Dir: "data", FS: disk})
	wantNumbered(t, l, n)
	var backup bytes.Buffer
	require.NoError(t, l.Backup(t.Context(), &backup))
	require.NoError(t, l.Close())

	dir := filepath.Join(t.TempDir(), "restored")
	require.NoError(t, Restore(dir, &backup))
	l = mustOpen(t, Options{Dir: dir})
	wantNumbered(t, l, n)
	require.NoError(t, l.Close())

	// A header between the frames is damaged: noticed where the frames are read from the beginning.
	first := disk.PathJoin("data", journal.Folder, fmt.Sprintf("%020d.log", 0))
	text := contents(t, disk, "data")[first]
	at := bytes.LastIndex(text, []byte("sluicelg"))
	if at <= 0 {
		t.Fatal("the first file has no second header")
	}
	text[at+10] ^= 1
	replace(t, disk, first, text)
	require.NoError(t, disk.RemoveAll(disk.PathJoin("data", dbFolder)))
	var damage *eventlog.DamageError
	if _, err := Open(Options{Dir: "data", FS: disk, Logger: quiet}); !errors.As(err, &damage) || damage.Offset != int64(at) {
		t.Errorf("with a damaged header: %v; want damage at byte %d", err, at)
	}
}

// A power failure at any moment of a start that merges loses nothing.
func TestPowerFailuresWhileSegmentsAreMerged(t *testing.T) {
	const n = 66
	disk := vfs.NewCrashableMem()
	restarted(t, disk, n)
	most := 400
	if testing.Short() {
		most = 40
	}
	rng := rand.New(rand.NewPCG(1, 1))
	crashes := make(chan *vfs.MemFS) // one at a time: each is as large as the disk
	taken, merging, opened := 0, false, false
	var mu sync.Mutex // Pebble has goroutines of its own
	moments := errorfs.InjectorFunc(func(op errorfs.Op) error {
		mu.Lock()
		defer mu.Unlock()
		merging = merging || strings.HasSuffix(op.Path, ".merged")
		if merging && !opened && taken < most {
			taken++
			crashes <- disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng})
		}
		return nil
	})
	var l *Log
	var err error
	go func() {
		defer close(crashes)
		l, err = Open(Options{Dir: "data", FS: errorfs.Wrap(disk, moments), Logger: quiet})
		mu.Lock()
		defer mu.Unlock()
		opened = true
	}()
	defer func() {
		for range crashes { // where a check has failed
		}
	}()
	for crash := range crashes {
		for range 2 {
			l := mustOpen(t, Options{Dir: "data", FS: crash})
			wantNumbered(t, l, n)
			require.NoError(t, l.Close())
		}
	}
	require.NoError(t, err)
	wantNumbered(t, l, n)
	require.NoError(t, l.Close())
	if files := segmentFiles(t, disk); !merging || files > 10 {
		t.Fatalf("%d files are left", files)
	}
}
