package group

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
)

func inGroup(name string) option { return func(s *Subscription) { s.Group = name } }

func groups(text policy.Groups) func(*policy.Effective) {
	return func(e *policy.Effective) { e.Groups = text }
}

// A group that its policy pauses is sent nothing, its acks count, and other groups of the topic get
// their events. Without the pause it goes on at once.
func TestPausedByPolicy(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c, other := w.join(window(2)), w.join(inGroup("h"))
		w.publish("a")
		c.wants("a/1")
		w.setPolicy(groups(`{"g":{"paused":true}}`))
		w.publish("b")
		c.wants("")
		other.wants("a/1 b/1")
		late := w.join()
		late.wants("")
		if a := c.ack("a"); !a.ok() {
			t.Error("the ack of a paused group was not answered")
		}
		info := w.info()
		if !info.Paused || info.Lag != 1 || *info.Members[0].BlockedBy != dispatch.BlockedPaused {
			t.Errorf("got %+v", info)
		}
		late.leave(Disconnected)
		w.setPolicy(groups(""))
		c.wants("b/1")
		if w.info().Paused {
			t.Error("it is said to be paused still")
		}
	})
}

// Events that a group has in flight when it is paused time out as ever, and come again after the
// pause.
func TestDeadlinesRunWhilePaused(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.join()
		w.publish("a")
		c.wants("a/1")
		w.setPolicy(groups(`{"g":{"paused":true}}`))
		advance(time.Hour)
		c.wants("")
		w.kill() // and so it stays
		c = w.join()
		c.wants("")
		w.setPolicy(groups(`{"g":{"paused":false}}`))
		c.wants("a/2")
	})
}

// The rate is for all members of the group together, and takes nothing from the bucket of a
// connection that has to wait for it.
func TestGroupRate(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.setPolicy(groups(`{"g":{"rate":10}}`))
		w.publishN(100, "")
		c, d, other := w.join(), w.join(), w.join(inGroup("h"))
		if n := len(other.take()); n == 0 {
			t.Error("another group got nothing")
		}
		for second := range 4 {
			if n, want := len(c.got)+len(d.got), 10*(second+1); n != want {
				t.Fatalf("%d came within %d s, want %d", n, second, want)
			}
			if why := w.info().Members[0].BlockedBy; why == nil || *why != dispatch.BlockedRate {
				t.Errorf("blocked by %v", why)
			}
			advance(time.Second)
		}
		w.setPolicy(groups(""))
		if n := len(c.got) + len(d.got); n != 100 {
			t.Errorf("%d came once there was no limit", n)
		}
	})
}

func TestGroupRateGivesTokensBack(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.setPolicy(groups(`{"g":{"rate":2}}`))
		w.publishN(10, "")
		slow := w.join(paced(time.Hour))
		if n := len(slow.got); n != 1 {
			t.Fatalf("%d came", n)
		}
		c := w.join()
		if n := len(c.got); n != 1 { // the second token of the burst, which slow could not use
			t.Errorf("%d came", n)
		}
	})
}

// A group's limit of events in flight is for all its members together, and takes the place of the
// topic's limit for each of them.
func TestGroupMaxInflight(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.setPolicy(func(e *policy.Effective) { e.Groups, e.Delivery.MaxInflight = `{"g":{"max_inflight":3}}`, 1 })
		w.publishN(10, "")
		c, d := w.join(window(2)), w.join()
		if len(c.got) != 2 || len(d.got) != 1 {
			t.Fatalf("%d and %d came", len(c.got), len(d.got))
		}
		for _, m := range w.info().Members {
			if m.BlockedBy == nil || *m.BlockedBy != dispatch.BlockedMaxInflight {
				t.Errorf("blocked by %v", m.BlockedBy)
			}
		}
		if c.ack("e1"); len(c.got)+len(d.got) != 4 {
			t.Errorf("%d came after an ack", len(c.got)+len(d.got))
		}
		w.setPolicy(groups(`{"g":{"max_inflight":5}}`))
		if n := len(c.got) + len(d.got); n != 6 {
			t.Errorf("%d came with a higher limit", n)
		}
		w.setPolicy(func(e *policy.Effective) { e.Groups, e.Delivery.MaxInflight = `{"g":{"max_inflight":0}}`, 100 })
		if n := len(c.got) + len(d.got); n != 10 {
			t.Errorf("%d came without a limit", n)
		}
	})
}

// Sidecars share a group's rate and its window by the partitions that they have.
func TestGroupLimitsOfAFleet(t *testing.T) {
	runFleet(t, 8, func(t *testing.T, f *fleet) {
		f.setPolicy(groups(`{"g":{"rate":40,"max_inflight":80}}`))
		var clients []*client
		for _, name := range []string{"a", "b", "c"} {
			clients = append(clients, f.start(name).join(window(100)))
		}
		advance(3 * lease)
		owners := f.owners()
		for i := range 1000 {
			f.publish(fmt.Sprint("e", i), "", true)
		}
		synctest.Wait()
		total := func() (n int) {
			for _, c := range clients {
				n += c.waiting()
			}
			return n
		}
		if n := total(); n > 40 {
			t.Errorf("%d came at once: more than the burst; owners %s", n, owners)
		}
		advance(10 * time.Second)
		if n := total(); n > 80 || n < 60 {
			t.Errorf("%d are in flight, want at most 80; owners %s", n, owners)
		}
		before := total()
		for range 100 {
			for _, c := range clients {
				c.Ack(c.idsGot(), func(error) {})
			}
			advance(100 * time.Millisecond)
		}
		if n := total() - before; n > 40*10+40 || n < 40*10*8/10 {
			t.Errorf("%d came in 10 s at a rate of 40; owners %s", n, owners)
		}
		f.setPolicy(groups(`{"g":{"paused":true}}`))
		before = total()
		advance(time.Minute)
		if total() != before {
			t.Errorf("%d came while paused", total()-before)
		}
	})
}

func (f *fleet) setPolicy(change func(*policy.Effective)) {
	eff := *f.policy.Load()
	change(&eff)
	f.policy.Store(&eff)
	for _, s := range f.live() {
		s.m.PoliciesChanged()
	}
	synctest.Wait()
}

// idsGot are the ids of all events that came.
func (c *client) idsGot() (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, d := range slices.Clone(c.got) {
		ids = append(ids, d.Record.ID)
	}
	return ids
}
