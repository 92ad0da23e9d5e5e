//go:build !linux

package launch

import "syscall"

// attributes has nothing: a terminal's Ctrl-C reaches the programs, too, and a process that is killed leaves them behind.
var attributes *syscall.SysProcAttr
