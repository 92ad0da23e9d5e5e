package group

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/test/require"
)

// An ack that waited for a save of a partition that is lost is refused, even if no save has begun
// with it.
func TestAcksOfALostPartition(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		first, second := f.pair()
		c, d := first.join(), second.join()
		f.publish("e1", "", true)
		f.publish("e2", "", true)
		synctest.Wait()
		c.wants("e1/1 e2/1")
		first.path.pause(true)
		under, waits := c.ack("e1"), c.ack("e2")
		advance(2 * lease)
		d.wants("e1/2 e2/2")
		first.path.wake()
		advance(lease / 100)
		if !isStale(under) || !isStale(waits) {
			t.Errorf("answered %v and %v", under.err.Load(), waits.err.Load())
		}
	})
}

// pair starts two sidecars; with members on both, the first is to have the only partition.
func (f *fleet) pair() (first, second *sidecar) {
	a, b := f.start("a"), f.start("b")
	if f.rendezvous("a", "b") == "b" {
		return b, a
	}
	return a, b
}

// A partition that another sidecar takes while its owner renews it is lost.
func TestRenewalThatIsTooLate(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		a := f.start("a")
		c := a.join()
		f.publish("e1", "", true)
		synctest.Wait()
		c.wants("e1/1")
		a.path.fail(errStore)
		advance(2 * lease)
		life := a.roster.Standing().ID
		if dead, _ := f.nodes.DeclareDead(t.Context(), life, f.nodes.Node(life).Beat); !dead {
			t.Fatal("it is not there")
		}
		f.log.locked(func() {
			f.log.onTake = func() {
				e := f.log.epochs[partitionZero]
				e.Number, e.Owner, e.Released = e.Number+1, "b/1", true
				f.log.epochs[partitionZero] = e
				f.log.onTake = nil
			}
		})
		a.path.fail(nil)
		advance(lease)
		c.wants("e1/2")
		if n := f.log.number(partitionZero); n != 4 {
			t.Errorf("epoch %d", n)
		}
	})
}

// A sidecar that may have lost a partition appends no dead letter of it.
func TestNoDeadLetterAfterATakeover(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		eff := *f.policy.Load()
		eff.Delivery.MaxAttempts = 1
		f.policy.Store(&eff)
		first, second := f.pair()
		c, d := first.join(), second.join()
		f.publish("e1", "k", true)
		f.publish("e2", "", true)
		synctest.Wait()
		c.wants("e1/1 e2/1")
		first.path.pause(false)
		c.ack("e2") // is being saved
		c.nack(0, "e1")
		advance(2 * lease)
		d.wants("e1/2") // perhaps no member got it the first time
		first.path.wake()
		advance(lease / 100)
		if n := len(f.deadLetters.appended); n != 0 {
			t.Errorf("%d dead letters", n)
		}
	})
}

// While there is no primary, sidecars deliver nothing and declare no one dead. In the end all is as
// it was, and no deadline has passed.
func TestAnElectionThatOutlastsTheLease(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		eff := *f.policy.Load()
		eff.Delivery.AckTimeout = lease
		f.policy.Store(&eff)
		first, second := f.pair()
		c, d := first.join(), second.join()
		f.publish("e1", "", true)
		synctest.Wait()
		c.wants("e1/1")
		lives, epoch := [2]string{first.roster.Standing().ID, second.roster.Standing().ID}, f.log.number(partitionZero)
		for _, s := range f.live() {
			s.path.fail(errStore)
		}
		advance(lease * 12 / 10)
		if first.roster.Valid(time.Now()) {
			t.Error("valid without a beat")
		}
		for _, s := range f.live() {
			s.path.fail(nil)
		}
		advance(lease / 10)
		if now := [2]string{first.roster.Standing().ID, second.roster.Standing().ID}; now != lives || f.log.number(partitionZero) != epoch {
			t.Errorf("lives %v after %v, epoch %d after %d", now, lives, f.log.number(partitionZero), epoch)
		}
		c.wants("")
		d.wants("")
		if a := c.ack("e1"); !a.ok() {
			t.Errorf("answered %v", a.err.Load())
		}
	})
}

// The store does not hear of a sidecar's stop. Once the next process has told it, the stop counts
// no attempt, even where only one is allowed. A delay outlasts the owner.
func TestAStopWhileTheStoreIsAway(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		first, second := f.pair()
		c, d := first.join(attempts(2)), second.join(attempts(2))
		f.publish("e1", "", true)
		f.publish("e2", "", true)
		synctest.Wait()
		c.wants("e1/1 e2/1")
		c.nack(time.Hour, "e2")
		life := first.roster.Standing().ID
		first.kill() // nothing of its stop arrives
		require.NoError(t, f.nodes.EndNode(t.Context(), life))
		advance(lease)
		d.wants("e1/1")
		d.ack("e1")
		advance(time.Hour - 2*lease)
		d.wants("")
		advance(2 * lease)
		d.wants("e2/2")
	})
}
