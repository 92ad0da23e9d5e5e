// Package progress is a small store of keys and their latest values that can
// say two things of a write: that it survives the process being killed, for
// which the operating system need only have it, and later that it survives a
// power cut. It is for values that are few and change often, holds them all in
// memory, and does not know what they mean.
//
// On disk it is one file that only grows (record.go draws it), until it is
// replaced by a shorter one with the same values (rewrite.go).
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

// Entry is a key and its value; one without a value removes the key.
type Entry struct {
	Key   string
	Value []byte
}

// Journal is an open store. Its methods may be called from many goroutines at
// once, but none once Close has been called.
//
// The first write or sync that fails is the last: the content of the file is unknown then, until it
// is opened again. Put and Sync return that error from then on.
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
	changed  map[string][]byte // what a rewrite under way has yet to add; else nil
	written  uint64            // number of the last Put
	synced   uint64            // number of the last Put that survives a power cut
	next     *round            // what Syncs wait for that came since the last began
	err      error
	buf      []byte

	// wake has room for one: syncLoop looks at what there is to do when it is
	// done with what it does.
	wake    pause.Wake
	stopped chan struct{}
}

// rewriteAbove is the size that a file may always have.
const rewriteAbove = 16 << 20

// rewriteFactor is how many times the size of its live entries a larger file
// may have.
const rewriteFactor = 4

// Open opens the journal at path, whose folder exists, and creates it if it is
// missing. Records behind the first that is not whole are dropped; torn is how
// many bytes that were. All that was found survives a power cut when Open
// returns. fail is called, once, with the error after which nothing can be
// written any more, before any call returns it.
//
// Files of fsys must stand a Sync during a Write, as an operating system's do.
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
	// A new file in any case: a file system here cannot cut a torn tail off,
	// and what the page cache held of the old one need not be on the disk.
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

// All returns a copy of the map of what was put. The values are not copied and
// not to be changed.
func (j *Journal) All() map[string][]byte {
	j.mu.Lock()
	defer j.mu.Unlock()
	return maps.Clone(j.live)
}

// Put stores the entries, all of them or none; of a key's, the last counts. When it returns nil
// they survive the process being killed. The journal keeps the values; callers must not change them
// any more. It never waits for a sync.
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

// poison makes err what everybody gets from now on, unless another was first,
// and returns which it is.
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

// Close makes everything durable and releases the file. No other call may be
// under way. It returns the error that any call has met.
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
