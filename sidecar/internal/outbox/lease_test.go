package outbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/pause"
)

// memoryLeases is a leaseStore in memory.
type memoryLeases struct {
	mu       sync.Mutex
	drainers map[string]drainer
	left     map[string]bool
	epochs   map[string]epoch
}

func newMemoryLeases() *memoryLeases {
	return &memoryLeases{drainers: map[string]drainer{}, left: map[string]bool{}, epochs: map[string]epoch{}}
}

func (m *memoryLeases) beat(_ context.Context, d drainer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left[d.ID] {
		return errRemoved
	}
	if d.Beat > m.drainers[d.ID].Beat {
		m.drainers[d.ID] = d
	}
	return nil
}

func (m *memoryLeases) list(context.Context) ([]drainer, []epoch, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.drainers)), slices.Collect(maps.Values(m.epochs)), nil
}

func (m *memoryLeases) insert(_ context.Context, epochs []epoch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range epochs {
		if _, exists := m.epochs[e.id()]; !exists {
			m.epochs[e.id()] = e
		}
	}
	return nil
}

func (m *memoryLeases) release(_ context.Context, epochs []epoch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range epochs {
		if stored, ok := m.epochs[e.id()]; ok {
			stored.Released = true
			m.epochs[e.id()] = stored
		}
	}
	return nil
}

func (m *memoryLeases) remove(_ context.Context, drainers []string, epochs []epoch) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, id := range drainers {
		delete(m.drainers, id)
		m.left[id] = true
	}
	for _, e := range epochs {
		delete(m.epochs, e.id())
	}
	return nil
}

var errLost = errors.New("lost")

// slowLeases is a store over a bad network: what is asked for may be carried
// out long after the asker has given up, or not at all, and answers take long.
type slowLeases struct {
	leaseStore
	longest time.Duration
	wg      *sync.WaitGroup

	mu   sync.Mutex
	rand *rand.Rand
	bad  bool
}

// do carries something out, now or later.
func (s *slowLeases) do(ctx context.Context, f func() error) error {
	s.mu.Lock()
	var before, after time.Duration
	lost := false
	if s.bad && s.rand.IntN(4) == 0 {
		before = time.Duration(s.rand.Int64N(int64(s.longest)))
		after = time.Duration(s.rand.Int64N(int64(s.longest)))
		lost = s.rand.IntN(3) == 0
	}
	s.mu.Unlock()
	answer := make(chan error, 1)
	s.wg.Go(func() {
		time.Sleep(before)
		err := f()
		time.Sleep(after)
		if lost {
			err = errLost
		}
		answer <- err
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slowLeases) beat(ctx context.Context, d drainer) error {
	return s.do(ctx, func() error { return s.leaseStore.beat(ctx, d) })
}

func (s *slowLeases) list(ctx context.Context) (drainers []drainer, epochs []epoch, err error) {
	type listed struct {
		drainers []drainer
		epochs   []epoch
	}
	got := make(chan listed, 1)
	err = s.do(ctx, func() error {
		d, e, err := s.leaseStore.list(ctx)
		got <- listed{d, e}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	l := <-got
	return l.drainers, l.epochs, nil
}

func (s *slowLeases) insert(ctx context.Context, epochs []epoch) error {
	return s.do(ctx, func() error { return s.leaseStore.insert(ctx, epochs) })
}

func (s *slowLeases) release(ctx context.Context, epochs []epoch) error {
	return s.do(ctx, func() error { return s.leaseStore.release(ctx, epochs) })
}

func (s *slowLeases) remove(ctx context.Context, drainers []string, epochs []epoch) error {
	return s.do(ctx, func() error { return s.leaseStore.remove(ctx, drainers, epochs) })
}

const testLease = 10 * time.Second

// actor is one drainer of the property test.
type actor struct {
	*leases
	store *slowLeases
	kill  context.CancelFunc
}

func newActor(i int, store leaseStore, seed uint64, wg *sync.WaitGroup) *actor {
	a := &actor{store: &slowLeases{
		leaseStore: store, longest: 2 * testLease, wg: wg, bad: true,
		rand: rand.New(rand.NewPCG(seed, uint64(i))),
	}}
	a.leases = newLeases(a.store, drainer{ID: fmt.Sprintf("run-%d", i)}, testLease, clock.System())
	var ctx context.Context
	ctx, a.kill = context.WithCancel(context.Background())
	wg.Go(func() { a.run(ctx, func(error) {}) })
	wg.Go(func() { // works with what it has
		for turn := rand.New(rand.NewPCG(seed, uint64(100+i))); ctx.Err() == nil; {
			got := a.enter(allShards)
			pause.For(ctx, time.Duration(turn.Int64N(int64(testLease))))
			a.exit(got)
		}
	})
	return a
}

// heldTwice names a shard that two may work with at this moment.
func heldTwice(actors []*actor) string {
	for i, a := range actors {
		for _, b := range actors[:i] {
			if both := a.usable() & b.usable(); both != 0 {
				return fmt.Sprintf("%s and %s both hold %016b", a.self.ID, b.self.ID, both)
			}
		}
	}
	return ""
}

// simulate lets drainers fight over a bad network, kills some, and heals it.
func simulate(n, killed int, seed uint64) (problem string) {
	store := newMemoryLeases()
	var wg sync.WaitGroup
	defer wg.Wait()
	var actors []*actor
	for i := range n {
		actors = append(actors, newActor(i, store, seed, &wg))
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
			if problem = heldTwice(actors); problem != "" {
				return false
			}
		}
		return true
	}
	if !watch(1000) {
		return problem
	}
	for _, a := range actors[:killed] {
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
	if !watch(37 * 8) { // what is still under way, a lease time, and a few ticks
		return problem
	}
	for _, a := range actors[killed:] {
		if got := a.usable().len(); got < Shards/(n-killed) {
			return fmt.Sprintf("%s has %d shards of %d for %d drainers", a.self.ID, got, Shards, n-killed)
		}
	}
	return ""
}

func TestLeasesHoldAtMostOnceAndEvenly(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(rt, "drainers")
		killed := rapid.IntRange(0, n-1).Draw(rt, "killed")
		seed := rapid.Uint64().Draw(rt, "seed")
		problem := ""
		synctest.Test(t, func(*testing.T) { problem = simulate(n, killed, seed) })
		if problem != "" {
			rt.Fatal(problem)
		}
	})
}

// TestTakeover: at once after a release, and within two lease times or so after
// a death; a drainer that was late takes its shards anew.
func TestTakeover(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newMemoryLeases()
		a := newLeases(store, drainer{ID: "a"}, testLease, clock.System())
		b := newLeases(store, drainer{ID: "b"}, testLease, clock.System())
		ctx := t.Context()
		tick := func(l *leases) {
			t.Helper()
			if err := l.tick(ctx); err != nil {
				t.Fatal(err)
			}
		}
		expect := func(what string, l *leases, want int) {
			t.Helper()
			if got := l.usable().len(); got != want {
				t.Fatalf("%s: %s has %d shards, not %d", what, l.self.ID, got, want)
			}
		}
		tick(a)
		expect("alone", a, Shards)
		work := a.enter(allShards)
		tick(b)
		tick(a)
		expect("while a works", a, Shards/2)
		tick(b)
		expect("while a works", b, 0)
		a.exit(work)
		tick(a)
		tick(b)
		expect("a has finished", b, Shards/2)
		if err := b.end(ctx); err != nil {
			t.Fatal(err)
		}
		tick(a)
		expect("b has left", a, Shards)

		tick(b)
		time.Sleep(testLease * 8 / 10)
		expect("late", a, 0)
		tick(b)
		expect("a is late, not dead", b, 0)
		tick(a)
		expect("a has taken its shards again", a, Shards/2)
		tick(b)
		expect("both live", b, Shards/2)
		for range 5 {
			time.Sleep(testLease / 4)
			tick(b)
		}
		expect("a is dead", b, Shards)
		expect("a is dead", a, 0)
		tick(a)
		expect("a has come back", a, 0)
		if len(store.epochs) > 2*Shards {
			t.Errorf("%d epochs are kept for %d shards", len(store.epochs), Shards)
		}
	})
}

// TestLeaseStore: what the rules need of the server.
func TestLeaseStore(t *testing.T) {
	a := newApp(t)
	store := mongoLeases{coll: a.coll.Database().Collection("outbox_leases")}
	ctx := t.Context()
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(store.beat(ctx, drainer{ID: "a", Name: "n", Beat: 1}))
	do(store.beat(ctx, drainer{ID: "a", Name: "n", Beat: 2}))
	do(store.beat(ctx, drainer{ID: "a", Name: "late", Beat: 1})) // changes nothing
	do(store.insert(ctx, []epoch{{Shard: 1, Number: 1, Owner: "a"}, {Shard: 2, Number: 1, Owner: "a"}}))
	do(store.insert(ctx, []epoch{{Shard: 1, Number: 1, Owner: "b"}, {Shard: 3, Number: 1, Owner: "b"}, {Shard: 2, Number: 1, Owner: "b"}}))
	do(store.release(ctx, []epoch{{Shard: 2, Number: 1}, {Shard: 9, Number: 9}}))
	drainers, epochs, err := store.list(ctx)
	do(err)
	slices.SortFunc(epochs, func(a, b epoch) int { return a.Shard - b.Shard })
	want := []epoch{{Shard: 1, Number: 1, Owner: "a"}, {Shard: 2, Number: 1, Owner: "a", Released: true}, {Shard: 3, Number: 1, Owner: "b"}}
	if !slices.Equal(epochs, want) || !slices.Equal(drainers, []drainer{{ID: "a", Name: "n", Beat: 2}}) {
		t.Errorf("%v, %v", drainers, epochs)
	}
	do(store.remove(ctx, []string{"a", "gone"}, epochs[:2]))
	if err := store.beat(ctx, drainer{ID: "a", Name: "late", Beat: 3}); !errors.Is(err, errRemoved) {
		t.Errorf("a beat of a drainer that was removed: %v", err)
	}
	if err := store.beat(ctx, drainer{ID: "gone", Name: "late", Beat: 1}); !errors.Is(err, errRemoved) {
		t.Errorf("a first beat of a drainer that had left before it was carried out: %v", err)
	}
	if drainers, epochs, err = store.list(ctx); err != nil || len(drainers) != 0 || len(epochs) != 1 {
		t.Errorf("%v, %v, %v", drainers, epochs, err)
	}
}

func TestAssign(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-z0-9]{1,12}`), 1, 20, rapid.ID).Draw(t, "ids")
		var all shardSet
		total := 0
		for _, id := range ids {
			mine := assign(id, slices.Clone(ids))
			if n := mine.len(); n < Shards/len(ids) || n > (Shards+len(ids)-1)/len(ids) {
				t.Fatalf("%s gets %d of %d shards among %d", id, n, Shards, len(ids))
			}
			all |= mine
			total += mine.len()
		}
		if all != allShards || total != Shards {
			t.Fatalf("%d shards are given to somebody, %d in all", all.len(), total)
		}
	})
}

// The placing is part of the data format: it never changes.
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
