// Package private keeps what the programs store from the other users of the
// machine: folders are their owner's alone, and so are files. It knows nothing
// of what is in them.
package private

import (
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
)

// Permissions of what the programs make.
const (
	Folder fs.FileMode = 0o700
	File   fs.FileMode = 0o600
)

// others are the permissions of those who are not the owner.
const others fs.FileMode = 0o077

// Tighten takes the rights of others to the files and folders at paths, and to
// all below, away; an older version, or an operator, may have given them. What
// it changed, or could not, is told: others may own a folder that was mounted.
func Tighten(log *slog.Logger, paths ...string) {
	if runtime.GOOS == "windows" {
		return // its rights are not the mode's
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
