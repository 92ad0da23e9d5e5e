package outbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/test/require"
)

// memoryOwner is an ownerStore in memory.
type memoryOwner struct {
	mu     sync.Mutex
	stored owner
}

func (m *memoryOwner) find(context.Context) (owner, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.stored, nil
}

func (m *memoryOwner) write(_ context.Context, was, now owner) (owner, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stored.Log != was.Log || was.Beat != anyBeat && m.stored.Beat != was.Beat || was.Beat == anyBeat && m.stored.Beat == 0 {
		return owner{}, false, nil
	}
	now.Outbox, now.Beat = "outbox", m.stored.Beat+1
	m.stored = now
	return now, true, nil
}

var errLost = errors.New("lost")

// slowOwner is a store over a bad network: it may execute a call long after the caller has given
// up, or not at all, and answers take long.
type slowOwner struct {
	ownerStore
	longest time.Duration
	wg      *sync.WaitGroup

	mu   sync.Mutex
	rand *rand.Rand
	bad  bool
}

// do carries something out, now or later.
func (s *slowOwner) do(ctx context.Context, f func() (owner, bool)) (owner, bool, error) {
	s.mu.Lock()
	var before, after time.Duration
	lost := false
	if s.bad && s.rand.IntN(2) == 0 {
		before = time.Duration(s.rand.Int64N(int64(s.longest)))
		after = time.Duration(s.rand.Int64N(int64(s.longest)))
		lost = s.rand.IntN(3) == 0
	}
	s.mu.Unlock()
	type outcome struct {
		owner
		ok bool
	}
	answer := make(chan outcome, 1)
	s.wg.Go(func() {
		time.Sleep(before)
		o, ok := f()
		time.Sleep(after)
		answer <- outcome{o, ok}
	})
	select {
	case got := <-answer:
		if lost {
			return owner{}, false, errLost
		}
		return got.owner, got.ok, nil
	case <-ctx.Done():
		return owner{}, false, ctx.Err()
	}
}

func (s *slowOwner) find(ctx context.Context) (owner, error) {
	o, _, err := s.do(ctx, func() (owner, bool) {
		o, _ := s.ownerStore.find(ctx)
		return o, true
	})
	return o, err
}

func (s *slowOwner) write(ctx context.Context, was, now owner) (owner, bool, error) {
	return s.do(ctx, func() (owner, bool) {
		o, ok, _ := s.ownerStore.write(ctx, was, now)
		return o, ok
	})
}

func newOwnership(store ownerStore, log string) *ownership {
	return &ownership{
		store: store, log: func() string { return log }, node: "node of " + log, lease: testLease, clock: clock.System(),
		idle: func() bool { return false }, owned: func(string) {}, logger: slog.New(slog.DiscardHandler),
	}
}

// actor is one sidecar of the property test.
type actor struct {
	*ownership
	store *slowOwner
	kill  context.CancelFunc
}

func newActor(i int, log string, alone bool, store ownerStore, seed uint64, wg *sync.WaitGroup) *actor {
	a := &actor{store: &slowOwner{
		ownerStore: store, longest: 2 * testLease, wg: wg, bad: true,
		rand: rand.New(rand.NewPCG(seed, uint64(i))),
	}}
	a.ownership = newOwnership(a.store, log)
	var ctx context.Context
	ctx, a.kill = context.WithCancel(context.Background())
	wg.Go(func() {
		for ctx.Err() == nil { // one that is refused is started again
			if a.run(ctx, func(error) {}) == nil && alone && a.store.chance(2) {
				_ = a.leave(context.WithoutCancel(ctx))
			}
		}
	})
	return a
}

// chance is true one time of n.
func (s *slowOwner) chance(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.IntN(n) == 0
}

// twoLogs names two logs that both own the outbox at this moment.
func twoLogs(actors []*actor) string {
	now := time.Now()
	for i, a := range actors {
		for _, b := range actors[:i] {
			if a.log() != b.log() && a.valid(now) && b.valid(now) {
				return fmt.Sprintf("%s and %s both own the outbox", a.log(), b.log())
			}
		}
	}
	return ""
}

// simulate lets sidecars of some logs fight over a bad network, ends some, and heals it.
func simulate(n, logs, ended int, seed uint64) (problem string) {
	store := &memoryOwner{}
	var wg sync.WaitGroup
	defer wg.Wait()
	var actors []*actor
	for i := range n {
		actors = append(actors, newActor(i, fmt.Sprint("log ", i%logs), i < logs && i+logs >= n, store, seed, &wg))
		time.Sleep(testLease / 3)
	}
	defer func() {
		for _, a := range actors {
			a.kill()
		}
	}()
	watch := func(steps int) bool {
		for range steps {
			time.Sleep(testLease / 37)
			if problem = twoLogs(actors); problem != "" {
				return false
			}
		}
		return true
	}
	if !watch(1000) {
		return problem
	}
	for _, a := range actors[:ended] {
		a.kill()
	}
	if !watch(300) {
		return problem
	}
	for _, a := range actors {
		a.store.mu.Lock()
		a.store.bad = false
		a.store.mu.Unlock()
	}
	if !watch(37 * 8) { // calls under way, a lease time, and a few ticks
		return problem
	}
	owners := map[string]bool{}
	for _, a := range actors[ended:] {
		if a.valid(time.Now()) {
			owners[a.log()] = true
		}
	}
	if len(owners) != 1 {
		return fmt.Sprintf("in the end it is owned by %v", owners)
	}
	return ""
}

func TestOneLogOwnsAnOutbox(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(rt, "sidecars")
		logs := rapid.IntRange(1, n).Draw(rt, "logs")
		ended := rapid.IntRange(0, n-1).Draw(rt, "ended")
		seed := rapid.Uint64().Draw(rt, "seed")
		problem := ""
		synctest.Test(t, func(*testing.T) { problem = simulate(n, logs, ended, seed) })
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// TestTakeover: at once where the owner has left, and after its lease where it was silent; a
// sidecar of the same log needs to wait for nothing.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryOwner{}
		a, again, b := newOwnership(store, "a"), newOwnership(store, "a"), newOwnership(store, "b")
		ctx := t.Context()
		expect := func(what string, o *ownership, owns bool, says string) {
			t.Helper()
			err := o.tick(ctx)
			if got := o.valid(time.Now()); got != owns || !strings.Contains(fmt.Sprint(err), says) {
				t.Fatalf("%s: owns it %v, not %v; %v, which should say %q", what, got, owns, err, says)
			}
		}
		expect("the first", a, true, "nil")
		expect("started again", again, true, "nil")
		expect("another log", b, false, "unless that is silent")
		expect("alive", a, true, "nil")
		expect("another log", b, false, `the sidecar "node of a" drains it into another log`)
		time.Sleep(testLease * 8 / 10)
		if a.valid(time.Now()) {
			t.Error("a counts on its ownership for longer than it may")
		}
		expect("a is late, not dead", b, false, "unless that is silent")
		expect("late", a, true, "nil")
		expect("a goes on", b, false, "drains it into another log")
		time.Sleep(testLease)
		expect("a is dead", b, true, "nil")
		expect("a has come back", a, false, "unless that is silent")
		require.NoError(t, b.leave(ctx))
		expect("b has left", a, true, "nil")
		if err := b.leave(ctx); err != nil { // late
			t.Fatal(err)
		}
		expect("it is a's", b, false, "drains it into another log")

		// Each lets the other be silent for as long as that says.
		b.lease = testLease / 3
		time.Sleep(testLease * 9 / 10)
		expect("before a's lease is over", b, false, "unless that is silent")
		time.Sleep(testLease / 10)
		expect("after it", b, true, "nil")

		// However late the answer is, it counts from the question.
		b.store, b.lease = lateAnswers{store}, testLease
		over := time.Now().Add(testLease * 3 / 4)
		expect("late answer", b, true, "nil")
		if before := over.Add(-time.Millisecond); !b.valid(before) || b.valid(over) {
			t.Errorf("it counts on it before the time: %v, and then: %v", b.valid(before), b.valid(over))
		}
	})
}

// lateAnswers writes at once and answers late.
type lateAnswers struct{ ownerStore }

func (l lateAnswers) write(ctx context.Context, was, now owner) (owner, bool, error) {
	defer time.Sleep(testLease / 2)
	return l.ownerStore.write(ctx, was, now)
}

// TestRefused: a drainer that finds another log at work gives up. One that has lost the outbox to
// another log does not, and gets it back.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryOwner{}
		a, b := newOwnership(store, "a"), newOwnership(store, "b")
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() {
			if err := a.run(ctx, func(error) {}); err != nil {
				t.Errorf("the owner gives up: %v", err)
			}
		})
		synctest.Wait()
		if err := b.run(ctx, func(error) {}); !errors.Is(err, errAlive) {
			t.Errorf("the second one ends with %v", err)
		}
		if _, ok, _ := store.write(ctx, owner{Log: "a", Beat: anyBeat}, owner{Log: "b"}); !ok {
			t.Fatal("a has not got it")
		}
		for range 5 {
			time.Sleep(testLease / 2)
			_, _, _ = store.write(ctx, owner{Log: "b", Beat: anyBeat}, owner{Log: "b"})
		}
		if a.valid(time.Now()) {
			t.Error("it owns what another one does")
		}
		time.Sleep(2 * testLease)
		if !a.valid(time.Now()) {
			t.Error("it does not own what nobody does")
		}
		cancel()
		running.Wait()
	})
}

// TestOwnerStore: the rules' requirements of the server.
func TestOwnerStore(t *testing.T) {
	a := newApp(t)
	db := a.coll.Database()
	store := mongoOwner{db.Collection("outbox_owner")}
	ctx := t.Context()
	if o, err := store.find(ctx); err != nil || o != (owner{}) {
		t.Fatalf("%+v, %v", o, err)
	}
	var last owner
	for _, c := range []struct {
		what     string
		was, now owner
		ok       bool
	}{
		{"any beat of none", owner{Log: "a", Beat: anyBeat}, owner{Log: "a"}, false},
		{"the first", owner{}, owner{Log: "a", Node: "n", Lease: 1}, true},
		{"a second first", owner{}, owner{Log: "b"}, false},
		{"a beat", owner{Log: "a", Beat: anyBeat}, owner{Log: "a", Node: "m", Lease: 2}, true},
		{"another log's", owner{Log: "b", Beat: anyBeat}, owner{Log: "b"}, false},
		{"a late take", owner{Log: "a", Beat: 1}, owner{Log: "b"}, false},
		{"a take", owner{Log: "a", Beat: 2}, owner{Log: "b", Node: "o", Lease: 3}, true},
		{"leaving", owner{Log: "b", Beat: 3}, owner{Node: "o"}, true},
		{"a beat of who has left", owner{Log: "b", Beat: anyBeat}, owner{Log: "b"}, false},
		{"a take of what is free", owner{Beat: 4}, owner{Log: "a"}, true},
	} {
		got, ok, err := store.write(ctx, c.was, c.now)
		if err != nil || ok != c.ok {
			t.Fatalf("%s: %v, %v", c.what, ok, err)
		}
		if stored, err := store.find(ctx); err != nil || ok && stored != got || !ok && stored != last {
			t.Errorf("%s: %+v is stored, and %+v was answered; %v", c.what, stored, got, err)
		}
		if !ok {
			continue
		}
		if want := (owner{Outbox: got.Outbox, Log: c.now.Log, Node: c.now.Node, Lease: c.now.Lease, Beat: last.Beat + 1}); got != want ||
			got.Outbox == "" || last.Beat > 0 && got.Outbox != last.Outbox {
			t.Errorf("%s: %+v follows %+v", c.what, got, last)
		}
		last = got
	}
}

// The placing never changes: others would go by another one.
func TestShardOfIsFixed(t *testing.T) {
	for _, c := range []struct {
		topic, key string
		shard      int
	}{{"orders", "customer-17", 11}, {"orders", "", 4}, {"", "", 15}, {"a", "b", 2}} {
		if got := shardOf(c.topic, c.key); got != c.shard {
			t.Errorf("shardOf(%q, %q) = %d, not %d", c.topic, c.key, got, c.shard)
		}
	}
}
