//go:build unix

package node

import (
	"errors"
	"syscall"
)

// Pause stops processes until Resume.
func Pause(pids ...int) error { return signal(syscall.SIGSTOP, pids) }

// Resume lets processes go on.
func Resume(pids ...int) error { return signal(syscall.SIGCONT, pids) }

func signal(s syscall.Signal, pids []int) (err error) {
	for _, pid := range pids {
		err = errors.Join(err, syscall.Kill(pid, s))
	}
	return err
}
