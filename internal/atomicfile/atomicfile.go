// Package atomicfile replaces small files so that a kill or a power failure at any moment leaves
// the old content or the new.
package atomicfile

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/sluice-bus/sluice/internal/private"
)

// Write replaces the file at path, or makes it, and returns once the content is on the disk. Only
// one Write to a path may be under way.
func Write(path string, content []byte) error {
	next := path + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, private.File)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, path); err != nil {
		return err
	}
	return syncFolder(path)
}

// Remove removes the file at path, if there is one, and returns once that is on the disk.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	return syncFolder(path)
}

func syncFolder(path string) error {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
