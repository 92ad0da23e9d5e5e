package spool_test

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// TestEraseWhatWaits: events that are erased while they wait do not come into the
// log, also where the process is killed right after that.
func TestEraseWhatWaits(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "secret-1", "b-1", "secret-2", "a-2"), "spooled")
		f.want(f.publish("other", "secret-3"), "spooled")
		erase := func(want int) {
			t.Helper()
			n, err := f.Erase(t.Context(), "t", nil, func(r *eventlog.Record) bool { return strings.HasPrefix(r.ID, "secret") }, eventlog.Retention{})
			if n != want || err != nil {
				t.Errorf("Erase = %d, %v; want %d", n, err, want)
			}
		}
		erase(2)
		f.wantSpooled(4)
		f.crash()
		f.wantSpooled(4)
		erase(0)
		f.shared.set(up)
		f.drained()
		f.wantLogged("t", "a-1", "b-1", "a-2")
		f.wantLogged("other", "secret-3")
		f.crash()
		f.wantSpooled(0)
	})
}

// Without a spool there is nothing to erase, and a key's events go by it.
func TestEraseOfAKey(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		all := func(*eventlog.Record) bool { return true }
		key := "k"
		for _, want := range []int{0, 2, 0} {
			if n, err := f.Erase(t.Context(), "t", &key, all, eventlog.Retention{}); n != want || err != nil {
				t.Errorf("Erase = %d, %v; want %d", n, err, want)
			}
			if want > 0 {
				f.shared.set(up)
				f.drained()
				f.wantLogged("t", "x")
				return
			}
			f.shared.set(down)
			recs := []*eventlog.Record{record("k1"), record("x"), record("k2")}
			recs[0].Key, recs[1].Key, recs[2].Key = key, "", key
			f.want(f.publishAll("t", recs), "spooled")
		}
	})
}
