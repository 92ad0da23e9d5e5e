package group

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
)

func TestNothingAfterPauseOrClose(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		gate := make(chan struct{})
		w.log.saveGate = gate
		c, d := w.join(window(1)), w.join(window(1))
		w.publish("a", "b", "c", "d")
		c.Pause() // the deliveries are being saved
		d.Close(Disconnected)
		close(gate)
		synctest.Wait()
		c.wants("")
		d.wants("")
		e := w.join(window(1))
		if got := e.take(); len(got) != len("a/1") {
			t.Fatalf("got %q, want one event", got)
		}
		c.Resume()
		synctest.Wait()
		if got := c.take(); len(got) != len("a/1") {
			t.Fatalf("got %q, want one event", got)
		}
	})
}

// Events that a paused member is not sent go to another at once.
func TestPauseGivesWayToOthers(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c, other := w.join(), w.join()
		gate := make(chan struct{})
		w.log.locked(func() { w.log.saveGate = gate })
		w.publish("a") // assigned to c
		c.Pause()
		close(gate)
		synctest.Wait()
		c.wants("")
		other.wants("a/1")
	})
}

func TestWindowFollowsThePolicy(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publishN(10, "")
		c := w.join(window(4))
		if n := len(c.got); n != 4 {
			t.Fatalf("%d came", n)
		}
		w.setPolicy(func(p *policy.Effective) { p.Delivery.MaxInflight = 2 })
		c.take()
		c.ack("e1", "e2")
		c.wants("")
		c.ack("e3")
		c.wants("e5/1")
		if got := c.window.Opts.MaxInflight; got != 2 {
			t.Errorf("window %d", got)
		}
		w.setPolicy(func(p *policy.Effective) { p.Delivery.MaxInflight = 100 })
		c.wants("e6/1 e7/1")
	})
}

func TestRoomAndRate(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c")
		c := w.join(paced(time.Second))
		c.wants("a/1")
		advance(time.Second)
		c.wants("b/1")
		c.setFull(true)
		advance(time.Minute)
		c.wants("")
		c.setFull(false)
		c.Wake()
		synctest.Wait()
		c.wants("c/1")
		advance(2 * time.Second)
		c.wants("a/2 b/2")
	})
}

// One turn hands a connection a bounded number of bytes, and the next goes on.
func TestTurnBytes(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		for i := range 10 {
			rec := record(string(rune('a'+i)), "")
			rec.Payload = make([]byte, dispatch.TurnBytes/2)
			w.log.append(topic, rec)
		}
		c := w.join()
		if n := len(c.got); n != 10 {
			t.Fatalf("%d came", n)
		}
		if c.size > dispatch.TurnBytes+dispatch.TurnBytes/2+1000 {
			t.Errorf("%d bytes in one go", c.size)
		}
	})
}

// A turn that stopped at its bound does not go on at once when its save failed. A turn that waits
// for a token does not either.
func TestTurnsRestWhileSavesFail(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.log.saveErr = errStore
		for i := range 4 {
			rec := record(string(rune('a'+i)), "")
			rec.Payload = make([]byte, dispatch.TurnBytes)
			w.log.append(topic, rec)
		}
		c, d := w.join(), w.join(paced(time.Millisecond)) // would not return
		advance(10 * retryAfterFailure)
		if n := w.saves(); n > 13 {
			t.Errorf("%d saves in 10 retries", n)
		}
		w.log.locked(func() { w.log.saveErr = nil })
		advance(time.Second)
		if n := len(c.got) + len(d.got); n != 4 {
			t.Errorf("%d came", n)
		}
	})
}
