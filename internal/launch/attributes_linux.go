package launch

import "syscall"

// attributes keep a terminal's Ctrl-C from a program, so that whoever started it ends it in order, and end it where that process
// is gone without having done so.
var attributes = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
