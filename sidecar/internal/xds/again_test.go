package xds_test

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
)

// Introduce sends the node again on the open stream, with other requests or without, and nothing is
// sent again for it.
func TestIntroduce(t *testing.T) {
	s := newServer(t)
	s.put(globs, map[string]string{"*": "1"})
	s.Start()
	h := newHolder(t, s, nil)
	stop := h.run(t)
	xdstest.Soon(t, "everything", func() bool { return h.text("*") == "1" })
	for n := 1; n <= 3; n++ {
		xdstest.Soon(t, "to be named", func() bool { return s.identified() == n })
		h.Introduce()
	}
	xdstest.Soon(t, "to be named", func() bool { return s.identified() == 4 })
	s.put(globs, map[string]string{"*": "2"})
	xdstest.Soon(t, "a change", func() bool { return h.text("*") == "2" })
	stop()
	if got := s.Sent(); len(got) != 2 {
		t.Errorf("the server sent %v", got)
	}
	if got := h.logged.String(); strings.Count(got, "connected") != 1 {
		t.Errorf("logged %s", got)
	}
}

// Another stream says again who is asking, and has nothing sent again.
func TestReopen(t *testing.T) {
	s := newServer(t)
	s.put(globs, map[string]string{"*": "1"})
	s.Start()
	h := newHolder(t, s, nil)
	stop := h.run(t)
	xdstest.Soon(t, "everything", func() bool { return h.text("*") == "1" })
	first := s.identified()
	h.Reopen("the node has changed")
	xdstest.Soon(t, "another stream", func() bool { return s.identified() > first && h.Connected() })
	stop()
	if got := s.Sent(); len(got) != 1 {
		t.Errorf("the server sent %v", got)
	}
	if !strings.Contains(h.logged.String(), "the node has changed") || strings.Contains(h.logged.String(), "no connection") {
		t.Errorf("logged %s", h.logged)
	}
}
