//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package testkit

import (
	"errors"
	"os"
	"syscall"
)

// lockFile waits until no other process holds the file's lock, and takes it.
func lockFile(name string) (unlock func() error, err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err == nil {
			return f.Close, nil
		}
		if !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, &os.PathError{Op: "lock", Path: name, Err: err}
		}
	}
}
