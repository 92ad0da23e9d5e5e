package group

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
)

// A seek moves all partitions, also those that other sidecars own, which stop at once.
func TestSeekFromElsewhere(t *testing.T) {
	for _, deaf := range []bool{false, true} {
		runFleet(t, 4, func(t *testing.T, f *fleet) {
			a, b, c := f.start("a"), f.start("b"), f.start("c")
			ca, cb := a.join(), b.join()
			advance(lease)
			f.publishN(20)
			ca.ackAll()
			cb.ackAll()
			f.publishN(4)
			f.setDeaf(deaf)
			c.seek(wire.FromEarliest)
			advance(5 * lease) // at the latest: one group is checked in each lease
			f.wantOwners(f.rendezvous("a", "b"))
			for range 25 { // one of a key at a time
				ca.ackAll()
				cb.ackAll()
			}
			if info := c.info(); info.Lag != 0 || info.Inflight != 0 || len(info.Members) != 2 {
				t.Errorf("deaf %v: %+v", deaf, info)
			}
			if n := len(ca.all) + len(cb.all); n < 44 {
				t.Errorf("deaf %v: %d deliveries of 24 events, 20 of them twice", deaf, n)
			}
			for i, p := range c.info().Partitions {
				if want := strings.Fields(f.rendezvous("a", "b"))[i]; p.Owner != want || p.Cursor != p.Head+1 {
					t.Errorf("partition %+v, want it to be %s's", p, want)
				}
			}
			a.seek(wire.FromEarliest)
			advance(lease)
			if n := ca.waiting() + cb.waiting(); n == 0 {
				t.Errorf("deaf %v: nothing comes after a seek by an owner", deaf)
			}
		})
	}
}

// A group at rest asks the store only now and then, whether it still owns its partitions.
func TestIdleGroupsAskNothing(t *testing.T) {
	runFleet(t, 4, func(t *testing.T, f *fleet) {
		a, b := f.start("a"), f.start("b")
		a.join()
		b.join()
		advance(2 * lease)
		before := a.path.count()
		advance(10 * lease)
		// A beat and a look each time, and a check in each lease.
		if n := a.path.count() - before; n > 2*45+11 {
			t.Errorf("%d calls in 10 leases", n)
		}
		if epochs := f.log.number(partitionZero); epochs > 4 {
			t.Errorf("epoch %d", epochs)
		}
	})
}

// Each sidecar tells the lag of its own partitions, and one of them the lag of partitions without
// an owner.
func TestLagOfTheFleet(t *testing.T) {
	runFleet(t, 4, func(t *testing.T, f *fleet) {
		a, b := f.start("a"), f.start("b")
		lag := func() (sum int64) {
			for _, s := range f.live() {
				stats, _ := s.m.Stats()
				for _, st := range stats {
					sum += st.Lag
				}
			}
			return sum
		}
		ca := a.join(func(s *Subscription) { s.Options.MaxInflight = new(int) })
		b.join(func(s *Subscription) { s.Options.MaxInflight = new(int) })
		advance(lease)
		f.publishN(10)
		if got := lag(); got != 10 {
			t.Errorf("lag %d", got)
		}
		ca.leave(Unsubscribed)
		advance(lease)
		b.kill()
		advance(2 * lease)
		if got := lag(); got != 10 || strings.Contains(f.owners(), "a") {
			t.Errorf("lag %d, owned by %s", got, f.owners())
		}
		f.start("c")
		advance(lease)
		if got := lag(); got != 10 {
			t.Errorf("lag %d with two sidecars", got)
		}
	})
}

func TestNoPartition(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		a, b := f.start("a"), f.start("b")
		a.join()
		b.join()
		advance(lease)
		for _, s := range f.live() {
			want := dispatch.BlockedCaughtUp
			if f.owners() != s.name {
				want = dispatch.BlockedNoPartition
			}
			info := s.info()
			if by := info.Members[0].BlockedBy; by == nil || *by != want || info.Partitions[0].Owner != f.owners() {
				t.Errorf("%s is blocked by %v, want %s; owner %q", s.name, by, want, info.Partitions[0].Owner)
			}
		}
	})
}

// Dead letters that are on their way when their partition is lost are not settled by its owner.
func TestLateDeadLetter(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		a := f.start("a")
		f.policy.Store(func() *policy.Effective { e := *f.policy.Load(); e.Delivery.MaxAttempts = 1; return &e }())
		c := a.join()
		f.publish("e1", "k", true)
		synctest.Wait()
		c.wants("e1/1")
		f.deadLetters.set(func() { f.deadLetters.hold = true })
		c.nack(0, "e1")
		a.seek(wire.FromEarliest)
		c.wants("e1/1")
		f.deadLetters.release(nil)
		synctest.Wait()
		if g := a.group(); g.dispatch.DeadLettering != 0 {
			t.Errorf("%d on their way to the dead letter topic", g.dispatch.DeadLettering)
		}
		if !c.ack("e1").ok() || a.info().Lag != 0 {
			t.Error("the event that came again was settled by the dead letter")
		}
	})
}

func keyOf(partition, partitions int) string {
	for i := 0; ; i++ {
		if k := fmt.Sprint("k", i); partitionOf(k, partitions) == partition {
			return k
		}
	}
}
