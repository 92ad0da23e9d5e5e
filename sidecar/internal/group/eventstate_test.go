package group

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// fateOf is the event's fate in the group "g", in short.
func (w *world) fateOf(id string) string {
	w.t.Helper()
	rec, err := w.log.Lookup(context.Background(), topic, id)
	if err != nil {
		w.t.Fatalf("%s: %v", id, err)
	}
	fates, err := w.m.Fates(context.Background(), rec, func(group string) bool { return group == "g" }, w.lookup)
	if err != nil || len(fates) != 1 {
		w.t.Fatalf("%s: %v, %v", id, fates, err)
	}
	f := fates[0]
	text := fmt.Sprintf("%s/%d", f.State, f.Attempts)
	if f.WaitsFor != "" {
		text += " for " + f.WaitsFor
	}
	if f.DueMS != nil {
		text += fmt.Sprintf(" %dms", *f.DueMS)
	}
	if d := f.DeadLetter; d != nil {
		text += " " + d.Topic + " " + d.Reason
	}
	return text
}

// lookup also finds dead letters.
func (w *world) lookup(ctx context.Context, topic, id string) (*eventlog.Record, error) {
	w.deadLetters.mu.Lock()
	defer w.deadLetters.mu.Unlock()
	for _, rec := range w.deadLetters.appended {
		if rec.Topic == topic && rec.ID == id {
			return rec, nil
		}
	}
	return w.log.Lookup(ctx, topic, id)
}

func (w *world) wantFates(want map[string]string) {
	w.t.Helper()
	for id, fate := range want {
		if got := w.fateOf(id); got != fate {
			w.t.Errorf("%s: %s, want %s", id, got, fate)
		}
	}
}

func TestFates(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b:k", "c:k", "d", "e", "f")
		c := w.join(window(4), attempts(2))
		c.ack("a")
		w.wantFates(map[string]string{
			"a": "settled/0", "b": "in_flight/1 30000ms", "c": "waiting/0 for key_order", "d": "in_flight/1 30000ms",
		})
		c.nack(5*time.Second, "b")
		advance(time.Second)
		w.wantFates(map[string]string{"b": "waiting/1 for backoff 4000ms", "d": "in_flight/1 29000ms"})

		c.nack(0, "d")
		c.nack(0, "d")
		advance(time.Minute)
		w.wantFates(map[string]string{"d": "dead/2 " + topic + ".dlq no good"})

		c.leave(Unsubscribed)
		w.publish("g")
		w.wantFates(map[string]string{"g": "waiting/0 for member"})
	})
}

// Another sidecar than the owner says what the owner has saved, and who knows more.
func TestFatesElsewhere(t *testing.T) {
	runFleet(t, 1, func(t *testing.T, f *fleet) {
		a, b := f.start("a"), f.start("b")
		c := a.join(window(1))
		advance(time.Second)
		f.publish("e1", "", true)
		f.publish("e2", "", true)
		advance(time.Second)
		c.wants("e1/1")
		for id, want := range map[string]string{"e1": "in_flight/1  at a", "e2": "waiting/0 owner at a"} {
			rec, err := f.log.Lookup(t.Context(), topic, id)
			if err != nil {
				t.Fatal(err)
			}
			fates, err := b.m.Fates(t.Context(), rec, func(string) bool { return true }, f.log.Lookup)
			if err != nil || len(fates) != 1 {
				t.Fatalf("%v, %v", fates, err)
			}
			x := fates[0]
			if got := fmt.Sprintf("%s/%d %s at %s", x.State, x.Attempts, x.WaitsFor, x.Owner); got != want {
				t.Errorf("%s: %s, want %s", id, got, want)
			}
		}
	})
}

func TestFateOfWhatIsMarked(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a")
		c := w.join(exactlyOnce)
		if !c.ack("a").ok() {
			t.Fatal("not acked")
		}
		w.wantFates(map[string]string{"a": "acked/0"})
	})
}

// The fate in a partition that is not owned here is as it was saved.
func TestFateFromTheStore(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c")
		c := w.join(window(2))
		c.nack(time.Hour, "a")
		if !c.ack("b").ok() {
			t.Fatal("not acked")
		}
		w.kill()
		w.wantFates(map[string]string{"a": "waiting/1 for turn", "b": "settled/0"})
		rec := &eventlog.Record{}
		rec.Topic = topic
		fates, err := w.m.Fates(context.Background(), rec, func(string) bool { return false }, w.lookup)
		if err != nil || fates == nil || len(fates) != 0 {
			t.Errorf("of groups that nobody may see: %v, %v", fates, err)
		}
	})
}
