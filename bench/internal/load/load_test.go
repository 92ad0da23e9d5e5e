package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func start(t testing.TB, opts sluicetest.Options) *sluicetest.Sidecar {
	t.Helper()
	sidecar := sluicetest.Start(opts)
	t.Cleanup(sidecar.Close)
	return sidecar
}

// plan is a load of 1,003 events.
func plan(sidecar *sluicetest.Sidecar) Publishing {
	return Publishing{
		URL: sidecar.URL, Transport: TransportWS, Topic: "t", Events: 1003, Size: 64, Connections: 3, Depth: 5, Batch: 1, Keys: 7,
	}
}

func publish(t testing.TB, p Publishing) (*Tally, time.Duration, error) {
	t.Helper()
	publisher, err := NewPublisher(t.Context(), p)
	require.NoError(t, err)
	return publisher.Run(t.Context())
}

func TestEveryEventIsPublishedOnce(t *testing.T) {
	for _, transport := range []string{TransportWS, TransportHTTP} {
		for _, batch := range []int{1, 10} {
			t.Run(fmt.Sprint(transport, " ", batch), func(t *testing.T) {
				sidecar := start(t, sluicetest.Options{})
				p := plan(sidecar)
				p.Transport, p.Batch = transport, batch
				if transport == TransportHTTP {
					p.Depth = 1
				}
				tally, took, err := publish(t, p)
				require.NoError(t, err)
				if tally.Done != p.Events || tally.Failed != 0 || tally.Duplicates != 0 || took <= 0 {
					t.Errorf("tally %+v after %v", tally, took)
				}
				if n := tally.Latency.Summary().N; n != int64(p.Events) {
					t.Errorf("%d latencies", n)
				}
				events := sidecar.Events("t")
				if len(events) != p.Events {
					t.Fatalf("%d events arrived", len(events))
				}
				keys := map[string]int{}
				for _, e := range events {
					keys[e.Key]++
					if _, ok := stamped(e.Payload); !ok || len(e.Payload) != p.Size || !json.Valid(e.Payload) {
						t.Fatalf("payload %s", e.Payload)
					}
				}
				if len(keys) != p.Keys || keys["key-0"] < p.Events/p.Keys {
					t.Errorf("keys %v", keys)
				}
			})
		}
	}
}

func TestOpenLoadCountsFromWhenASendWasDue(t *testing.T) {
	stall := true
	sidecar := start(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error {
		if stall {
			stall = false
			c := newClock()
			c.wait(c.now()+int64(60*time.Millisecond), nil, preciseSleep)
		}
		return nil
	}})
	p := plan(sidecar)
	p.Connections, p.Depth, p.Events, p.Rate = 1, 1, 100, 1000
	tally, took, err := publish(t, p)
	if err != nil || took < 99*time.Millisecond {
		t.Fatalf("%v, %v", took, err)
	}
	// The stall of 60 ms held up about 60 sends that were due meanwhile; counted from the send
	// itself, it would be in one.
	if s := tally.Latency.Summary(); s.P50 < 1 || s.Max < 55 {
		t.Errorf("the stall is left out: %+v", s)
	}
}

func TestRefusalsAreCountedByCode(t *testing.T) {
	for _, batch := range []int{1, 4} {
		t.Run(fmt.Sprint("batches of ", batch), func(t *testing.T) {
			n := 0
			sidecar := start(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error {
				if n++; n%3 == 0 {
					return wire.Errorf(wire.Overloaded, "a queue is full")
				}
				return nil
			}})
			p := plan(sidecar)
			p.Batch, p.Events = batch, 300
			tally, _, err := publish(t, p)
			if err != nil || tally.Done != 200 || tally.Failed != 100 || tally.Errors["overloaded"] != 100 {
				t.Errorf("%+v, %v", tally, err)
			}
		})
	}
}

func TestARateLimitEndsTheRun(t *testing.T) {
	sidecar := start(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error {
		return &wire.Error{Code: wire.RateLimited, Msg: "slow down", RetryAfter: time.Second}
	}})
	p := plan(sidecar)
	p.Events = 1_000_000
	tally, _, err := publish(t, p)
	if !RateLimited(err) || tally.Failed == 0 || tally.Failed > 1000 {
		t.Errorf("%+v, %v", tally, err)
	}
}

func TestALostConnectionEndsTheRun(t *testing.T) {
	var sidecar *sluicetest.Sidecar
	n := 0
	sidecar = start(t, sluicetest.Options{Refuse: func(*wire.Event) *wire.Error {
		if n++; n == 50 {
			go sidecar.Disconnect()
		}
		return nil
	}})
	p := plan(sidecar)
	p.Events = 10_000_000
	tally, _, err := publish(t, p)
	if !errors.Is(err, sluice.ErrClosed) || tally.Failed != tally.Errors["connection_lost"] {
		t.Errorf("%+v, %v", tally.Errors, err)
	}
}

func consume(t *testing.T, plan Consuming) *Consumer {
	t.Helper()
	consumer, err := NewConsumer(t.Context(), plan)
	require.NoError(t, err)
	t.Cleanup(consumer.Close)
	require.NoError(t, consumer.Subscribe(t.Context()))
	return consumer
}

func TestDrainAcksEverything(t *testing.T) {
	for _, maxBatch := range []int{1, 8} {
		t.Run(fmt.Sprint("batches of ", maxBatch), func(t *testing.T) {
			sidecar := start(t, sluicetest.Options{})
			p := plan(sidecar)
			if _, _, err := publish(t, p); err != nil {
				t.Fatal(err)
			}
			consumer := consume(t, Consuming{
				URL: sidecar.URL, Topic: "t", Group: "g", From: wire.FromEarliest, Events: p.Events, Connections: 2,
				Window: 20, MaxBatch: maxBatch, Patience: 10 * time.Second,
			})
			tally, err := consumer.Wait(t.Context())
			if err != nil || tally.Done != p.Events || tally.Duplicates != 0 || tally.Failed != 0 {
				t.Errorf("%+v, %v", tally, err)
			}
			if n := sidecar.Acked("t", "g"); n != p.Events {
				t.Errorf("%d acked", n)
			}
		})
	}
}

func TestWithoutAGroupEveryConnectionGetsEverything(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	p := plan(sidecar)
	consumer := consume(t, Consuming{
		URL: sidecar.URL, Topic: "t", From: wire.FromLatest, Events: p.Events, Connections: 2, Window: 100, MaxBatch: 1,
		Patience: 10 * time.Second,
	})
	if _, _, err := publish(t, p); err != nil {
		t.Fatal(err)
	}
	tally, err := consumer.Wait(t.Context())
	if err != nil || tally.Done != 2*p.Events || tally.Latency.Summary().N != int64(2*p.Events) {
		t.Errorf("%+v, %v", tally, err)
	}
	if longest := tally.Latency.Summary().Max; longest <= 0 || longest > 60_000 {
		t.Errorf("a latency of %v ms", longest)
	}
	if consumer.SinceFirst() <= 0 {
		t.Error("it never began")
	}
}

func TestConsumerGivesUp(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	consumer := consume(t, Consuming{
		URL: sidecar.URL, Topic: "t", Group: "g", From: wire.FromLatest, Events: 1, Connections: 1, Window: 1, MaxBatch: 1,
		Patience: time.Millisecond,
	})
	if consumer.SinceFirst() != 0 {
		t.Error("began without an event")
	}
	if _, err := consumer.Wait(t.Context()); err == nil || !strings.Contains(err.Error(), "no event came") {
		t.Errorf("got %v", err)
	}
	sidecar.Disconnect()
	consumer.plan.Patience = time.Minute
	if _, err := consumer.Wait(t.Context()); !errors.Is(err, sluice.ErrClosed) {
		t.Errorf("after the connection was lost: %v", err)
	}
}

// BenchmarkPublish is what the bench itself can do: sidecar, client and all share the machine.
func BenchmarkPublish(b *testing.B) {
	p := plan(start(b, sluicetest.Options{Forget: true}))
	p.Connections, p.Depth, p.Events, p.Size = 1, 256, b.N, 256
	publisher, err := NewPublisher(b.Context(), p)
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	if _, _, err := publisher.Run(b.Context()); err != nil {
		b.Fatal(err)
	}
}

// mute is a carrier that answers nothing until it is closed.
type mute struct {
	closed chan struct{}
	once   sync.Once
}

func (*mute) Send([]wire.Event, *Slot) error { return nil }
func (m *mute) Flush() error                 { <-m.closed; return errors.New("closed") }
func (m *mute) Close()                       { m.once.Do(func() { close(m.closed) }) }

func TestPublishesWithoutAnswersEnd(t *testing.T) {
	p := Publishing{Topic: "t", Events: 10, Size: MinSize, Connections: 2, Depth: 2, Batch: 1, Patience: 10 * time.Millisecond}
	p.Open = func(context.Context, Publishing) (Carrier, error) { return &mute{closed: make(chan struct{})}, nil }
	_, _, err := publish(t, p)
	if err == nil || err.Error() != "no publish was answered for 10ms, after 0 events" {
		t.Errorf("the run ends with %v", err)
	}
}
