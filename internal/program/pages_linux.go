package program

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// releasePages gives back the pages of the program's own file that are in memory. The kernel maps 16 pages around each
// one that is touched, so that a start alone leaves most of the file resident. What is used from now on comes back from
// the page cache. Mappings with changed pages stay as they are: those of relocations, and of a debugger's breakpoints.
func releasePages() {
	path, err := os.Executable()
	if err != nil {
		return
	}
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return
	}
	for _, m := range unchangedMappings(maps, path) {
		_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, syscall.MADV_DONTNEED) // a refusal leaves them where they are
	}
}

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// unchangedMappings returns the mappings of a file that nobody can write to, and nobody has written to, from the text of
// smaps (see proc_pid_smaps(5)).
func unchangedMappings(smaps []byte, path string) (found []mapping) {
	var m mapping
	ofFile := false
	for lines := bufio.NewScanner(bytes.NewReader(smaps)); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if from, to, ok := strings.Cut(fields[0], "-"); ok {
			m = mapping{address(from), address(to)}
			ofFile = len(fields) > 5 && strings.Join(fields[5:], " ") == path && fields[1][1] == '-'
		} else if ofFile && fields[0] == "Anonymous:" && fields[1] == "0" {
			found = append(found, m)
		}
	}
	return found
}

func address(hex string) uintptr {
	n, err := strconv.ParseUint(hex, 16, strconv.IntSize)
	if err != nil {
		return 0
	}
	return uintptr(n)
}
