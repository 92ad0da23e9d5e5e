package pebblelog

import (
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// TestLogFailureIsKnownBeforePebbleHearsOfIt: by the time a failed operation on a segment of the journal
// returns, the store has failed. Other files' failures are Pebble's to judge: it repeats a flush.
func TestLogFailureIsKnownBeforePebbleHearsOfIt(t *testing.T) {
	operations := map[string]func(f vfs.File) error{
		"Write":    func(f vfs.File) error { _, err := f.Write([]byte("x")); return err },
		"WriteAt":  func(f vfs.File) error { _, err := f.WriteAt([]byte("x"), 0); return err },
		"Sync":     func(f vfs.File) error { return f.Sync() },
		"SyncData": func(f vfs.File) error { return f.SyncData() },
		"SyncTo":   func(f vfs.File) error { _, err := f.SyncTo(1); return err },
	}
	for name, operate := range operations {
		for file, fails := range map[string]bool{"000001.log": true, "000002.sst": false} {
			disk := &failing{kinds: append(syncs, errorfs.OpFileWrite, errorfs.OpFileWriteAt)}
			h := &health{log: quiet}
			f, err := newGuardedFS(errorfs.Wrap(vfs.NewMem(), disk), h, newSpace(Options{Logger: quiet})).Create(file, vfs.WriteCategoryUnspecified)
			require.NoError(t, err)
			disk.armed.Store(true)
			if err := operate(f); !errors.Is(err, errDisk) {
				t.Errorf("%s of %s: %v; want the disk's error", name, file, err)
			}
			if failed := h.err() != nil; failed != fails {
				t.Errorf("after a failed %s of %s the store has failed: %v", name, file, failed)
			}
			f.Close()
		}
	}
}

// TestFailedStoreIsFrozen: nothing changes on the disk any more.
func TestFailedStoreIsFrozen(t *testing.T) {
	disk := vfs.NewMem()
	h := &health{log: quiet}
	fsys := newGuardedFS(disk, h, newSpace(Options{Logger: quiet}))
	f, err := fsys.Create("a", vfs.WriteCategoryUnspecified)
	require.NoError(t, err)
	defer f.Close()
	before := disk.String()
	h.Fatalf("something %s", "bad")
	_, created := fsys.Create("b", vfs.WriteCategoryUnspecified)
	_, reused := fsys.ReuseForWrite("a", "b", vfs.WriteCategoryUnspecified)
	_, opened := fsys.OpenReadWrite("b", vfs.WriteCategoryUnspecified)
	_, written := f.Write([]byte("x"))
	_, writtenAt := f.WriteAt([]byte("x"), 0)
	_, syncedTo := f.SyncTo(1)
	for i, err := range []error{created, reused, opened, written, writtenAt, syncedTo, f.Sync(), f.SyncData(),
		fsys.Link("a", "b"), fsys.Rename("a", "b"), fsys.Remove("a"), fsys.RemoveAll("a")} {
		if !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("operation %d: %v; want ErrUnavailable", i, err)
		}
	}
	if after := disk.String(); after != before {
		t.Errorf("the disk has changed from\n%s\nto\n%s", before, after)
	}
}
