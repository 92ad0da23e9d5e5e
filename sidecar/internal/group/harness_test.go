package group

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

const topic = "orders"

// world is a log and the process that uses it.
type world struct {
	t           fataler
	log         *fakeLog
	policy      atomic.Pointer[policy.Effective]
	deadLetters *fakeDeadLetters
	bounds      Bounds
	memory      *budget.Share // nil: no bound

	mortal *mortalLog
	m      *Manager
	ids    int
}

// fataler is common to *testing.T and *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// run gives a scenario a world of its own, with a topic of one partition, and checks that it leaves
// nothing behind.
func run(t *testing.T, scenario func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		scenario(t, w)
		w.stop()
	})
}

func newWorld(t fataler, partitions int) *world {
	w := &world{t: t, log: newFakeLog(), bounds: DefaultBounds()}
	w.deadLetters = &fakeDeadLetters{log: w.log}
	eff := policy.Defaults()
	eff.Partitions = partitions
	w.policy.Store(&eff)
	w.start()
	if _, err := w.log.EnsureTopic(context.Background(), topic, partitions); err != nil {
		t.Fatalf("%v", err)
	}
	return w
}

// start begins a process on the log.
func (w *world) start(change ...func(*Config)) {
	w.mortal = &mortalLog{fakeLog: w.log}
	cfg := Config{
		Context:     context.Background(),
		Log:         w.mortal,
		Tails:       w.log.tails,
		Policy:      func(string) *policy.Effective { return w.policy.Load() },
		DeadLetters: w.deadLetters,
		Metrics:     telemetry.Discard(),
		Roster:      roster.Alone("node"),
		Logger:      slog.New(slog.DiscardHandler),
		Bounds:      w.bounds,
	}
	for _, f := range change {
		f(&cfg)
	}
	w.m = NewManager(cfg)
}

func (w *world) stop() {
	w.t.Helper()
	if err := w.m.Stop(context.Background()); err != nil {
		w.t.Errorf("stop: %v", err)
	}
}

// kill ends the process without a word, and starts another.
func (w *world) kill() {
	w.mortal.kill()
	_ = w.m.Stop(context.Background()) // ends its goroutines; no save of it arrives
	w.start()
}

// setPolicy changes the policy in force.
func (w *world) setPolicy(change func(*policy.Effective)) {
	eff := *w.policy.Load()
	change(&eff)
	w.policy.Store(&eff)
	w.m.PoliciesChanged()
	synctest.Wait()
}

// publish stores events that are named "id" or "id:key".
func (w *world) publish(names ...string) {
	for _, name := range names {
		rec := &eventlog.Record{}
		rec.ID = name
		for i := range name {
			if name[i] == ':' {
				rec.ID, rec.Key = name[:i], name[i+1:]
			}
		}
		rec.TS = time.Now().UnixMilli()
		w.log.append(topic, rec)
	}
	synctest.Wait()
}

func (w *world) publishN(n int, key string) {
	for range n {
		w.ids++
		w.log.append(topic, record(fmt.Sprintf("e%d", w.ids), key))
	}
	synctest.Wait()
}

func record(id, key string) *eventlog.Record {
	rec := &eventlog.Record{}
	rec.ID, rec.Key, rec.TS = id, key, time.Now().UnixMilli()
	return rec
}

// client is a member and its end of the connection.
type client struct {
	*fakeSink
	*Member
	w   *world
	all []string // that it has acked with ackAll
}

type option func(*Subscription)

func earliest(s *Subscription)    { s.Options.From = wire.FromEarliest }
func exactlyOnce(s *Subscription) { s.Options.ExactlyOnce = true }
func unordered(s *Subscription)   { s.Options.Ordered = new(bool) }
func window(n int) option         { return func(s *Subscription) { s.Options.MaxInflight = &n } }
func attempts(n int) option       { return func(s *Subscription) { s.Options.MaxAttempts = &n } }
func onlyKey(k string) option {
	return func(s *Subscription) { s.Options.Filter = &wire.Filter{Key: &k} }
}
func paced(every time.Duration) option {
	return func(s *Subscription) { s.Pacer = &fakePacer{every: every} }
}

// join subscribes to the group "g" from the earliest event on.
func (w *world) join(opts ...option) *client {
	w.t.Helper()
	c := w.subscribe(&fakeSink{}, append([]option{earliest}, opts...)...)
	c.Start()
	synctest.Wait()
	return c
}

func (w *world) subscribe(sink *fakeSink, opts ...option) *client {
	w.t.Helper()
	s := Subscription{Topic: topic, Group: "g", Sink: sink, Pacer: &fakePacer{}, Memory: w.memory}
	for _, o := range opts {
		o(&s)
	}
	m, err := w.m.Subscribe(context.Background(), s)
	if err != nil {
		w.t.Fatalf("subscribe: %v", err)
	}
	return &client{w: w, fakeSink: sink, Member: m}
}

// ack settles ids and returns where the answer will be.
func (c *client) ack(ids ...string) *answer {
	a := &answer{}
	c.Ack(ids, a.set)
	synctest.Wait()
	return a
}

func (c *client) nack(delay time.Duration, ids ...string) {
	c.Nack(ids, nack("no good", &delay), func(error) {})
	synctest.Wait()
}

// nack says why an event comes again, and when; nil: after the policy's backoff.
func nack(reason string, delay *time.Duration) wire.Nack {
	k := wire.Nack{Reason: reason}
	if delay != nil {
		k.DelayMS = new(delay.Milliseconds())
	}
	return k
}

func (c *client) leave(how Leaving) {
	c.Close(how)
	synctest.Wait()
}

// wants checks the client's deliveries since the last check.
func (c *client) wants(want string) {
	c.w.t.Helper()
	if got := c.take(); got != want {
		c.w.t.Fatalf("got %q, want %q", got, want)
	}
}

// answer is the outcome of an ack.
type answer struct {
	given atomic.Bool
	err   atomic.Value
}

func (a *answer) set(err error) {
	if err != nil {
		a.err.Store(err)
	}
	a.given.Store(true)
}

func (a *answer) ok() bool     { return a.given.Load() && a.err.Load() == nil }
func (a *answer) failed() bool { return a.given.Load() && a.err.Load() != nil }

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (w *world) info() wire.GroupInfo {
	w.t.Helper()
	info, err := w.m.Info(context.Background(), topic, "g")
	if err != nil {
		w.t.Fatalf("info: %v", err)
	}
	return info
}

// saves counts the saves so far.
func (w *world) saves() (n int) {
	w.log.locked(func() { n = w.log.saves })
	return n
}

func (w *world) seekEarliest() {
	w.t.Helper()
	if err := w.m.Seek(context.Background(), topic, "g", wire.SubscribeOptions{From: wire.FromEarliest}); err != nil {
		w.t.Fatalf("seek: %v", err)
	}
	synctest.Wait()
}
