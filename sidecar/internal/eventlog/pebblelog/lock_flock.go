//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package pebblelog

import (
	"errors"
	"os"
	"syscall"
)

// tryLock locks the file, or reports that another process has it.
func tryLock(f *os.File) (taken bool, err error) {
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	return false, err
}
