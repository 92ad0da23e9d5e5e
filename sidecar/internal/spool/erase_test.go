package spool_test

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// TestEraseWhatWaits: events that are erased while they wait do not come into the log, even if the
// process is killed right after that.
func TestEraseWhatWaits(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "secret-1", "b-1", "secret-2", "a-2"), "spooled")
		f.want(f.publish("other", "secret-3"), "spooled")
		erase := func(want int) {
			t.Helper()
			n, err := f.Erase(t.Context(), "t", nil, func(r *eventlog.Record) bool { return strings.HasPrefix(r.ID, "secret") },
				eventlog.Retention{})
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

// Without spooled events there is nothing to erase. An erasure of a key goes by the events' keys.
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

// accepted is a record that was accepted then.
func accepted(id string, at int64) *eventlog.Record {
	rec := record(id)
	rec.AcceptedAt = at
	return rec
}

// TestErasedElsewhere: events that another sidecar erased while they waited here do not come into
// the log. Later events of the same key do.
func TestErasedElsewhere(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		dead := accepted("other-1", 100)
		dead.Headers = wire.Headers{}.With(wire.HeaderDeadTopic, "t").With(wire.HeaderDeadID, "dead")
		f.want(f.publishAll("t", []*eventlog.Record{
			accepted("person-1", 100), accepted("a-1", 100), accepted("person-2", 200), accepted("person-3", 201), accepted("b-1", 100), dead,
		}), "spooled")
		f.want(f.publishAll("u", []*eventlog.Record{accepted("person-1", 100)}), "spooled")
		f.shared.mark(eventlog.Erasure{Topic: "t", By: eventlog.ErasedByKey, Value: "person"}, 200)
		f.shared.mark(eventlog.Erasure{Topic: "t", By: eventlog.ErasedByID, Value: "b-1"}, 200)
		f.shared.mark(eventlog.Erasure{Topic: "t", By: eventlog.ErasedByDeadID, Value: "t/dead"}, 200)
		f.shared.set(up)
		f.drained()
		f.wantLogged("t", "a-1", "person-3")
		f.wantLogged("u", "person-1")
		if len(f.deadLetters) > 0 || len(f.shared.erased) > 0 {
			t.Errorf("dead letters %v, and taken out of the log again %q", f.deadLetters, f.shared.erased)
		}
	})
}

// TestErasedOnItsWay: an erasure comes while a page is appended, or after an append that got no
// answer. The spool takes the erased events out of the log again. An event that another sidecar
// published under the same id since then stays.
func TestErasedOnItsWay(t *testing.T) {
	secret := eventlog.Erasure{Topic: "t", By: eventlog.ErasedByKey, Value: "secret"}
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "secret-1", "secret-2"), "spooled")
		f.shared.during = func() { f.shared.mark(secret, 1000) }
		f.shared.set(up)
		f.drained()
		f.wantLogged("t", "a-1")
	})
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(losing)
		f.want(f.publish("t", "secret-1", "secret-2"), "spooled")
		f.want(f.publish("t", "a-1"), "spooled")
		f.shared.mark(secret, 1000)
		f.shared.topics["t"].ids["secret-2"].AcceptedAt = 2000
		f.shared.set(up)
		f.drained()
		f.wantLogged("t", "a-1", "secret-2")
	})
}

// TestErasedIsNoDeadLetter: an event that the log would not take does not become a dead letter once
// it is erased.
func TestErasedIsNoDeadLetter(t *testing.T) {
	for _, during := range []bool{false, true} {
		within(t, standard, func(t *testing.T, f *fixture) {
			f.want(f.publish("t", "a-1"), "ok")
			f.shared.set(down)
			conflict := record("a-1")
			conflict.Payload = []byte(`"another"`)
			f.want(f.publishAll("t", []*eventlog.Record{conflict}), "spooled")
			mark := func() { f.shared.mark(eventlog.Erasure{Topic: "t", By: eventlog.ErasedByID, Value: "a-1"}, 1000) }
			if during {
				f.shared.during = mark
			} else {
				mark()
			}
			f.shared.set(up)
			f.drained()
			if len(f.deadLetters) > 0 {
				t.Errorf("during the append %v: dead letter %s", during, f.deadLetters[0].Payload)
			}
		})
	}
}
