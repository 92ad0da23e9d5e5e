// Package boltstore is the policy store of a single control plane: one file in its data folder.
//
// The file is a bbolt database. Bucket "meta" has the key "format" with the number of the format in
// decimal digits. Bucket "commits" has a key for each commit, its revision as 8 bytes, big-endian,
// so that the order of keys is that of revisions; the value is the commit as JSON. A commit is one
// transaction, which bbolt syncs before it acknowledges it: a kill leaves all of it or nothing.
// Bucket "sidecars" has the roster: a JSON object for each key. Bucket "secrets" has the secrets. Bucket "usage" has a JSON
// object for each day and control plane. pages.go, sum.go and acked.go say how damage is noticed.
package boltstore

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"go.etcd.io/bbolt"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
)

// Store is a [store.Backend].
type Store struct {
	db    *bbolt.DB
	acked *acked
	// open ends with Close.
	open  context.Context
	close context.CancelFunc

	mu sync.Mutex
	// failed is why the last write could not be made; nil: it could.
	failed error
	// last is the highest revision; grown is closed when it rises.
	last  int64
	grown chan struct{}
}

var errClosed = fmt.Errorf("%w: it is closed", store.ErrUnavailable)

// After implements store.Store.
func (s *Store) After(ctx context.Context, revision int64) ([]store.Commit, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	var commits []store.Commit
	err := s.db.View(func(tx *bbolt.Tx) error {
		size := 0
		c := tx.Bucket(commitsBucket).Cursor()
		for k, v := c.Seek(key(revision + 1)); k != nil && size < store.PageBytes; k, v = c.Next() {
			commit, err := read(v)
			if err != nil {
				return fmt.Errorf("commit %d: %w", binary.BigEndian.Uint64(k), err)
			}
			commits = append(commits, commit)
			size += len(v)
		}
		return nil
	})
	return commits, wrap("read the policy store", err)
}

// At implements store.Store.
func (s *Store) At(ctx context.Context, revision int64) (c store.Commit, err error) {
	if err := ctx.Err(); err != nil {
		return c, err
	}
	err = s.db.View(func(tx *bbolt.Tx) error {
		text := tx.Bucket(commitsBucket).Get(key(revision))
		if text == nil {
			return store.ErrNone
		}
		c, err = read(text)
		return err
	})
	return c, wrap(fmt.Sprintf("read commit %d of the policy store", revision), err)
}

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, c store.Commit) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("commit %d: %w", c.Revision, err)
	}
	if len(text) > store.MaxCommitBytes {
		return store.ErrTooLarge
	}
	err = s.write(s.db.Update, func(tx *bbolt.Tx) error {
		commits := tx.Bucket(commitsBucket)
		last := lastOf(commits)
		switch {
		case c.Revision == last+1:
			return put(tx, commitsBucket, key(c.Revision), text)
		case c.Revision < 1 || c.Revision > last:
			return fmt.Errorf("commit %d cannot follow %d", c.Revision, last)
		}
		there, err := read(commits.Get(key(c.Revision)))
		if err != nil {
			return fmt.Errorf("commit %d: %w", c.Revision, err)
		}
		if there.Token != c.Token || c.Token == "" {
			return store.ErrConflict
		}
		return nil
	})
	if err != nil {
		return wrap("write to the policy store", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Revision > s.last {
		s.last = c.Revision
		close(s.grown)
		s.grown = make(chan struct{})
	}
	return nil
}

// write makes a transaction, by bbolt's Update or Batch, and notes that it is acknowledged.
func (s *Store) write(by func(func(tx *bbolt.Tx) error) error, change func(tx *bbolt.Tx) error) error {
	var number int
	err := by(func(tx *bbolt.Tx) error {
		number = tx.ID()
		return errors.Join(change(tx), seal(tx))
	})
	if err == nil {
		s.acked.note(number)
	}
	if err == nil || isFault(err) {
		s.mu.Lock()
		s.failed = err
		s.mu.Unlock()
	}
	return err
}

// Forget implements store.Store.
func (s *Store) Forget(ctx context.Context, changes map[int64][]string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := s.write(s.db.Update, func(tx *bbolt.Tx) error {
		commits := tx.Bucket(commitsBucket)
		for revision, names := range changes {
			c, err := read(commits.Get(key(revision)))
			if err != nil {
				return fmt.Errorf("commit %d: %w", revision, err)
			}
			c.Forget(names)
			text, err := json.Marshal(c)
			if err != nil {
				return fmt.Errorf("commit %d: %w", revision, err)
			}
			if err := put(tx, commitsBucket, key(revision), text); err != nil {
				return err
			}
		}
		return nil
	})
	return wrap("write to the policy store", err)
}

// Await implements store.Store.
func (s *Store) Await(ctx context.Context, revision int64) error {
	for {
		s.mu.Lock()
		last, grown := s.last, s.grown
		s.mu.Unlock()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case s.open.Err() != nil:
			return errClosed
		case last > revision:
			return nil
		}
		select {
		case <-grown:
		case <-s.open.Done():
		case <-ctx.Done():
		}
	}
}

// Ping reports whether the store can be used. Once a write has failed, as on a full disk, it cannot be until a file can be
// written beside it.
func (s *Store) Ping(context.Context) error {
	if s.open.Err() != nil {
		return errClosed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed != nil {
		s.failed = tryWriting(filepath.Dir(s.db.Path()))
	}
	return wrap("write to the policy store", s.failed)
}

// roomBytes is how much room the disk needs for the store to be used again after it was full.
const roomBytes = 1 << 20

// tryWriting writes a file, and removes it.
func tryWriting(dir string) error {
	f, err := os.CreateTemp(dir, newPattern)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, roomBytes))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

// Close implements store.Store. It waits for reads and writes under way.
func (s *Store) Close() error {
	s.close()
	return s.db.Close()
}

func key(revision int64) []byte {
	return bigEndian(uint64(revision))
}

func bigEndian(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// lastOf returns the highest revision; 0: there is none.
func lastOf(commits *bbolt.Bucket) int64 {
	k, _ := commits.Cursor().Last()
	if k == nil {
		return 0
	}
	return int64(binary.BigEndian.Uint64(k))
}

func read(text []byte) (c store.Commit, err error) {
	err = json.Unmarshal(text, &c)
	return c, err
}

// wrap adds the operation to an error that is not nil. An error of the file system means that the
// store is unavailable.
func wrap(op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, store.ErrConflict):
		return store.ErrConflict
	case isFault(err):
		return fmt.Errorf("%s: %w: %w", op, store.ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", op, err)
}
