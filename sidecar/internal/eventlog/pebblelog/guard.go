package pebblelog

import (
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// guardedFS is the file system that Pebble gets. It does two things:
//
//   - A failed write or sync of a write-ahead log fails the store before
//     Pebble hears of it. Pebble tells the commits that waited for that sync,
//     but may switch to a new log file and succeed there while the old one has
//     a hole, before those commits have had their say.
//   - Once the store has failed, the disk is frozen: nothing is created,
//     written, renamed or removed. The folder stays as a crash at that moment
//     would have left it, which is what recovery is made for, whatever Pebble
//     does after the Fatalf that returned.
type guardedFS struct {
	vfs.FS
	health *health
}

// refusalPause slows down Pebble's flushes, which repeat at once and for ever
// when they fail.
const refusalPause = 100 * time.Millisecond

func (g guardedFS) guard(f vfs.File, name string, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &guardedFile{File: f, health: g.health, wal: strings.HasSuffix(name, ".log")}, nil
}

func (g guardedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.health.err(); err != nil {
		time.Sleep(refusalPause)
		return nil, err
	}
	f, err := g.FS.Create(name, c)
	return g.guard(f, name, err)
}

func (g guardedFS) ReuseForWrite(old, name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := g.health.err(); err != nil {
		return nil, err
	}
	f, err := g.FS.ReuseForWrite(old, name, c)
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
	return g.FS.Link(old, name)
}

func (g guardedFS) Rename(old, name string) error {
	if err := g.health.err(); err != nil {
		return err
	}
	return g.FS.Rename(old, name)
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
	wal    bool
}

// judge fails the store when err is a write-ahead log's.
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
	n, err := f.File.Write(p)
	return n, f.judge(err)
}

func (f *guardedFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.health.err(); err != nil {
		return 0, err
	}
	n, err := f.File.WriteAt(p, off)
	return n, f.judge(err)
}

func (f *guardedFile) Sync() error {
	if err := f.health.err(); err != nil {
		return err
	}
	return f.judge(f.File.Sync())
}

func (f *guardedFile) SyncData() error {
	if err := f.health.err(); err != nil {
		return err
	}
	return f.judge(f.File.SyncData())
}

func (f *guardedFile) SyncTo(length int64) (bool, error) {
	if err := f.health.err(); err != nil {
		return false, err
	}
	full, err := f.File.SyncTo(length)
	return full, f.judge(err)
}
