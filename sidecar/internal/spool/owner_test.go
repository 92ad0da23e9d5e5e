package spool_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/test/require"
)

// move has the next process meet another store, or the same one elsewhere.
func (f *fixture) move(shared *fakeLog, url string) {
	f.t.Helper()
	f.stop()
	f.shared, f.url = shared, url
	f.start()
}

// wantForeign checks that Run refuses the spool, which keeps its events.
func (f *fixture) wantForeign(events int, says ...string) {
	f.t.Helper()
	var foreign *spool.ForeignError
	if err := <-f.done; !errors.As(err, &foreign) || foreign.Events != events {
		f.t.Fatalf("Run: %v", err)
	}
	for _, s := range says {
		if !strings.Contains(foreign.Error(), s) {
			f.t.Errorf("%q does not say %q", foreign, s)
		}
	}
	f.wantSpooled(events)
	f.done <- nil // for stop
}

func otherLog() *fakeLog {
	other := newFakeLog()
	other.id = "two"
	return other
}

func TestSpoolOfAnotherStore(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		one, two := f.shared, otherLog()
		f.url = "mongodb://one"
		f.want(f.publish("t", "a-0"), "ok")
		f.move(one, "mongodb://one") // with its URL
		synctest.Wait()
		one.set(down)
		f.want(f.publish("t", "a-1", "b-1"), "spooled")
		f.move(two, "mongodb://two")
		f.wantForeign(2, "mongodb://one", "mongodb://two", "id one", "id two", "spool", "move the folder")
		f.want(f.publish("t", "a-2"), "away") // on its way out
		f.move(two, "mongodb://one")          // the database was replaced
		f.wantForeign(2)
		f.want(f.publish("t", "a-2"), "away")
		if two.appends() > 0 {
			t.Error("something was drained into the other store")
		}
		one.set(up)
		f.move(one, "mongodb://one,elsewhere")
		f.drained()
		f.wantLogged("t", "a-0", "a-1", "b-1")

		f.move(two, "mongodb://two") // now that it is empty
		synctest.Wait()
		two.set(down)
		f.want(f.publish("t", "a-2"), "spooled")
		f.move(one, "mongodb://one")
		f.wantForeign(1, "id one", "id two")
	})
}

// TestOtherURLWhileTheStoreIsAway: a spool with events takes no more of them until the store is
// known to be the same one.
func TestOtherURLWhileTheStoreIsAway(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		one, two := f.shared, otherLog()
		f.move(one, "mongodb://one")
		synctest.Wait()
		one.set(down)
		f.want(f.publish("t", "a-1"), "spooled")
		f.move(one, "mongodb://one")
		f.want(f.publish("t", "a-2"), "spooled") // a restart in an outage

		one.set(hanging)
		f.move(one, "mongodb://elsewhere")
		f.want(f.publish("t", "a-3"), "away")
		f.want(f.publish("new", "a-1"), "away")
		if f.logged.Count("nothing more is spooled") != 1 || !f.Stats().Shut {
			t.Error("nobody is told")
		}
		one.set(up)
		f.drained()
		f.wantLogged("t", "a-1", "a-2")
		one.set(down)
		f.want(f.publish("t", "a-3"), "spooled")
		if f.Stats().Shut {
			t.Error("shut, though the store is known")
		}

		two.set(down)
		f.move(two, "mongodb://two")
		f.want(f.publish("t", "b-1"), "away")
		two.set(up)
		time.Sleep(5 * time.Second)
		f.wantForeign(1)
		if two.appends() > 0 {
			t.Error("something was drained into the other store")
		}
	})
}

// TestSpoolWithoutAStore: a spool that knows no store, since it was filled under a wrong URL, takes the first one
// that it reaches.
func TestSpoolWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, standard)
		nowhere := newFakeLog()
		nowhere.set(down)
		one := f.shared
		f.shared, f.url = nowhere, "mongodb://oen"
		f.start()
		f.want(f.publish("t", "a-1"), "spooled")
		f.move(one, "mongodb://one")
		f.drained()
		f.wantLogged("t", "a-1")
		f.stop()
	})
}

// TestDamagedOwner: a sidecar does not guess which store a spool belongs to.
func TestDamagedOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, standard)
		f.start()
		synctest.Wait()
		require.NoError(t, f.store.SetText("store", []byte("{")))
		f.stop()
		var err error
		if f.store, err = pebblelog.Open(pebblelog.Options{Dir: "spool", FS: f.disk, Logger: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		defer f.store.Close()
		if _, err := spool.Open(t.Context(), spool.Config{Store: f.store, Policies: f.policies}); err == nil ||
			!strings.Contains(err.Error(), "owner is damaged") {
			t.Errorf("Open: %v", err)
		}
	})
}
