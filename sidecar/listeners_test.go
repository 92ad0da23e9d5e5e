package sidecar

import "testing"

// Connections never take all open files: the store, and what is being refused, has the rest.
func TestConnectionsLeaveOpenFiles(t *testing.T) {
	for _, c := range []struct{ most, openFiles, app, replay, ops int }{
		{20000, 1 << 20, 20000, 20000, 20000},
		{20000, 1024, 512, 128, 64},
		{100, 1024, 100, 100, 64},
		{20000, 10, 5, 1, 1},
	} {
		for share, want := range map[int]int{appFiles: c.app, replayFiles: c.replay, opsFiles: c.ops} {
			if got := connections(c.most, c.openFiles, share); got != want {
				t.Errorf("%d sixteenths of %d files, at most %d: %d connections; want %d", share, c.openFiles, c.most, got, want)
			}
		}
	}
}
