package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

func dialProcess(ctx context.Context, t *testing.T, p *testkit.Sidecar) *sluice.Client {
	t.Helper()
	client, err := sluice.Dial(ctx, p.URL(), sluice.WithReplayURL(p.ReplayURL()))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// until polls.
func until(ctx context.Context, t *testing.T, what string, is func() bool) {
	t.Helper()
	for !is() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("not so in time: %s", what)
		}
	}
}

// The client waits for tokens at the default limits of a connection, and splits batches that are
// larger than the burst.
func TestLimitsAreWaitedOut(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := dialProcess(ctx, t, testkit.StartSidecar(t, t.TempDir()))
	events := make([]sluice.Event, 450) // the burst is 200, the rate 200 a second
	for i := range events {
		events[i] = sluice.Event{Topic: topic, Key: fmt.Sprint(i % 7), Payload: fmt.Append(nil, i)}
	}
	results, err := client.PublishBatch(ctx, events)
	require.NoError(t, err)
	last := map[string]uint64{}
	for i, r := range results {
		key := events[i].Key
		if r.Receipt.Seq <= last[key] {
			t.Errorf("event %d of key %s has seq %d, behind %d", i, key, r.Receipt.Seq, last[key])
		}
		last[key] = r.Receipt.Seq
	}
	count := 0
	for _, err := range client.Replay(ctx, sluice.ReplayQuery{Topic: topic, Limit: 100}) {
		require.NoError(t, err)
		count++
	}
	if count != len(events) {
		t.Errorf("%d events are replayed", count)
	}
}

// Attempts, delays and dead letters, and the events that Drain gives back.
func TestSettlements(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := dialProcess(ctx, t, testkit.StartSidecar(t, t.TempDir()))
	if _, err := client.Publish(ctx, &sluice.Event{Topic: topic, ID: "bad", Payload: []byte(`1`)}); err != nil {
		t.Fatal(err)
	}
	attempts := make(chan int, 10)
	sub, err := client.Subscribe(ctx, topic, group, func(_ context.Context, m *sluice.Message) error {
		attempts <- m.Attempt
		return sluice.RetryIn(0, errors.New("it never works"))
	}, option.FromEarliest(), option.MaxAttempts(3))
	require.NoError(t, err)
	dead := make(chan sluice.Event, 1)
	_, err = client.Subscribe(ctx, topic+".dlq", "", func(_ context.Context, m *sluice.Message) error {
		dead <- m.Event
		return nil
	}, option.FromEarliest())
	require.NoError(t, err)
	select {
	case e := <-dead:
		if reason, _ := e.Headers.Get("sluice-dlq-reason"); reason != "it never works" {
			t.Errorf("the dead letter's headers are %v", e.Headers)
		}
	case <-ctx.Done():
		t.Fatal("no dead letter came")
	}
	if len(attempts) != 3 {
		t.Errorf("it was handled %d times", len(attempts))
	}
	sub.Drain()
	<-sub.Closed()
}

// A handler that takes longer than the ack timeout keeps its event.
func TestLongHandlers(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := dialProcess(ctx, t, testkit.StartSidecar(t, t.TempDir()))
	for i := range 2 { // the second waits behind the first, as long
		if _, err := client.Publish(ctx, &sluice.Event{Topic: topic, Key: "k", Payload: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
	const timeout = time.Second
	attempts := make(chan int, 10)
	sub, err := client.Subscribe(ctx, topic, "slow", func(_ context.Context, m *sluice.Message) error {
		attempts <- m.Attempt
		<-time.After(timeout + timeout/2) // longer than the timeout: that is the test
		return nil
	}, option.FromEarliest(), option.AckTimeout(timeout), option.Unordered())
	require.NoError(t, err)
	until(ctx, t, "both are settled", func() bool {
		info, err := client.HTTP().GroupInfo(ctx, topic, "slow")
		return err == nil && info.Lag == 0
	})
	sub.Drain()
	<-sub.Closed()
	close(attempts)
	var got []int
	for n := range attempts {
		got = append(got, n)
	}
	if !slices.Equal(got, []int{1, 1}) {
		t.Errorf("the attempts were %v", got)
	}
}

// Two subscriptions of a group share its partitions, know which are theirs, and take over the
// partitions that the other leaves.
func TestPartitionsMove(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := dialProcess(ctx, t, testkit.StartSidecar(t, t.TempDir()))
	fill := func() {
		for i := range 50 {
			if _, err := client.Publish(ctx, &sluice.Event{Topic: topic, Key: fmt.Sprint(i), Payload: []byte(`1`)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Events in flight when a partition moves may be handled again; here nothing is in flight.
	settled := func() bool {
		info, err := client.HTTP().GroupInfo(ctx, topic, group)
		return err == nil && info.Lag == 0
	}
	fill()
	var mu sync.Mutex
	owners := [2]map[int]bool{{}, {}}
	handled := map[string]int{}
	join := func(i int) *sluice.Subscription {
		sub, err := client.Subscribe(ctx, topic, group, func(_ context.Context, m *sluice.Message) error {
			mu.Lock()
			defer mu.Unlock()
			handled[m.Event.ID]++
			if !owners[i][m.Event.Partition] {
				t.Errorf("member %d handles an event of partition %d, and has %v", i, m.Event.Partition, owners[i])
			}
			return nil
		}, option.FromEarliest(), option.Concurrency(3),
			option.OnAssigned(func(_ context.Context, ps []int) {
				mu.Lock()
				defer mu.Unlock()
				for _, p := range ps {
					owners[i][p] = true
				}
			}),
			option.OnRevoked(func(_ context.Context, ps []int) {
				mu.Lock()
				defer mu.Unlock()
				for _, p := range ps {
					delete(owners[i], p)
				}
			}))
		require.NoError(t, err)
		return sub
	}
	have := func(is func(first, second int) bool) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return is(len(owners[0]), len(owners[1]))
		}
	}
	const partitions = 8 // the default
	one := join(0)
	until(ctx, t, "the first has all partitions", have(func(first, _ int) bool { return first == partitions }))
	until(ctx, t, "all is settled", settled)
	two := join(1)
	until(ctx, t, "they share them", have(func(first, second int) bool { return first > 0 && second > 0 && first+second == partitions }))
	fill()
	until(ctx, t, "all is settled", settled)
	one.Drain()
	<-one.Closed()
	until(ctx, t, "the second has all", have(func(first, second int) bool { return first == 0 && second == partitions }))
	fill()
	until(ctx, t, "all is settled", settled)
	two.Drain()
	<-two.Closed()
	mu.Lock()
	defer mu.Unlock()
	if len(handled) != 150 {
		t.Errorf("%d events were handled", len(handled))
	}
	for id, n := range handled {
		if n != 1 {
			t.Errorf("event %s was handled %d times", id, n)
		}
	}
	if left := slices.Sorted(maps.Keys(owners[1])); len(left) > 0 {
		t.Errorf("partitions %v were never revoked", left)
	}
}
