package delivery_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/test/require"
)

// policies redeliver at once, and give up after the second attempt.
const policies = `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"partitions":1,` +
	`"delivery":{"max_attempts":2,"ack_timeout":"1m","backoff":{"min":"1ms","max":"1ms"}}}]`

// answer is what a Carrier returns.
type answer struct {
	outcomes []delivery.Outcome
	err      error
}

// call is a Carry that waits for its answer.
type call struct {
	ds     []group.Delivery
	answer chan answer
}

func (c *call) say(outcomes ...delivery.Outcome) { c.answer <- answer{outcomes: outcomes} }

// ids are the events, as "a1" is the first attempt of a.
func (c *call) ids() string {
	var ids []string
	for _, d := range c.ds {
		ids = append(ids, d.Record.ID+string(rune('0'+d.Attempt)))
	}
	return strings.Join(ids, " ")
}

// endpoint is a Carrier whose calls the test answers.
type endpoint chan *call

func (e endpoint) Carry(ctx context.Context, ds []group.Delivery) ([]delivery.Outcome, error) {
	c := &call{ds, make(chan answer, 1)}
	e <- c
	select {
	case a := <-c.answer:
		return a.outcomes, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// next is the next call, which must bring these events.
func (e endpoint) next(t testing.TB, ids string) *call {
	t.Helper()
	select {
	case c := <-e:
		if c.ids() != ids {
			t.Fatalf("the endpoint gets %q, want %q", c.ids(), ids)
		}
		return c
	case <-time.After(gatewaytest.Patience):
		t.Fatalf("the endpoint gets nothing, want %q", ids)
		return nil
	}
}

// fixture is a sidecar with an endpoint.
type fixture struct {
	*gatewaytest.Sidecar
	endpoint
	*delivery.Member
	abort context.CancelFunc // the endpoint gets no more time
}

func (f *fixture) join(t testing.TB, cfg delivery.Config) *delivery.Member {
	t.Helper()
	var giving context.Context
	giving, f.abort = context.WithCancel(context.Background())
	cfg.Topic, cfg.Group, cfg.Carrier, cfg.Groups, cfg.Policies = "t", "g", f.endpoint, f.Groups, f.Policies
	cfg.Window, cfg.Batch, cfg.Logger = max(cfg.Window, 10), max(cfg.Batch, 1), slog.New(slog.NewTextHandler(t.Output(), nil))
	m, err := delivery.Subscribe(t.Context(), giving, cfg)
	require.NoError(t, err)
	m.Start()
	t.Cleanup(func() {
		f.abort()
		m.Leave(group.Unsubscribed)
	})
	return m
}

func start(t testing.TB, cfg delivery.Config) *fixture {
	f := &fixture{Sidecar: gatewaytest.Start(t, gatewaytest.Setup{Policies: policies}), endpoint: make(endpoint, 100)}
	f.Member = f.join(t, cfg)
	return f
}

// publish publishes events, each with its id as key.
func (f *fixture) publish(t *testing.T, ids ...string) {
	t.Helper()
	for _, id := range ids {
		f.Want(t, http.StatusCreated, "", "POST", "/v1/topics/t/events", "1",
			"Sluice-Id: "+id, "Sluice-Key: "+strings.TrimRight(id, "0123456789"))
	}
}

func (f *fixture) eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(gatewaytest.Patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// settled waits until the group has settled all events.
func (f *fixture) settled(t testing.TB) {
	t.Helper()
	f.eventually(t, "all events are settled", func() bool {
		info, err := f.Groups.Info(t.Context(), "t", "g")
		return err == nil && info.Lag == 0
	})
}

var (
	ack  = delivery.Outcome{}
	nack = delivery.Outcome{Verdict: delivery.Nack, Reason: "no"}
	drop = delivery.Outcome{Verdict: delivery.Drop, Reason: "never"}
	stop = delivery.Outcome{Verdict: delivery.Stop, Reason: "gone"}
)

func hold(d time.Duration) delivery.Outcome {
	return delivery.Outcome{Verdict: delivery.Hold, After: d, Reason: "later"}
}

func TestVerdicts(t *testing.T) {
	f := start(t, delivery.Config{})
	f.publish(t, "a")
	f.next(t, "a1").say(nack)
	f.next(t, "a2").say(ack)
	f.publish(t, "b")
	f.next(t, "b1").answer <- answer{err: errors.New("broken")}
	f.next(t, "b2").say(nack) // the last attempt
	f.settled(t)
	f.Want(t, http.StatusOK, `"total":1`, "GET", "/v1/topics/t/dlq", "")
	f.publish(t, "c")
	f.next(t, "c1").say(drop) // without a topic for dead letters
	f.settled(t)
	f.Want(t, http.StatusOK, `"total":1`, "GET", "/v1/topics/t/dlq", "")
}

// A held event comes again in its order and with its attempt, and the endpoint gets nothing meanwhile.
func TestHold(t *testing.T) {
	f := start(t, delivery.Config{})
	f.publish(t, "a1", "a2")
	for range 3 { // more often than there are attempts
		f.next(t, "a11").say(hold(50 * time.Millisecond))
	}
	first := f.next(t, "a11")
	first.say(hold(time.Hour))
	f.eventually(t, "it is held", f.Held)
	f.publish(t, "b1")
	info, err := f.Groups.Info(t.Context(), "t", "g")
	if err != nil || f.Room() || len(f.endpoint) > 0 || info.Lag != 3 {
		t.Errorf("in the hold: room %v, %d calls, lag %d, %v", f.Room(), len(f.endpoint), info.Lag, err)
	}
	f.Leave(group.Unsubscribed)
	f.join(t, delivery.Config{}) // another endpoint is not held, but the event and its key are
	f.next(t, "b11").say(ack)
	if len(f.endpoint) > 0 {
		t.Errorf("the held event comes too early")
	}
}

// An endpoint that wants nothing more stays a member, and its event goes to the next one.
func TestStop(t *testing.T) {
	f := start(t, delivery.Config{})
	f.publish(t, "a")
	f.next(t, "a1").say(stop)
	f.eventually(t, "it is paused", func() bool {
		info, err := f.Groups.Info(t.Context(), "t", "g")
		return err == nil && len(info.Members) == 1 && info.Members[0].Paused && info.Inflight == 0
	})
	f.join(t, delivery.Config{})
	f.next(t, "a1").say(ack)
	f.settled(t)
}

// A stop waits for answers, and what has none when its time is up goes back without an attempt.
func TestStopWaitsForAnswers(t *testing.T) {
	f := start(t, delivery.Config{})
	f.publish(t, "a", "b")
	answered := f.next(t, "a1")
	f.next(t, "b1")
	left := make(chan struct{})
	go func() {
		defer close(left)
		f.Leave(group.Unsubscribed)
	}()
	answered.say(ack)
	f.eventually(t, "one is acked", func() bool {
		info, err := f.Groups.Info(t.Context(), "t", "g")
		return err == nil && info.Lag == 1
	})
	select {
	case <-left:
		t.Error("it has not waited")
	default:
	}
	f.abort()
	<-left
	f.join(t, delivery.Config{})
	f.next(t, "b1").say(ack)
	f.settled(t)
}

// Batches are full, or have waited; each event has its own outcome.
func TestBatches(t *testing.T) {
	f := start(t, delivery.Config{Batch: 3, Wait: time.Hour, DeadLetterTopic: "dead"})
	f.publish(t, "a", "b", "c")
	f.next(t, "a1 b1 c1").say(ack, nack, drop)
	f.publish(t, "d", "e")
	again := <-f.endpoint // in which order is left to the backoff
	var outcomes []delivery.Outcome
	for _, d := range again.ds {
		if d.Record.ID == "b" {
			outcomes = append(outcomes, nack)
		} else {
			outcomes = append(outcomes, ack)
		}
	}
	again.say(outcomes...)
	f.settled(t)
	f.Want(t, http.StatusOK, `"events":2`, "GET", "/v1/topics?prefix=dead", "")
}

func TestABatchWaits(t *testing.T) {
	f := start(t, delivery.Config{Batch: 3, Wait: 10 * time.Millisecond})
	f.publish(t, "a")
	f.next(t, "a1").say(ack)
	f.settled(t)
}

// TestMembersAreNoted: the access log has a line when an endpoint subscribes and one when it unsubscribes.
func TestMembersAreNoted(t *testing.T) {
	var lines []string
	f := start(t, delivery.Config{Note: func(action string, err error) { lines = append(lines, fmt.Sprint(action, " ", err)) }})
	f.Leave(group.Unsubscribed)
	if want := []string{"subscribe <nil>", "unsubscribe <nil>"}; !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q", lines, want)
	}
}
