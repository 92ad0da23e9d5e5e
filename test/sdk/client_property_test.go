package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// mishaps decides by chance what goes wrong, a bounded number of times.
type mishaps struct {
	mu   sync.Mutex
	rnd  *rand.Rand
	left int // so that every run ends
	odds int // one of so many goes wrong
}

func (m *mishaps) strikes() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left == 0 || m.rnd.IntN(m.odds) > 0 {
		return false
	}
	m.left--
	return true
}

func (m *mishaps) fate(string) sluicetest.Fate {
	if !m.strikes() {
		return sluicetest.Served
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return sluicetest.BrokenBefore + sluicetest.Fate(m.rnd.IntN(2))
}

func (m *mishaps) refuse(*wire.Event) *wire.Error {
	if !m.strikes() {
		return nil
	}
	return &wire.Error{Code: wire.Overloaded, Msg: "later", RetryAfter: time.Millisecond}
}

func drawMishaps(rt *rapid.T) *mishaps {
	seed := rapid.Uint64().Draw(rt, "seed")
	return &mishaps{rnd: rand.New(rand.NewPCG(seed, 1)), left: rapid.IntRange(0, 8).Draw(rt, "mishaps"),
		odds: rapid.IntRange(2, 12).Draw(rt, "odds")}
}

func connect(t rapid.TB, sidecar *sluicetest.Sidecar, opts ...sluice.Option) *sluice.Client {
	opts = append([]sluice.Option{sluice.WithWait(), sluice.WithBackoff(time.Millisecond, 5*time.Millisecond)}, opts...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	client, err := sluice.Dial(ctx, sidecar.URL, opts...)
	require.NoError(t, err)
	return client
}

// The sidecar refuses publishes for a while, and connections break. Each publish still has exactly
// one result and is stored exactly once, and the order of each key is that of the calls. Where the
// publisher is closed in the middle, each event with a receipt is stored.
func TestPublisherProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMishaps(rt)
		sidecar := sluicetest.Start(sluicetest.Options{Fate: m.fate, Refuse: m.refuse, Burst: rapid.IntRange(0, 5).Draw(rt, "burst")})
		defer sidecar.Close()
		client := connect(rt, sidecar)
		defer client.Close()
		publisher := client.NewPublisher(option.Window(rapid.IntRange(1, 20).Draw(rt, "window"), 1<<20))

		keys := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 1, 60).Draw(rt, "keys")
		closes := rapid.Bool().Draw(rt, "closes in the middle")
		results := make([]int, len(keys))
		accepted := map[string]bool{}
		var mu sync.Mutex
		for i, key := range keys {
			e := sluice.Event{Topic: "orders", Key: key, Payload: fmt.Append(nil, i)}
			err := publisher.Publish(context.Background(), &e, func(r sluice.Receipt, err error) {
				mu.Lock()
				defer mu.Unlock()
				results[i]++
				accepted[r.ID] = err == nil
				switch {
				case closes && errors.Is(err, sluice.ErrClosed):
				case err != nil || r.ID == "" || r.Duplicate:
					rt.Errorf("event %d: %+v, %v", i, r, err)
				}
			})
			require.NoError(rt, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if closes {
			publisher.Close()
		} else if err := publisher.Flush(ctx); err != nil {
			rt.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if i := slices.IndexFunc(results, func(n int) bool { return n != 1 }); i >= 0 {
			rt.Fatalf("event %d has %d results", i, results[i])
		}
		stored := sidecar.Events("orders")
		wantInOrder(rt, stored)
		if !closes && len(stored) != len(keys) {
			rt.Fatalf("%d events are stored; %d were published", len(stored), len(keys))
		}
		for _, e := range stored {
			delete(accepted, e.ID)
		}
		for id, ok := range accepted {
			if ok {
				rt.Fatalf("event %s was accepted, and is not stored", id)
			}
		}
	})
}

// With KeyedBatches the order of each key also holds when connections break and batches are
// refused, and requests have several events of a key.
func TestKeyedBatchesProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMishaps(rt)
		sidecar := sluicetest.Start(sluicetest.Options{Fate: m.fate, Burst: rapid.IntRange(0, 5).Draw(rt, "burst")})
		defer sidecar.Close()
		client := connect(rt, sidecar, sluice.WithPublisher(option.KeyedBatches()))
		defer client.Close()

		keys := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b"}), 1, 60).Draw(rt, "keys")
		gone := rapid.IntRange(-1, len(keys)-1).Draw(rt, "whose caller leaves")
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		leaving, leave := context.WithCancel(ctx)
		defer leave()
		var left sync.WaitGroup
		for i, key := range keys {
			e := sluice.Event{Topic: "orders", Key: key, Payload: fmt.Append(nil, i)}
			if i == gone {
				left.Go(func() {
					_, _ = client.Publish(leaving, &sluice.Event{Topic: "orders", Key: key, Payload: []byte(`"gone"`)})
				})
			}
			left.Add(1)
			err := client.Publisher().Publish(ctx, &e, func(r sluice.Receipt, err error) {
				defer left.Done()
				if err != nil || r.Duplicate {
					rt.Errorf("event %d: %+v, %v", i, r, err)
				}
			})
			require.NoError(rt, err)
		}
		leave()
		require.NoError(rt, client.Publisher().Flush(ctx))
		left.Wait()
		stored := slices.DeleteFunc(sidecar.Events("orders"), func(e wire.Event) bool { return string(e.Payload) == `"gone"` })
		wantInOrder(rt, stored)
		if len(stored) != len(keys) {
			rt.Fatalf("%d events are stored; %d were published", len(stored), len(keys))
		}
	})
}

// wantInOrder checks that the events, whose payloads are numbers, are there once, and the events of
// each key in order.
func wantInOrder(t rapid.TB, events []wire.Event) {
	seen := map[string]bool{}
	last := map[string]int{}
	for _, e := range events {
		var n int
		_, _ = fmt.Sscan(string(e.Payload), &n) // the test made it
		if seen[string(e.Payload)] {
			t.Fatalf("event %d is there twice", n)
		}
		seen[string(e.Payload)] = true
		if before, ok := last[e.Key]; ok && e.Key != "" && before >= n {
			t.Fatalf("of key %q event %d comes behind %d", e.Key, n, before)
		}
		last[e.Key] = n
	}
}

// Whichever connections break, one consumer handles every event, the events of a key in order and
// one at a time. It handles none twice, since it knows the events that come again.
func TestSubscriptionProperty(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMishaps(rt)
		sidecar := sluicetest.Start(sluicetest.Options{
			Fate: func(op string) sluicetest.Fate {
				if op == wire.OpPublish {
					return sluicetest.Served
				}
				return m.fate(op)
			},
			RefuseSettling: func(string, []string) *wire.Error { return m.refuse(nil) },
		})
		defer sidecar.Close()
		client := connect(rt, sidecar)
		defer client.Close()
		keys := rapid.SliceOfN(rapid.SampledFrom([]string{"", "a", "b", "c"}), 1, 60).Draw(rt, "keys")
		events := make([]sluice.Event, len(keys))
		for i, key := range keys {
			events[i] = sluice.Event{Topic: "orders", Key: key, Payload: fmt.Append(nil, i)}
		}
		if _, err := client.PublishBatch(context.Background(), events); err != nil {
			rt.Fatal(err)
		}

		h := newHandled(len(keys))
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		sub, err := client.Subscribe(ctx, "orders", "g", h.handle, option.FromEarliest(),
			option.Concurrency(rapid.IntRange(1, 4).Draw(rt, "concurrency")),
			option.MaxInflight(rapid.IntRange(1, 20).Draw(rt, "inflight")))
		require.NoError(rt, err)
		select {
		case <-h.all:
		case <-ctx.Done():
			rt.Fatalf("only %d events were handled", len(h.order))
		}
		for sidecar.Acked("orders", "g") < len(keys) {
			if ctx.Err() != nil {
				rt.Fatalf("only %d events were acked", sidecar.Acked("orders", "g"))
			}
			time.Sleep(100 * time.Microsecond) // polls
		}
		sub.Drain()
		<-sub.Closed()
		h.check(rt)
	})
}

// handled records the events of handlers.
type handled struct {
	mu    sync.Mutex
	want  int
	busy  map[string]bool
	order []wire.Event
	wrong string
	all   chan struct{}
}

func newHandled(want int) *handled {
	return &handled{want: want, busy: map[string]bool{}, all: make(chan struct{})}
}

func (h *handled) handle(_ context.Context, m *sluice.Message) error {
	h.mu.Lock()
	key := m.Event.Key
	if key != "" && h.busy[key] {
		h.wrong = fmt.Sprintf("two handlers of key %q run at a time", key)
	}
	h.busy[key] = true
	h.mu.Unlock()
	time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond) // so that handlers meet
	h.mu.Lock()
	defer h.mu.Unlock()
	h.busy[key] = false
	h.order = append(h.order, m.Event)
	if len(h.order) == h.want { // a further one fails the check
		close(h.all)
	}
	return nil
}

func (h *handled) check(t rapid.TB) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.wrong != "" {
		t.Fatal(h.wrong)
	}
	if len(h.order) != h.want {
		t.Fatalf("%d events were handled %d times", h.want, len(h.order))
	}
	wantInOrder(t, h.order)
}
