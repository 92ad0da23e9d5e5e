package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// File keeps snapshots as files, NAME.NUMBER.snapshot, of which the highest number is the last.
// Each is written beside, synced and renamed, so a kill at any time leaves the ones before as they
// were.
type File struct {
	Dir    string // is made where it is not there
	Name   string // of the consumer
	Keep   int    // how many snapshots stay; 0: 3
	Logger *slog.Logger
}

const (
	defaultKeep = 3
	suffix      = ".snapshot"
)

// Save implements [Store].
func (f *File) Save(_ context.Context, s Snapshot) error {
	numbers, err := f.numbers()
	if err != nil {
		return err
	}
	b, err := Encode(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return err
	}
	next := uint64(1)
	if len(numbers) > 0 {
		next = numbers[0] + 1
	}
	beside := filepath.Join(f.Dir, f.Name+".tmp")
	if err := writeSynced(beside, b); err != nil {
		return err
	}
	if err := os.Rename(beside, f.path(next)); err != nil {
		return err
	}
	if err := syncDir(f.Dir); err != nil {
		return err
	}
	keep := cmp.Or(max(f.Keep, 0), defaultKeep)
	for _, n := range numbers[min(keep-1, len(numbers)):] {
		if err := os.Remove(f.path(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Load implements [Store].
func (f *File) Load(context.Context) (Snapshot, error) {
	numbers, err := f.numbers()
	if err != nil {
		return Snapshot{}, err
	}
	var bad error
	for _, n := range numbers {
		b, err := os.ReadFile(f.path(n))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile, and there is a later one
		}
		if err != nil {
			return Snapshot{}, err
		}
		s, err := Decode(b)
		if err == nil {
			return s, nil
		}
		bad = errors.Join(bad, fmt.Errorf("%s: %w", f.path(n), err))
		cmp.Or(f.Logger, slog.Default()).Error("a snapshot is passed over for the one before", "file", f.path(n), "error", err)
	}
	if bad != nil {
		return Snapshot{}, fmt.Errorf("no snapshot is good; move the files away to start without one: %w", bad)
	}
	return Snapshot{}, fmt.Errorf("%w in %s", ErrNone, f.path(0))
}

func (f *File) path(n uint64) string {
	return filepath.Join(f.Dir, fmt.Sprintf("%s.%020d%s", f.Name, n, suffix))
}

// numbers are the numbers of the stored snapshots, the last first.
func (f *File) numbers() (numbers []uint64, err error) {
	if f.Name == "" || f.Name != filepath.Base(f.Name) || strings.HasPrefix(f.Name, ".") {
		return nil, fmt.Errorf("snapshot: File.Name is %q; the name of a file that is not hidden is allowed", f.Name)
	}
	entries, err := os.ReadDir(f.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		text, ok := strings.CutPrefix(entry.Name(), f.Name+".")
		if !ok {
			continue
		}
		if text, ok = strings.CutSuffix(text, suffix); !ok {
			continue
		}
		if n, err := strconv.ParseUint(text, 10, 64); err == nil && len(text) == 20 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	slices.Reverse(numbers)
	return numbers, nil
}

func writeSynced(name string, b []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(b)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}

// syncDir makes the names in a folder durable. Where that cannot be asked for, as on Windows, the
// rename is as durable as it is.
func syncDir(name string) error {
	dir, err := os.Open(name)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrInvalid) {
		err = nil
	}
	return errors.Join(err, dir.Close())
}
