package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// open does as connect, for a test with a sidecar of its own.
func open(t *testing.T, o sluicetest.Options, opts ...sluice.Option) (*sluicetest.Sidecar, *sluice.Client) {
	t.Helper()
	sidecar := start(t, o)
	client := connect(t, sidecar, opts...)
	t.Cleanup(func() { _ = client.Close() })
	return sidecar, client
}

// wrongToken refuses the token "wrong".
func wrongToken(token string) *wire.Error {
	if token == "wrong" {
		return wire.Errorf(wire.Unauthorized, "the token is not valid")
	}
	return nil
}

// once gives a fate to the first request with an op.
func once(op string, fate sluicetest.Fate) func(string) sluicetest.Fate {
	var done atomic.Bool
	return func(is string) sluicetest.Fate {
		if is == op && done.CompareAndSwap(false, true) {
			return fate
		}
		return sluicetest.Served
	}
}

func TestDialFailsAtOnceOrWaits(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	sidecar.SetDown(true)
	if _, err := sluice.Dial(t.Context(), sidecar.URL); !errors.Is(err, &wire.Error{Code: wire.StoreUnavailable}) {
		t.Fatalf("got %v", err)
	}
	if _, err := sluice.Dial(t.Context(), "nonsense"); err == nil || !strings.Contains(err.Error(), "allowed are http://host:port") {
		t.Fatalf("got %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := sluice.Dial(ctx, sidecar.URL, sluice.WithWait()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v", err)
	}
	dialled := make(chan error, 1)
	go func() {
		client, err := sluice.Dial(t.Context(), sidecar.URL, sluice.WithWait(), sluice.WithBackoff(time.Millisecond, time.Millisecond))
		if err == nil {
			err = client.Close()
		}
		dialled <- err
	}()
	sidecar.SetDown(false)
	require.NoError(t, <-dialled)
}

func TestTokens(t *testing.T) {
	sidecar := start(t, sluicetest.Options{RefuseToken: wrongToken})
	if _, err := sluice.Dial(t.Context(), sidecar.URL, sluice.WithWait(), sluice.WithToken("wrong")); !errors.Is(err,
		&wire.Error{Code: wire.Unauthorized}) {
		t.Fatalf("got %v", err)
	}
	var asked atomic.Int64
	client := connect(t, sidecar, sluice.WithTokenFunc(func(context.Context) (string, error) {
		return fmt.Sprint("token ", asked.Add(1)), nil
	}))
	defer client.Close()
	sidecar.Disconnect()
	if _, err := client.Publish(t.Context(), eventOf("orders", "1")); err != nil {
		t.Fatal(err)
	}
	if n := asked.Load(); n < 2 {
		t.Fatalf("the token was asked for %d times", n)
	}
}

func TestPublishOutcomes(t *testing.T) {
	var again atomic.Bool
	_, client := open(t, sluicetest.Options{Refuse: func(e *wire.Event) *wire.Error {
		switch {
		case e.ID == "paused":
			return wire.Errorf(wire.TopicPaused, "paused")
		case e.ID == "later" && again.CompareAndSwap(false, true), e.ID == "never":
			return &wire.Error{Code: wire.RateLimited, Msg: "slow down", RetryAfter: time.Millisecond, Scope: "topic"}
		}
		return nil
	}})
	r, err := client.Publish(t.Context(), eventOf("orders", ""))
	if err != nil || len(r.ID) != 36 || r.Seq != 1 {
		t.Errorf("a fresh id: %+v, %v", r, err)
	}
	if _, err := client.Publish(t.Context(), eventOf("orders", "paused")); !errors.Is(err, &wire.Error{Code: wire.TopicPaused}) {
		t.Errorf("a refusal: %v", err)
	}
	if r, err := client.Publish(t.Context(), eventOf("orders", "later")); err != nil || r.Duplicate || !again.Load() {
		t.Errorf("rate_limited once: %+v, %v", r, err)
	}
	if r, err := client.Publish(t.Context(), eventOf("orders", "later")); err != nil || !r.Duplicate {
		t.Errorf("the caller's own repetition: %+v, %v", r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = client.Publish(ctx, eventOf("orders", "never"))
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, &wire.Error{Code: wire.RateLimited}) {
		t.Errorf("rate_limited for ever: %v", err)
	}
	for name, e := range map[string]*wire.Event{
		"payload":      {Topic: "orders", Payload: []byte(`{"a":`)},
		"topic":        {Topic: "or ders", Payload: []byte(`1`)},
		"id":           {Topic: "orders", ID: "a b", Payload: []byte(`1`)},
		"key":          {Topic: "orders", Key: "\xff", Payload: []byte(`1`)},
		"tags":         {Topic: "orders", Tags: []string{"\xff"}, Payload: []byte(`1`)},
		"header \"h\"": {Topic: "orders", Headers: wire.Headers{{Name: "h", Value: "\xff"}}, Payload: []byte(`1`)},
	} {
		if _, err := client.Publish(t.Context(), e); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("a bad %s: %v", name, err)
		}
	}
	results, err := client.PublishBatch(t.Context(), []wire.Event{*eventOf("orders", "b1"), *eventOf("orders", "paused"), *eventOf("other",
		"b2")})
	if !errors.Is(err, &wire.Error{Code: wire.TopicPaused}) || !strings.Contains(err.Error(), "1 of 3") {
		t.Errorf("a batch: %v", err)
	}
	if len(results) != 3 || results[0].Receipt.ID != "b1" || results[1].Err == nil || results[2].Receipt.ID != "b2" {
		t.Errorf("a batch: %+v", results)
	}
}

func TestPublishAgainAfterALostAnswer(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{Fate: once(wire.OpPublish, sluicetest.BrokenAfter)})
	r, err := client.Publish(t.Context(), eventOf("orders", ""))
	if err != nil || r.Duplicate {
		t.Fatalf("%+v, %v", r, err)
	}
	if kept := sidecar.Events("orders"); len(kept) != 1 || kept[0].ID != r.ID {
		t.Fatalf("kept %+v", kept)
	}
}

// If an event ends connections, only that event fails.
func TestAnEventThatEndsConnections(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{FrameBytes: 10_000})
	events := make([]wire.Event, 20)
	for i := range events {
		events[i] = *eventOf("orders", fmt.Sprint(i))
	}
	events[7].Payload = []byte(`"` + strings.Repeat("x", 20_000) + `"`)
	results, err := client.PublishBatch(t.Context(), events)
	if !errors.Is(err, &wire.Error{Code: wire.PayloadTooLarge}) || !strings.Contains(err.Error(), "1 of 20") || results[7].Err == nil {
		t.Fatalf("got %v, of it %v", err, results[7].Err)
	}
	if n := len(sidecar.Events("orders")); n != 19 {
		t.Fatalf("%d events are stored", n)
	}
}

func TestWindowAndClose(t *testing.T) {
	release := make(chan struct{})
	_, client := open(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error {
		<-release
		return &wire.Error{Code: wire.Overloaded, Msg: "later", RetryAfter: time.Hour}
	}})
	p := client.NewPublisher(option.Window(2, 1<<20))
	results := make(chan error, 2)
	for range 2 {
		require.NoError(t, p.Publish(t.Context(), eventOf("orders", ""), func(_ wire.Receipt, err error) { results <- err }))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := p.Publish(ctx, eventOf("orders", ""), func(wire.Receipt, error) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a third one: %v", err)
	}
	if err := p.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("flushing: %v", err)
	}
	close(release)
	p.Close()
	for range 2 {
		if err := <-results; !errors.Is(err, sluice.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
	if err := p.Publish(t.Context(), eventOf("orders", ""), func(wire.Receipt, error) {}); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("afterwards: %v", err)
	}
}

// A refused topic does not keep other topics waiting.
func TestTopicsAreHeldAlone(t *testing.T) {
	_, client := open(t, sluicetest.Options{Refuse: func(e *wire.Event) *wire.Error {
		if e.Topic == "hot" {
			return &wire.Error{Code: wire.RateLimited, Msg: "slow down", RetryAfter: time.Hour, Scope: "topic"}
		}
		return nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	hot := make(chan error, 1)
	go func() { _, err := client.Publish(ctx, eventOf("hot", "")); hot <- err }()
	for range 10 {
		if _, err := client.Publish(t.Context(), eventOf("cold", "")); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-hot; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
}

func TestKeyedBatchesShareRequests(t *testing.T) {
	for want, opts := range map[int32][]option.Publish{101: nil, 2: {option.KeyedBatches()}} {
		var requests atomic.Int32
		handedOver := make(chan struct{})
		_, client := open(t, sluicetest.Options{Fate: func(op string) sluicetest.Fate {
			if op == wire.OpPublish {
				requests.Add(1)
				<-handedOver
			}
			return sluicetest.Served
		}}, sluice.WithPublisher(opts...))
		publisher := client.Publisher()
		for range 101 {
			e := sluice.Event{Topic: "orders", Key: "k", Payload: []byte("1")}
			require.NoError(t, publisher.Publish(t.Context(), &e, func(_ sluice.Receipt, err error) {
				if err != nil {
					t.Error(err)
				}
			}))
			testkit.Eventually(t, "the first request is on its way", func() bool { return requests.Load() > 0 })
		}
		close(handedOver)
		require.NoError(t, publisher.Flush(t.Context()))
		if n := requests.Load(); n != want {
			t.Errorf("%d requests; want %d", n, want)
		}
	}
}

func TestOnWait(t *testing.T) {
	refused := false
	asked := make(chan time.Duration, 1)
	_, client := open(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error {
		if refused {
			return nil
		}
		refused = true
		return &wire.Error{Code: wire.RateLimited, Msg: "slow down", RetryAfter: time.Millisecond}
	}}, sluice.WithPublisher(option.OnWait(func(refusal *sluice.Error, wait time.Duration) {
		if refusal.Code == wire.RateLimited {
			asked <- wait
		}
	})))
	if _, err := client.Publish(t.Context(), eventOf("orders", "")); err != nil {
		t.Fatal(err)
	}
	if wait := <-asked; wait != time.Millisecond {
		t.Errorf("it was asked to wait %v", wait)
	}
}

func TestConnectionHook(t *testing.T) {
	var mu sync.Mutex
	var told []sluice.ConnectionChange
	sidecar, client := open(t, sluicetest.Options{}, sluice.WithConnectionHook(func(c sluice.ConnectionChange) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, c)
	}))
	got := func(topic string) (lost, back int) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range told {
			switch {
			case c.Topic != topic:
			case c.Err == nil:
				back++
			case back == 0:
				lost++
			}
		}
		return lost, back
	}
	subscribe(t, client, "g", func(context.Context, *sluice.Message) error { return nil })
	sidecar.Disconnect()
	for _, topic := range []string{"", "orders"} {
		testkit.Eventually(t, "it is back", func() bool { lost, back := got(topic); return lost > 0 && back == 1 })
	}
}

func TestAConnectionWithoutASignOfLifeIsReplaced(t *testing.T) {
	publishes, pings := once(wire.OpPublish, sluicetest.Ignored), once(wire.OpPing, sluicetest.Ignored)
	deaf := start(t, sluicetest.Options{Fate: func(op string) sluicetest.Fate { return max(publishes(op), pings(op)) }})
	client := connect(t, deaf, sluice.WithHeartbeat(20*time.Millisecond))
	defer client.Close()
	if _, err := client.Publish(t.Context(), eventOf("orders", "1")); err != nil {
		t.Fatal(err)
	}
}

func TestPropagator(t *testing.T) {
	type traceKey struct{}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	inject := func(ctx context.Context, h map[string]string) {
		if trace, ok := ctx.Value(traceKey{}).(string); ok {
			h["traceparent"] = trace
		}
	}
	var subscribed atomic.Pointer[sluice.Subscription]
	extract := func(ctx context.Context, h map[string]string) context.Context {
		subscribed.Load().Resume() // no lock of the subscription is held
		return context.WithValue(ctx, traceKey{}, "of "+h["traceparent"])
	}
	_, client := open(t, sluicetest.Options{}, sluice.WithPropagator(inject, extract))
	got := make(chan any, 1)
	sub, err := client.Subscribe(t.Context(), "orders", "g", func(ctx context.Context, m *sluice.Message) error {
		got <- ctx.Value(traceKey{})
		return nil
	})
	require.NoError(t, err)
	subscribed.Store(sub)
	if _, err := client.Publish(context.WithValue(t.Context(), traceKey{}, parent), eventOf("orders", "1")); err != nil {
		t.Fatal(err)
	}
	if trace := <-got; trace != "of "+parent {
		t.Fatalf("the handler's trace is %v", trace)
	}
}

func TestHistory(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	publishMany(t, sidecar, "orders", 25)
	client := connect(t, sidecar, sluice.WithReplayURL(sidecar.URL), sluice.WithToken("right"))
	defer client.Close()
	var replayed, exported []string
	for e, err := range client.Replay(t.Context(), sluice.ReplayQuery{Topic: "orders", Limit: 10}) {
		require.NoError(t, err)
		replayed = append(replayed, e.ID)
	}
	for e, err := range client.Export(t.Context(), sluice.ExportQuery{Topic: "orders"}) {
		require.NoError(t, err)
		exported = append(exported, e.ID)
	}
	if len(replayed) != 25 || !slices.Equal(replayed, exported) {
		t.Fatalf("replayed %v, exported %v", replayed, exported)
	}
	for range client.Replay(t.Context(), sluice.ReplayQuery{Topic: "orders", Limit: 10}) {
		break // a loop may end early
	}
	for _, err := range client.Replay(t.Context(), sluice.ReplayQuery{Topic: "orders", From: wire.FromAfterID, AfterID: "none"}) {
		if !errors.Is(err, &wire.Error{Code: wire.NotFound}) {
			t.Fatalf("got %v", err)
		}
	}
}

func TestDrainAndCloseOfTheClient(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	var handled atomic.Int64
	sub, err := client.Subscribe(t.Context(), "orders", "g", func(context.Context, *sluice.Message) error { handled.Add(1); return nil })
	require.NoError(t, err)
	p := client.NewPublisher()
	var results sync.WaitGroup
	for range 100 {
		results.Add(1)
		require.NoError(t, p.Publish(t.Context(), eventOf("orders", ""), func(_ wire.Receipt, err error) {
			if err != nil {
				t.Error(err)
			}
			results.Done()
		}))
	}
	results.Wait()
	testkit.Eventually(t, "all are handled", func() bool { return handled.Load() == 100 })
	require.NoError(t, client.Drain(t.Context()))
	<-sub.Closed()
	if n := sidecar.Acked("orders", "g"); n != 100 {
		t.Errorf("%d are acked", n)
	}
	testkit.Eventually(t, "no connection is left", func() bool { return sidecar.Connections() == 0 })
	if _, err := client.Publish(t.Context(), eventOf("orders", "")); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("publishing afterwards: %v", err)
	}
	if _, err := client.Subscribe(t.Context(), "orders", "g", func(context.Context, *sluice.Message) error { return nil }); !errors.Is(err,
		sluice.ErrClosed) {
		t.Errorf("subscribing afterwards: %v", err)
	}
}

// Client and test sidecar together: how many events a second with many on their way, and one after
// the other of one key.
func BenchmarkPublisher(b *testing.B) {
	for _, keys := range []int{0, 1, 64} {
		b.Run(fmt.Sprint(keys, " keys"), func(b *testing.B) {
			sidecar := start(b, sluicetest.Options{Forget: true})
			client := connect(b, sidecar)
			defer client.Close()
			p := client.NewPublisher()
			e := eventOf("bench", "")
			e.Payload = []byte(`"` + strings.Repeat("x", 200) + `"`)
			done := func(_ wire.Receipt, err error) {
				if err != nil {
					b.Error(err)
				}
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if keys > 0 {
					e.Key = fmt.Sprint("key-", i%keys)
				}
				require.NoError(b, p.Publish(b.Context(), e, done))
			}
			require.NoError(b, p.Flush(b.Context()))
		})
	}
}
