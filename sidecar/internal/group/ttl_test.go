package group

import (
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// publishFor stores an event with a ttl that is accepted now.
func (w *world) publishFor(ttl time.Duration, id, key string) {
	rec := record(id, key)
	rec.AcceptedAt, rec.TTLMS = rec.TS, ttl.Milliseconds()
	w.log.append(topic, rec)
	advance(0)
}

// A group delivers no event whose ttl has passed, neither for the first time nor again. The next
// event of its key goes on, and the expired one is settled for good.
func TestTTL(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		c := w.join(window(1))
		w.publishFor(time.Second, "a", "k")
		w.publishFor(time.Second, "b", "k")
		w.publishFor(10*time.Second, "c", "k")
		w.publish("d:k")
		c.wants("a/1")
		advance(time.Second)
		c.nack(0, "a") // the very last moment
		c.wants("a/2")
		advance(time.Millisecond)
		c.nack(0, "a")
		c.wants("c/1")
		advance(20 * time.Second)
		c.ack("c") // that it is late does not count any more
		c.wants("d/1")
		c.ack("d")
		if info := w.info(); info.Lag != 0 || info.Partitions[0].Cursor != 5 {
			t.Errorf("lag %d, cursor %d", info.Lag, info.Partitions[0].Cursor)
		}
		if len(w.deadLetters.appended) != 0 {
			t.Errorf("%d dead letters", len(w.deadLetters.appended))
		}
		w.kill()
		w.join().wants("")
	})
}

// With retention.expired: dead_letter an expired event is a dead letter, whose redrive is
// delivered.
func TestTTLDeadLetter(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.setPolicy(func(e *policy.Effective) { e.Retention.Expired = policy.ExpiredDeadLetter })
		w.publishFor(time.Second, "a", "k")
		w.publishFor(time.Hour, "b", "k")
		advance(2 * time.Second)
		c := w.join()
		c.wants("b/1")
		if len(w.deadLetters.appended) != 1 {
			t.Fatalf("%d dead letters", len(w.deadLetters.appended))
		}
		got := w.deadLetters.appended[0]
		for name, want := range map[string]string{wire.HeaderDeadReason: "expired", wire.HeaderDeadAttempts: "0", wire.HeaderDeadID: "a"} {
			if v, _ := got.Headers.Get(name); v != want {
				t.Errorf("header %s is %q, want %q", name, v, want)
			}
		}
		if got.TTLMS != 0 {
			t.Errorf("the dead letter has a ttl of %d ms itself", got.TTLMS)
		}
	})
}
