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
	"github.com/sluice-bus/sluice/test/sluicetest"
	"github.com/sluice-bus/sluice/test/testkit"
)

// settlements counts the ops that settle events.
type settlements struct {
	mu  sync.Mutex
	ops []string
}

func (s *settlements) options() sluicetest.Options {
	return sluicetest.Options{RefuseSettling: func(op string, ids []string) *wire.Error {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, id := range ids {
			s.ops = append(s.ops, op+" "+id)
		}
		return nil
	}}
}

func (s *settlements) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ops)
}

func publishKeyed(t *testing.T, client *sluice.Client, ids ...string) {
	t.Helper()
	for _, id := range ids {
		key, _, _ := strings.Cut(id, "-")
		if _, err := client.Publish(t.Context(), &sluice.Event{ID: id, Topic: "orders", Key: key, Payload: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
}

// A handler that fails for a while costs no attempt, keeps the order of its key, and holds up no
// other key.
func TestFailuresAreRetriedInHand(t *testing.T) {
	var said settlements
	_, client := open(t, said.options())
	publishKeyed(t, client, "a-1", "a-2", "b-1", "b-2")
	var mu sync.Mutex
	var handled []string
	failures := 0
	subscribe(t, client, "g", func(_ context.Context, m *sluice.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if m.Event.ID == "a-1" && (failures < 3 || len(handled) < 2) {
			failures++
			return errors.New("the database is away")
		}
		handled = append(handled, fmt.Sprint(m.Event.ID, "/", m.Attempt))
		return nil
	})
	testkit.Eventually(t, "all are acked", func() bool { return len(said.all()) == 4 })
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"b-1/1", "b-2/1", "a-1/1", "a-2/1"}; !slices.Equal(handled, want) {
		t.Errorf("handled %v; want %v", handled, want)
	}
	for _, op := range said.all() {
		if !strings.HasPrefix(op, "ACK ") {
			t.Errorf("an event was settled by %s", op)
		}
	}
}

// An event that fails for too long is given back. An event whose error is a RetryIn is given back
// at once.
func TestFailuresAreGivenBack(t *testing.T) {
	var said settlements
	sidecar, client := open(t, said.options())
	publishKeyed(t, client, "long-1", "retry-1", "wrapped-1", "ack-1")
	var calls atomic.Int64
	no := errors.New("no")
	subscribe(t, client, "g", func(_ context.Context, m *sluice.Message) error {
		switch {
		case m.Attempt > 1:
			return nil
		case m.Event.ID == "long-1":
			calls.Add(1)
			return no
		case m.Event.ID == "retry-1":
			return sluice.RetryIn(0, no)
		case m.Event.ID == "wrapped-1":
			return fmt.Errorf("wrapped: %w", sluice.RetryIn(time.Millisecond, no))
		}
		return nil
	}, option.RetryFor(250*time.Millisecond))
	testkit.Eventually(t, "all are acked", func() bool { return sidecar.Acked("orders", "g") == 4 })
	if n := calls.Load(); n < 2 || n > 5 {
		t.Errorf("the handler was called %d times in a quarter of a second", n)
	}
	var nacks []string
	for _, op := range said.all() {
		if strings.HasPrefix(op, "NACK") {
			nacks = append(nacks, op)
		}
	}
	slices.Sort(nacks)
	if want := []string{"NACK long-1", "NACK retry-1", "NACK wrapped-1"}; !slices.Equal(nacks, want) {
		t.Errorf("given back: %v; want %v", nacks, want)
	}
}

// An event that waits for its next try goes back when the subscription ends, and counts no attempt.
func TestRetriesEndWithTheSubscription(t *testing.T) {
	for name, end := range map[string]func(*sluice.Subscription){"stop": (*sluice.Subscription).Stop, "drain": (*sluice.Subscription).Drain} {
		var said settlements
		_, client := open(t, said.options())
		publishKeyed(t, client, "a-1")
		failed := make(chan struct{}, 100)
		sub := subscribe(t, client, "g", func(context.Context, *sluice.Message) error { failed <- struct{}{}; return errors.New("no") })
		for range 5 {
			<-failed
		}
		end(sub)
		<-sub.Closed()
		if ops := said.all(); len(ops) > 0 {
			t.Errorf("%s: it was settled: %v", name, ops)
		}
		again := make(chan int, 1)
		subscribe(t, client, "g", func(_ context.Context, m *sluice.Message) error { again <- m.Attempt; return nil })
		if attempt := <-again; attempt != 1 {
			t.Errorf("%s: it comes again with attempt %d", name, attempt)
		}
	}
}

// The context of a handler ends when its event is lost.
func TestContextEndsWithTheConnection(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	publishKeyed(t, client, "a-1")
	causes := make(chan error, 1)
	started := make(chan struct{}, 2)
	subscribe(t, client, "g", func(ctx context.Context, m *sluice.Message) error {
		started <- struct{}{}
		if len(causes) > 0 || m.Attempt > 1 {
			return nil
		}
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return ctx.Err()
	})
	<-started
	sidecar.Disconnect()
	testkit.Eventually(t, "it is acked", func() bool { return sidecar.Acked("orders", "g") == 1 })
	if err := <-causes; !errors.Is(err, sluice.ErrLost) {
		t.Errorf("the context ended with %v", err)
	}
}

// TestMaxAttemptsCountsCalls: each error of the handler counts an attempt.
func TestMaxAttemptsCountsCalls(t *testing.T) {
	sidecar, client := open(t, sluicetest.Options{})
	publishKeyed(t, client, "a-1", "a-2")
	var calls atomic.Int64
	subscribe(t, client, "g", func(_ context.Context, m *sluice.Message) error {
		if m.Event.ID == "a-1" {
			calls.Add(1)
			return errors.New("no")
		}
		return nil
	}, option.MaxAttempts(3))
	testkit.Eventually(t, "the other event is acked", func() bool { return sidecar.Acked("orders", "g") == 1 })
	testkit.Eventually(t, "there is a dead letter", func() bool { return len(sidecar.Events("orders.dlq")) == 1 })
	if n := calls.Load(); n != 3 {
		t.Errorf("the handler was called %d times", n)
	}
}
