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
	formatKey     = []byte("format")
)

// Open opens the store in a folder, and creates both if they are missing. It fails soon while
// another process has the store open.
func Open(dir string) (*Store, error) {
	path := filepath.Join(dir, FileName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		if err := create(dir, path); err != nil {
			return nil, fmt.Errorf("create the policy store: %w", err)
		}
	}
	db, err := openFile(path)
	if err != nil {
		return nil, err
	}
	s := &Store{db: db, grown: make(chan struct{})}
	s.open, s.close = context.WithCancel(context.Background())
	if s.last, err = inspect(db); err != nil {
		return nil, errors.Join(fmt.Errorf("policy store %s: %w", path, err), db.Close())
	}
	return s, nil
}

// Private are the paths that only the store uses: its file, or the folder if it contains nothing
// else.
func (s *Store) Private() []string {
	path := s.db.Path()
	dir := filepath.Dir(path)
	if entries, err := os.ReadDir(dir); err == nil && len(entries) == 1 {
		return []string{dir}
	}
	return []string{path}
}

func openFile(path string) (*bbolt.DB, error) {
	db, err := bbolt.Open(path, private.File, &bbolt.Options{Timeout: lockTimeout})
	switch {
	case errors.Is(err, bolterrors.ErrTimeout):
		return nil, fmt.Errorf("policy store %s: another process has it open; two control planes share policies through MongoDB (--store)", path)
	case err != nil:
		return nil, fmt.Errorf("policy store %s: %w", path, err)
	}
	return db, nil
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
	db, err := openFile(f.Name())
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
	for _, name := range [][]byte{metaBucket, commitsBucket, rosterBucket, secretsBucket} {
		if _, err := tx.CreateBucket(name); err != nil {
			return err
		}
	}
	return tx.Bucket(metaBucket).Put(formatKey, strconv.AppendInt(nil, store.Format, 10))
}

// inspect refuses a file of another program or format, and returns the highest revision.
func inspect(db *bbolt.DB) (last int64, err error) {
	err = db.View(func(tx *bbolt.Tx) error {
		meta := tx.Bucket(metaBucket)
		if meta == nil {
			return errors.New("it is a bbolt file of another program")
		}
		n, err := strconv.Atoi(string(meta.Get(formatKey)))
		if err != nil {
			return fmt.Errorf("its format is %q, which is no number", meta.Get(formatKey))
		}
		if err := store.CheckFormat(n); err != nil {
			return err
		}
		for _, name := range [][]byte{commitsBucket, rosterBucket, secretsBucket} {
			if tx.Bucket(name) == nil {
				return fmt.Errorf("the bucket of %s is missing", name)
			}
		}
		last = lastOf(tx.Bucket(commitsBucket))
		return nil
	})
	return last, err
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
