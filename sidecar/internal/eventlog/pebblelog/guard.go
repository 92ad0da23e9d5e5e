package pebblelog

import (
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardedFS is the file system that Pebble uses. It does three things:
//
//   - A failed write or sync of a write-ahead log fails the store before Pebble gets the error.
//     Pebble reports the error to the commits that waited for that sync. But before these see it,
//     Pebble may switch to a new log file and succeed there, while the old file has a hole.
//   - Once the store has failed, the disk is frozen: nothing is created, written, renamed or
//     removed. The folder stays as a crash at that moment would have left it, and recovery handles
//     that. So it does not matter what Pebble does after Fatalf has returned.
//   - An operation that finds no room on the disk waits for room. Pebble cannot continue without
//     its write-ahead log and manifest. A write that found no room has written as many bytes as it
//     says, and continues from there. A sync that finds no room has failed like any other sync. The
//     tables of flushes and compactions do not wait: Pebble removes and repeats them.
type guardedFS struct {
	vfs.FS
	health *health
	space  *space
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
	return &guardedFile{File: f, health: g.health, space: g.space, wal: strings.HasSuffix(name, ".log"), table: isTable(name)}, nil
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
	if err := g.health.err(); err != nil {
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
	health *health
	space  *space
	wal    bool
	table  bool
}

// judge fails the store if err is of a write-ahead log.
func (f *guardedFile) judge(err error) error {
	if err != nil && f.wal {
		f.health.fail(err)
	}
	return err
}

func (f *guardedFile) Write(p []byte) (int, error) {
	if err := f.health.err(); err != nil {
		return 0, err
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
	if err := f.health.err(); err != nil {
		return err
	}
	return f.judge(do())
}
