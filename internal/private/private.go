// Package private protects stored data from other users of the machine: files and folders are
// accessible only to their owner. It must not know their content.
package private

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
)

// Permissions of created files and folders.
const (
	Folder fs.FileMode = 0o700
	File   fs.FileMode = 0o600
)

// others are the permissions of other users.
const others fs.FileMode = 0o077

// Tighten removes other users' permissions of the files and folders at paths, and of everything
// below: an operator may have given them. It logs its changes and failures:
// another user may own a mounted folder.
func Tighten(log *slog.Logger, paths ...string) {
	if runtime.GOOS == "windows" {
		return // the mode does not tell its rights
	}
	for _, path := range paths {
		changed, err := tighten(path)
		switch {
		case err != nil:
			log.Warn("other users of this machine can read this path: its mode cannot be changed", "path", path, "error", err)
		case changed > 0:
			log.Info("removed other users' access to stored data", "path", path, "changed", changed)
		}
	}
}

// tighten goes on after an error, and returns the first.
func tighten(root string) (changed int, first error) {
	if root, first = filepath.EvalSymlinks(root); first != nil {
		return 0, first
	}
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error { // the function returns none
		if err == nil && entry.Type()&fs.ModeSymlink == 0 {
			var info fs.FileInfo
			if info, err = entry.Info(); err == nil && info.Mode()&others != 0 {
				if err = os.Chmod(path, info.Mode()&^others); err == nil {
					changed++
				}
			}
		}
		if first == nil {
			first = err
		}
		return nil
	})
	return changed, first
}
