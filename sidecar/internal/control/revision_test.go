package control

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/xds/xdstest"
)

// Policies in force never go back to a lower revision, in this life and in the next one, until a
// new series begins.
func TestPoliciesNeverGoBack(t *testing.T) {
	p := newPlane(t)
	p.put(map[string]int64{"*": 9, "t": 9})
	p.Version("0/9")
	p.Start()
	dir := t.TempDir()
	s := start(t, p, in(dir))
	s.sync(t)
	s.stop()
	p.Stop()
	for life := range 2 { // the second begins with what the first has refused
		p.put(map[string]int64{"*": 5, "t": 5, "new": 5})
		p.Version("0/5")
		p.Forget()
		p.Start()
		s = start(t, p, in(dir))
		xdstest.Soon(t, "refusals", func() bool { return len(p.Requests(xdstest.Refused)) >= 1 })
		for _, r := range p.Requests(xdstest.Refused) {
			if reason := r.GetErrorDetail().GetMessage(); !strings.Contains(reason, "of revision 0/5, below 0/9") {
				t.Errorf("told %q", reason)
			}
		}
		if s.version("t") != 9 || s.version("x") != 9 || s.Confirmed() {
			t.Errorf("life %d, in force: %+v", life, s.Policies().Load().List())
		}
		if life == 0 {
			s.stop()
			p.Stop()
			if !strings.Contains(s.logged.String(), "below 0/9") {
				t.Errorf("logged %s", s.logged)
			}
		}
	}
	// The control plane reads on, and what the sidecar has refused is as it was: it is asked for
	// again.
	p.Version("0/9")
	xdstest.Soon(t, "what was refused", func() bool {
		return s.version("t") == 5 && s.version("x") == 5 && s.version("new") == 5 && s.Confirmed()
	})
	p.Version("7/1")
	p.put(map[string]int64{"t": 3})
	xdstest.Soon(t, "a new series", func() bool { return s.version("t") == 3 })
	p.Version("0/10")
	p.Forget()
	p.put(map[string]int64{"t": 4})
	xdstest.Soon(t, "a refusal", func() bool { return len(p.Requests(xdstest.Refused)) >= 1 })
	s.stop()
	if kept, err := readCache(filepath.Join(dir, fileName)); err != nil ||
		kept.revision != (policypb.Revision{Series: 7, Number: 1}) || kept.version("t") != 3 {
		t.Errorf("kept %+v, %v", kept, err)
	}
}
