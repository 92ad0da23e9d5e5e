package group

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
)

func (f *fleet) wantOwners(want string) {
	f.t.Helper()
	if got := f.owners(); got != want {
		f.t.Fatalf("owned by %s, want %s", got, want)
	}
}

// Sidecars that come and go get their share at once, as long as signals arrive, and no event is
// delivered twice.
func TestPartitionsFollowMembers(t *testing.T) {
	runFleet(t, 8, func(t *testing.T, f *fleet) {
		a, b := f.start("a"), f.start("b")
		ca := a.join()
		f.wantOwners("a a a a a a a a")
		f.publishN(40)
		cb := b.join()
		advance(100 * time.Millisecond) // a drains partitions with nothing in flight
		if got := f.owners(); !strings.Contains(got, "-") && got != f.rendezvous("a", "b") {
			t.Errorf("owned by %s", got)
		}
		for range 10 {
			ca.ackAll()
			cb.ackAll()
		}
		advance(time.Second)
		f.wantOwners(f.rendezvous("a", "b"))
		f.publishN(40)
		for range 10 {
			ca.ackAll()
			cb.ackAll()
		}
		c := f.start("c")
		cc := c.join()
		advance(time.Second)
		f.wantOwners(f.rendezvous("a", "b", "c"))
		ca.leave(Unsubscribed)
		advance(time.Second)
		f.wantOwners(f.rendezvous("b", "c"))
		b.stop()
		advance(time.Second)
		f.wantOwners(f.rendezvous("c"))
		f.publishN(40)
		for range 10 {
			cc.ackAll()
		}
		if lag := c.info().Lag; lag != 0 {
			t.Errorf("lag %d", lag)
		}
		seen := make(map[string]int)
		for _, x := range []*client{ca, cb, cc} {
			for _, id := range x.all {
				seen[id]++
			}
		}
		if len(seen) != 120 {
			t.Errorf("%d events came", len(seen))
		}
		for id, n := range seen {
			if n != 1 {
				t.Errorf("%s came %d times", id, n)
			}
		}
	})
}

func (s *sidecar) info() wire.GroupInfo {
	s.t.Helper()
	return (&world{t: s.t, m: s.m}).info()
}

// ackAll acks the deliveries since the last call, and remembers them.
func (c *client) ackAll() {
	c.mu.Lock()
	var ids []string
	for _, d := range c.got {
		ids = append(ids, d.Record.ID)
	}
	c.got = nil
	c.mu.Unlock()
	c.all = append(c.all, ids...)
	c.ack(ids...)
}

// Events in flight at a sidecar that is killed come again elsewhere within the lease and a little
// more, with a higher attempt; acked events do not.
func TestTakeoverTime(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		a, b := f.start("a"), f.start("b")
		first, second := a, b
		if f.rendezvous("a", "b") == "b" {
			first, second = b, a
		}
		c := first.join()
		d := second.join()
		f.publish("e1", "k", true)
		f.publish("e2", "k", true)
		f.publish("e3", "", true)
		synctest.Wait()
		c.wants("e1/1 e3/1")
		if !c.ack("e3").ok() {
			t.Fatal("refused")
		}
		advance(lease)
		killed := time.Now()
		first.kill()
		for d.waiting() == 0 {
			advance(50 * time.Millisecond)
			if time.Since(killed) > 2*lease {
				t.Fatal("nobody takes over")
			}
		}
		if took := time.Since(killed); took < lease*7/10 || took > lease*13/10 {
			t.Errorf("takeover took %v", took)
		}
		d.wants("e1/2")
		d.ack("e1")
		d.wants("e2/1")
	})
}

// A partition waits for its events in flight before it goes elsewhere, for a bounded time.
// Deliveries that are still in flight then do not count.
func TestDrain(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		last := f.rendezvous("a", "b")
		first := map[string]string{"a": "b", "b": "a"}[last]
		a, b := f.start(first), f.start(last)
		c := a.join(attempts(1))
		f.publish("e1", "k", true)
		f.publish("e2", "k", true)
		f.publish("e3", "", true)
		synctest.Wait()
		c.wants("e1/1 e3/1")
		d := b.join(attempts(1))
		advance(ownership.DrainWait / 2)
		c.ack("e3")
		c.wants("")
		d.wants("")
		advance(ownership.DrainWait / 4)
		f.publish("e4", "", true)
		synctest.Wait()
		c.wants("")
		d.wants("")
		advance(ownership.DrainWait/4 + 100*time.Millisecond)
		d.wants("e1/1 e4/1")
		c.nack(0, "e1")
		if !c.ack("e1").ok() {
			t.Error("an ack of what is not in flight here any more is not harmless")
		}
		c.wants("")
		d.ack("e1")
		d.wants("e2/1")
		if len(f.deadLetters.appended) != 0 {
			t.Error("a rebalance has made a dead letter")
		}
	})
}

// If a partition is to stay after all, its owner goes on delivering from it.
func TestDrainIsCalledOff(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		last := f.rendezvous("a", "b")
		first := map[string]string{"a": "b", "b": "a"}[last]
		a, b := f.start(first), f.start(last)
		c := a.join()
		f.publish("e1", "k", true)
		synctest.Wait()
		d := b.join()
		advance(ownership.DrainWait / 3)
		d.leave(Unsubscribed)
		advance(ownership.DrainWait / 3)
		f.publish("e2", "", true)
		synctest.Wait()
		c.wants("e1/1 e2/1")
		if n := f.log.number(partitionZero); n != 2 {
			t.Errorf("epoch %d", n)
		}
	})
}

// A paused owner that wakes up after a takeover changes nothing: it makes no deliveries, its acks
// are refused, and it takes part again.
func TestPausedOwner(t *testing.T) {
	for _, late := range []bool{false, true} {
		runFleet(t, 1, func(t *testing.T, f *fleet) {
			a, b := f.start("a"), f.start("b")
			first, second := a, b
			if f.rendezvous("a", "b") == "b" {
				first, second = b, a
			}
			c, d := first.join(), second.join()
			f.publish("e1", "k", true)
			f.publish("e2", "k", true)
			synctest.Wait()
			c.wants("e1/1")
			first.path.pause(late)
			ack := c.ack("e1") // is saved at once and answered late, or saved too late
			advance(2 * lease)
			if late {
				d.wants("e1/2")
				d.ack("e1")
				d.wants("e2/1")
			} else { // its first delivery was saved, and never made
				d.wants("e2/2")
			}
			f.publish("e3", "k", true)
			d.ack("e2")
			d.wants("e3/1")
			first.path.wake()
			advance(100 * time.Millisecond)
			c.wants("")
			if ack.ok() == late || late && !isStale(ack) {
				t.Errorf("late %v: the ack was answered %v", late, ack.err.Load())
			}
			if again := c.ack("e1"); !again.ok() {
				t.Errorf("an ack of what is not in flight any more: %v", again.err.Load())
			}
			d.ack("e3")
			advance(2 * lease)
			f.wantOwners(first.name)
			f.publish("e4", "k", true)
			synctest.Wait()
			c.wants("e4/1")
		})
	}
}

// Progress that the earlier owner saves until the moment of the takeover counts.
func TestTakeoverInherits(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		a := f.start("a")
		c := a.join()
		f.publish("e1", "", true)
		f.publish("e2", "", true)
		synctest.Wait()
		c.wants("e1/1 e2/1")
		a.kill()
		b := f.start("b")
		d := b.join()
		f.log.locked(func() {
			f.log.onTake = func() { // a save that was on its way arrives
				e := f.log.epochs[partitionZero]
				e.Progress.Cursor, e.Progress.Attempts[0].First = 2, 2
				f.log.epochs[partitionZero] = e
				f.log.onTake = nil
			}
		})
		advance(2 * lease)
		d.wants("e2/2")
	})
}

// While the store is away from all sidecars they soon deliver nothing. When it is back, all goes on
// where it was, with the events in flight.
func TestStoreAway(t *testing.T) {
	runFleet(t, 4, func(t *testing.T, f *fleet) {
		a, b := f.start("a"), f.start("b")
		ca, cb := a.join(), b.join()
		advance(lease)
		f.wantOwners(f.rendezvous("a", "b"))
		f.publishN(8)
		had := ca.waiting() + cb.waiting()
		for _, s := range f.live() {
			s.path.fail(errStore)
		}
		advance(25 * time.Second)
		f.wantOwners("- - - -")
		for _, s := range f.live() {
			s.path.fail(nil)
		}
		advance(3 * time.Second)
		f.wantOwners(f.rendezvous("a", "b"))
		f.publishN(8)
		if n := ca.waiting() + cb.waiting(); n != 2*had || had != 8 {
			t.Errorf("%d deliveries of 16 events, %d before", n, had)
		}
		ca.ackAll()
		cb.ackAll()
		if lag := a.info().Lag; lag != 0 {
			t.Errorf("lag %d", lag)
		}
	})
}

// A save that meets one partition that was taken over still saves the others.
func TestFencedSave(t *testing.T) {
	runFleet(t, 2, func(t *testing.T, f *fleet) {
		a := f.start("a")
		c := a.join()
		f.publish("x", keyOf(0, 2), true)
		f.publish("y", keyOf(1, 2), true)
		synctest.Wait()
		c.take()
		f.setDeaf(true)
		f.log.locked(func() { // another sidecar takes partition 0 by force
			e := f.log.epochs[partitionZero]
			e.Number, e.Owner, e.Released = e.Number+1, "b/1", true
			f.log.epochs[partitionZero] = e
		})
		both := c.ack("x", "y")
		if both.ok() {
			t.Error("an ack was answered that is not saved")
		}
		advance(2 * time.Second)
		c.wants("x/2") // its ack is lost, and a has taken it back
		info := a.info()
		if info.Partitions[1].Cursor != 2 || info.Partitions[0].Owner != "a" {
			t.Errorf("info %+v", info)
		}
		a.kill()
		d := f.start("b")
		advance(2 * lease)
		d.join().wants("x/3")
	})
}
