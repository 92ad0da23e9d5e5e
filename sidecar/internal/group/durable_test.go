package group

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func TestAckIsAnsweredOnceDurable(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		c := w.join()
		gate := make(chan struct{})
		w.log.locked(func() { w.log.saveGate = gate })
		first := c.ack("a")
		again, other := c.ack("a"), c.ack("b") // during the save
		if first.given.Load() || again.given.Load() || other.given.Load() {
			t.Fatal("answered before the save")
		}
		gate <- struct{}{}
		synctest.Wait()
		if !first.ok() || other.given.Load() {
			t.Fatal("the first save answers the first ack only")
		}
		w.log.locked(func() { w.log.saveGate = nil })
		gate <- struct{}{}
		synctest.Wait()
		if !again.ok() || !other.ok() {
			t.Fatal("not answered after the second save")
		}
		saves := w.saves()
		if !c.ack("a", "nobody").ok() || w.saves() != saves {
			t.Error("an ack of nothing is not answered at once")
		}
		w.kill()
		w.join().wants("")
	})
}

// An ack whose save the store does not answer is refused after AckTimeout. The ack itself takes
// effect once the store is back.
func TestAckIsAnsweredInTime(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.stop()
		w.start(func(c *Config) { c.AckTimeout = 5 * time.Second })
		w.publish("a", "b")
		c := w.join()
		c.wants("a/1 b/1")
		gate := make(chan struct{})
		w.log.locked(func() { w.log.saveGate = gate })
		first, second := c.ack("a"), c.ack("b")
		time.Sleep(5*time.Second - 1)
		if first.given.Load() || second.given.Load() {
			t.Fatal("answered before the save")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if !first.failed() || !second.failed() {
			t.Fatal("not refused in time")
		}
		w.log.locked(func() { w.log.saveGate = nil })
		close(gate)
		synctest.Wait()
		w.kill()
		w.join().wants("")
	})
}

// Deliveries wait for a save, which a kill cannot undo; acks' answers wait for a sync as well, and
// syncs are shared.
func TestSyncHoldsUpAnswersOnly(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c")
		c := w.join()
		c.wants("a/1 b/1 c/1")
		gate := make(chan struct{})
		w.log.locked(func() { w.log.syncGate = gate })
		first := c.ack("a")
		second, again := c.ack("b"), c.ack("a") // during the sync
		w.publish("d")
		c.wants("d/1")
		if first.given.Load() || second.given.Load() || again.given.Load() {
			t.Fatal("answered before the sync")
		}
		gate <- struct{}{}
		synctest.Wait()
		if !first.ok() || second.given.Load() || again.given.Load() {
			t.Fatal("the first sync answers what was saved before it began")
		}
		gate <- struct{}{}
		synctest.Wait()
		if !second.ok() || !again.ok() {
			t.Fatal("not answered after the second sync")
		}
		w.log.locked(func() { w.log.syncGate, w.log.syncErr = nil, errStore })
		if !c.ack("c").failed() {
			t.Error("an ack that could not be synced is not refused")
		}
		w.log.locked(func() { w.log.syncErr = nil })
	})
}

func TestFailedSave(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		c := w.join()
		c.wants("a/1 b/1")
		w.log.locked(func() { w.log.saveErr = errStore })
		first := c.ack("a")
		if !first.failed() || !errors.Is(first.err.Load().(error), eventlog.ErrUnavailable) {
			t.Fatal("an ack that could not be saved is not refused")
		}
		w.publish("c")
		c.nack(0, "b")
		again := c.ack("a")
		if again.given.Load() {
			t.Fatal("answered although it is not durable")
		}
		saves := w.saves()
		advance(10 * retryAfterFailure)
		if n := w.saves() - saves; n > 11 {
			t.Errorf("%d saves in 10 retries", n)
		}
		c.wants("")
		if !again.failed() {
			t.Error("not told of the failure")
		}
		again = c.ack("a")
		w.log.locked(func() { w.log.saveErr = nil })
		advance(retryAfterFailure)
		c.wants("c/1 b/2") // nothing counted in between
		if !again.ok() {
			t.Error("the ack was not answered after the retry")
		}
		w.kill()
		w.join().wants("b/3 c/2")
	})
}

// Acks wait for the next deliveries, to share their save, and for no longer than they linger.
func TestAcksShareTheSaveOfTheNextDeliveries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.stop()
		w.start(func(c *Config) { c.AckLinger = time.Millisecond })
		w.publish("a")
		c := w.join()
		c.wants("a/1")
		saves := w.saves()
		first := c.ack("a")
		advance(time.Millisecond / 2)
		if first.ok() || w.saves() != saves {
			t.Fatal("the ack did not wait")
		}
		w.publish("b")
		synctest.Wait()
		c.wants("b/1")
		if !first.ok() || w.saves() != saves+1 {
			t.Fatalf("%d saves for the ack and the delivery; the ack is answered: %v", w.saves()-saves, first.ok())
		}
		second := c.ack("b")
		advance(time.Millisecond)
		if !second.ok() || w.saves() != saves+2 {
			t.Fatal("the ack was not saved by itself")
		}
		w.stop()
	})
}

// A failed save is tried again when that is due, also for an ack that lingers longer: otherwise one
// turn would follow the other until then.
func TestARetriedSaveDoesNotLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.stop()
		w.start(func(c *Config) { c.AckLinger = 20 * time.Millisecond })
		w.publish("a", "b")
		c := w.join()
		c.wants("a/1 b/1")
		w.log.locked(func() { w.log.saveErr = errStore })
		if first := c.ack("a"); !first.failed() {
			advance(20 * time.Millisecond)
			if !first.failed() {
				t.Fatal("an ack that could not be saved is not refused")
			}
		}
		advance(retryAfterFailure - 5*time.Millisecond)
		w.log.locked(func() { w.log.saveErr = nil })
		second := c.ack("b")
		advance(5 * time.Millisecond)
		if !second.ok() {
			t.Error("the ack is not answered with the save that is tried again")
		}
		w.stop()
	})
}

// A deadline that passes while the store is away is not missed, and settled events stay settled.
func TestDeadlineWhileSavesFail(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		c := w.join()
		c.wants("a/1 b/1")
		w.log.locked(func() { w.log.saveErr = errStore })
		c.ack("b")
		advance(time.Minute)
		w.log.locked(func() { w.log.saveErr = nil })
		advance(retryAfterFailure)
		c.wants("a/2")
		if !c.ack("b").ok() {
			t.Fatal("refused")
		}
		w.kill()
		w.join().wants("a/3")
	})
}

func TestStopReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.publish("a", "b", "c", "d")
		c := w.join()
		c.take()
		gate := make(chan struct{})
		w.log.locked(func() { w.log.saveGate = gate })
		under := c.ack("a")
		waits := c.ack("b")
		stopped := make(chan struct{})
		go func() { // one save is under way; a second may begin before the last
			for {
				select {
				case gate <- struct{}{}:
				case <-stopped:
					return
				}
			}
		}()
		w.stop()
		close(stopped)
		if !under.ok() || !waits.ok() {
			t.Error("acks were not answered")
		}
		if !c.ack("c").failed() {
			t.Error("an ack after the stop is not refused")
		}
		for at, e := range w.log.epochs {
			if !e.Released || len(e.Progress.Attempts) > 0 {
				t.Errorf("%v: %+v", at, e)
			}
		}
		if _, err := w.m.Subscribe(t.Context(), Subscription{Topic: topic, Group: "g"}); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("subscribed after the stop: %v", err)
		}
		if _, err := w.m.Follow(t.Context(), Subscription{Topic: topic}); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("followed after the stop: %v", err)
		}
		g := w.m.all()[0] // for calls that had it before the stop
		if err := g.create(t.Context(), wire.SubscribeOptions{}); !errors.Is(err, errStopped) {
			t.Errorf("owned after the stop: %v", err)
		}
		if err := g.join(t.Context(), c.Member, ""); !errors.Is(err, errStopped) || g.watch != nil {
			t.Errorf("joined after the stop: %v", err)
		}
		w.log.locked(func() { w.log.saveGate = nil })
		w.start()
		c = w.join()
		if len(c.got) != 2 {
			t.Errorf("%q came after the restart", c.take())
		}
		if e := w.log.epochs[eventlog.GroupPartition{Topic: topic, Group: "g", Partition: 2}]; e.Number != 3 || e.Released {
			t.Errorf("epoch %+v", e)
		}
		w.stop()
	})
}

func TestExactlyOnce(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.join(exactlyOnce)
		w.publish("a:1", "x", "a:2", "b:2") // a twice: the window is over
		c.wants("a/1 x/1")
		if !c.ack("a").ok() {
			t.Fatal("refused")
		}
		c.wants("b/1") // not the second a, which waited
		w.publish("a:3")
		c.wants("")
		gate := make(chan struct{})
		w.log.locked(func() { w.log.saveGate = gate })
		c.Ack([]string{"b"}, func(error) {})
		synctest.Wait()
		c.Ack([]string{"x"}, func(error) {})
		w.publish("x:7") // while the mark is not saved
		w.log.locked(func() { w.log.saveGate = nil })
		close(gate)
		synctest.Wait()
		c.wants("")
		w.seekEarliest()
		w.kill()
		c = w.join(exactlyOnce)
		w.seekEarliest()
		c.wants("")
		if lag := w.info().Lag; lag != 0 {
			t.Errorf("lag %d", lag)
		}
		advance(8 * 24 * time.Hour) // the marks expire
		w.seekEarliest()
		c.wants("a/1 x/1") // b is behind the second a
	})
}

func TestMarksOutliveAFailedSave(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a")
		c := w.join(exactlyOnce)
		w.log.locked(func() { w.log.saveErr = errStore })
		c.ack("a")
		w.log.locked(func() { w.log.saveErr = nil })
		if !c.ack("a").given.Load() {
			advance(retryAfterFailure)
		}
		w.kill()
		w.seekEarliest()
		w.join(exactlyOnce).wants("")
	})
}

// Two events have the same id. Once one of them is acked, the other is not delivered, also where it
// was fetched before, whether delayed or ready.
func TestExactlyOnceOfFetchedDuplicates(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.join(exactlyOnce, window(1))
		w.publish("a:1", "a:2")
		c.wants("a/1")
		c.nack(time.Second, "a")
		c.wants("a/1") // the other one
		c.nack(time.Hour, "a")
		advance(time.Second)
		c.wants("a/2")
		c.ack("a")
		advance(time.Hour)
		c.wants("")

		w.publish("b:1", "b:2", "c")
		c.wants("b/1")
		c.nack(0, "b")
		c.wants("b/2") // and the other is ready behind it
		c.ack("b")
		c.wants("c/1")
		c.ack("c")
		c.wants("")
		if lag := w.info().Lag; lag != 0 {
			t.Errorf("lag %d", lag)
		}
	})
}

// Without exactlyOnce two events with the same id are both delivered, but never in flight together.
func TestDuplicates(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c, d := w.join(), w.join()
		w.publish("a:1", "a:2", "a:3", "b:2")
		for range 3 {
			switch {
			case c.take() == "a/1":
				d.wants("")
				c.ack("a")
			default:
				d.wants("a/1")
				d.ack("a")
			}
		}
		if got := c.take() + d.take(); got != "b/1" {
			t.Errorf("got %q", got)
		}
	})
}

// A nack that is too late for one delivery does not count against the next, which is still being
// saved.
func TestLateNackOfADeliveryOnItsWay(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a")
		c := w.join()
		c.wants("a/1")
		gate := make(chan struct{})
		w.log.locked(func() { w.log.saveGate = gate })
		advance(30 * time.Second)
		c.nack(0, "a")
		if c.Extend("a", time.Hour) {
			t.Error("extended what is not sent")
		}
		w.log.locked(func() { w.log.saveGate = nil })
		close(gate)
		synctest.Wait()
		c.wants("a/2")
	})
}

func TestDuplicateGoesOnWhenAnAssignmentIsTakenBack(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.join(onlyKey("1"))
		w.publish("a:1")
		c.wants("a/1")
		w.join(onlyKey("1")).Pause() // the first a stays wanted
		d := w.join(onlyKey("2"))
		w.publish("a:2")
		d.wants("")
		c.leave(Unsubscribed)
		d.wants("a/1")
	})
}
