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

func subscribe(t *testing.T, client *sluice.Client, group string, handler sluice.Handler, opts ...option.Subscribe) *sluice.Subscription {
	t.Helper()
	sub, err := client.Subscribe(t.Context(), "orders", group, handler, append([]option.Subscribe{option.FromEarliest()}, opts...)...)
	require.NoError(t, err)
	return sub
}

func TestHandlersSettle(t *testing.T) {
	var mu sync.Mutex
	var settled []string
	sidecar, client := open(t, sluicetest.Options{RefuseSettling: func(op string, ids []string) *wire.Error {
		mu.Lock()
		defer mu.Unlock()
		settled = append(settled, fmt.Sprint(op, ids))
		return nil
	}})
	publishMany(t, sidecar, "orders", 4)
	attempts := make(chan string, 20)
	sub := subscribe(t, client, "g", func(ctx context.Context, m *sluice.Message) error {
		attempts <- fmt.Sprint(m.Event.ID, "/", m.Attempt)
		switch m.Event.ID + fmt.Sprint(m.Attempt) {
		case "11":
			return sluice.RetryIn(0, errors.New("not yet"))
		case "21":
			return errors.Join(m.Nack(ctx, sluice.Nack{Reason: "by hand"}), errors.New("this one does not count"))
		case "31":
			return errors.Join(m.Extend(ctx, time.Minute), m.Ack(ctx), m.Ack(ctx))
		}
		return nil
	})
	testkit.Eventually(t, "all are acked", func() bool { return sidecar.Acked("orders", "g") == 4 })
	sub.Drain()
	<-sub.Closed()
	close(attempts)
	var got []string
	for a := range attempts {
		got = append(got, a)
	}
	slices.Sort(got)
	if want := []string{"0/1", "1/1", "1/2", "2/1", "2/2", "3/1"}; !slices.Equal(got, want) {
		t.Errorf("handled %v; want %v", got, want)
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(settled)
	if want := []string{"ACK[0]", "ACK[1]", "ACK[2]", "ACK[3]", "NACK[1]", "NACK[2]"}; !slices.Equal(settled, want) {
		t.Errorf("settled %v; want %v", settled, want)
	}
}

// The client sends an ack again that the sidecar had no time for.
func TestAcksAreSentAgain(t *testing.T) {
	var refusals atomic.Int64
	sidecar, client := open(t, sluicetest.Options{RefuseSettling: func(string, []string) *wire.Error {
		if refusals.Add(1) > 3 {
			return nil
		}
		return &wire.Error{Code: wire.StoreUnavailable, Msg: "later", RetryAfter: time.Millisecond}
	}})
	publishMany(t, sidecar, "orders", 1)
	var handled atomic.Int64
	subscribe(t, client, "g", func(context.Context, *sluice.Message) error { handled.Add(1); return nil })
	testkit.Eventually(t, "it is acked", func() bool { return sidecar.Acked("orders", "g") == 1 })
	if handled.Load() != 1 {
		t.Fatalf("handled %d times", handled.Load())
	}
}

func TestManualAck(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	publishMany(t, sidecar, "orders", 3)
	messages := make(chan *sluice.Message, 3)
	sub := subscribe(t, client, "g", func(_ context.Context, m *sluice.Message) error { messages <- m; return nil }, option.ManualAck())
	all := []*sluice.Message{<-messages, <-messages, <-messages}
	if n := sidecar.Acked("orders", "g"); n != 0 {
		t.Fatalf("%d are acked", n)
	}
	sub.Drain()
	for _, m := range all {
		select {
		case <-sub.Closed():
			t.Fatal("it left before all were settled")
		default:
		}
		require.NoError(t, m.Ack(t.Context()))
	}
	<-sub.Closed()
	if n := sidecar.Acked("orders", "g"); n != 3 {
		t.Fatalf("%d are acked", n)
	}
}

func TestDeadlinesAreExtended(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{AckDeadline: 30 * time.Millisecond})
	publishMany(t, sidecar, "orders", 2) // the second waits behind the first
	subscribe(t, client, "g", func(context.Context, *sluice.Message) error {
		testkit.Eventually(t, "it was extended twice", func() bool { return sidecar.Extended("orders", "g") >= 2 })
		return nil
	})
	testkit.Eventually(t, "both are acked", func() bool { return sidecar.Acked("orders", "g") == 2 })
}

func TestPauseAndResume(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	publishMany(t, sidecar, "orders", 3)
	handling, goOn := make(chan string, 3), make(chan struct{})
	sub := subscribe(t, client, "g", func(_ context.Context, m *sluice.Message) error { handling <- m.Event.ID; <-goOn; return nil })
	<-handling
	sub.Pause()
	close(goOn)
	testkit.Eventually(t, "the one that ran is acked", func() bool { return sidecar.Acked("orders", "g") == 1 })
	sidecar.Disconnect() // a pause outlives its connection
	testkit.Eventually(t, "it came again", func() bool { return sidecar.Connections() == 2 })
	if len(handling) > 0 {
		t.Fatal("a handler started while paused")
	}
	sub.Resume()
	testkit.Eventually(t, "all are acked", func() bool { return sidecar.Acked("orders", "g") == 3 })
}

func TestStopGivesBackAtOnce(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	publishMany(t, sidecar, "orders", 5)
	started := make(chan struct{}, 5)
	sub := subscribe(t, client, "g", func(ctx context.Context, _ *sluice.Message) error {
		started <- struct{}{}
		<-ctx.Done()
		return nil // too late
	}, option.Concurrency(2))
	<-started
	<-started
	sub.Stop()
	<-sub.Closed()
	if n := sidecar.Acked("orders", "g"); n != 0 || len(started) > 0 {
		t.Fatalf("%d are acked, %d started", n, len(started))
	}
	got := make(chan *sluice.Message, 5)
	subscribe(t, client, "g", func(_ context.Context, m *sluice.Message) error { got <- m; return nil })
	for range 5 {
		if m := <-got; m.Attempt != 1 {
			t.Errorf("event %s comes with attempt %d", m.Event.ID, m.Attempt)
		}
	}
}

func TestDrainFinishesWhatIsInHand(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	publishMany(t, sidecar, "orders", 5)
	first, goOn := make(chan struct{}, 10), make(chan struct{})
	sub := subscribe(t, client, "g", func(ctx context.Context, _ *sluice.Message) error {
		first <- struct{}{}
		<-goOn
		return ctx.Err()
	})
	<-first
	sub.Drain()
	publishMany(t, sidecar, "orders", 1) // a duplicate: nothing new
	if _, err := client.Publish(t.Context(), eventOf("orders", "new")); err != nil {
		t.Fatal(err)
	}
	close(goOn)
	<-sub.Closed()
	if n := sidecar.Acked("orders", "g"); n != 5 {
		t.Fatalf("%d are acked", n)
	}
}

// If a handler outlives its connection, its result counts.
func TestAHandlerOutlivesItsConnection(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	publishMany(t, sidecar, "orders", 3)
	started, goOn := make(chan struct{}, 10), make(chan struct{})
	subscribe(t, client, "g", func(context.Context, *sluice.Message) error { started <- struct{}{}; <-goOn; return nil })
	<-started
	sidecar.Disconnect()
	testkit.Eventually(t, "all connections are made again", func() bool { return sidecar.Connections() == 2 })
	close(goOn)
	testkit.Eventually(t, "all are acked", func() bool { return sidecar.Acked("orders", "g") == 3 })
	if n := len(started); n != 2 {
		t.Fatalf("%d further handlers were started for 2 events", n)
	}
}

func TestHooks(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	publishMany(t, sidecar, "orders", 1)
	var mu sync.Mutex
	var calls []string
	note := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, what)
	}
	noted := func(n int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return len(calls) >= n }
	}
	handling, goOn := make(chan struct{}), make(chan struct{})
	sub := subscribe(t, client, "g", func(context.Context, *sluice.Message) error {
		note("handler starts")
		handling <- struct{}{}
		<-goOn
		note("handler returns")
		return nil
	},
		option.OnAssigned(func(_ context.Context, ps []int) { note(fmt.Sprint("assigned ", ps)) }),
		option.OnRevoked(func(ctx context.Context, ps []int) { note(fmt.Sprint("revoked ", ps, " ", ctx.Err())) }))
	<-handling
	sidecar.Disconnect()
	testkit.Eventually(t, "it came again", func() bool { return sidecar.Connections() == 2 })
	close(goOn)
	testkit.Eventually(t, "it is assigned again", noted(5))
	sub.Stop()
	<-sub.Closed()
	want := "assigned [0], handler starts, handler returns, revoked [0] <nil>, assigned [0], revoked [0] <nil>"
	if got := strings.Join(calls, ", "); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

// Without a group every event comes once, also when connections break meanwhile.
func TestWithoutAGroup(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	var mu sync.Mutex
	var got []string
	sub, err := client.Subscribe(t.Context(), "orders", "", func(ctx context.Context, m *sluice.Message) error {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, m.Event.ID)
		return m.Ack(ctx) // does nothing
	})
	require.NoError(t, err)
	for i := range 40 {
		if _, err := client.Publish(t.Context(), eventOf("orders", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		if i%10 == 9 {
			sidecar.Disconnect()
		}
	}
	testkit.Eventually(t, "all came", func() bool { mu.Lock(); defer mu.Unlock(); return len(got) >= 40 })
	sub.Drain()
	<-sub.Closed()
	for i, id := range got {
		if id != fmt.Sprint(i) {
			t.Fatalf("got %v", got)
		}
	}
	for _, opt := range []option.Subscribe{option.ManualAck(), option.OnAssigned(nil)} {
		if _, err := client.Subscribe(t.Context(), "orders", "", nil, opt); err == nil {
			t.Error("an option that needs a group was taken without one")
		}
	}
}

// A slow handler bounds the events that the client holds. The client does not read the rest, and
// does not take the unread connection for dead.
func TestASlowHandlerKeepsItsConnection(t *testing.T) {
	var pings, subscribes atomic.Int64
	sidecar, client := open(t, sluicetest.Options{Fate: func(op string) sluicetest.Fate {
		switch op {
		case wire.OpPing:
			pings.Add(1)
		case wire.OpSubscribe:
			subscribes.Add(1)
		}
		return sluicetest.Served
	}}, sluice.WithHeartbeat(20*time.Millisecond))
	publishMany(t, sidecar, "orders", 50)
	handling, release := make(chan struct{}, 50), make(chan struct{})
	var handled atomic.Int64
	subscribe(t, client, "", func(context.Context, *sluice.Message) error {
		handling <- struct{}{}
		<-release
		handled.Add(1)
		return nil
	}, option.MaxBytes(1))
	<-handling // on a slow machine a connection may have been replaced before it
	before, asked := subscribes.Load(), pings.Load()
	testkit.Eventually(t, "signs of life were asked for", func() bool { return pings.Load() >= asked+10 })
	if n := subscribes.Load() - before; n != 0 {
		t.Fatalf("it subscribed %d times again", n)
	}
	close(release)
	testkit.Eventually(t, "all are handled", func() bool { return handled.Load() == 50 })
}

func TestARefusedSubscriptionIsAnError(t *testing.T) {
	_, client := open(t, sluicetest.Options{})
	if _, err := client.Subscribe(t.Context(), "or ders", "g", func(context.Context, *sluice.Message) error { return nil }); !errors.Is(err,
		&wire.Error{Code: wire.BadRequest}) {
		t.Fatalf("got %v", err)
	}
}
