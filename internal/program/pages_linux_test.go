package program

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
)

// TestReleasePages: what a start has touched of the program's file is out of memory, and the program goes on.
func TestReleasePages(t *testing.T) {
	path, err := os.Executable()
	require.NoError(t, err)
	maps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	const populate = 22 // MADV_POPULATE_READ: all of a mapping is touched
	for _, m := range unchangedMappings(maps, path) {
		if _, _, errno := syscall.Syscall(syscall.SYS_MADVISE, m.from, m.to-m.from, populate); errno == syscall.EINVAL {
			t.Skip("Linux 5.14 is needed")
		}
	}
	before := ofFiles(t)
	releasePages()
	if after := ofFiles(t); after > before/2 {
		t.Errorf("%d kB of files are resident, %d before", after, before)
	}
}

// ofFiles is how many kilobytes of files this process has in memory.
func ofFiles(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	_, rest, _ := strings.Cut(string(status), "RssFile:")
	kB, err := strconv.Atoi(strings.Fields(rest)[0])
	require.NoError(t, err)
	return kB
}

// TestUnchangedMappings: only read-only mappings of that file are taken, and none with pages of their own.
func TestUnchangedMappings(t *testing.T) {
	const smaps = `00400000-0196c000 r-xp 00000000 fe:00 10010941                           /opt/a b
Rss:               18216 kB
Anonymous:             0 kB
0196c000-03251000 r--p 0156c000 fe:00 10010941                           /opt/a b
Anonymous:            12 kB
03251000-03300000 rw-p 02e51000 fe:00 10010941                           /opt/a b
Anonymous:             0 kB
7f0000000000-7f0000001000 r--p 00000000 fe:00 77                         /opt/b
Anonymous:             0 kB
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0
Anonymous:             0 kB
`
	want := []mapping{{0x400000, 0x196c000}}
	if got := unchangedMappings([]byte(smaps), "/opt/a b"); !slices.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}
