package group

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
)

// redrive asks for the dead letters of these events to be delivered again.
func (w *world) redrive(ids ...string) {
	w.t.Helper()
	dead := w.log.dead()
	var rs []eventlog.Redrive
	for _, id := range ids {
		if len(dead[id]) != 1 {
			w.t.Fatalf("%s has %d dead letters", id, len(dead[id]))
		}
		rs = append(rs, dead[id][0].Redrive())
	}
	_ = w.log.AddRedrives(context.Background(), topic, rs)
	w.m.Redriven(topic, "g")
	synctest.Wait()
}

// wantDead wants these events to have one dead letter each, and no others.
func (w *world) wantDead(ids ...string) {
	w.t.Helper()
	dead := w.log.dead()
	if got := slices.Sorted(maps.Keys(dead)); !slices.Equal(got, ids) {
		w.t.Errorf("dead are %q; want %q", got, ids)
	}
	for id, ds := range dead {
		if len(ds) != 1 {
			w.t.Errorf("%s is dead %d times", id, len(ds))
		}
	}
}

var toDeadLetters = wire.Nack{DeadLetter: true, Reason: "poison"}

func TestRedrive(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b:k", "c:k", "d:k")
		c := w.join(attempts(2))
		for _, id := range []string{"a", "b", "c"} {
			c.wants(id + "/1")
			c.nackAs(toDeadLetters, id)
		}
		c.wants("d/1")
		c.ack("d")
		w.wantDead("a", "b", "c")
		letter := w.log.dead()["b"][0].ID

		w.redrive("c", "b", "a")
		c.wants("a/1") // in log order, one of the key at a time
		if ok := c.ack("a").ok(); !ok {
			t.Error("the ack failed")
		}
		w.wantDead("b", "c")
		c.wants("b/1")
		c.nack(0, "b")
		c.wants("b/2")
		c.nack(0, "b") // its attempts are used up
		w.wantDead("b", "c")
		if again := w.log.dead()["b"][0]; again.ID != letter || again.Letter.ID == letter || again.Event.Seq != 2 || again.Reason != "no good" {
			t.Errorf("dead again: %+v; want %s", again, letter)
		}
		c.wants("c/1")
		c.ack("c")
		w.wantDead("b")

		w.redrive("b")
		d := c.fakeSink.got[0]
		if h, _ := d.Record.Headers.Get(wire.HeaderRedriven); h != letter || d.Record.Seq != 2 || d.Record.Topic != topic || d.Record.Key != "k" {
			t.Errorf("redriven as %+v", d.Record)
		}
		for _, h := range d.Record.Headers {
			if strings.HasPrefix(h.Name, wire.HeaderDeadAll) {
				t.Errorf("redriven with the header %s", h.Name)
			}
		}
		c.wants("b/1")
		c.ack("b")
		w.wantDead()
		if n := len(w.log.redrives); n != 0 {
			t.Errorf("%d redrives are left", n)
		}
		advance(time.Hour)
		c.wants("")
		if info := w.info(); info.Lag != 0 || info.Inflight != 0 {
			t.Errorf("lag %d, in flight %d", info.Lag, info.Inflight)
		}
	})
}

// The progress of a redrive survives a kill, a stop, and an owner that had no time to take the
// dead letter away.
func TestRedriveSurvives(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		c := w.join()
		c.wants("a/1 b/1")
		c.nackAs(toDeadLetters, "a", "b")
		w.redrive("a", "b")
		c.wants("a/1 b/1")
		w.kill()
		c = w.join()
		c.wants("a/2 b/2")
		w.stop()
		w.start()
		c = w.join()
		c.wants("a/2 b/2")
		hour := time.Hour
		c.Nack([]string{"b"}, nack("later", &hour), func(error) {})
		w.log.locked(func() { w.log.endErr = errStore })
		if a := c.ack("a"); !a.failed() {
			t.Error("the ack was answered before its dead letter was gone")
		}
		w.kill()
		c = w.join()
		c.wants("")
		w.wantDead("a", "b")
		w.log.locked(func() { w.log.endErr = nil })
		advance(time.Second)
		w.wantDead("b") // the ack was recorded
		c.wants("")
		advance(time.Hour)
		c.wants("b/3")
		c.ack("b")
		w.wantDead()
	})
}

// A redrive that comes after its dead letter is gone has no effect. An event that retention has
// removed is delivered from its dead letter.
func TestRedriveOfWhatIsGone(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b")
		c := w.join()
		c.wants("a/1 b/1")
		ts := w.log.topics[topic][0][0].TS
		c.nackAs(toDeadLetters, "a", "b")
		late := w.log.dead()["b"][0].Redrive()
		w.redrive("b")
		c.wants("b/1")
		c.ack("b")
		_ = w.log.AddRedrives(context.Background(), topic, []eventlog.Redrive{late})
		w.m.Redriven(topic, "g")
		synctest.Wait()
		c.wants("")
		if n := len(w.log.redrives); n != 0 {
			t.Errorf("%d redrives are left", n)
		}
		w.log.locked(func() { w.log.topics[topic][0][0] = record("gone", "") })
		w.redrive("a")
		if rec := c.fakeSink.got[0].Record; rec.ID != "a" || rec.Seq != 1 || rec.TS != ts || rec.Key != "k" || rec.Topic != topic {
			t.Errorf("redriven as %+v", rec)
		}
		c.wants("a/1")
		c.ack("a")
		w.wantDead()
	})
}

// An event that was redriven, died again and is redriven again comes, whether its earlier dead letter
// is removed before, while or after the group looks for redrives.
func TestRedrivenAgain(t *testing.T) {
	for _, removed := range []string{"before", "while", "after"} {
		run(t, func(t *testing.T, w *world) {
			w.publish("a")
			c := w.join()
			c.wants("a/1")
			c.nackAs(toDeadLetters, "a")
			w.redrive("a")
			c.wants("a/1")
			ending := make(chan struct{})
			remove := func() {
				close(ending)
				time.Sleep(time.Millisecond)
			}
			w.log.locked(func() { w.log.ending = ending })
			c.nackAs(toDeadLetters, "a")
			dead := w.log.dead()["a"]
			last := slices.MaxFunc(dead, func(a, b eventlog.Dead) int { return len(a.Letter.ID) - len(b.Letter.ID) })
			if len(dead) != 2 {
				t.Fatalf("%d dead letters; want the earlier one and the next", len(dead))
			}
			switch removed {
			case "before":
				remove()
			case "while":
				w.log.locked(func() { w.log.onList = sync.OnceFunc(remove) })
			}
			_ = w.log.AddRedrives(context.Background(), topic, []eventlog.Redrive{last.Redrive()})
			w.m.Redriven(topic, "g")
			advance(time.Second)
			if removed == "after" {
				remove()
			}
			synctest.Wait()
			c.wants("a/1")
			c.ack("a")
			w.wantDead()
		})
	}
}

// A group that was moved back appends dead letters of earlier events under another id: their first
// dead letters are gone.
func TestDeadAgainAfterSeek(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a")
		c := w.join()
		c.wants("a/1")
		c.nackAs(toDeadLetters, "a")
		w.redrive("a")
		c.wants("a/1")
		c.ack("a")
		w.wantDead()
		advance(time.Second)
		w.seekEarliest()
		c.wants("a/1")
		c.nackAs(toDeadLetters, "a")
		w.wantDead("a")
	})
}

// Redriven events stay within the window, and each of many comes.
func TestRedriveMany(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		const n = 3*dispatch.RedrivesAhead + 7
		w.publishN(n, "")
		c := w.join(window(50))
		dead := true
		seen := map[string]int{}
		for range 2 * n {
			if c.waiting() > 50 {
				t.Fatalf("%d in flight with a window of 50", c.waiting())
			}
			c.fakeSink.mu.Lock()
			var ids []string
			for _, d := range c.fakeSink.got {
				ids = append(ids, d.Record.ID)
				seen[d.Record.ID]++
			}
			c.fakeSink.got = nil
			c.fakeSink.mu.Unlock()
			switch {
			case len(ids) > 0 && dead:
				c.nackAs(toDeadLetters, ids...)
			case len(ids) > 0:
				c.ack(ids...)
			case dead:
				dead = false
				w.redrive(slices.Collect(maps.Keys(w.log.dead()))...)
			default:
				w.wantDead()
				for id, times := range seen {
					if times != 2 {
						t.Errorf("%s came %d times", id, times)
					}
				}
				if len(seen) != n {
					t.Errorf("%d events came; want %d", len(seen), n)
				}
				return
			}
		}
		t.Error("it comes to no end")
	})
}
