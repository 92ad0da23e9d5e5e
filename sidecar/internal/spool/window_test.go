package spool

import (
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// TestWindow: a drain begins with small pages. It comes to whole pages at once for a quick store,
// to very small ones for a store that is too slow, and to larger ones by steps for a store that is
// far away.
func TestWindow(t *testing.T) {
	whole := eventlog.Bounds{Events: 1000, Bytes: 4 << 20}
	var w window
	after := func(pages int, took time.Duration, full bool) (parallel int, page eventlog.Bounds) {
		for range pages {
			w.adjust(took, full, whole)
		}
		return w.split(8, whole)
	}
	w.restart()
	for _, c := range []struct {
		pages    int
		took     time.Duration
		full     bool
		parallel int
		events   int
	}{
		{0, 0, false, 1, 16},
		{9, quickPage - 1, false, 1, 16}, // small pages say nothing
		{1, quickPage - 1, true, 2, 16},
		{4, slowPage, true, 4, 19},
		{20, quickPage - 1, true, 4, 1000},
		{1, slowPage + 1, false, 4, 500},
		{30, 5 * time.Second, false, 1, 4},
		{1, slowPage, true, 1, 5},
	} {
		parallel, page := after(c.pages, c.took, c.full)
		if parallel != c.parallel || page.Events != c.events || page.Bytes != 4<<20*page.Events/1000 {
			t.Errorf("after %d pages of %v: %d topics at once, pages of %+v; want %d, %d events", c.pages, c.took, parallel, page, c.parallel,
				c.events)
		}
	}
	if w.restart(); w.events != 5 {
		t.Errorf("%d events at once of a store that was too slow before", w.events)
	}
	after(3, quickPage-1, true)
	if w.restart(); w.events != firstWindow {
		t.Errorf("%d events at once of a store that was quick before", w.events)
	}
	if parallel, page := w.split(1, eventlog.Bounds{Events: 1, Bytes: 0}); parallel != 1 || page.Events != 1 || page.Bytes < 1 {
		t.Errorf("the smallest page: %d, %+v", parallel, page)
	}
}
