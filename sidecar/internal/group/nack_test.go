package group

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func hold(d time.Duration) wire.Nack { return wire.Nack{Hold: true, DelayMS: new(d.Milliseconds())} }

func (c *client) nackAs(how wire.Nack, ids ...string) *answer {
	a := &answer{}
	c.Nack(ids, how, a.set)
	synctest.Wait()
	return a
}

// A nack that asks for the dead letters is answered once the event is there.
func TestNackToDeadLetters(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b:k")
		c := w.join()
		c.wants("a/1")
		w.deadLetters.set(func() { w.deadLetters.hold = true })
		a := c.nackAs(wire.Nack{DeadLetter: true, Reason: "poison"}, "a")
		advance(time.Minute)
		if a.given.Load() {
			t.Error("answered before the dead letter was durable")
		}
		c.wants("")
		w.deadLetters.release(nil)
		synctest.Wait()
		if !a.ok() {
			t.Errorf("the nack was not answered: %v", a.err.Load())
		}
		c.wants("b/1")
		w.kill()
		w.join().wants("b/2") // a is settled durably
	})
	run(t, func(t *testing.T, w *world) {
		w.publish("a")
		c := w.join()
		c.wants("a/1")
		if a := c.nackAs(wire.Nack{DeadLetter: true, Reason: "poison"}, "a"); !a.ok() {
			t.Errorf("the nack was not answered: %v", a.err.Load())
		}
		h := w.deadLetters.appended[0].Headers
		reason, _ := h.Get(wire.HeaderDeadReason)
		attempts, _ := h.Get(wire.HeaderDeadAttempts)
		if reason != "poison" || attempts != "1" {
			t.Errorf("the dead letter says %q after %s attempts", reason, attempts)
		}
		advance(time.Hour)
		c.wants("")
	})
}

// A nack waits for a dead letter that will not be appended here. Its answer says so.
func TestNackToDeadLettersCannotBeMade(t *testing.T) {
	for name, end := range map[string]func(w *world){
		"seek": func(w *world) { w.seekEarliest() },
		"stop": func(w *world) { _ = w.m.Stop(context.Background()); w.start() },
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.publish("a")
				c := w.join()
				c.wants("a/1")
				w.deadLetters.set(func() { w.deadLetters.err = errStore })
				a := c.nackAs(wire.Nack{DeadLetter: true}, "a")
				end(w)
				synctest.Wait()
				if !a.failed() {
					t.Error("the nack was not refused")
				}
			})
		})
	}
}

// An event nacked with hold counts no attempt, and its key waits. Both survive a kill and a stop.
func TestNackHold(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b:k", "c:other")
		c := w.join(attempts(2))
		c.wants("a/1 c/1")
		if !c.ack("c").ok() {
			t.Error("the ack failed")
		}
		for range 5 {
			if !c.nackAs(hold(time.Hour), "a").ok() {
				t.Error("the nack was not answered")
			}
			advance(time.Hour - time.Second)
			c.wants("")
			advance(time.Second)
			c.wants("a/1")
		}
		c.nackAs(hold(time.Hour), "a")
		w.kill()
		c = w.join(attempts(2))
		advance(time.Hour - time.Second)
		c.wants("")
		advance(time.Second)
		c.wants("a/1")
		c.nackAs(hold(time.Hour), "a")
		w.stop()
		w.start()
		c = w.join(attempts(2))
		advance(time.Hour - time.Second)
		c.wants("")
		advance(time.Second)
		c.wants("a/1")
		c.ack("a")
		c.wants("b/1")
	})
}

// An event that became a dead letter is not delivered again, though its sidecar was killed before
// it saved that.
func TestDeadLetterOfWhoWasKilled(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b:k")
		c := w.join()
		c.wants("a/1")
		w.deadLetters.onAppend = func(*eventlog.Record) { w.log.locked(func() { w.log.saveErr = errStore }) }
		c.nackAs(toDeadLetters, "a")
		synctest.Wait()
		w.deadLetters.onAppend = nil
		w.wantDead("a")
		w.kill()
		w.log.locked(func() { w.log.saveErr = nil })
		c = w.join()
		c.wants("b/1")
		c.ack("b")
		w.wantDead("a")
		advance(time.Second)
		w.seekEarliest() // from here on it is to come again
		c.wants("a/1")
	})
	run(t, func(t *testing.T, w *world) {
		w.publish("a")
		c := w.join()
		c.wants("a/1")
		c.nackAs(toDeadLetters, "a")
		w.redrive("a")
		c.wants("a/1")
		w.deadLetters.onAppend = func(*eventlog.Record) { w.log.locked(func() { w.log.saveErr = errStore }) }
		c.nackAs(toDeadLetters, "a")
		synctest.Wait()
		w.deadLetters.onAppend = nil
		w.kill()
		w.log.locked(func() { w.log.saveErr = nil })
		c = w.join()
		c.wants("")
		w.wantDead("a")
	})
}
