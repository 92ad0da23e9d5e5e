package group

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/test/require"
)

func TestOneEventOfAKeyAtATime(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a1:a", "a2:a", "b1:b", "x", "a3:a")
		c := w.join()
		c.wants("a1/1 b1/1 x/1")
		c.nack(time.Second, "a1")
		c.wants("")
		advance(time.Second)
		c.wants("a1/2")
		d := w.join()
		c.ack("a1")
		d.wants("a2/1")
		d.ack("a2")
		c.wants("a3/1")
	})
}

func TestUnorderedGroupsDoNotWaitForKeys(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("1:a", "2:a", "3:a")
		c := w.join(unordered)
		c.wants("1/1 2/1 3/1")
		c.ack("2")
		c.nack(0, "1", "3")
		c.wants("1/2 3/2")
		o := w.join() // from now on in order
		c.leave(Disconnected)
		o.wants("1/3")
		o.ack("1")
		o.wants("3/3")
		o.ack("3")
		w.publish("4:b", "5:b")
		o.wants("4/1")
		u := w.join(unordered)
		u.wants("")
		o.leave(Unsubscribed) // no member wants order any more
		u.wants("4/1 5/1")
	})
}

func TestWhatCountsAsAnAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *world, c *client)
		want string
	}{
		"unsubscribe":      {func(_ *world, c *client) { c.leave(Unsubscribed) }, "a/2"},
		"disconnect":       {func(_ *world, c *client) { c.leave(Disconnected) }, "a/3"},
		"nack":             {func(_ *world, c *client) { c.nack(0, "a"); c.leave(Unsubscribed) }, "a/3"},
		"deadline":         {func(_ *world, c *client) { c.Pause(); advance(31 * time.Second); c.leave(Unsubscribed) }, "a/3"},
		"stop":             {func(w *world, _ *client) { w.stop(); w.start() }, "a/2"},
		"kill":             {func(w *world, _ *client) { w.kill() }, "a/3"},
		"disconnect, kill": {func(w *world, c *client) { c.leave(Disconnected); w.kill() }, "a/3"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.publish("a")
				m := w.join()
				m.nack(0, "a", "a") // the second is no longer in flight
				m.wants("a/1 a/2")
				m.leave(Unsubscribed)
				m = w.join()
				m.wants("a/2")
				m.leave(Unsubscribed)
				m = w.join()
				m.wants("a/2")
				c.end(w, m)
				w.join().wants(c.want)
			})
		})
	}
}

func TestDeadlinesAndExtensions(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		c := w.join()
		c.wants("a/1 b/1")
		advance(29 * time.Second)
		if !c.Extend("a", 10*time.Second) || c.Extend("nobody", time.Second) {
			t.Fatal("extended the wrong ones")
		}
		advance(time.Second)
		c.wants("b/2")
		c.Extend("b", time.Second)
		advance(time.Second)
		c.wants("b/3")
		advance(8 * time.Second)
		c.wants("a/2")
		c.Extend("a", 0)
		synctest.Wait()
		c.wants("a/3")
	})
}

func TestBackoffOfThePolicy(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.setPolicy(func(p *policy.Effective) {
			p.Delivery.Backoff = policy.Backoff{Min: time.Second, Max: 3 * time.Second}
		})
		w.publish("a")
		c := w.join()
		for i, wait := range []time.Duration{1, 2, 3, 3} {
			c.wants("a/" + string(rune('1'+i)))
			c.Nack([]string{"a"}, nack("", nil), func(error) {})
			advance(wait*time.Second - 1)
			c.wants("")
			advance(1 + wait*time.Second/4) // jitter
		}
		c.wants("a/5")
	})
}

// A delay outlives the member that asked for it.
func TestDelayWithoutMembers(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a")
		c := w.join()
		c.wants("a/1")
		c.nack(time.Minute, "a")
		c.leave(Unsubscribed)
		advance(30 * time.Second)
		c = w.join()
		c.wants("")
		advance(30 * time.Second)
		c.wants("a/2")
	})
}

func TestDeadLetter(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		rec := record("a", "k")
		rec.Headers = wire.Headers{{Name: "h", Value: "v"}}
		rec.Tags, rec.Payload = []string{"t"}, []byte(`{"n":1}`)
		w.log.append(topic, rec)
		w.publish("b:k")
		c := w.join(attempts(2))
		c.nack(0, "a")
		c.wants("a/1 a/2")
		w.deadLetters.set(func() { w.deadLetters.hold = true })
		c.nack(0, "a")
		if cursor := w.info().Partitions[0].Cursor; cursor != 1 {
			t.Fatalf("the cursor is at %d before the dead letter is durable", cursor)
		}
		c.wants("") // b waits for its key
		w.deadLetters.release(errStore)
		synctest.Wait()
		c.wants("")
		advance(retryAfterFailure)
		c.wants("b/1")
		if len(w.deadLetters.appended) != 1 {
			t.Fatalf("%d dead letters", len(w.deadLetters.appended))
		}
		got := w.deadLetters.appended[0]
		if got.Topic != topic+".dlq" || got.Key != "k" || string(got.Payload) != `{"n":1}` || got.Tags[0] != "t" || got.CausedBy[0] != "a" {
			t.Errorf("dead letter %+v", got)
		}
		for name, want := range map[string]string{
			"h": "v", wire.HeaderDeadReason: "no good", wire.HeaderDeadGroup: "g", wire.HeaderDeadAttempts: "2", wire.HeaderDeadID: "a",
		} {
			if v, _ := got.Headers.Get(name); v != want {
				t.Errorf("header %s is %q, want %q", name, v, want)
			}
		}
	})
}

func TestDeadLetterReasons(t *testing.T) {
	for want, end := range map[string]func(c *client){
		"connection closed":   func(c *client) { c.leave(Disconnected) }, // the only member
		"ack deadline passed": func(*client) { advance(30 * time.Second) },
		"nacked":              func(c *client) { c.Nack([]string{"a"}, nack("", nil), func(error) {}) },
	} {
		t.Run(want, func(t *testing.T) {
			run(t, func(t *testing.T, w *world) {
				w.publish("a")
				w.deadLetters.err = errStore
				c := w.join(attempts(1))
				c.wants("a/1")
				end(c)
				advance(time.Second)
				if n := len(w.deadLetters.appended); n != 0 {
					t.Fatalf("%d dead letters", n)
				}
				w.deadLetters.set(func() { w.deadLetters.err = nil })
				advance(retryAfterFailure)
				if n := len(w.deadLetters.appended); n != 1 {
					t.Fatalf("%d dead letters", n)
				}
				if got, _ := w.deadLetters.appended[0].Headers.Get(wire.HeaderDeadReason); got != want {
					t.Errorf("reason %q, want %q", got, want)
				}
				c.leave(Unsubscribed)
				if w.m.all()[0].watch != nil {
					t.Error("the group is not parked after the dead letter")
				}
				w.kill()
				w.join().wants("")
			})
		})
	}
}

// A sidecar that died with the last attempt in flight may not have sent it. So the event is
// delivered once more. It is a dead letter when that fails, or when too many sidecars have died
// with it.
func TestDeadLetterAfterAKill(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b:k")
		w.join(attempts(1)).wants("a/1")
		w.kill()
		c := w.join(attempts(1))
		c.wants("a/2")
		c.nack(0, "a")
		c.wants("b/1")
		if len(w.deadLetters.appended) != 1 {
			t.Fatalf("%d dead letters", len(w.deadLetters.appended))
		}
	})
	run(t, func(t *testing.T, w *world) {
		w.publish("a")
		for n := range 1 + dispatch.MaxUnsure {
			w.join(attempts(1)).wants(fmt.Sprintf("a/%d", n+1))
			w.kill()
		}
		w.join(attempts(1)).wants("")
		if len(w.deadLetters.appended) != 1 {
			t.Fatalf("%d dead letters", len(w.deadLetters.appended))
		}
	})
}

// The append of a dead letter outlives the group's members.
func TestDeadLetterWithoutMembers(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a")
		w.deadLetters.hold = true
		c := w.join(attempts(1))
		c.leave(Disconnected)
		w.deadLetters.release(nil)
		synctest.Wait()
		if lag := w.info().Lag; lag != 0 {
			t.Errorf("lag %d after the dead letter", lag)
		}
		w.kill()
		w.join().wants("")
	})
}

func TestLateAckSettlesNothing(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a")
		c, d := w.join(), w.join()
		c.wants("a/1")
		c.Pause()
		advance(30 * time.Second)
		d.wants("a/2")
		if !c.ack("a").ok() {
			t.Error("a late ack is an error")
		}
		c.nack(0, "a")
		if c.Extend("a", time.Hour) {
			t.Error("extended somebody else's")
		}
		if in := w.info().Inflight; in != 1 {
			t.Errorf("%d in flight", in)
		}
		d.nack(0, "a")
		d.wants("a/3")
	})
}

func TestSeekMakesLeasesStale(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b:k", "c")
		c := w.join()
		c.wants("a/1 c/1")
		c.ack("a")
		c.wants("b/1")
		require.NoError(t, w.m.Seek(t.Context(), topic, "g", wire.SubscribeOptions{From: wire.FromLatest}))
		c.nack(0, "b", "c")
		advance(time.Minute)
		c.wants("")
		w.publish("d:k")
		c.wants("d/1")
		if err := w.m.Seek(t.Context(), topic, "g", wire.SubscribeOptions{From: wire.FromAfterID, AfterID: "nobody"}); err == nil ||
			!strings.Contains(err.Error(), "afterId") {
			t.Fatalf("error %v", err)
		}
		require.NoError(t, w.m.Seek(t.Context(), topic, "g", wire.SubscribeOptions{From: wire.FromEarliest}))
		synctest.Wait()
		c.wants("a/1 c/1")
		c.leave(Unsubscribed)
		if err := w.m.Seek(t.Context(), topic, "g", wire.SubscribeOptions{From: wire.FromLatest}); err != nil {
			t.Fatal(err) // without members
		}
		w.kill()
		w.join().wants("")
	})
}
