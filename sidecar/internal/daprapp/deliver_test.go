package daprapp

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// quick redelivers at once, and gives events up late.
const quick = `[{name: "*", publish: {rate: 0}, partitions: 2, delivery: {max_attempts: 3, ack_timeout: 1m, backoff: {min: 1ms, ` +
	`max: 1ms}}}]`

const oneTopic = `[{"pubsubname":"p","topic":"t","route":"/orders"}]`

// The application's answers settle its events.
func TestAnswersSettle(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", oneTopic)
	s.run(t, app.addr)
	eventually(t, "it has subscribed", func() bool { return s.lag(t, "t") == 0 })
	s.publish(t, "t", "a", "k")
	c := app.next(t)
	if c.path != "/orders" || c.id() != "a" || c.event["topic"] != "t" || c.event["pubsubname"] != "p" || c.event["data"] != 1.0 {
		t.Errorf("%s %v", c.path, c.event)
	}
	c.say(500, "")
	c = app.next(t)
	c.say(200, `{"status":"RETRY"}`)
	c = app.next(t)
	if c.id() != "a" {
		t.Errorf("%v", c.event)
	}
	c.say(200, `{"status":"SUCCESS"}`)
	eventually(t, "it is acked", func() bool { return s.lag(t, "t") == 0 })
	s.publish(t, "t", "b", "k")
	app.next(t).say(200, `{"status":"DROP"}`)
	s.publish(t, "t", "c", "k")
	app.next(t).say(404, ``)
	eventually(t, "what is dropped is settled", func() bool { return s.lag(t, "t") == 0 })
	if log := s.logged.String(); !strings.Contains(log, "id=b") || !strings.Contains(log, "id=c") || !strings.Contains(log, "drops") {
		t.Errorf("the log does not name what was dropped: %s", log)
	}
}

// giving is a Carry that waits for its outcome.
type giving struct {
	group.Delivery
	outcome chan delivery.Verdict
}

// slow is a Carrier whose calls the test answers.
type slow chan giving

func (c slow) Carry(_ context.Context, ds []group.Delivery) ([]delivery.Outcome, error) {
	g := giving{ds[0], make(chan delivery.Verdict)}
	c <- g
	return []delivery.Outcome{{Verdict: <-g.outcome}}, nil
}

// An answer that comes after the event was given again settles nothing: neither does it cost the
// new delivery its attempt, nor end it.
func TestLateAnswerSettlesNothing(t *testing.T) {
	s := newSidecar(t, `[{name: "*", publish: {rate: 0}, delivery: {max_attempts: 100, ack_timeout: 1m, backoff: {min: 1ms, max: 1ms}}}]`)
	calls := make(slow, 100)
	m := delivery.Join(t.Context(), context.Background(), delivery.Config{Topic: "t", Group: "app.p", Carrier: calls, Window: 10, Batch: 1,
		Groups: s.groups, Policies: s.policies, Logger: slog.New(slog.NewTextHandler(s.logged, nil))})
	defer m.Leave(group.Unsubscribed)
	m.Start()
	s.publish(t, "t", "a", "k")
	call := <-calls
	for _, late := range []delivery.Verdict{delivery.Nack, delivery.Ack} {
		s.groups.NackLeases("t", "app.p", []group.Lease{call.Lease}, wire.Nack{Reason: "late"}, func(_, _ []int, _ error) {})
		next := <-calls
		before := strings.Count(s.logged.String(), "too late")
		call.outcome <- late
		eventually(t, "the log tells of it", func() bool { return strings.Count(s.logged.String(), "too late") > before })
		if n := m.Inflight(); n != 1 || len(calls) > 0 {
			t.Fatalf("after a late %d, %d are in flight, and %d came again", late, n, len(calls))
		}
		call = next
	}
	call.outcome <- delivery.Ack
	eventually(t, "it is acked", func() bool { return s.lag(t, "t") == 0 })
}

// Events of one key come one after the other; those of several keys at once, but never more than
// Concurrency.
func TestConcurrencyAndOrder(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", oneTopic)
	s.run(t, app.addr)
	eventually(t, "it has subscribed", func() bool { return s.lag(t, "t") == 0 })
	const keys = Concurrency + 10
	for i := range 2 * keys {
		s.publish(t, "t", fmt.Sprintf("%d-%d", i%keys, i/keys), fmt.Sprint(i%keys))
	}
	var held []*call
	for range Concurrency {
		held = append(held, app.next(t))
	}
	if n := len(app.calls); n > 0 {
		t.Errorf("%d more than %d are given", n, Concurrency)
	}
	last := map[any]string{}
	for done := 0; done < 2*keys; done++ {
		if len(held) == 0 { // the rest is of keys that were held
			held = append(held, app.next(t))
		}
		c := held[0]
		held = held[1:]
		key := c.event["partitionkey"]
		if _, n, _ := strings.Cut(c.id(), "-"); last[key] == "" && n != "0" || last[key] == "0" && n != "1" {
			t.Errorf("key %v: %s after %q", key, c.id(), last[key])
		} else {
			last[key] = n
		}
		c.ok()
		for len(app.calls) > 0 {
			held = append(held, <-app.calls)
		}
		if len(held) > Concurrency {
			t.Fatalf("%d are given at once", len(held))
		}
	}
	eventually(t, "all are acked", func() bool { return s.lag(t, "t") == 0 })
}

// An application that goes away is asked again when it is back, and its events lose no attempt
// meanwhile.
func TestApplicationRestarts(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", oneTopic)
	s.run(t, app.addr)
	eventually(t, "it has subscribed", func() bool { return s.lag(t, "t") == 0 })
	app.stop()
	for i := range 5 {
		s.publish(t, "t", fmt.Sprint("e", i), fmt.Sprint(i))
	}
	eventually(t, "it is found not to answer", func() bool { return strings.Contains(s.logged.String(), "does not answer") })
	app = startApplication(t, app.addr, `[{"pubsubname":"p","topic":"t","routes":{"rules":[{"match":"event.id == 'x'","path":"/x"}],`+
		`"default":"new"}},{"pubsubname":"p","topic":"a b","route":"/"},{"pubsubname":"p","topic":"u"},{"topic":"v","route":"/"},`+
		`{"pubsubname":"p","topic":"t","route":"/"},{"pubsubname":"p","topic":"r","routes":{"rules":[{"match":"evnt.id","path":"/x"}]}}]`)
	got := map[string]bool{}
	for range 5 {
		c := app.next(t)
		if got[c.id()] = true; c.path != "/new" {
			t.Errorf("%s goes to %s", c.id(), c.path)
		}
		c.ok()
	}
	if len(got) != 5 {
		t.Errorf("got %v", got)
	}
	eventually(t, "all are acked", func() bool { return s.lag(t, "t") == 0 })
	for _, said := range []string{"undeclared reference to 'evnt'", `"a b\" holds`, "no route", "pubsubname is missing", "have one already"} {
		if !strings.Contains(s.logged.String(), said) {
			t.Errorf("the log does not say %q: %s", said, s.logged)
		}
	}
}

// A stop waits for the application's answer, and gives it nothing new.
func TestStopLetsTheApplicationFinish(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", oneTopic)
	stop := s.run(t, app.addr)
	eventually(t, "it has subscribed", func() bool { return s.lag(t, "t") == 0 })
	s.publish(t, "t", "a", "k")
	s.publish(t, "t", "b", "k")
	c := app.next(t)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop()
	}()
	eventually(t, "nothing new is delivered", func() bool {
		info, err := s.groups.Info(t.Context(), "t", "app.p")
		return err == nil && len(info.Members) == 1 && info.Members[0].Paused
	})
	select {
	case <-stopped:
		t.Error("it did not wait for the answer")
	default:
	}
	c.ok()
	<-stopped
	if n := len(app.calls); n > 0 || s.lag(t, "t") != 1 {
		t.Errorf("%d are given after the stop, and %d are not settled", n, s.lag(t, "t"))
	}
}

// One without subscriptions is left alone.
func TestApplicationWithoutSubscriptions(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", "")
	stop := s.run(t, app.addr)
	eventually(t, "it is known", func() bool { return strings.Contains(s.logged.String(), "no subscriptions") })
	stop()
}

// An event of before headers were looked at gets to the application, without the trace that HTTP
// cannot carry.
func TestHeadersThatEndALine(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", oneTopic)
	s.run(t, app.addr)
	eventually(t, "it has subscribed", func() bool { return s.lag(t, "t") == 0 })
	s.publish(t, "t", "a", "k", wire.Header{Name: "traceparent", Value: "00\r\nX-Evil: 1"}, wire.Header{Name: "tracestate", Value: "a\x00"})
	c := app.next(t)
	if c.id() != "a" {
		t.Errorf("%v", c.event)
	}
	c.ok()
	eventually(t, "it is acked", func() bool { return s.lag(t, "t") == 0 })
}

// An application has the subscriptions that it may have, as long as it may.
func TestRightsOfTheApplication(t *testing.T) {
	s := newSidecar(t, quick)
	app := startApplication(t, "127.0.0.1:0", `[{"pubsubname":"p","topic":"t","route":"/t"},{"pubsubname":"p","topic":"u","route":"/u"}]`)
	var mine atomic.Value
	mine.Store("t")
	a, _ := s.runApp(t, "http://"+app.addr, Config{May: func(topic, group, _ string) error {
		if topic == mine.Load() && group == "app.p" {
			return nil
		}
		return wire.Errorf(wire.Forbidden, "not yours")
	}})
	eventually(t, "it has subscribed", func() bool { return s.lag(t, "t") == 0 })
	a.RightsChanged() // which takes nothing away
	s.publish(t, "t", "a", "k")
	c := app.next(t)
	if c.id() != "a" {
		t.Errorf("%v", c.event)
	}
	c.ok()
	eventually(t, "it is told of the topic that is not its own", func() bool { return strings.Contains(s.logged.String(), "not yours") })
	if log := s.logged.String(); strings.Count(log, "topic=u") != 1 {
		t.Errorf("the log: %s", log)
	}
	mine.Store("u")
	a.RightsChanged()
	eventually(t, "it has the other topic", func() bool { return s.lag(t, "u") == 0 })
	s.publish(t, "t", "b", "k")
	s.publish(t, "u", "c", "k")
	if c := app.next(t); c.id() != "c" || c.path != "/u" {
		t.Errorf("%s %v", c.path, c.event)
	} else {
		c.ok()
	}
}
