package group

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// TestUnusedGroupsExpire: a group without progress goes once it has had no member for the given
// time. A group with progress stays. So does one that wanted none of the events, or that was moved.
func TestUnusedGroupsExpire(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b:k")
		const after = 48 * time.Hour
		begin := func() (end func()) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- w.m.Expire(ctx, after) }()
			return func() { cancel(); <-done }
		}
		end := begin()
		join := func(group string, o wire.SubscribeOptions) *Member {
			o.From = wire.FromEarliest
			m, err := w.m.Subscribe(t.Context(), Subscription{Topic: topic, Group: group, Options: o, Sink: &fakeSink{}, Pacer: &fakePacer{}})
			require.NoError(t, err)
			m.Start()
			advance(time.Second)
			return m
		}
		there := func(group string, want bool) {
			t.Helper()
			if _, err := w.m.Info(t.Context(), topic, group); errors.Is(err, eventlog.ErrNotFound) == want {
				t.Errorf("group %s: %v; want it to be there: %v", group, err, want)
			}
		}
		join("left", wire.SubscribeOptions{}).Close(Unsubscribed)
		join("late", wire.SubscribeOptions{}).Close(Unsubscribed)
		none := "nobody's"
		join("filtered", wire.SubscribeOptions{Filter: &wire.Filter{Key: &none}}).Close(Unsubscribed)
		acked := join("acked", wire.SubscribeOptions{})
		acked.Ack([]string{"a"}, func(error) {})
		advance(time.Second)
		acked.Close(Unsubscribed)
		join("moved", wire.SubscribeOptions{}).Close(Unsubscribed)
		require.NoError(t, w.m.Seek(t.Context(), topic, "moved", wire.SubscribeOptions{From: wire.FromLatest}))
		join("stays", wire.SubscribeOptions{})

		advance(after - time.Hour)
		there("left", true)
		join("late", wire.SubscribeOptions{}).Close(Unsubscribed) // a member came and went
		advance(2 * time.Hour)
		there("left", false)
		for range 3 {
			for _, group := range []string{"filtered", "acked", "moved", "stays"} {
				there(group, true)
			}
			advance(after)
		}
		there("late", false)

		// A process that is killed says nothing of its members.
		end()
		w.kill()
		end = begin()
		there("stays", true)
		join("stays", wire.SubscribeOptions{})
		advance(after)
		there("stays", true)
		end()
	})
}

// TestTooManyGroupsOfOne: an identity makes no more groups than it may, whichever sidecar counts
// and however often the process has been restarted. Other identities still make groups.
func TestTooManyGroupsOfOne(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		subscribe := func(by, name string) error {
			m, err := w.m.Subscribe(eventlog.MadeBy(t.Context(), by),
				Subscription{Topic: topic, Group: name, Sink: &fakeSink{}, Pacer: &fakePacer{}})
			if err == nil {
				m.Close(Unsubscribed)
			}
			return err
		}
		for round := range 3 {
			w.kill()
			m := w.m
			m.count.most, m.count.mostByOne = 100, 3
			made := 0
			for i := range 10 {
				switch err := subscribe("mallory", "m"+string(rune('0'+i))); {
				case err == nil:
					made++
				case !errors.Is(err, &wire.Error{Code: wire.Overloaded}):
					t.Fatal(err)
				}
			}
			if made != 3 {
				t.Errorf("round %d: the groups of %d names are there; want 3", round, made)
			}
		}
		for i := range 10 {
			if err := subscribe("", "anonymous"+string(rune('0'+i))); err != nil {
				t.Errorf("nobody in particular: %v", err)
			}
		}
		if err := subscribe("alice", "a"); err != nil {
			t.Errorf("another identity: %v", err)
		}
	})
}
