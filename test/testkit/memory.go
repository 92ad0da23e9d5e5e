package testkit

import (
	"fmt"
	"os"
	"strings"
)

// Memory is the resident memory of the process, in bytes: now, and the most so far or since
// ResetPeak. It fails where the system does not tell.
func (p *Process) Memory() (now, most int, err error) {
	text, err := os.ReadFile(p.proc("status"))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(text)) {
		var kib int
		if _, err := fmt.Sscanf(line, "VmRSS: %d kB", &kib); err == nil {
			now = kib << 10
		}
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			most = kib << 10
		}
	}
	if now == 0 || most == 0 {
		return 0, 0, fmt.Errorf("no VmRSS or no VmHWM in %s", text)
	}
	return now, most, nil
}

// ResetPeak makes the system forget the most memory that the process has had.
func (p *Process) ResetPeak() error { return os.WriteFile(p.proc("clear_refs"), []byte("5"), 0) }

func (p *Process) proc(file string) string { return fmt.Sprintf("/proc/%d/%s", p.PID(), file) }
