package group

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
)

func TestFilters(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		a := w.join(onlyKey("a"), window(1), unordered)
		b := w.join(onlyKey("b"), window(1), unordered)
		w.publish("x:x")
		w.publishN(50, "a") // far more than a has room for
		w.publish("b1:b", "b2:b")
		a.wants("e1/1")
		b.wants("b1/1")
		b.ack("b1")
		b.wants("b2/1")
		if lag := w.info().Lag; lag != 51 {
			t.Errorf("lag %d: what nobody wants is passed over", lag)
		}
		b.ack("b2")
		a.leave(Disconnected)
		advance(time.Minute)
		w.publish("y:y", "b3:b")
		b.wants("b3/1")
		b.ack("b3")
		if lag := w.info().Lag; lag != 0 {
			t.Errorf("lag %d: what nobody wants any more is passed over", lag)
		}
		w.kill()
		w.join().wants("")
	})
}

// The last member leaves while an event is being read. The group does not pass that event over.
func TestMemberLeavesDuringARead(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		gate := make(chan struct{})
		w.log.locked(func() { w.log.readGate = gate })
		c := w.join()
		c.leave(Unsubscribed)
		w.log.locked(func() { w.log.readGate = nil })
		close(gate)
		synctest.Wait()
		w.join().wants("a/1 b/1")
	})
}

func TestLookahead(t *testing.T) {
	for name, bounds := range map[string]Bounds{
		"events": {Lookahead: 10, HeldBytes: 1 << 20, FetchEvents: 7, FetchBytes: 1 << 20},
		"bytes":  {Lookahead: 1000, HeldBytes: 10 * (record("e1", "k").Size() - 1), FetchEvents: 7, FetchBytes: 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.bounds = bounds
				w.start()
				c := w.join()
				w.publishN(5, "k") // e1 to e5
				w.publishN(3, "")
				c.wants("e1/1 e6/1 e7/1 e8/1")
				c.ack("e6", "e7", "e8")
				w.publishN(20, "")
				c.take()
				p := w.m.all()[0].parts[0]
				if inMemory(p) > 10 && name == "events" {
					t.Errorf("%d events in memory", inMemory(p))
				}
				if held := w.m.all()[0].dispatch.Bytes; held > bounds.HeldBytes+record("e11", "k").Size() {
					t.Errorf("%d bytes in memory", held)
				}
				c.ack("e1") // and the others of its key move on
				for _, id := range []string{"e2", "e3", "e4", "e5"} {
					c.ack(id)
				}
				for i := 9; i <= 28; i++ {
					c.ack("e" + strconv.Itoa(i))
				}
				if lag := w.info().Lag; lag != 0 {
					t.Errorf("lag %d", lag)
				}
			})
		})
	}
}

// TestWhatIsAckedBehindAnotherTakesNoMemory: events that settled behind one that does not take next
// to no memory, and still count as looked ahead.
func TestWhatIsAckedBehindAnotherTakesNoMemory(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		const n, most = 500, 300
		w.bounds = Bounds{Lookahead: most, HeldBytes: 1 << 20, FetchEvents: 100, FetchBytes: 1 << 20}
		w.start()
		c := w.join()
		w.publishN(n, "")
		acked := 0
		for ids := c.take(); ids != ""; ids = c.take() {
			for id := range strings.FieldsSeq(ids) {
				if id = strings.TrimSuffix(id, "/1"); id != "e1" && id != "e100" {
					c.ack(id)
					acked++
				}
			}
		}
		p := w.m.all()[0].parts[0]
		if kept := 2 + 2*dispatch.FewSettled; inMemory(p) > kept || p.Ahead != most || acked != most-2 {
			t.Errorf("%d entries, %d events ahead, %d acked; want at most %d, %d, %d", inMemory(p), p.Ahead, acked, kept, most, most-2)
		}
		want := []eventlog.SeqRange{{First: 2, Last: 99}, {First: 101, Last: most}}
		if pr := p.Progress("", time.Now()); pr.Cursor != 1 || !slices.Equal(pr.Settled, want) {
			t.Errorf("progress %+v, want %v to be settled", pr, want)
		}
		c.ack("e1", "e100")
		for i := most + 1; i <= n; i++ {
			c.ack("e" + strconv.Itoa(i))
		}
		if lag := w.info().Lag; lag != 0 || p.Ahead != 0 || inMemory(p) != 0 {
			t.Errorf("lag %d, %d events ahead, %d entries", lag, p.Ahead, inMemory(p))
		}
	})
}

// While the memory of all connections is used up, a group holds one event, and gets on with it.
// Once there is memory again it fetches as many as it has room for, though nothing else happens. In
// the end it gives all memory back.
func TestWithoutMemory(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.memory = budget.New(budget.Bounds{Memory: 1 << 20}).Of("")
		w.start()
		w.memory.Take(1 << 20)
		c := w.join()
		w.publishN(6, "")
		c.wants("e1/1")
		c.ack("e1")
		c.wants("e2/1")
		w.memory.Give(1 << 20)
		time.Sleep(time.Second)
		c.wants("e3/1 e4/1 e5/1 e6/1")
		if w.memory.Used() == 0 {
			t.Error("what the group holds does not count")
		}
		for i := 2; i <= 6; i++ {
			c.ack("e" + strconv.Itoa(i))
		}
		if n := w.memory.Used(); n != 0 {
			t.Errorf("%d bytes are left taken", n)
		}
	})
}

// A group asks a log that cannot be read again now and then. Only the events in it are held up.
func TestUnreadableLog(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		c := w.join(window(1))
		c.wants("a/1")
		// From here on the ring is of no use for b.
		w.log.tails.Appended(topic, 0, []*eventlog.Record{{Event: wire.Event{Seq: 90}}})
		w.log.locked(func() { w.log.readErr = errStore })
		var before int
		w.log.locked(func() { before = w.log.reads })
		if !c.ack("a").ok() {
			t.Error("the ack waits for the reader")
		}
		advance(10 * retryAfterFailure)
		w.log.locked(func() {
			if n := w.log.reads - before; n < 9 || n > 12 {
				t.Errorf("%d reads in 10 retries", n)
			}
			w.log.readErr = nil
		})
		advance(retryAfterFailure)
		c.wants("b/1")
	})
}

// Events that were announced before the log shows them are looked for now and then.
func TestAnnouncedBeforeReadable(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.join()
		w.log.tails.Appended(topic, 0, []*eventlog.Record{{Event: wire.Event{Seq: 2}}})
		synctest.Wait() // would not return
		w.publish("a", "b")
		advance(retryAfterFailure)
		c.wants("a/1 b/1")
	})
}

func TestRetention(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c", "d")
		c := w.join(window(1))
		c.wants("a/1")
		c.leave(Unsubscribed)
		w.log.locked(func() { w.log.firsts[topic] = 3 })
		if lag := w.info().Lag; lag != 2 {
			t.Errorf("lag %d", lag)
		}
		c = w.join(window(1))
		c.wants("c/1")
		c.leave(Unsubscribed)
		w.log.locked(func() { w.log.firsts[topic] = 5 })
		c = w.join()
		c.wants("")
		if cursor := w.info().Partitions[0].Cursor; cursor != 5 {
			t.Errorf("cursor %d", cursor)
		}
		w.publish("e")
		c.wants("e/1")
	})
}

// Events that were settled above the cursor stay settled when retention has removed those below.
func TestRetentionBelowSettledEvents(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c")
		c := w.join()
		c.wants("a/1 b/1 c/1")
		c.ack("b")
		c.leave(Unsubscribed)
		w.log.locked(func() { w.log.firsts[topic] = 2 })
		w.join().wants("c/1")
	})
}

func TestGroupsWithoutMembersAreParked(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publishN(20, "k")
		c := w.join()
		c.nack(0, "e1")
		c.ack("e1")
		c.leave(Unsubscribed)
		g := w.m.all()[0]
		if g.watch != nil || inMemory(g.parts[0]) != 0 || g.dispatch.Bytes != 0 {
			t.Error("it holds on to what it fetched")
		}
		saves := w.saves()
		w.publishN(5, "k")
		advance(time.Hour)
		if w.saves() != saves {
			t.Error("it goes on saving")
		}
		if lag := w.info().Lag; lag != 24 {
			t.Errorf("lag %d", lag)
		}
		w.join().wants("e2/1")
	})
}

func TestFailedSubscribeLeavesNothing(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		s := Subscription{Topic: topic, Group: "g", Sink: &fakeSink{}, Pacer: &fakePacer{}}
		s.Options.From, s.Options.AfterID = wire.FromAfterID, "nobody"
		var refused *wire.Error
		if m, err := w.m.Subscribe(t.Context(), s); m != nil || !errors.As(err, &refused) || refused.Code != wire.NotFound {
			t.Fatalf("subscribe: %v, %v", m, err)
		}
		if stats, _ := w.m.Stats(); len(w.m.all()) != 0 || len(stats) != 0 {
			t.Errorf("%d groups and the gauges of %d are left", len(w.m.all()), len(stats))
		}
		if _, err := w.m.Info(t.Context(), topic, "g"); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("info: %v", err)
		}
		if err := w.m.Seek(t.Context(), "elsewhere", "g", wire.SubscribeOptions{}); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("seek: %v", err)
		}
	})
}

func TestWhereAGroupStarts(t *testing.T) {
	for name, c := range map[string]struct {
		from wire.SubscribeOptions
		want string
	}{
		"default":  {wire.SubscribeOptions{}, "d/1"},
		"latest":   {wire.SubscribeOptions{From: wire.FromLatest}, "d/1"},
		"earliest": {wire.SubscribeOptions{From: wire.FromEarliest}, "a/1 b/1 c/1 d/1"},
		"ts":       {wire.SubscribeOptions{From: wire.FromTS, TS: new(int64)}, "a/1 b/1 c/1 d/1"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.publish("a", "b", "c")
				m := w.join(func(s *Subscription) { s.Options = c.from })
				w.publish("d")
				m.wants(c.want)
				m.leave(Unsubscribed)
				w.join().wants(c.want) // the position counts once
			})
		})
	}
}

// A sidecar tells the lag of a group that nobody has subscribed to since the start.
func TestStatsOfAGroupThatNobodyServes(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c")
		w.join(window(1)).ack("a")
		w.kill()
		stats, _ := w.m.Stats()
		if len(stats) != 1 || stats[0].Lag != 2 || stats[0].Inflight != 0 {
			t.Fatalf("stats %+v", stats)
		}
		names, err := w.m.Groups(t.Context(), topic)
		if err != nil || len(names) != 1 || names[0] != "g" {
			t.Fatalf("groups %v, %v", names, err)
		}
		w.join(window(1)).wants("b/2")
		if stats, _ := w.m.Stats(); len(stats) != 1 || stats[0].Lag != 2 || stats[0].Inflight != 1 {
			t.Errorf("stats %+v", stats)
		}
	})
}

func TestBlockedBy(t *testing.T) {
	for want, c := range map[string]struct {
		opts []option
		do   func(w *world, c *client)
	}{
		dispatch.BlockedCaughtUp:    {nil, func(w *world, c *client) { c.ack("a", "b"); c.ack("a2") }},
		dispatch.BlockedPaused:      {nil, func(_ *world, c *client) { c.Pause() }},
		dispatch.BlockedMaxInflight: {[]option{window(1)}, func(*world, *client) {}},
		dispatch.BlockedSlowReader:  {nil, func(_ *world, c *client) { c.setFull(true) }},
		dispatch.BlockedRate:        {[]option{paced(time.Minute)}, func(*world, *client) {}},
		dispatch.BlockedKeyOrder:    {nil, func(*world, *client) {}},
		dispatch.BlockedBackoff: {nil, func(_ *world,
			c *client) {
			c.ack("a")
			c.ack("a2", "b")
			c.w.publish("z")
			c.nack(time.Minute, "z")
		}},
		"": {nil, func(w *world, c *client) { w.log.locked(func() { w.log.saveErr = errStore }); w.publish("n") }},
	} {
		t.Run("by "+want, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				m := w.join(c.opts...)
				other := w.join(onlyKey("nothing"))
				w.publish("a:k", "a2:k", "b")
				c.do(w, m)
				synctest.Wait()
				members := w.info().Members
				got := ""
				if members[0].BlockedBy != nil {
					got = *members[0].BlockedBy
				}
				if got != want {
					t.Errorf("blocked by %q, want %q", got, want)
				}
				if by := members[1].BlockedBy; by == nil || *by != dispatch.BlockedCaughtUp {
					t.Errorf("whom nothing is for is blocked by %v", by)
				}
				w.log.locked(func() { w.log.saveErr = nil })
				_ = other
			})
		})
	}
}

// inMemory counts the events of a partition that are in memory.
func inMemory(p *partition) int { return len(slices.Collect(p.All())) }
