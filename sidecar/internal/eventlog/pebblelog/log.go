// Package pebblelog is the embedded event log: an eventlog.Log in one folder, for one process. Events and all other
// changes go into a journal of files that are only appended; an index in Pebble finds them.
//
// The way of an event: append.go decides whether it is new, commit.go makes it durable, cursor.go, read.go, order.go
// and scan.go read it, retention.go removes it, and reclaim.go gives its place on the disk back. journal/format.go,
// run.go, record.go and keys.go draw what is on the disk; recover.go says what a start makes of it.
package pebblelog

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/private"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog/journal"
)

// Options are the options of Open.
type Options struct {
	// Dir is the data folder. It is created if it is missing, and refused if it is neither empty
	// nor a data folder.
	Dir string
	// Beside names files that a new folder may already contain.
	Beside []string
	// FS is the file system that Dir is on; nil: the operating system's. The folder is locked
	// against other processes on the latter only.
	FS vfs.FS
	// InMemory keeps everything in memory instead of on FS, for tests.
	InMemory bool
	// NodeID names this sidecar to a second one that tries to open the folder.
	NodeID string
	// Logger gets Pebble's warnings and the store's failure; nil: slog.Default.
	Logger *slog.Logger
	// LowWater is how much of the disk has to be free for appends: bytes, LowWaterAuto, or 0 for no
	// bound.
	LowWater int64
	// Queue says that events wait here for another log. An event with a DeliverAt is stored like
	// the others, and the other log schedules it.
	Queue bool
	// GiveUp, once it is closed, ends all waits for room on the disk, Open's too; nil: only Close
	// does.
	GiveUp <-chan struct{}

	segmentSize int64 // of the journal, for tests; 0: journal.SegmentSize
}

// Log is an eventlog.Log. Open makes one.
type Log struct {
	fsys    vfs.FS
	dir     string
	storeID string
	lock    *os.File // nil on the file system of a test
	journal *journal.Journal
	db      *pebble.DB // the index
	health  *health
	space   *space
	queue   bool // Options.Queue
	commits *committer
	catalog *catalog
	epochs  *register
	reclaim *reclaim
	unnoted []uint64 // segments that the index does not know, at a start

	undropped bool // a start has found the file of a segment that is dropped

	acceptances eventlog.Acceptances

	// marksTurn keeps marks from being renewed while a sweep decides that they have expired.
	marksTurn pause.Mutex

	// calls is held for reading by every call under way. Close locks it, after closed has kept new
	// calls out.
	calls  sync.RWMutex
	closed atomic.Bool

	backups   pause.Mutex // held while a backup is taken
	snapshots sync.Map    // the open ones: each *snapshot, without a value
}

var _ eventlog.Log = (*Log)(nil)

// Open opens the log in a folder. It refuses a folder with a *ForeignFolderError, a
// *FormatError or a *LockedError, each with a hint.
func Open(o Options) (*Log, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.InMemory {
		o.FS = vfs.NewMem()
	}
	onDisk := o.FS == nil
	if onDisk {
		o.FS = privateFS{vfs.Default}
	}
	if err := claimFolder(o.FS, o.Dir, o.Beside); err != nil {
		return nil, err
	}
	var lock *os.File
	if onDisk {
		var err error
		lock, err = acquireLock(o.Dir, Owner{PID: os.Getpid(), NodeID: o.NodeID, Started: time.Now().UTC()})
		if err != nil {
			return nil, err
		}
		private.Tighten(o.Logger, o.Dir)
	}
	l, err := open(o)
	if err != nil {
		if lock != nil {
			lock.Close()
		}
		return nil, err
	}
	l.lock = lock
	return l, nil
}

// claimFolder makes the folder exist and be ours or empty.
func claimFolder(fsys vfs.FS, dir string, beside []string) error {
	if err := fsys.MkdirAll(dir, private.Folder); err != nil {
		return fmt.Errorf("create the data folder (--data-dir): %w", err)
	}
	return checkOwned(fsys, dir, beside)
}

// open opens the log. If the disk has no room for the first writes, it waits for room: a restart of
// the process would not help.
func open(o Options) (l *Log, err error) {
	room := newSpace(o)
	_ = room.retry(func() error {
		l, err = openOnce(o, room)
		return err
	})
	return l, err
}

func openOnce(o Options, room *space) (*Log, error) {
	f, err := openFormat(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	db := o.FS.PathJoin(o.Dir, dbFolder)
	if err := o.FS.MkdirAll(db, private.Folder); err != nil {
		return nil, fmt.Errorf("create the data folder (--data-dir): %w", err)
	}
	if err := syncFolder(o.FS, o.Dir); err != nil {
		return nil, fmt.Errorf("create the data folder (--data-dir): %w", err)
	}
	h := &health{log: o.Logger}
	l := &Log{fsys: o.FS, dir: o.Dir, storeID: f.StoreID, health: h, space: room, queue: o.Queue,
		marksTurn: pause.NewMutex(), backups: pause.NewMutex()}
	segment, err := recoverLog(l, newGuardedFS(o.FS, h, room), f, cmp.Or(o.segmentSize, journal.SegmentSize))
	if err != nil {
		return nil, fmt.Errorf("open the store in %s: %w", o.Dir, err)
	}
	if l.catalog, err = loadCatalog(l.db); err == nil {
		l.epochs, err = loadRegister(l.db)
	}
	l.commits = newCommitter(l.db, l.journal, segment, h, room)
	if err == nil {
		l.epochs.commits = l.commits
		err = l.noteUnnoted()
	}
	if err != nil {
		l.commits.stop()
		return nil, errors.Join(fmt.Errorf("open the store in %s: %w", o.Dir, err), l.db.Close(), l.journal.Close())
	}
	l.reclaim = startReclaim(l)
	if l.undropped {
		l.reclaim.wake.Set()
	}
	return l, nil
}

// noteUnnoted tells the index of segments that it does not know.
func (l *Log) noteUnnoted() error {
	if len(l.unnoted) == 0 {
		return nil
	}
	b := l.db.NewBatch()
	for _, base := range l.unnoted {
		_ = b.Set(segmentKey(base), binary.AppendUvarint(nil, 0), nil)
		l.commits.segment = base
	}
	return l.commitSynced(context.Background(), b)
}

// openPebble opens the database. While the disk has no room for the tables of the last run's
// write-ahead log, Pebble retries and cannot be stopped. When the caller gives up, openPebble
// abandons Pebble and freezes the disk.
func openPebble(dir string, fsys guardedFS, h *health) (*pebble.DB, error) {
	type result struct {
		db  *pebble.DB
		err error
	}
	opened := make(chan result, 1)
	go func() {
		db, err := openDB(dir, fsys, h)
		opened <- result{db, err}
	}()
	select {
	case r := <-opened:
		return r.db, r.err
	case <-fsys.space.giveUp:
	}
	select {
	case r := <-opened:
		return r.db, r.err
	case <-time.After(abandonAfter):
		h.fail(errAbandoned)
		return nil, errAbandoned
	}
}

// abandonAfter is how long Pebble may take to end by itself after the caller gave up.
const abandonAfter = 2 * time.Second

var errAbandoned = errors.New("gave up before the store was open")

// openDB opens the database. Pebble's Fatalf returns here. So Pebble may panic on a state that it
// excludes, or report a failed start as a success.
func openDB(dir string, fsys guardedFS, h *health) (db *pebble.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	db, err = pebble.Open(dir, tuning(fsys, h))
	if err != nil {
		return nil, err
	}
	if err := h.err(); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// Err is nil while the log can be written, and then the reason why it cannot.
func (l *Log) Err() error { return l.health.err() }

// Space is the state of the disk.
func (l *Log) Space() Space { return l.space.now() }

// Since is when the log failed, or else when its disk last ran short or had room again; the zero time: never.
func (l *Log) Since() time.Time {
	if f := l.health.cause.Load(); f != nil {
		return f.at
	}
	if at := l.space.changed.Load(); at != 0 {
		return time.Unix(0, at)
	}
	return time.Time{}
}

// StoreID identifies this store: a random UUID from the creation of its folder.
func (l *Log) StoreID() string { return l.storeID }

// errClosed is what calls get after Close.
var errClosed = fmt.Errorf("%w: the log is closed", eventlog.ErrUnavailable)

// enter begins a call. Without an error the caller must call leave. It refuses a finished context,
// a closed log and a failed store.
func (l *Log) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.closed.Load() {
		return errClosed
	}
	l.calls.RLock()
	err := l.health.err()
	if l.closed.Load() {
		err = errClosed
	}
	if err != nil {
		l.calls.RUnlock()
	}
	return err
}

func (l *Log) leave() { l.calls.RUnlock() }

// enterTopic is enter, and finds a topic.
func (l *Log) enterTopic(ctx context.Context, name string) (*topic, error) {
	if err := l.enter(ctx); err != nil {
		return nil, err
	}
	t, err := l.catalog.find(name)
	if err != nil {
		l.leave()
	}
	return t, err
}

// enterPartition is enterTopic, and finds a partition.
func (l *Log) enterPartition(ctx context.Context, name string, p int) (*topic, *partition, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	part, err := l.partition(t, p)
	if err != nil {
		l.leave()
	}
	return t, part, err
}

// enterSweep is enterTopic, and locks the topic's sweeping. leave ends both.
func (l *Log) enterSweep(ctx context.Context, name string) (t *topic, leave func(), err error) {
	if t, err = l.enterTopic(ctx, name); err != nil {
		return nil, nil, err
	}
	if err := t.sweeping.Lock(ctx); err != nil {
		l.leave()
		return nil, nil, err
	}
	return t, func() { t.sweeping.Unlock(); l.leave() }, nil
}

// Close implements eventlog.Log. Closing again does nothing.
func (l *Log) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	l.space.stop()
	l.calls.Lock()
	defer l.calls.Unlock()
	l.reclaim.end()
	l.commits.stop()
	l.snapshots.Range(func(s, _ any) bool {
		s.(*snapshot).release()
		return true
	})
	err := errors.Join(l.closePebble(), l.journal.Close())
	if l.lock != nil {
		err = errors.Join(err, l.lock.Close())
	}
	return err
}

// closePebble closes the database. Of a failed database only the files on disk count, and they are
// frozen, so its errors mean nothing. If a panic has left it locked, closing would wait for ever.
func (l *Log) closePebble() (err error) {
	failed := l.health.err()
	if failed == nil {
		l.flush()
		return l.db.Close()
	}
	defer func() {
		if recover() != nil {
			err = failed
		}
	}()
	if !l.commits.wedged.Load() {
		_ = l.db.Close()
	}
	return failed
}

// flush writes the index's tables, so that the next start need not read the journal. On a full disk it gives up.
func (l *Log) flush() {
	if l.space.now().Short {
		return
	}
	flushed, err := l.db.AsyncFlush()
	if err != nil {
		return
	}
	select {
	case <-flushed:
	case <-time.After(flushAtClose):
	}
}

// flushAtClose is how long a close waits for the index's tables.
const flushAtClose = 2 * time.Second

// failed wraps the error of a failed read; nil stays nil.
func failed(err error) error {
	if err == nil {
		return nil
	}
	var damage *eventlog.DamageError
	if info := pebble.ExtractDataCorruptionInfo(err); info != nil && !errors.As(err, &damage) {
		err = &eventlog.DamageError{File: info.Path, What: fmt.Sprintf("a block of the index is not as it was written (%v)", info.Details)}
	}
	return fmt.Errorf("%w: %w", eventlog.ErrUnavailable, err)
}

// get returns a copy of one value.
func (l *Log) get(key []byte) (value []byte, found bool, err error) {
	v, closer, err := l.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, failed(err)
	}
	value = append([]byte(nil), v...)
	return value, true, failed(closer.Close())
}
