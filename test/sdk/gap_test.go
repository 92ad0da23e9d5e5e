package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// Without a group, and with one handler at a time, no event overtakes another, for any keys.
func TestEventsComeInTheOrderOfTheLog(t *testing.T) {
	_, client := open(t, sluicetest.Options{})
	const count = 300
	var events []sluice.Event
	for i := range count {
		events = append(events, sluice.Event{Topic: "orders", Key: fmt.Sprint("k", i%7%3), Payload: []byte("1")})
	}
	if _, err := client.PublishBatch(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	seqs := make(chan uint64, count)
	_, err := client.Subscribe(t.Context(), "orders", "", func(_ context.Context, m *sluice.Message) error {
		seqs <- m.Event.Seq
		return nil
	}, option.FromEarliest())
	require.NoError(t, err)
	for want := range uint64(count) {
		if got := <-seqs; got != want+1 {
			t.Fatalf("seq %d came, and %d was next", got, want+1)
		}
	}
}

// A subscription that cannot go on right behind its last event ends with EndOnGap. Without it, the
// subscription goes on with the events that are there.
func TestEndOnGap(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprint(ends), func(t *testing.T) {
			sidecar, client := open(t, sluicetest.Options{})
			h := client.HTTP()
			publish := func(id string) {
				t.Helper()
				if _, err := h.Publish(t.Context(), eventOf("orders", id)); err != nil {
					t.Fatal(err)
				}
			}
			publish("first")
			got := make(chan string, 10)
			opts := []option.Subscribe{option.FromEarliest()}
			if ends {
				opts = append(opts, option.EndOnGap())
			}
			sub, err := client.Subscribe(t.Context(), "orders", "", func(_ context.Context, m *sluice.Message) error {
				got <- m.Event.ID
				return nil
			}, opts...)
			if err != nil || <-got != "first" {
				t.Fatal(err)
			}
			sidecar.SetDown(true)
			publish("gone")
			testkit.Eventually(t, "the topic is deleted", func() bool { return h.DeleteTopic(t.Context(), "orders") == nil })
			publish("last")
			sidecar.SetDown(false)
			if !ends {
				if id := <-got; id != "last" || sub.Err() != nil {
					t.Fatalf("%s came, %v", id, sub.Err())
				}
				return
			}
			<-sub.Closed()
			if err := sub.Err(); !errors.Is(err, &wire.Error{Code: wire.OutOfRange}) || len(got) > 0 {
				t.Errorf("it ended with %v", err)
			}
		})
	}
	_, client := open(t, sluicetest.Options{})
	if _, err := client.Subscribe(t.Context(), "orders", "g", func(context.Context, *sluice.Message) error { return nil },
		option.EndOnGap()); err == nil {
		t.Error("a group has no gaps that its subscription knows of")
	}
}
