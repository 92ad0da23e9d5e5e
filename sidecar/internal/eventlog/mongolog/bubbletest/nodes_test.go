package bubbletest

import (
	"testing"
	"testing/synctest"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

// A beat, a look and an entry are one command each, in any state of the store.
func TestCommandsOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Polling: true})
		t.Cleanup(set.Close)
		l, commands := countedOn(t, set, nodes)
		one := func(what string, err error) {
			t.Helper()
			if n := commands.Swap(0); err != nil || n != 1 {
				t.Errorf("%s: %d commands, %v", what, n, err)
			}
		}
		commands.Store(0)
		ids := []string{"run-1", "run-2", "run-3", "run-4", "run-5"}
		for _, id := range ids {
			one("the first beat", l.SaveNode(t.Context(), eventlog.Node{ID: id, Beat: 1, Version: 1}))
			one("a beat", l.SaveNode(t.Context(), eventlog.Node{ID: id, Beat: 2, Version: 1}))
			one("an entry", l.Enter(t.Context(), eventlog.NodeChange{ID: id, Version: 1}))
		}
		for _, known := range []uint64{0, 5} {
			found, roll, err := l.Look(t.Context(), ids, known)
			one("a look", err)
			if len(found) != 5 || roll.Number != 5 || len(roll.Changes) != 5-int(known) {
				t.Errorf("%d nodes, %+v", len(found), roll)
			}
		}
	})
}
