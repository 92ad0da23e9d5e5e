package group

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// A sidecar takes a partition and does not hear of it. It lets the partition go if another sidecar
// is to have it by then.
func TestTakeThatWasNotHeardOf(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		first, second := f.pair()
		c := first.join()
		f.wantOwners(first.name)
		f.log.locked(func() {
			f.log.onTake = func() {
				second.path.fail(errStore) // before it can read what it has got
				f.log.onTake = nil
			}
		})
		second.join()
		c.leave(Unsubscribed)
		advance(time.Second)
		f.wantOwners("-")
		c = first.join()
		f.publish("e1", "", true)
		advance(time.Second)
		second.path.fail(nil)
		advance(lease / 2)
		f.wantOwners(first.name)
		c.wants("e1/1")
	})
}

// takeUnheard has the second sidecar take the partition of the first without hearing of it, until
// its roster has lapsed.
func (f *fleet) takeUnheard(t *testing.T) (first, second *sidecar) {
	t.Helper()
	first, second = f.pair()
	c := first.join()
	second.join()
	f.wantOwners(first.name)
	f.log.locked(func() {
		f.log.onTake = func() {
			second.path.fail(errStore)
			f.log.onTake = nil
		}
	})
	c.leave(Unsubscribed)
	advance(lease * 82 / 100)
	if second.roster.Valid(time.Now()) {
		t.Fatal("the roster has not lapsed")
	}
	return first, second
}

// A group asks for missing events again also if the store is back before the roster knows.
func TestStoreIsBackBeforeTheRoster(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		_, second := f.takeUnheard(t)
		g := second.group()
		g.balanceTimer.Stop() // it was due at this moment
		second.path.fail(nil)
		g.askOwners()
		synctest.Wait()
		advance(lease / 2)
		f.wantOwners(second.name)
	})
}

// A sidecar takes a partition and does not hear of it. It also lets the partition go if the store
// is back before the roster knows, and another sidecar is to have the partition once it does.
func TestTakeThatWasNotHeardOfBeforeTheRosterLapsed(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		first, second := f.takeUnheard(t)
		c := first.join()
		synctest.Wait()
		second.path.fail(nil)
		second.group().askOwners()
		synctest.Wait()
		f.publish("e1", "", true)
		advance(lease)
		f.wantOwners(first.name)
		c.wants("e1/1")
	})
}

// A member that closes while a turn reads is not assigned the turn's events.
func TestNothingIsAssignedToAMemberThatHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		defer w.stop()
		a, b := subscribeDivided(t, w.m, "a"), subscribeDivided(t, w.m, "b")
		w.publishN(8, "") // what they have room for is known now
		gate := make(chan struct{})
		w.log.locked(func() { w.log.readGate = gate })
		for range 8 { // not by the tail, which keeps new events
			w.ids++
			w.log.store(topic, record("late"+string(rune('0'+w.ids%8)), ""))
		}
		for p := range 4 {
			w.log.tails.Heard(topic, p, uint64(len(w.log.topics[topic][p])))
		}
		synctest.Wait()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			b.m.Close(Unsubscribed)
		}()
		synctest.Wait()
		w.log.locked(func() { w.log.readGate = nil })
		close(gate)
		<-closed
		advance(time.Second)
		if n := strings.Count(a.take(), "/1"); n != 16 {
			t.Errorf("%d of 16 events came", n)
		}
		a.check(t)
	})
}

// revokeSink calls before when its member is about to hear that partitions are lost.
type revokeSink struct {
	*partSink
	before func()
}

func (s *revokeSink) Revoked(partitions []int) {
	if before := s.before; before != nil {
		s.before = nil
		before()
	}
	s.partSink.Revoked(partitions)
}

// A partition is lost while its member is told of others. The member gets it back only after it was
// told of the loss.
func TestPartitionThatIsLostDuringADivision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		defer w.stop()
		a := subscribeDivided(t, w.m, "a")
		if got := a.take(); got != "+[0 1]" {
			t.Fatalf("told %q", got)
		}
		g := a.m.group
		lose := func(i int) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.abandon(g.parts[i])
		}
		g.worker.Stop() // turns are the test's
		a.m.rebalancer = &revokeSink{a.partSink, func() { lose(1) }}
		lose(0)
		g.divide(time.Now())
		g.balance() // takes both
		g.divide(time.Now())
		g.divide(time.Now())
		if got := a.take(); got != "-[0] -[1] +[0 1]" {
			t.Errorf("told %q", got)
		}
		a.check(t)
	})
}

// A dead letter that had to wait for a valid roster is appended once the roster is valid again,
// whatever else happens.
func TestDeadLetterDuringALapse(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		eff := *f.policy.Load()
		eff.Delivery.MaxAttempts = 1
		f.policy.Store(&eff)
		a := f.start("a")
		c := a.join()
		f.publish("e1", "k", true)
		f.publish("e2", "", true)
		f.publish("e3", "", true)
		synctest.Wait()
		c.wants("e1/1 e2/1 e3/1")
		gate := make(chan struct{})
		f.log.locked(func() { f.log.saveGate = gate })
		c.ack("e2")
		c.nack(0, "e1")
		c.ack("e3")
		gate <- struct{}{} // and the next save is of the latter two
		synctest.Wait()
		a.path.fail(errStore)
		advance(lease * 85 / 100) // lapses during the save
		gate <- struct{}{}        // which succeeds
		synctest.Wait()
		f.log.locked(func() { f.log.saveGate = nil })
		close(gate)
		a.path.fail(nil)
		advance(lease / 2)
		if n := len(f.deadLetters.appended); n != 1 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// A seek that waits for a save does not keep a stop waiting, nor the group from its balance.
func TestStopDuringASeek(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.join()
		w.publish("e1")
		c.wants("e1/1")
		gate := make(chan struct{})
		w.log.locked(func() { w.log.saveGate = gate })
		c.ack("e1")
		sought := make(chan error, 1)
		go func() {
			sought <- w.m.Seek(context.Background(), topic, "g", wire.SubscribeOptions{From: wire.FromEarliest})
		}()
		synctest.Wait()
		stopped := make(chan error, 1)
		go func() { stopped <- w.m.Stop(context.Background()) }()
		synctest.Wait()
		w.log.locked(func() { w.log.saveGate = nil })
		close(gate)
		synctest.Wait()
		select {
		case err := <-stopped:
			if err != nil {
				t.Errorf("stop: %v", err)
			}
			<-sought
		default:
			t.Fatal("the stop waits for the seek, which waits for a turn")
		}
	})
}

// A store that does not answer keeps the gauges waiting once, and a stop not at all. A sidecar
// keeps groups without members while it owns a partition of them.
func TestStatsOfAStoreThatHangs(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		a := f.start("a")
		for _, name := range []string{"g", "h", "i"} {
			c := a.join(func(s *Subscription) { s.Group = name })
			c.leave(Unsubscribed)
		}
		advance(lease)
		if stats, _ := a.m.Stats(); len(stats) != 3 {
			t.Fatalf("%d groups", len(stats))
		}
		before := a.path.count()
		a.path.fail(errStore)
		if stats, _ := a.m.Stats(); len(stats) != 0 {
			t.Errorf("%d groups while the store is away", len(stats))
		}
		if n := a.path.count() - before; n != 1 {
			t.Errorf("asked %d times", n)
		}
		a.path.fail(nil)
		a.stop()
		if a.m.queries.Err() == nil {
			t.Error("it goes on asking")
		}
	})
}

// A sidecar keeps no group of which it owns nothing. One of all sidecars asks for the lag of groups
// without owners: once for all groups.
func TestGroupsOfOthers(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		a, b := f.start("a"), f.start("b")
		names := []string{"g", "h", "i", "j", "k", "l"}
		var clients []*client
		for _, name := range names {
			clients = append(clients, a.join(func(s *Subscription) { s.Group = name }))
		}
		advance(lease)
		for _, name := range names {
			if _, err := b.m.Info(t.Context(), topic, name); err != nil {
				t.Fatal(err)
			}
		}
		if n := len(b.m.all()); n != 0 {
			t.Errorf("it keeps %d groups of another sidecar", n)
		}
		for _, c := range clients {
			c.leave(Unsubscribed)
		}
		advance(lease)
		f.publishN(3)
		a.stop()
		advance(lease)
		b.m.Stats() // reads the oldest event of each once
		before := b.path.count()
		stats, _ := b.m.Stats()
		if n := b.path.count() - before; n != 2 || len(stats) != len(names) || stats[0].Lag != 3 || stats[0].Oldest.IsZero() {
			t.Errorf("asked %d times for %+v", n, stats)
		}
	})
}
