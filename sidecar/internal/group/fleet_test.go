package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
)

const lease = 10 * time.Second

// fleet is several sidecars on one store.
type fleet struct {
	t           fataler
	log         *fakeLog
	nodes       *eventlogtest.Nodes
	policy      atomic.Pointer[policy.Effective]
	deadLetters *fakeDeadLetters
	ids         int
	reach       bool // Config.Reach
	mend        []func()

	mu       sync.Mutex
	deaf     bool // signals between sidecars get lost
	sidecars []*sidecar
}

// sidecar is one process of a fleet: its parts of Sluice, and its way to the store.
type sidecar struct {
	*fleet
	name   string
	path   *path
	logs   lockedbuffer.Buffer
	tails  *tail.Tails
	m      *Manager
	roster *roster.Roster
	end    context.CancelFunc
	ended  chan struct{}
}

func runFleet(t *testing.T, partitions int, scenario func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, partitions)
		defer func() { // for goleak
			for _, s := range f.live() {
				s.kill()
			}
		}()
		scenario(t, f)
		f.stopAll()
	})
}

func newFleet(t fataler, partitions int) *fleet {
	f := &fleet{t: t, log: newFakeLog(), nodes: eventlogtest.NewNodes()}
	f.deadLetters = &fakeDeadLetters{log: f.log}
	eff := policy.Defaults()
	eff.Partitions = partitions
	f.policy.Store(&eff)
	if _, err := f.log.EnsureTopic(context.Background(), topic, partitions); err != nil {
		t.Fatalf("%v", err)
	}
	return f
}

func (f *fleet) stopAll() {
	for _, s := range f.live() {
		s.stop()
	}
}

func (f *fleet) live() []*sidecar {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sidecars)
}

func (f *fleet) remove(s *sidecar) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sidecars = slices.DeleteFunc(f.sidecars, func(x *sidecar) bool { return x == s })
}

func (f *fleet) setDeaf(deaf bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf = deaf
}

// others are the sidecars that hear a signal of s.
func (f *fleet) others(s *sidecar) []*sidecar {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deaf {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(f.sidecars), func(x *sidecar) bool { return x == s })
}

// start begins a process.
func (f *fleet) start(name string) *sidecar {
	s := &sidecar{fleet: f, name: name, path: &path{}, tails: tail.New(tail.DefaultBounds()), ended: make(chan struct{})}
	s.roster = roster.New(roster.Config{
		Nodes: &pathNodes{f.nodes, s.path}, Name: name, Lease: lease, Logger: slog.New(slog.DiscardHandler),
		Announced: func([]eventlog.GroupName) {
			for _, o := range f.others(s) {
				o.roster.Wake()
			}
		},
	})
	s.m = NewManager(Config{
		Context: context.Background(), Log: &pathLog{f.log, s.path}, Tails: s.tails,
		Policy:      func(string) *policy.Effective { return f.policy.Load() },
		DeadLetters: f.deadLetters, Metrics: telemetry.Discard(), Roster: s.roster,
		Moved: func(g eventlog.GroupName) {
			for _, o := range f.others(s) {
				o.m.Moved([]eventlog.GroupName{g})
			}
		},
		Logger: slog.New(slog.NewTextHandler(&s.logs, nil)), Bounds: DefaultBounds(), Reach: f.reach,
	})
	ctx, cancel := context.WithCancel(context.Background())
	s.end = cancel
	go func() {
		defer close(s.ended)
		_ = s.roster.Run(ctx)
	}()
	f.mu.Lock()
	f.sidecars = append(f.sidecars, s)
	f.mu.Unlock()
	synctest.Wait()
	return s
}

// stop ends the process in order.
func (s *sidecar) stop() {
	s.t.Helper()
	if err := s.m.Stop(context.Background()); err != nil {
		s.t.Errorf("stop of %s: %v", s.name, err)
	}
	s.remove(s)
	s.end()
	<-s.ended
	synctest.Wait()
}

// kill ends the process without a word: nothing it does after this reaches the store.
func (s *sidecar) kill() {
	s.remove(s)
	s.path.die()
	s.end()
	_ = s.m.Stop(context.Background())
	<-s.ended
	synctest.Wait()
}

func (s *sidecar) join(opts ...option) *client {
	s.t.Helper()
	c := &client{w: &world{t: s.t, m: s.m}, fakeSink: &fakeSink{}}
	sub := Subscription{Topic: topic, Group: "g", Sink: c.fakeSink, Pacer: &fakePacer{}, MemberID: s.name}
	for _, o := range append([]option{earliest}, opts...) {
		o(&sub)
	}
	m, err := s.m.Subscribe(context.Background(), sub)
	if err != nil {
		s.t.Fatalf("subscribe: %v", err)
	}
	c.Member = m
	m.Start()
	synctest.Wait()
	return c
}

// publish stores an event; the sidecars hear of it, or not.
func (f *fleet) publish(id, key string, heard bool) *eventlog.Record {
	rec := record(id, key)
	f.log.store(topic, rec)
	if heard {
		f.announce(rec)
	}
	return rec
}

func (f *fleet) announce(rec *eventlog.Record) {
	for _, s := range f.live() {
		s.tails.Heard(topic, rec.Partition, rec.Seq)
	}
}

// announceAll is the sidecars' regular check, for signals that get lost.
func (f *fleet) announceAll() {
	extents, _ := f.log.Extents(context.Background(), topic)
	for _, s := range f.live() {
		for i, x := range extents {
			s.tails.Heard(topic, i, x.Head)
		}
	}
}

func (f *fleet) publishN(n int) {
	for range n {
		f.ids++
		f.publish(fmt.Sprintf("e%d", f.ids), fmt.Sprintf("k%d", f.ids%20), true)
	}
	synctest.Wait()
}

// owners are the sidecars that deliver from each partition: "a b a -".
func (f *fleet) owners() string {
	var names []string
	parts, _ := f.log.LookupTopic(context.Background(), topic)
	for i := range parts.Partitions {
		name := "-"
		for _, s := range f.live() {
			if s.owns(i) {
				if name != "-" {
					name += "+"
				}
				name = strings.TrimPrefix(name+s.name, "-")
			}
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

func (s *sidecar) group() *Group {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	return s.m.groups[eventlog.GroupName{Topic: topic, Group: "g"}]
}

// owns reports whether the sidecar delivers from the partition.
func (s *sidecar) owns(i int) bool {
	g := s.group()
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.own.Parts != nil && g.own.Parts[i].Delivers(s.roster.Standing(), time.Now())
}

// rendezvous is the sidecar that each partition is due at, with members on those sidecars.
func (f *fleet) rendezvous(names ...string) string {
	parts, _ := f.log.LookupTopic(context.Background(), topic)
	var due []string
	for i := range parts.Partitions {
		due = append(due, roster.Owner(names, fmt.Sprintf("%s\x00g\x00%d", topic, i)))
	}
	return strings.Join(due, " ")
}

var partitionZero = eventlog.GroupPartition{Topic: topic, Group: "g"}

// number is the partition's highest epoch.
func (l *fakeLog) number(at eventlog.GroupPartition) (n uint64) {
	l.locked(func() { n = l.epochs[at].Number })
	return n
}

func partitionOf(key string, n int) int { return eventlog.PartitionOf(key, "", n) }

func isStale(a *answer) bool {
	err, _ := a.err.Load().(error)
	return errors.Is(err, &wire.Error{Code: wire.StaleLease})
}

func (s *sidecar) seek(from string) {
	s.t.Helper()
	if err := s.m.Seek(context.Background(), topic, "g", wire.SubscribeOptions{From: from}); err != nil {
		s.t.Fatalf("seek: %v", err)
	}
	synctest.Wait()
}
