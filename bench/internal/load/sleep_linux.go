package load

import (
	"syscall"
	"time"
)

// preciseSleep sleeps in the kernel: the runtime's timers round to a millisecond where nothing else
// runs, which is more than what is measured.
func preciseSleep(d time.Duration) {
	left := syscall.NsecToTimespec(int64(d))
	_ = syscall.Nanosleep(&left, nil) // the caller looks at the clock again
}
