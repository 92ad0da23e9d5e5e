package sdk_test

import (
	"errors"
	"fmt"
	"testing"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func publishMany(t *testing.T, sidecar *sluicetest.Sidecar, topic string, count int) {
	t.Helper()
	conn := dialConn(t, sidecar, nil)
	for i := range count {
		if _, err := conn.Publish(t.Context(), eventOf(topic, fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSubscribeAndAckFromTheCallback(t *testing.T) {
	const count = 500
	for _, maxBatch := range []int{1, 10} {
		t.Run(fmt.Sprint("batches of ", maxBatch), func(t *testing.T) {
			sidecar := start(t, sluicetest.Options{})
			publishMany(t, sidecar, "orders", count)
			conn := dialConn(t, sidecar, nil)
			got := make(chan wire.Delivery, count)
			opts := &wire.SubscribeOptions{From: wire.FromEarliest, MaxBatch: &maxBatch}
			ready := make(chan struct{})
			var ack func(ids ...string)
			sub, err := conn.Subscribe(t.Context(), "orders", "g", opts, func(deliveries []wire.Delivery) {
				<-ready
				for _, d := range deliveries {
					ack(d.Event.ID)
					got <- d
				}
			})
			require.NoError(t, err)
			ack = func(ids ...string) {
				if err := sub.AckAsync(func(err error) {
					if err != nil {
						t.Error(err)
					}
				}, ids...); err != nil {
					t.Error(err)
				}
			}
			close(ready)
			for i := range count {
				if d := <-got; d.Event.ID != fmt.Sprint(i) || d.Attempt != 1 || d.AckDeadlineMS == 0 {
					t.Fatalf("delivery %d: %+v", i, d)
				}
			}
			require.NoError(t, conn.Flush(t.Context()))
			if n := sidecar.Acked("orders", "g"); n != count {
				t.Fatalf("%d acked", n)
			}
		})
	}
}

func TestSettlingAndControl(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	publishMany(t, sidecar, "orders", 2)
	conn := dialConn(t, sidecar, nil)
	one := 1
	got := make(chan wire.Delivery, 10)
	sub, err := conn.Subscribe(t.Context(), "orders", "g", &wire.SubscribeOptions{From: wire.FromEarliest, MaxInflight: &one},
		func(deliveries []wire.Delivery) { got <- deliveries[0] })
	require.NoError(t, err)
	want := func(id string, attempt int) {
		t.Helper()
		if d := <-got; d.Event.ID != id || d.Attempt != attempt {
			t.Fatalf("got %+v", d)
		}
	}
	must := func(err error) {
		t.Helper()
		require.NoError(t, err)
	}
	want("0", 1)
	must(sub.ModAck(t.Context(), 1000, "0"))
	if err := sub.ModAck(t.Context(), 1000, "nothing"); !errors.Is(err, &wire.Error{Code: wire.UnknownID}) {
		t.Fatalf("got %v", err)
	}
	now := int64(0)
	must(sub.Nack(t.Context(), sluice.Nack{Reason: "later", DelayMS: &now}, "0"))
	want("0", 2)
	must(sub.Pause(t.Context()))
	must(sub.Ack(t.Context(), "0"))
	must(conn.Ping(t.Context()))
	if len(got) > 0 {
		t.Fatal("delivered while paused")
	}
	must(sub.Resume(t.Context()))
	want("1", 1)

	if _, err := conn.Subscribe(t.Context(), "orders", "g", nil, func([]wire.Delivery) {}); !errors.Is(err,
		&wire.Error{Code: wire.AlreadySubscribed}) {
		t.Fatalf("a second subscription: %v", err)
	}
	must(sub.Unsubscribe(t.Context()))
	if err := sub.Ack(t.Context(), "1"); !errors.Is(err, &wire.Error{Code: wire.NotSubscribed}) {
		t.Fatalf("after unsubscribing: %v", err)
	}
	_, err = conn.Subscribe(t.Context(), "orders", "g", nil, func(deliveries []wire.Delivery) { got <- deliveries[0] })
	must(err)
	want("1", 1)
}
