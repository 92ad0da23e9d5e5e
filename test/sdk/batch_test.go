package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
	"github.com/sluice-bus/sluice/test/testkit"
)

func subscribeBatch(t *testing.T, client *sluice.Client, handler sluice.BatchHandler, opts ...option.Subscribe) *sluice.Subscription {
	t.Helper()
	sub, err := client.SubscribeBatch(t.Context(), "orders", "g", handler, append([]option.Subscribe{option.FromEarliest()}, opts...)...)
	require.NoError(t, err)
	return sub
}

func idsOf(batch []*sluice.Message) (ids []string) {
	for _, m := range batch {
		ids = append(ids, m.Event.ID)
	}
	return ids
}

// Batches are as large as they may be, hold one event of each key, and come in the order of each
// key.
func TestBatches(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	var all []string
	for n := range 10 {
		for _, key := range []string{"a", "b", "c"} {
			all = append(all, fmt.Sprintf("%s-%d", key, n))
		}
	}
	publishKeyed(t, client, all...)
	var mu sync.Mutex
	var handled []string
	largest := 0
	subscribeBatch(t, client, func(_ context.Context, batch []*sluice.Message) error {
		mu.Lock()
		defer mu.Unlock()
		keys := map[string]bool{}
		for _, m := range batch {
			keys[m.Event.Key] = true
		}
		if len(keys) != len(batch) {
			t.Errorf("the batch %q has a key twice", idsOf(batch))
		}
		largest = max(largest, len(batch))
		handled = append(handled, idsOf(batch)...)
		return nil
	}, option.Batch(3, time.Minute/4), option.Concurrency(2))
	testkit.Eventually(t, "all are acked", func() bool { return sidecar.Acked("orders", "g") == len(all) })
	mu.Lock()
	defer mu.Unlock()
	if largest > 3 {
		t.Errorf("a batch of %d", largest)
	}
	for _, key := range []string{"a", "b", "c"} {
		of := slices.DeleteFunc(slices.Clone(handled), func(id string) bool { return !strings.HasPrefix(id, key) })
		want := slices.DeleteFunc(slices.Clone(all), func(id string) bool { return !strings.HasPrefix(id, key) })
		if !slices.Equal(of, want) {
			t.Errorf("key %s: %q", key, of)
		}
	}
}

// A batch that does not fill up is handled once its first event has waited, and at once when the
// subscription drains.
func TestABatchThatDoesNotFillUp(t *testing.T) {
	_, client := open(t, sluicetest.Options{})
	publishKeyed(t, client, "a-1", "b-1")
	batches := make(chan []string, 10)
	handler := func(_ context.Context, batch []*sluice.Message) error {
		batches <- idsOf(batch)
		return nil
	}
	sub := subscribeBatch(t, client, handler, option.Batch(100, time.Millisecond))
	got := 0
	for got < 2 {
		got += len(<-batches)
	}
	sub.Drain()
	<-sub.Closed()

	sub = subscribeBatch(t, client, handler, option.Batch(100, time.Hour))
	publishKeyed(t, client, "a-2", "b-2")
	testkit.Eventually(t, "draining ends the wait", func() bool {
		sub.Drain()
		select {
		case <-sub.Closed():
			return true
		default:
			return false
		}
	})
}

// Each event of a batch has its own result; an error that is not BatchErrors is the result of all.
func TestResultsOfABatch(t *testing.T) {
	var said settlements
	_, client := open(t, said.options())
	publishKeyed(t, client, "a-1", "b-1", "c-1", "d-1")
	no := errors.New("no")
	sub := subscribeBatch(t, client, func(_ context.Context, batch []*sluice.Message) error {
		errs := make(sluice.BatchErrors, len(batch))
		for i, m := range batch {
			switch m.Event.Key {
			case "b":
				errs[i] = sluice.RetryIn(time.Hour, no)
			case "d":
				return sluice.RetryIn(time.Hour, no) // of the whole batch, in which no a and no c is any more
			}
		}
		return errs
	}, option.Batch(3, 10*time.Millisecond))
	want := []string{"ACK a-1", "ACK c-1", "NACK b-1", "NACK d-1"}
	testkit.Eventually(t, "all are settled as the handler says", func() bool {
		got := said.all()
		slices.Sort(got)
		return slices.Equal(slices.Compact(got), want) // an event given back may come again
	})
	sub.Stop()
	if err := error(sluice.BatchErrors{nil, no}); !errors.Is(err, no) || err.Error() != "1 of 2 events failed, the first with: no" {
		t.Errorf("%v", err)
	}
}

// A failed event is in a later batch again, and its key waits for it meanwhile. A wrong number of
// results fails all events.
func TestFailuresInBatches(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	publishKeyed(t, client, "a-1", "a-2", "b-1")
	var mu sync.Mutex
	var handled []string
	calls := 0
	subscribeBatch(t, client, func(_ context.Context, batch []*sluice.Message) error {
		mu.Lock()
		defer mu.Unlock()
		calls++
		if calls == 1 {
			return sluice.BatchErrors{}
		}
		errs := make(sluice.BatchErrors, len(batch))
		for i, m := range batch {
			if m.Event.ID == "a-1" && calls < 4 {
				errs[i] = errors.New("not yet")
				continue
			}
			handled = append(handled, m.Event.ID)
		}
		return errs
	}, option.Batch(10, time.Millisecond))
	testkit.Eventually(t, "all are acked", func() bool { return sidecar.Acked("orders", "g") == 3 })
	mu.Lock()
	defer mu.Unlock()
	if a1, a2 := slices.Index(handled, "a-1"), slices.Index(handled, "a-2"); len(handled) != 3 || a1 > a2 {
		t.Errorf("handled %q", handled)
	}
}

// An observer sees each step, once for each event.
func TestObserver(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]int{}
	see := func(what string, took time.Duration, err error) {
		mu.Lock()
		defer mu.Unlock()
		if took < 0 || took > time.Hour {
			t.Errorf("%s took %v", what, took)
		}
		if err != nil {
			what += " failed"
		}
		seen[what]++
	}
	_, client := open(t, sluicetest.Options{}, sluice.WithObserver(sluice.Observer{
		Published: func(topic string, took time.Duration, err error) { see("published "+topic, took, err) },
		Delivered: func(topic, group string, attempt int, waited time.Duration) {
			see(fmt.Sprintf("delivered %s %s %d", topic, group, attempt), waited, nil)
		},
		Handled: func(topic, group string, took time.Duration, err error) { see("handled "+topic+" "+group, took, err) },
		Retried: func(topic, group string, wait time.Duration, err error) { see("retried "+topic+" "+group, wait, err) },
		Settled: func(topic, group string, ack bool, took time.Duration, err error) {
			see(fmt.Sprintf("settled %s %s %v", topic, group, ack), took, err)
		},
		Connected: func(took time.Duration, err error) { see("connected", took, err) },
	}))
	publishKeyed(t, client, "a-1", "b-1")
	if _, err := client.Publish(t.Context(), &sluice.Event{Topic: "or ders", Payload: []byte("1")}); err == nil {
		t.Error("a topic with a space")
	}
	failed := false
	sub := subscribe(t, client, "g", func(_ context.Context, m *sluice.Message) error {
		switch {
		case m.Event.Key == "b" && m.Attempt == 1:
			return sluice.RetryIn(0, errors.New("no"))
		case m.Event.Key == "a" && !failed:
			failed = true
			return errors.New("not yet")
		}
		return nil
	})
	testkit.Eventually(t, "both are settled", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return seen["settled orders g true"] == 2 && seen["settled orders g false"] == 1
	})
	sub.Drain()
	<-sub.Closed()
	mu.Lock()
	defer mu.Unlock()
	want := map[string]int{
		"connected": 2, "published orders": 2, "delivered orders g 1": 3, "delivered orders g 2": 1,
		"handled orders g": 2, "handled orders g failed": 2, "retried orders g failed": 1,
		"settled orders g true": 2, "settled orders g false": 1,
	}
	if fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("seen %v\nwant %v", seen, want)
	}
}
