//go:build unix

package listen

import (
	"math"
	"syscall"
)

// OpenFiles is how many files and connections this process may have open at a time.
func OpenFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
