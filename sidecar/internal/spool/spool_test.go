package spool_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/test/require"
)

// word is the outcome of an event in a word.
func word(out eventlog.Outcome) string {
	var full *spool.FullError
	var away *spool.AwayError
	var conflict *eventlog.ConflictError
	var unmet *eventlog.ConcernError
	var disk *eventlog.DiskFullError
	w := "ok"
	switch {
	case errors.As(out.Err, &unmet):
		return "unmet"
	case errors.As(out.Err, &full):
		return "full " + full.Bound
	case errors.As(out.Err, &away):
		return "away"
	case errors.As(out.Err, &conflict):
		if conflict.Seq == 0 {
			return "conflict in the spool"
		}
		return "conflict"
	case errors.As(out.Err, &disk) && !errors.Is(out.Err, eventlog.ErrUnavailable):
		return "disk full"
	case errors.Is(out.Err, eventlog.ErrUnavailable):
		return "unknown"
	case out.Err != nil:
		return out.Err.Error()
	case out.Spooled:
		w = "spooled"
	}
	placed := out.Seq != 0
	if out.Spooled {
		placed = out.Seq == 0 && out.Partition == 0
	}
	if !placed || out.TS == 0 {
		return fmt.Sprintf("%+v", out)
	}
	if out.Duplicate {
		return "duplicate " + w
	}
	return w
}

func TestDirect(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.want(f.publish("t", "a-1", "b-1", "a-2"), "ok")
		f.want(f.publish("t", "a-2", "a-3"), "duplicate ok", "ok")
		f.wantLogged("t", "a-1", "b-1", "a-2", "a-3")
		f.wantSpooled(0)
		if s := f.Stats(); s.Away || s.Draining || s.Full {
			t.Errorf("stats %+v", s)
		}
		outs := f.Append(t.Context(), "none", 0, []*eventlog.Record{record("a-1")})
		if !errors.Is(outs[0].Err, eventlog.ErrNotFound) {
			t.Errorf("a topic that nobody has ensured: %+v", outs[0])
		}
	})
}

func TestOutage(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.want(f.publish("t", "a-1"), "ok")
		f.want(f.publish("reject", "a-1"), "ok")
		f.shared.set(hanging)
		began := time.Now()
		f.want(f.publish("t", "a-2"), "spooled")
		if took := time.Since(began); took != timeout {
			t.Errorf("the first event waited for %v", took)
		}
		calls := f.shared.appends()
		f.want(f.publish("t", "a-3", "b-1", "a-4"), "spooled")
		f.want(f.publish("reject", "a-2"), "away")
		f.want(f.publish("reject.new", "a-2"), "away")
		f.want(f.publish("new", "a-1"), "spooled")
		if took := time.Since(began); took != timeout || f.shared.appends() != calls {
			t.Errorf("later events waited for %v and made %d appends", took-timeout, f.shared.appends()-calls)
		}
		if s := f.Stats(); !s.Away || s.Draining || s.Full {
			t.Errorf("stats %+v", s)
		}
		f.wantSpooled(5)
		time.Sleep(time.Minute)

		f.shared.set(up)
		back := time.Now()
		f.drained()
		if took := time.Since(back); took > 7*time.Second { // a probe may have been hanging
			t.Errorf("drained after %v", took)
		}
		f.want(f.publish("t", "a-5"), "ok")
		f.want(f.publish("reject", "a-3"), "ok")
		f.wantLogged("t", "a-1", "a-2", "a-3", "b-1", "a-4", "a-5")
		f.wantLogged("reject", "a-1", "a-3")
		f.wantLogged("new", "a-1")
		f.mu.Lock()
		announced := slices.Sorted(slices.Values(f.announced["t"]))
		f.mu.Unlock()
		if want := []string{"a-2", "a-3", "a-4", "b-1"}; !slices.Equal(announced, want) {
			t.Errorf("announced %q, want %q", announced, want)
		}
		for _, line := range []string{"the store is away", "the store is back", `"the spool is drained" events=5 `} {
			if n := f.logged.Count(line); n != 1 {
				t.Errorf("%q was logged %d times", line, n)
			}
		}
	})
}

// TestLogOnly: the spool refuses an event that must not be spooled until all events before it have
// left.
func TestLogOnly(t *testing.T) {
	logOnly := func(id string) *eventlog.Record {
		r := record(id)
		r.LogOnly = true
		return r
	}
	within(t, standard, func(t *testing.T, f *fixture) {
		f.want(f.publish("t", "a-1"), "ok")
		f.shared.set(losing)
		f.want(f.publishAll("t", []*eventlog.Record{logOnly("a-2"), record("a-3")}), "unknown", "spooled")
		f.want(f.publishAll("t", []*eventlog.Record{record("a-4"), logOnly("a-5")}), "spooled", "away")
		f.wantSpooled(2)
		f.shared.set(up)
		f.want(f.publishAll("t", []*eventlog.Record{logOnly("a-5")}), "away")
		f.drained()
		f.want(f.publishAll("t", []*eventlog.Record{logOnly("a-2"), logOnly("a-5")}), "duplicate ok", "ok")
		f.wantLogged("t", "a-1", "a-2", "a-3", "a-4", "a-5")
	})
}

// TestUnknownOutcome: events without an answer of the log are stored once, whether or not the log
// had stored them, and their readers hear of them.
func TestUnknownOutcome(t *testing.T) {
	for _, w := range []weather{losing, halfLosing, down} {
		within(t, standard, func(t *testing.T, f *fixture) {
			f.want(f.publish("t", "a-1"), "ok")
			f.shared.set(w)
			f.want(f.publish("t", "a-2", "a-3", "a-4"), "spooled")
			f.want(f.publish("reject", "a-1"), "away")
			f.shared.set(up)
			f.want(f.publish("t", "a-5", "a-4"), "spooled", "duplicate spooled")
			f.drained()
			f.wantLogged("t", "a-1", "a-2", "a-3", "a-4", "a-5")
			f.mu.Lock()
			defer f.mu.Unlock()
			if w != down && f.heard == 0 {
				t.Error("nobody heard of the events that were stored at once")
			}
		})
	}
}

// TestUnmetConcern: if the store does not meet a topic's write concern, it refuses that topic
// alone. The store is not away then, and the spooled events of other topics are drained.
func TestUnmetConcern(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.setUnmet("strict")
		f.want(f.publish("strict", "a-1"), "unmet")
		if s := f.Stats(); s.Away || s.Events > 0 {
			t.Errorf("stats %+v", s)
		}
		f.want(f.publish("t", "a-1"), "ok")

		f.shared.set(down)
		f.want(f.publish("strict", "a-2"), "spooled")
		f.want(f.publish("t", "a-2"), "spooled")
		f.shared.set(up)
		time.Sleep(10 * time.Second)
		if s := f.Stats(); s.Away || s.Events != 1 {
			t.Errorf("stats %+v, want the strict topic's event alone", s)
		}
		f.want(f.publish("t", "a-3"), "ok")
		f.want(f.publish("strict", "a-3"), "spooled")

		f.shared.setUnmet("")
		f.drained()
		f.want(f.publish("strict", "a-1"), "duplicate ok")
		f.wantLogged("strict", "a-1", "a-2", "a-3")
		f.wantLogged("t", "a-1", "a-2", "a-3")
	})
}

func TestUnknownOutcomeOfTopicThatRejects(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.want(f.publish("reject", "a-1"), "ok")
		f.shared.set(down)
		f.want(f.publish("reject", "a-2"), "unknown")
		f.want(f.publish("reject", "a-3"), "away")
		f.shared.set(up)
		time.Sleep(2 * time.Second) // the ping alone says that the store is back
		f.want(f.publish("reject", "a-4"), "ok")
		f.wantLogged("reject", "a-1", "a-4")
	})
}

// TestCallerGivesUp: if an append ends because its caller gives up, the store is not taken to be
// away.
func TestCallerGivesUp(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.want(f.publish("t", "a-1"), "ok")
		f.shared.set(hanging)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if out := f.Append(ctx, "t", 0, []*eventlog.Record{record("a-2")})[0]; word(out) != "unknown" {
			t.Errorf("outcome %+v", out)
		}
		if _, err := f.EnsureTopic(ctx, "new", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("EnsureTopic: %v", err)
		}
		if f.Stats().Away {
			t.Error("the store is taken to be away")
		}
	})
}

// TestRestart: events spooled before a power cut are counted, and stay ahead of all later ones,
// though the store is there again.
func TestRestart(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "b-1"), "spooled")
		f.want(f.publish("u", "a-1"), "spooled")
		f.crash()
		f.wantSpooled(3)
		f.shared.set(down)
		f.want(f.publish("t", "a-2"), "spooled")
		f.crash()
		f.wantSpooled(4)
		synctest.Wait() // until the store is found to be away
		f.cancel()      // nothing drains any more
		<-f.done
		f.shared.set(up)
		f.want(f.publish("t", "a-3"), "spooled")
		f.want(f.publish("direct", "a-1"), "spooled") // until somebody looks whether the store is back
		f.run()
		f.drained()
		f.wantLogged("t", "a-1", "b-1", "a-2", "a-3")
		f.wantLogged("u", "a-1")
		f.want(f.publish("t", "a-4"), "ok")
	})
}

// TestKilledWhileDraining: after a kill between the append to the log and the removal from the
// spool, the append is repeated without harm.
func TestKilledWhileDraining(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "b-1", "a-2"), "spooled")
		f.shared.set(losing)
		time.Sleep(5 * time.Second)
		f.wantSpooled(3)
		f.crash()
		f.wantSpooled(3)
		f.shared.set(up)
		f.drained()
		f.wantLogged("t", "a-1", "b-1", "a-2")
		f.crash() // drained events do not come back
		f.wantSpooled(0)
	})
}

// TestHangingStoreHoldsUpNobody: as long as the store only seems to be back, all publishes are
// answered at once.
func TestHangingStoreHoldsUpNobody(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-0"), "spooled")
		f.shared.set(pingingOnly)
		for i := range 100 {
			began := time.Now()
			f.want(f.publish("t", fmt.Sprint("a-", i+1)), "spooled")
			f.want(f.publish("reject", "a"), "away")
			if took := time.Since(began); took > 0 {
				t.Fatalf("event %d waited for %v", i+1, took)
			}
			time.Sleep(173 * time.Millisecond)
		}
		f.shared.set(up)
		f.drained()
	})
}

func TestIdsInTheSpool(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1"), "spooled")
		other := record("a-1")
		other.Payload = []byte(`"other"`)
		f.want(f.publish("t", "a-1", "a-2", "a-2"), "duplicate spooled", "spooled", "duplicate spooled")
		f.want(f.publishAll("t", []*eventlog.Record{other}), "conflict in the spool")
		f.wantSpooled(2)
		f.shared.set(up)
		f.drained()
		f.want(f.publish("t", "a-1"), "duplicate ok")
		other = record("a-1")
		other.Payload = []byte(`"other"`)
		f.want(f.publishAll("t", []*eventlog.Record{other}), "conflict")
		f.wantLogged("t", "a-1", "a-2")
	})
}

// TestPolicyChanges: a topic whose policy does not spool any more refuses while the store is away.
// Once the store is back, no event overtakes the spooled ones.
func TestPolicyChanges(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		var ids []string
		for i := range 2500 { // more than are taken over at the end
			ids = append(ids, fmt.Sprint("a-", i))
		}
		f.want(f.publish("t", ids...), "spooled")
		f.policies.Swap(snapshot(t, `[{name: "*", durability: {on_store_unavailable: reject}}]`))
		f.want(f.publish("t", "b-1"), "away")
		f.shared.slow(time.Second)
		f.shared.set(up)
		for !f.Stats().Draining {
			time.Sleep(10 * time.Millisecond)
		}
		f.want(f.publish("t", "b-2"), "spooled")
		f.drained()
		f.want(f.publish("t", "b-3"), "ok")
		f.wantLogged("t", append(ids, "b-2", "b-3")...)
	})
}

// TestOff: a sidecar that spools nothing any more refuses while the store is away, whatever policies
// say, also for topics that it has not seen. What it has spooled goes into the log before later events.
func TestOff(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1"), "spooled")
		f.off = true
		f.stop()
		f.start()
		time.Sleep(time.Second) // it has asked the store
		f.want(f.publish("t", "a-2"), "away")
		if _, err := f.EnsureTopic(t.Context(), "new", 1); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("a new topic: %v", err)
		}
		f.shared.set(up)
		f.drained()
		f.want(f.publish("t", "a-3"), "ok")
		f.wantLogged("t", "a-1", "a-3")
		f.shared.set(down)
		f.want(f.publish("t", "a-4"), "unknown")
		f.want(f.publish("t", "a-5"), "away")
	})
}

// TestOtherNumberOfPartitions: another sidecar has created the topic with another number of
// partitions than this one used.
func TestOtherNumberOfPartitions(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "b-1", "c-1", "d-1"), "spooled")
		f.shared.create("t", 5)
		f.want(f.publish("t", "a-2", "b-2", "c-2", "d-2"), "spooled")
		f.shared.set(up)
		f.drained()
		f.want(f.publish("t", "a-3", "b-3", "c-3", "d-3", "a-3"), "ok", "ok", "ok", "ok", "duplicate ok")
		f.shared.set(halfLosing)
		f.want(f.publish("t", "a-4", "b-4", "c-4", "d-4", "a-5"), "spooled")
		f.shared.set(up)
		f.drained()
		f.wantLogged("t", "a-1", "b-1", "c-1", "d-1", "a-2", "b-2", "c-2", "d-2",
			"a-3", "b-3", "c-3", "d-3", "a-4", "b-4", "c-4", "d-4", "a-5")
		if tp, err := f.EnsureTopic(t.Context(), "t", 9); err != nil || tp.Partitions != 2 {
			t.Errorf("EnsureTopic: %+v, %v; the number never changes", tp, err)
		}
		// The next process learns the real number.
		f.crash()
		if tp, err := f.EnsureTopic(t.Context(), "t", 9); err != nil || tp.Partitions != 5 {
			t.Errorf("EnsureTopic after a restart: %+v, %v", tp, err)
		}
	})
}

// TestKnownTopicsAfterRestart: a sidecar knows the number of partitions of topics that it has met,
// without the store, too.
func TestKnownTopicsAfterRestart(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.create("t", 7)
		f.shared.create("reject", 3)
		f.want(f.publish("t", "a-1"), "ok")
		f.want(f.publish("reject", "a-1"), "ok")
		f.shared.set(down)
		f.crash()
		f.want(f.publish("lost", "a-1"), "spooled") // finds that the store is away
		for name, partitions := range map[string]int{"t": 7, "reject": 3} {
			if tp, err := f.EnsureTopic(t.Context(), name, 1); err != nil || tp.Partitions != partitions {
				t.Errorf("EnsureTopic: %+v, %v; want %d partitions", tp, err, partitions)
			}
		}
		f.want(f.publish("reject", "a-2"), "away")
		f.shared.set(up)
		f.drained()
		f.want(f.publish("reject", "a-3"), "ok")
		f.wantLogged("reject", "a-1", "a-3")
	})
}

func TestBounds(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		size := int64(func() int { r := record("a-1"); r.Topic = "t"; return r.Size() }())
		bound := fmt.Sprintf(`[{name: "*", partitions: 1, durability: {spool_max_bytes: %d}}]`, 3*size)
		f.policies.Swap(snapshot(t, bound))
		f.stop()
		f.maxBytes = 5*size + size/2
		f.start()
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "a-2"), "spooled")
		f.want(f.publish("t", "a-3", "a-4", "a-2"), "spooled", "full topic", "full topic")
		if f.Stats().Full {
			t.Error("full, though only a topic's part is")
		}
		f.want(f.publish("u", "a-1", "a-2", "a-3"), "spooled", "spooled", "full total")
		if !f.Stats().Full {
			t.Error("not full")
		}
		f.wantSpooled(5)
		f.crash()
		f.wantSpooled(5)
		f.want(f.publish("u", "a-3"), "full total")
		f.policies.Swap(snapshot(t, `[{name: "*", partitions: 1, durability: {spool_max_bytes: 0}}]`))
		f.want(f.publish("t", "a-4"), "full total")
		f.shared.set(up)
		f.drained()
		if f.Stats().Full {
			t.Error("full, though it is empty")
		}
		f.wantLogged("t", "a-1", "a-2", "a-3")
		f.wantLogged("u", "a-1", "a-2")

		// An event without an answer of the log may be stored, so a full spool is no answer for it.
		f.shared.set(down)
		f.want(f.publish("t", "b-1", "b-2", "b-3", "b-4", "b-5", "b-6"), "spooled", "spooled", "spooled", "spooled", "spooled", "unknown")
		f.want(f.publish("t", "b-6"), "full total")
	})
}

// TestDiskIsFull: if the spool's disk is full, an event that needs it is refused and does not
// count. Events that go straight into the store need no room. Once there is room, the spool goes on
// by itself.
func TestDiskIsFull(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.want(f.publish("t", "a-1"), "ok")
		f.diskFull.Store(true)
		f.want(f.publish("t", "a-2"), "ok")
		f.shared.set(down)
		f.want(f.publish("t", "a-3"), "unknown") // the store may have it
		f.want(f.publish("t", "a-4", "a-5"), "disk full")
		if s := f.Stats(); s.Events != 0 || s.Bytes != 0 {
			t.Errorf("stats %+v", s)
		}
		f.diskFull.Store(false)
		f.want(f.publish("t", "a-3", "a-4"), "spooled")
		f.shared.set(up)
		f.drained()
		f.wantLogged("t", "a-1", "a-2", "a-3", "a-4")
	})
}

func TestRetryAfter(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1"), "spooled")
		var away *spool.AwayError
		var last time.Duration
		for range 4 {
			_, err := f.EnsureTopic(t.Context(), "reject", 1)
			if !errors.As(err, &away) || !errors.Is(err, eventlog.ErrUnavailable) {
				t.Fatalf("EnsureTopic: %v", err)
			}
			if away.RetryAfter < 250*time.Millisecond || away.RetryAfter > 5*time.Second || away.RetryAfter < last {
				t.Errorf("retry after %v, before that %v", away.RetryAfter, last)
			}
			last = away.RetryAfter
			time.Sleep(2 * time.Second)
		}
	})
}

func TestConflictBecomesDeadLetter(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "a-2", "a-3"), "spooled")
		// Another sidecar, which can reach the store, takes an id.
		taken := record("a-2")
		taken.Topic, taken.Payload = "t", []byte(`"other"`)
		f.shared.create("t", 2)
		f.shared.set(up)
		f.shared.Append(t.Context(), "t", eventlog.PartitionOf("a", "a-2", 2), []*eventlog.Record{taken})
		f.mu.Lock()
		f.deadLetterErr = errors.New("no dead letters today")
		f.mu.Unlock()
		time.Sleep(10 * time.Second)
		f.wantSpooled(3)
		if f.Stats().Away {
			t.Error("the store is taken to be away")
		}
		f.crash()
		f.mu.Lock()
		f.deadLetterErr = nil
		f.mu.Unlock()
		f.drained()
		f.wantLogged("t", "a-2", "a-1", "a-3")
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.deadLetters) != 1 {
			t.Fatalf("%d dead letters", len(f.deadLetters))
		}
		letter := f.deadLetters[0]
		for name, want := range map[string]string{
			"sluice-dlq-reason":   `conflict: id "a-2" is already stored with other content at seq 1`,
			"sluice-dlq-group":    "",
			"sluice-dlq-attempts": "0",
			"sluice-dlq-id":       "a-2",
		} {
			if got, ok := letter.Headers.Get(name); !ok || got != want {
				t.Errorf("header %s: %q, %v; want %q", name, got, ok, want)
			}
		}
		if letter.Topic != "t.dlq" || letter.Key != "a" || string(letter.Payload) != `{"id":"a-2"}` {
			t.Errorf("dead letter %+v", letter)
		}
		if n := f.logged.Count("became a dead letter"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

// TestRefusedBecomesDeadLetter: an event that the store refuses does not hold up the events spooled
// behind it.
func TestRefusedBecomesDeadLetter(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.refused = "-no"
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "a-no", "a-2", "b-no", "b-1"), "spooled")
		f.shared.set(up)
		f.drained()
		f.wantLogged("t", "a-1", "a-2", "b-1")
		f.want(f.publish("t", "a-3"), "ok")
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.deadLetters) != 2 || f.deadLettersOf["t"] != 2 {
			t.Fatalf("%d dead letters, %d counted", len(f.deadLetters), f.deadLettersOf["t"])
		}
		for _, letter := range f.deadLetters {
			if got, _ := letter.Headers.Get("sluice-dlq-reason"); got != "refused: the store refuses the event: a rule of the store's" {
				t.Errorf("reason %q", got)
			}
			if id, _ := letter.Headers.Get("sluice-dlq-id"); letter.Topic != "t.dlq" || string(letter.Payload) != `{"id":"`+id+`"}` {
				t.Errorf("dead letter %+v", letter)
			}
		}
		if n := f.logged.Count("became a dead letter"); n != 2 {
			t.Errorf("logged %d times", n)
		}
	})
}

// TestRefusedDeadLetterIsKeptInAFile refuses a dead letter at once, and one that was spooled
// itself.
func TestRefusedDeadLetterIsKeptInAFile(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.shared.refused = "-no"
		f.onDeadLetter = func(rec *eventlog.Record, done func(error)) {
			go done(&eventlog.RefusedError{Cause: errors.New("a rule of the store's")})
		}
		f.shared.set(down)
		f.want(f.publish("t", "a-1", "a-no", "a-2"), "spooled")
		spooled := record("dlq-1-no")
		spooled.Headers = spooled.Headers.With("sluice-dlq-id", "x")
		f.want(f.publishAll("t.dlq", []*eventlog.Record{spooled, record("b-1")}), "spooled")
		f.shared.set(up)
		f.drained()
		f.wantLogged("t", "a-1", "a-2")
		f.wantLogged("t.dlq", "b-1")
		f.crash()
		names, err := f.disk.List("spool")
		require.NoError(t, err)
		kept := map[string]string{}
		for _, name := range names {
			if strings.HasPrefix(name, "refused-") {
				text, err := f.store.ReadFile(name)
				require.NoError(t, err)
				e, err := codec.ParseEvent(text)
				if err != nil {
					t.Fatalf("%s: %v in %q", name, err, text)
				}
				id, _ := e.Headers.Get("sluice-dlq-id")
				kept[id] = string(e.Payload)
				if f.logged.Count(name) != 1 {
					t.Errorf("the log does not name %s", name)
				}
			}
		}
		if want := map[string]string{"a-no": `{"id":"a-no"}`, "x": `{"id":"dlq-1-no"}`}; !maps.Equal(kept, want) {
			t.Errorf("kept %q, want %q", kept, want)
		}
		if f.deadLettersOf["t"] != 1 || f.deadLettersOf["t.dlq"] != 1 {
			t.Errorf("counted %v", f.deadLettersOf)
		}
	})
}

// TestSpooledDeadLetter: a spooled dead letter is no conflict if an earlier try has stored it with
// another reason.
func TestSpooledDeadLetter(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		letter := func(reason string) *eventlog.Record {
			r := record("dlq-1")
			r.Headers = r.Headers.With("sluice-dlq-id", "a-1").With("sluice-dlq-reason", reason)
			return r
		}
		f.want(f.publishAll("t.dlq", []*eventlog.Record{letter("one")}), "ok")
		f.shared.set(down)
		f.want(f.publishAll("t.dlq", []*eventlog.Record{letter("two")}), "spooled")
		f.shared.set(up)
		f.drained()
		if len(f.deadLetters) > 0 {
			t.Errorf("dead letters %+v", f.deadLetters[0])
		}
	})
}

// TestDiskFails: while the spool cannot be written, no event that needs it is answered OK, and the
// store is not taken to be away.
func TestDiskFails(t *testing.T) {
	within(t, standard, func(t *testing.T, f *fixture) {
		f.want(f.publish("direct", "a-1"), "ok")
		f.shared.set(down)
		f.want(f.publish("t", "a-1"), "spooled")
		f.diskFails.Store(true)
		f.want(f.publish("t", "a-2"), "unknown")
		f.want(f.publish("direct", "a-2"), "unknown")
		f.shared.set(up)
		time.Sleep(5 * time.Second)
		f.want(f.publish("t", "a-3"), "unknown")
		f.want(f.publish("new", "a-1"), "ok")
		if s := f.Stats(); s.Away || s.Events == 0 {
			t.Errorf("stats %+v", s)
		}
		if f.logged.Count("the spool has failed") == 0 {
			t.Error("nobody is told")
		}
		f.stop()
		f.diskFails.Store(false)
		f.open()
		f.wantSpooled(4) // the spool may hold the events without an answer
		f.run()
		f.drained()
		f.wantLogged("t", "a-1", "a-2", "a-3")
		f.wantLogged("direct", "a-1", "a-2")
	})
}

// TestWaitingForTheDrainEnds checks that an append waits for the drain as long as its context
// lasts.
func TestWaitingForTheDrainEnds(t *testing.T) {
	within(t, `[{name: "*", partitions: 1}]`, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		f.want(f.publish("t", "a-1"), "spooled")
		f.shared.slow(4 * time.Second)
		f.shared.set(up)
		for f.Stats().Away {
			time.Sleep(time.Millisecond)
		}
		f.want(f.publish("t", "a-2"), "ok") // waits for the handover
		f.shared.set(down)
		f.want(f.publish("t", "a-3"), "spooled")
		f.shared.set(up)
		for f.Stats().Away {
			time.Sleep(time.Millisecond)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if out := f.Append(ctx, "t", 0, []*eventlog.Record{record("a-4")})[0]; word(out) != "unknown" || time.Since(began) != time.Second {
			t.Errorf("%+v after %v", out, time.Since(began))
		}
		f.drained()
	})
}

// TestDeadLettersDoNotWaitForTheDrain: a drain waits for dead letters to be stored. So these do not
// wait for the drain of their own topic, which is far behind.
func TestDeadLettersDoNotWaitForTheDrain(t *testing.T) {
	within(t, `[{name: "*", partitions: 1}]`, func(t *testing.T, f *fixture) {
		f.onDeadLetter = func(rec *eventlog.Record, done func(error)) {
			large := record("large-1")
			large.Topic, large.Payload, large.Binary = rec.Topic, make([]byte, 2<<20), true
			go func() {
				f.Append(context.Background(), rec.Topic, 0, []*eventlog.Record{large})
				done(f.Append(context.Background(), rec.Topic, 0, []*eventlog.Record{rec})[0].Err)
			}()
		}
		taken := record("a-1")
		taken.Payload = []byte(`"other"`)
		f.want(f.publishAll("t", []*eventlog.Record{taken}), "ok")
		f.shared.set(down)
		var ids []string
		for i := range 6000 {
			ids = append(ids, fmt.Sprint("b-", i))
		}
		f.want(f.publish("t", ids[:1200]...), "spooled")
		f.want(f.publish("t", "a-1"), "spooled") // beyond the page that finds the store back
		f.want(f.publish("t.dlq", ids...), "spooled")
		f.shared.slow(time.Second)
		f.shared.set(up)
		f.drained()
		if n := len(f.shared.all("t.dlq")); n != len(ids)+2 {
			t.Errorf("%d events, want %d", n, len(ids)+2)
		}
	})
}

// TestConvergence: a topic becomes direct again while publishers never rest, although the spool
// would take four times as many events as the log.
func TestConvergence(t *testing.T) {
	within(t, `[{name: "*", partitions: 4}]`, func(t *testing.T, f *fixture) {
		f.shared.set(down)
		for i := range 40 {
			var ids []string
			for k := range 100 {
				ids = append(ids, fmt.Sprintf("%c-%04d", 'a'+k%8, i*100+k))
			}
			f.want(f.publish("t", ids...), "spooled")
		}
		f.shared.slow(100 * time.Millisecond) // 10,000 events a second are drained
		f.shared.set(up)
		stop := make(chan struct{})
		publishers := make(chan published)
		for partition := range 4 {
			go func() { publishers <- f.publishUntil(stop, partition, 4) }()
		}
		began := time.Now()
		peak := 0
		for f.Stats().Events > 0 || f.Stats().Away {
			time.Sleep(10 * time.Millisecond)
			peak = max(peak, f.Stats().Events)
			if time.Since(began) > time.Minute {
				t.Errorf("not direct after %v: %+v", time.Since(began), f.Stats())
				break
			}
		}
		took := time.Since(began)
		if most := 2*time.Duration(peak)*time.Second/10_000 + 2*time.Second; took > most {
			t.Errorf("direct after %v; it had %d events at most, so it should take no more than %v", took, peak, most)
		}
		time.Sleep(time.Second)
		if s := f.Stats(); s.Events > 0 || s.Draining {
			t.Errorf("spooling again: %+v", s)
		}
		close(stop)
		total := 4000
		for range 4 {
			p := <-publishers
			total += p.events
			if p.longest > time.Second {
				t.Errorf("a batch waited for %v", p.longest)
			}
		}
		t.Logf("direct after %v, at most %d events", took, peak)
		if n := len(f.shared.all("t")); n != total {
			t.Errorf("%d events are in the log, %d were published", n, total)
		}
		for p := range 4 {
			last := map[string]string{}
			for _, id := range f.shared.ids("t", p) {
				key := record(id).Key
				if id <= last[key] {
					t.Fatalf("%s comes after %s", id, last[key])
				}
				last[key] = id
			}
		}
	})
}

type published struct {
	events  int
	longest time.Duration // that a batch waited for its answer
}

// publishUntil has one batch in flight, and the next one at once: 40,000 events a second to four
// partitions, if the spool took them all.
func (f *fixture) publishUntil(stop <-chan struct{}, partition, partitions int) (p published) {
	key := keyOf(partition, partitions)
	for {
		select {
		case <-stop:
			return p
		case <-time.After(10 * time.Millisecond): // the spool's sync
		}
		batch := make([]*eventlog.Record, 100)
		for i := range batch {
			batch[i] = record(fmt.Sprintf("%s-%06d", key, p.events))
			batch[i].Topic = "t"
			p.events++
		}
		began := time.Now()
		for _, out := range f.Append(context.Background(), "t", partition, batch) {
			if out.Err != nil {
				f.t.Errorf("partition %d: %v", partition, out.Err)
			}
		}
		p.longest = max(p.longest, time.Since(began))
	}
}

// keyOf is a key of that partition that no other test uses.
func keyOf(partition, partitions int) string {
	for i := 0; ; i++ {
		if key := fmt.Sprint("partition", i); eventlog.PartitionOf(key, "", partitions) == partition {
			return key
		}
	}
}
