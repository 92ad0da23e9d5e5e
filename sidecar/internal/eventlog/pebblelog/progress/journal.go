// Package progress is a small store of keys and their latest values. Its writes become durable in
// two steps: a Put survives a kill of the process, and a Sync makes it survive a power cut. It is
// for few values that change often. It holds all of them in memory.
//
// On disk it is one file that only grows (record.go draws it), until it is replaced by a shorter
// one with the same values (rewrite.go).
package progress

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/pause"
)

// Entry is a key and its value. An entry without a value removes the key.
type Entry struct {
	Key   string
	Value []byte
}

// Journal is an open store. Its methods may be called concurrently, but not after Close.
//
// After a failed write or sync the content of the file is not known until it is opened again, so
// Put and Sync return that error from then on.
type Journal struct {
	fsys  vfs.FS
	path  string
	fail  func(error)
	least int64 // a file up to this size is not rewritten

	mu       sync.Mutex
	file     vfs.File // written to with mu held, synced without
	size     int64    // of file
	live     map[string][]byte
	liveSize int64             // of live as entries
	changed  map[string][]byte // what the rewrite under way has still to add; else nil
	written  uint64            // number of the last Put
	synced   uint64            // number of the last Put that survives a power cut
	next     *round            // the sync that later calls of Sync wait for
	err      error
	buf      []byte

	// wake tells syncLoop that there is something to do.
	wake    pause.Wake
	stopped chan struct{}
}

// rewriteAbove is the size that a file may always have.
const rewriteAbove = 16 << 20

// rewriteFactor is how many times the size of its live entries a larger file may have.
const rewriteFactor = 4

// Open opens the journal at path, whose folder exists, and creates it if it is missing. It drops
// the first incomplete record and all after it; torn is the number of bytes dropped. All values
// found survive a power cut once Open returns. fail is called once, with the error after which
// nothing can be written, before any call returns that error.
//
// Files of fsys must support a Sync during a Write, as those of an operating system do.
func Open(fsys vfs.FS, path string, fail func(error)) (j *Journal, torn int64, err error) {
	return open(fsys, path, fail, rewriteAbove)
}

func open(fsys vfs.FS, path string, fail func(error), least int64) (*Journal, int64, error) {
	log, err := readFile(fsys, path)
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", path, err)
	}
	j := &Journal{
		fsys: fsys, path: path, fail: fail, least: least,
		live: map[string][]byte{},
		wake: pause.NewWake(), stopped: make(chan struct{}),
	}
	torn := int64(len(log) - replay(log, j.live))
	for key, value := range j.live {
		j.liveSize += entrySize(key, value)
	}
	// It always writes a new file: vfs cannot truncate a torn tail, and the content of the old file
	// may be in the page cache only.
	if err := j.create(); err != nil {
		return nil, 0, fmt.Errorf("write %s: %w", path, err)
	}
	go j.syncLoop()
	return j, torn, nil
}

// readFile reads a file that may be missing.
func readFile(fsys vfs.FS, path string) ([]byte, error) {
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// All returns a copy of the map of all values. The values are not copied; callers must not change
// them.
func (j *Journal) All() map[string][]byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.live)
}

// Put stores the entries, all or none. Of several entries of a key the last counts. When it returns
// nil, they survive a kill of the process. The journal keeps the values, so callers must not change
// them. Put never waits for a sync.
func (j *Journal) Put(entries []Entry) error {
	if len(entries) == 0 {
		return nil
	}
	j.mu.Lock()
	if j.err != nil {
		defer j.mu.Unlock()
		return j.err
	}
	if err := j.write(entries); err != nil {
		j.mu.Unlock()
		return j.poison(fmt.Errorf("write %s: %w", j.path, err))
	}
	full := j.full()
	j.mu.Unlock()
	if full {
		j.wake.Set()
	}
	return nil
}

// write appends one record with the entries; mu is held.
func (j *Journal) write(entries []Entry) error {
	record := beginRecord(j.buf[:0])
	for _, e := range entries {
		record = appendEntry(record, e.Key, e.Value)
	}
	if len(record) > headerSize+maxEntries {
		return fmt.Errorf("%d bytes at once; up to %d are allowed", len(record)-headerSize, maxEntries)
	}
	sealRecord(record)
	j.buf = record
	if _, err := j.file.Write(record); err != nil {
		return err
	}
	j.size += int64(len(record))
	j.written++
	for _, e := range entries {
		if old, ok := j.live[e.Key]; ok {
			j.liveSize -= entrySize(e.Key, old)
		}
		if len(e.Value) == 0 {
			delete(j.live, e.Key)
		} else {
			j.liveSize += entrySize(e.Key, e.Value)
			j.live[e.Key] = e.Value
		}
		if j.changed != nil {
			j.changed[e.Key] = e.Value
		}
	}
	return nil
}

// full says that the file is due to be rewritten; mu is held.
func (j *Journal) full() bool {
	return j.err == nil && j.changed == nil && j.size > max(j.least, rewriteFactor*j.liveSize)
}

// poison makes err the error of all later calls, unless there is an earlier one, and returns the
// one that counts.
func (j *Journal) poison(err error) error {
	j.mu.Lock()
	first := j.err == nil
	if first {
		j.err = err
	}
	err = j.err
	j.mu.Unlock()
	if first {
		j.fail(err)
	}
	return err
}

// Close makes everything durable and closes the file. No other call may be under way. It returns
// the first error of any call.
func (j *Journal) Close() error {
	close(j.wake)
	<-j.stopped
	if j.err == nil && j.synced < j.written {
		if err := j.file.SyncData(); err != nil {
			_ = j.poison(fmt.Errorf("sync %s: %w", j.path, err))
		}
	}
	return errors.Join(j.err, j.file.Close())
}
