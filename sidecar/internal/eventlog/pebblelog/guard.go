package pebblelog

import (
	"bytes"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
)

// guardedFS is the file system that the journal and Pebble use. It does these things:
//
//   - Before a table of the index is synced, the journal is: so the index never has more than the journal.
//   - Until a start has found that nothing is missing, nothing is removed (keepFiles).
//   - A failed write or sync of the journal fails the store.
//   - Once the store has failed, the disk is frozen: nothing is created, written, renamed or
//     removed. The folder stays as a crash at that moment would have left it, and recovery handles
//     that. So it does not matter what Pebble does after Fatalf has returned.
//   - An operation that finds no room on the disk waits for room. The log cannot continue without
//     its journal, and Pebble not without its manifest. A write that found no room has written as many bytes as it
//     says, and continues from there. A sync that finds no room has failed like any other sync. The
//     tables of flushes and compactions do not wait: Pebble removes and repeats them.
type guardedFS struct {
	vfs.FS
	health  *health
	space   *space
	kept    *keptFiles
	journal *atomic.Pointer[journal.Journal] // nil until it is started: until then all of it is synced
}

func newGuardedFS(fsys vfs.FS, h *health, room *space) guardedFS {
	return guardedFS{FS: fsys, health: h, space: room, kept: &keptFiles{}, journal: &atomic.Pointer[journal.Journal]{}}
}

// keptFiles are files that may be removed once keeping ends.
type keptFiles struct {
	mu      sync.Mutex
	keeping bool
	names   []string
}

// keep remembers a file, if it is to be kept.
func (k *keptFiles) keep(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.keeping {
		k.names = append(k.names, name)
	}
	return k.keeping
}

// keepFiles keeps files from being removed until removeKept.
func (g guardedFS) keepFiles() {
	g.kept.mu.Lock()
	defer g.kept.mu.Unlock()
	g.kept.keeping = true
}

// removeKept removes the files that were kept. An error means nothing: Pebble finds them again at the next start.
func (g guardedFS) removeKept() {
	g.kept.mu.Lock()
	defer g.kept.mu.Unlock()
	for _, name := range g.kept.names {
		_ = g.FS.Remove(name)
	}
	g.kept.keeping, g.kept.names = false, nil
}

// isTable reports whether a file is a table. Pebble repeats the write of a table that fails.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

// refusalPause slows down Pebble's flushes: after a failure Pebble repeats them at once and for
// ever.
const refusalPause = 100 * time.Millisecond

func (g guardedFS) guard(f vfs.File, name string, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	segment := strings.HasSuffix(name, ".log")
	return &guardedFile{File: f, health: g.health, space: g.space, journal: g.journal, segment: segment, table: isTable(name)}, nil
}

func (g guardedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.health.err(); err != nil {
		time.Sleep(refusalPause)
		return nil, err
	}
	f, err := g.making(name, func() (vfs.File, error) { return g.FS.Create(name, c) })
	return g.guard(f, name, err)
}

// making creates a file. The disk may have no room for it.
func (g guardedFS) making(name string, do func() (vfs.File, error)) (f vfs.File, err error) {
	if isTable(name) {
		if f, err = do(); noRoom(err) {
			g.space.await(err)
		}
		return f, err
	}
	err = g.space.retry(func() error {
		f, err = do()
		return err
	})
	return f, err
}

func (g guardedFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.health.err(); err != nil {
		return nil, err
	}
	f, err := g.making(name, func() (vfs.File, error) { return g.FS.ReuseForWrite(old, name, c) })
	return g.guard(f, name, err)
}

func (g guardedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	if err := g.health.err(); err != nil {
		return nil, err
	}
	f, err := g.FS.OpenReadWrite(name, c, o...)
	return g.guard(f, name, err)
}

func (g guardedFS) Link(old, name string) error {
	if err := g.health.err(); err != nil {
		return err
	}
	return g.space.retry(func() error { return g.FS.Link(old, name) })
}

func (g guardedFS) Rename(old, name string) error {
	if err := g.health.err(); err != nil {
		return err
	}
	return g.space.retry(func() error { return g.FS.Rename(old, name) })
}

func (g guardedFS) Remove(name string) error {
	if err := g.health.err(); err != nil || g.kept.keep(name) {
		return err
	}
	return g.FS.Remove(name)
}

func (g guardedFS) RemoveAll(name string) error {
	if err := g.health.err(); err != nil {
		return err
	}
	return g.FS.RemoveAll(name)
}

// Unwrap implements vfs.FS.
func (g guardedFS) Unwrap() vfs.FS { return g.FS }

// guardedFile is a file that was opened for writing.
type guardedFile struct {
	vfs.File
	health  *health
	space   *space
	journal *atomic.Pointer[journal.Journal]
	segment bool // of the journal
	table   bool
}

// judge fails the store if err is of a segment of the journal.
func (f *guardedFile) judge(err error) error {
	if err != nil && f.segment {
		f.health.fail(err)
	}
	return err
}

func (f *guardedFile) Write(p []byte) (int, error) {
	if err := f.health.err(); err != nil {
		return 0, err
	}
	if mutatesWrites {
		p = bytes.Clone(p)
	}
	n := 0
	for {
		m, err := f.File.Write(p[n:])
		if n += m; !f.awaits(err) {
			return n, f.judge(err)
		}
	}
}

// awaits waits if a write found no room, and reports whether to try again now.
func (f *guardedFile) awaits(err error) bool {
	return noRoom(err) && f.space.await(err) && !f.table
}

// Preallocate is a hint: the data may fit even if the preallocation does not.
func (f *guardedFile) Preallocate(offset, length int64) error {
	if err := f.File.Preallocate(offset, length); !noRoom(err) {
		return err
	}
	return nil
}

func (f *guardedFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.health.err(); err != nil {
		return 0, err
	}
	for {
		n, err := f.File.WriteAt(p, off)
		if !f.awaits(err) {
			return n, f.judge(err)
		}
	}
}

func (f *guardedFile) Sync() error     { return f.sync(f.File.Sync) }
func (f *guardedFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *guardedFile) SyncTo(length int64) (full bool, err error) {
	err = f.sync(func() error {
		full, err = f.File.SyncTo(length)
		return err
	})
	return full, err
}

func (f *guardedFile) sync(do func() error) error {
	if j := f.journal.Load(); f.table && j != nil {
		if err := j.Sync(); err != nil {
			return err
		}
	}
	if err := f.health.err(); err != nil {
		return err
	}
	return f.judge(do())
}
