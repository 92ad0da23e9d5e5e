package group

import (
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// runReaching is runFleet with Config.Reach, with two sidecars, the first of which is due the only
// partition. Saves wait for a value while the gate that the scenario is given is set.
func runReaching(t *testing.T, scenario func(t *testing.T, f *fleet, owner, other *sidecar)) {
	t.Helper()
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		f.reach = true
		defer func() { // also after a failure
			for _, mend := range f.mend {
				mend()
			}
		}()
		a, b := f.start("a"), f.start("b")
		if f.rendezvous("a", "b") == "b" {
			a, b = b, a
		}
		scenario(t, f, a, b)
	})
}

// receives has a member join that is announced, and that has got the event e1.
func (f *fleet) receives(s *sidecar, opts ...option) *client {
	f.t.Helper()
	c := s.join(opts...)
	advance(lease)
	f.publish("e1", "", true)
	synctest.Wait()
	c.wants("e1/1")
	return c
}

// gate makes saves wait until the returned function is called.
func (f *fleet) gate() (open func()) {
	gate := make(chan struct{})
	f.log.locked(func() { f.log.saveGate = gate })
	open = sync.OnceFunc(func() {
		f.log.locked(func() { f.log.saveGate = nil })
		close(gate)
		synctest.Wait()
	})
	f.mend = append(f.mend, open)
	return open
}

// letOneSave lets one save through the gate.
func (f *fleet) letOneSave() {
	var gate chan struct{}
	f.log.locked(func() { gate = f.log.saveGate })
	gate <- struct{}{}
	synctest.Wait()
}

// A first delivery waits for no save, up to the members' window, also while a save is under way.
func TestFirstDeliveriesNeedNoSave(t *testing.T) {
	runReaching(t, func(t *testing.T, f *fleet, a, _ *sidecar) {
		c := a.join(window(3))
		advance(lease) // it is announced
		open := f.gate()
		f.publish("e1", "", true)
		f.publish("e2", "", true)
		synctest.Wait()
		c.wants("e1/1 e2/1")
		ack := c.ack("e1")
		f.publish("e3", "", true)
		synctest.Wait()
		c.wants("e3/1")
		f.publish("e4", "", true) // beyond what the last save reached
		synctest.Wait()
		c.wants("")
		c.nack(0, "e2")
		c.wants("") // a second delivery is saved first
		if ack.ok() {
			t.Error("an ack is answered that is not saved")
		}
		f.letOneSave()
		c.wants("e4/1") // that save reaches it, and does not have e2's second delivery
		open()
		c.wants("e2/2")
		if !ack.ok() {
			t.Error("an ack that is saved is not answered")
		}
		c.ack("e2", "e3", "e4")
	})
}

// The end of a save sends only what that save has: what was assigned since waits for the next one.
func TestSaveSendsWhatItHas(t *testing.T) {
	runReaching(t, func(t *testing.T, f *fleet, a, _ *sidecar) {
		c := f.receives(a)
		g := a.group()
		g.worker.Stop() // the test makes the turns
		step := func() save {
			s, ok := g.step(g.cfg.Clock.Now())
			if !ok || s.empty() {
				t.Fatal("there is nothing to save")
			}
			return s
		}
		c.ack("e1")
		advance(time.Second)
		f.publish("e2", "", true)
		g.fetch(t.Context())
		first := step()
		g.flush()
		c.wants("e2/1")
		c.nack(0, "e2")
		g.saved(first, nil)
		second := step()
		g.flush() // of the first save
		c.wants("")
		g.saved(second, nil)
		g.flush()
		c.wants("e2/2")
		c.ack("e2")
	})
}

// While the ack of an event is in memory alone, no later event of its key is sent: a kill would bring
// the first one back behind it.
func TestAckInMemoryHoldsItsKey(t *testing.T) {
	runReaching(t, func(t *testing.T, f *fleet, a, b *sidecar) {
		c, d := a.join(), b.join()
		advance(lease) // they are announced
		f.publish("e1", "k", true)
		synctest.Wait()
		c.wants("e1/1")
		open := f.gate()
		c.ack("e1")
		f.publish("e2", "k", true)
		f.publish("e3", "l", true)
		synctest.Wait()
		c.wants("e3/1")
		f.log.locked(func() { f.log.saveErr = errStore })
		open()
		c.wants("")
		a.kill()
		f.log.locked(func() { f.log.saveErr = nil })
		advance(2 * lease)
		d.wants("e1/2 e3/2")
		d.ack("e1", "e3")
		d.wants("e2/2") // it was within the reach
		d.ack("e2")
	})
}

// An event that kills every sidecar that delivers it becomes a dead letter, also with a single attempt.
// Those behind it, which were never sent and might have been, count once and come.
func TestPoisonIsBuriedAlone(t *testing.T) {
	runReaching(t, func(t *testing.T, f *fleet, a, b *sidecar) {
		c := a.join(attempts(1))
		advance(lease) // it is announced
		for _, id := range []string{"poison", "e2", "e3"} {
			f.publish(id, "k", true)
		}
		synctest.Wait()
		c.wants("poison/1")
		for n, victim := 2, a; len(f.deadLetters.appended) == 0; n++ {
			if n > 10 {
				t.Fatal("it is not buried")
			}
			c = b.join(attempts(1))
			victim.kill()
			victim, b = b, f.start("s"+strings.Repeat("x", n))
			for range 20 {
				advance(lease / 10)
			}
			if got := c.take(); !strings.HasPrefix(got, "poison/") && len(f.deadLetters.appended) == 0 {
				t.Fatalf("got %q", got)
			} else if len(f.deadLetters.appended) > 0 && got != "e2/2" {
				t.Errorf("got %q, want e2/2", got)
			}
		}
		c.ack("e2")
		c.wants("e3/2")
		c.ack("e3")
		if n := len(f.deadLetters.appended); n != 1 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// What an owner has released in order reaches nothing: its death later counts for nothing.
func TestReleaseWithoutAnEnd(t *testing.T) {
	runReaching(t, func(t *testing.T, f *fleet, a, b *sidecar) {
		c := b.join(window(1), attempts(1)) // a has no members yet
		f.publish("e1", "", true)
		f.publish("e2", "", true)
		synctest.Wait()
		c.wants("e1/1")
		d := a.join(window(1), attempts(1))
		advance(4 * time.Second) // of which e1 has DrainWait
		b.kill()
		advance(2 * lease)
		d.wants("e1/1")
		d.ack("e1")
		d.wants("e2/1")
		d.ack("e2")
	})
}

// A new owner sends nothing before its first save, whatever the one before it had reached.
func TestNewOwnerSavesFirst(t *testing.T) {
	runReaching(t, func(t *testing.T, f *fleet, a, b *sidecar) {
		c, d := a.join(), b.join()
		advance(lease) // they are announced
		f.publish("e1", "", true)
		synctest.Wait()
		c.wants("e1/1")
		a.kill()
		open := f.gate()
		advance(lease)
		advance(lease)
		f.publish("e2", "", true)
		synctest.Wait()
		if n := f.log.number(partitionZero); n < 3 {
			t.Fatalf("epoch %d", n)
		}
		d.wants("")
		open()
		d.wants("e1/2 e2/1")
		d.ack("e1", "e2")
	})
}

// A seek by another sidecar leaves the partition to its owner, who may still deliver from where it was:
// nobody else does, until the owner has learned of the seek or its lease has passed.
func TestSeekOverALiveOwner(t *testing.T) {
	for _, dies := range []bool{false, true} {
		runReaching(t, func(t *testing.T, f *fleet, a, b *sidecar) {
			c := f.receives(a)
			c.ack("e1")
			f.setDeaf(true)
			b.seek(wire.FromEarliest)
			var at eventlog.Epoch
			f.log.locked(func() { at = f.log.epochs[partitionZero] })
			if !a.roster.Ours(at.Owner) || at.Released {
				t.Errorf("the partition is %s's, released: %v", at.Owner, at.Released)
			}
			open := f.gate() // a learns nothing from its saves
			d := b.join()
			f.publish("e2", "", true)
			synctest.Wait()
			c.wants("e2/1")
			d.wants("")
			if dies {
				a.path.die()
			}
			open()
			if dies {
				a.kill()
			}
			f.setDeaf(false)
			advance(3 * lease)
			if all := c.take() + d.take(); all != "e1/1 e2/1" {
				t.Errorf("after the seek came %q", all)
			}
			d.ackAll()
			c.ack("e1", "e2")
		})
	}
}

// An owner that has learned of a seek over it takes the partition from itself, and saves before it sends
// anything from the new position, whatever it had reached before.
func TestSeekEndsTheReach(t *testing.T) {
	runReaching(t, func(t *testing.T, f *fleet, a, b *sidecar) {
		c := f.receives(a)
		c.ack("e1")
		for _, s := range []*sidecar{b, a} {
			open := f.gate()
			seeking := make(chan struct{})
			go func() {
				defer close(seeking)
				if err := s.m.Seek(t.Context(), topic, "g", wire.SubscribeOptions{From: wire.FromEarliest}); err != nil {
					t.Errorf("seek: %v", err)
				}
			}()
			advance(time.Second)
			c.wants("")
			open()
			<-seeking
			advance(time.Second)
			c.wants("e1/1")
			c.ack("e1")
		}
	})
}

// After a save that failed, which may have been refused, nothing goes before one has succeeded.
func TestFailedSaveEndsTheReach(t *testing.T) {
	runReaching(t, func(t *testing.T, f *fleet, a, _ *sidecar) {
		c := f.receives(a)
		f.log.locked(func() { f.log.saveErr = errStore })
		c.ack("e1")
		f.publish("e2", "", true)
		advance(time.Second)
		c.wants("")
		f.log.locked(func() { f.log.saveErr = nil })
		advance(time.Second)
		c.wants("e2/1")
		c.ack("e2")
	})
}

// A sidecar whose life was declared dead, and that goes on as its next life, saves before it sends more.
func TestNextLifeSavesFirst(t *testing.T) {
	runReaching(t, func(t *testing.T, f *fleet, a, _ *sidecar) {
		c := f.receives(a)
		a.path.pause(false)
		advance(2 * lease) // the other sidecar declares it dead, and has no members
		open := f.gate()
		a.path.wake()
		advance(2 * time.Second)
		f.publish("e2", "", true)
		synctest.Wait()
		if n := f.log.number(partitionZero); n != 3 {
			t.Fatalf("epoch %d, want the one after a's first", n)
		}
		c.wants("")
		open()
		c.wants("e2/1")
		c.ack("e1", "e2")
	})
}

// An id whose mark is on its way to the store is not delivered again.
func TestMarkOnItsWay(t *testing.T) {
	runReaching(t, func(t *testing.T, f *fleet, a, _ *sidecar) {
		c := f.receives(a, exactlyOnce)
		open := f.gate()
		ack := c.ack("e1")
		f.publish("e1", "", true) // its deduplication window is over
		f.publish("e2", "", true)
		synctest.Wait()
		c.wants("e2/1")
		open()
		c.wants("")
		if !ack.ok() {
			t.Error("the ack is not answered")
		}
		c.ack("e2")
	})
}
