package boltstore

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/internal/private"
)

const (
	// FileName is the store's file in the data folder.
	FileName = "policies.db"
	// lockTimeout bounds the wait for another process to release the file.
	lockTimeout = time.Second
	// newPattern is the name of a file that is being created.
	newPattern = FileName + ".new-*"
)

var (
	metaBucket    = []byte("meta")
	commitsBucket = []byte("commits")
	rosterBucket  = []byte("sidecars")
	secretsBucket = []byte("secrets")
	usageBucket   = []byte("usage")
	formatKey     = []byte("format")

	// buckets are those that the sum is of.
	buckets = [][]byte{commitsBucket, rosterBucket, secretsBucket, usageBucket}
)

// Open opens the store in a folder, and creates both if they are missing. It fails soon while
// another process has the store open.
func Open(dir string) (*Store, error) {
	path := filepath.Join(dir, FileName)
	s := &Store{acked: openAcked(dir), grown: make(chan struct{})}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if s.acked.last > 0 {
			return nil, fmt.Errorf("policy store %s is missing, and changes were acknowledged: restore it from a backup, "+
				"or remove %s to begin without policies", path, s.acked.path)
		}
		if err := create(dir, path); err != nil {
			return nil, fmt.Errorf("create the policy store: %w", err)
		}
	}
	var err error
	if s.last, err = s.examine(path); err != nil {
		return nil, fmt.Errorf("policy store %s: %w", path, err)
	}
	if s.db, err = openFile(path, false); err != nil {
		return nil, fmt.Errorf("policy store %s: %w", path, err)
	}
	s.open, s.close = context.WithCancel(context.Background())
	return s, nil
}

// examine reads the whole file before it is written to, and returns the highest revision.
func (s *Store) examine(path string) (last int64, err error) {
	db, err := openFile(path, true)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	err = db.View(func(tx *bbolt.Tx) error {
		if info.Size() < tx.Size() {
			return fmt.Errorf("it has %d bytes of %d; restore it from a backup", info.Size(), tx.Size())
		}
		if err := checkPages(file, tx); err != nil {
			return fmt.Errorf("%w; restore it from a backup", err)
		}
		if err := inspect(tx); err != nil {
			return err
		}
		if tx.ID() < s.acked.last {
			return fmt.Errorf("it is at transaction %d, and %d was acknowledged: it is damaged or an older copy; restore a newer one, "+
				"or remove %s to go on with what it has", tx.ID(), s.acked.last, s.acked.path)
		}
		if err := verify(tx); err != nil {
			return fmt.Errorf("%w; restore it from a backup", err)
		}
		s.acked.note(tx.ID())
		last = lastOf(tx.Bucket(commitsBucket))
		return nil
	})
	return last, err
}

// Private are the paths that only the store uses: its files, or the folder if it contains nothing
// else.
func (s *Store) Private() []string {
	own := []string{s.db.Path(), s.acked.path}
	dir := filepath.Dir(own[0])
	if entries, err := os.ReadDir(dir); err == nil && len(entries) == len(own) {
		return []string{dir}
	}
	return own
}

// openFile opens a file. Its list of free pages is made anew from those that are used: one that is
// damaged would let used ones be written to.
func openFile(path string, readOnly bool) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, private.File, &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true, ReadOnly: readOnly})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return nil, errors.New("another process has it open; two control planes share policies through MongoDB (--store)")
	}
	return db, err
}

// create makes an empty store under another name and renames it when it is complete, so that a kill
// in between leaves no file that looks like a store.
func create(dir, path string) error {
	if err := os.MkdirAll(dir, private.Folder); err != nil {
		return err
	}
	unfinished, err := filepath.Glob(filepath.Join(dir, newPattern))
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, newPattern)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // where that fails, the next start does it
	if err := f.Close(); err != nil {
		return err
	}
	db, err := openFile(f.Name(), false)
	if err != nil {
		return err
	}
	if err := errors.Join(db.Update(initialize), db.Close()); err != nil {
		return err
	}
	switch err := os.Link(f.Name(), path); { // unlike a rename it replaces nothing
	case errors.Is(err, fs.ErrExist):
		return nil // another process has just made it
	case err != nil: // a file system without links
		if err := os.Rename(f.Name(), path); err != nil {
			return err
		}
	}
	for _, name := range unfinished {
		_ = os.Remove(name) // it is only in the way
	}
	return syncDir(dir)
}

func initialize(tx *bbolt.Tx) error {
	for _, name := range append(buckets, metaBucket) {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	meta := tx.Bucket(metaBucket)
	return errors.Join(meta.Put(formatKey, strconv.AppendInt(nil, store.Format, 10)), meta.Put(sumKey, bigEndian(0)), seal(tx))
}

// inspect refuses a file of another program or format.
func inspect(tx *bbolt.Tx) error {
	meta := tx.Bucket(metaBucket)
	if meta == nil {
		return errors.New("it is a bbolt file of another program")
	}
	n, err := strconv.Atoi(string(meta.Get(formatKey)))
	if err != nil {
		return fmt.Errorf("its format is %q, which is no number", meta.Get(formatKey))
	}
	return store.CheckFormat(n)
}

// syncDir makes the name of a new file survive a power cut.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// isFault reports whether an error is one of the file system, or of a closed store.
func isFault(err error) bool {
	var number syscall.Errno
	return errors.As(err, &number) || errors.Is(err, bolterrors.ErrDatabaseNotOpen) || errors.Is(err, bolterrors.ErrMaxSizeReached)
}
