package scale

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// inUse is how many topics a sidecar uses: the hot one, one without a policy, and others that
	// it shares with a neighbour.
	inUse  = 20
	shared = inUse - 2
	// patience is how long anything may take before it counts as never.
	patience = 2 * time.Minute
	// pollEvery is how often it is looked whether something is so. When policies came into force
	// the sidecars note themselves.
	pollEvery = time.Millisecond
)

// fleet is all sidecars.
type fleet struct {
	list    []*sidecar
	index   map[*sidecar]int
	running errgroup.Group
	end     func()
	// using are the sidecars that use a topic, or note what holds under a glob.
	using map[string][]*sidecar
}

// newFleet makes sidecars, which do nothing yet.
func newFleet(t *testing.T, p *plane) *fleet {
	f := &fleet{index: map[*sidecar]int{}, using: map[string][]*sidecar{}}
	for i := range *sidecars {
		topics := []string{hot, fmt.Sprintf("of-node-%d", i)}
		for j := range shared { // each half of them with another neighbour
			topics = append(topics, topicName(1+(i*shared/2+j)%(topicPolicies()-1)))
		}
		s := newSidecar(t, i, p.address, topics)
		f.list = append(f.list, s)
		f.index[s] = i
		for _, name := range append(topics, changedGlob) {
			f.using[name] = append(f.using[name], s)
		}
	}
	return f
}

// start starts all of them at once, each with an event of each topic a second.
func (f *fleet) start(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var publishing sync.WaitGroup
	for _, s := range f.list {
		f.running.Go(func() error { return s.run(ctx) })
	}
	publishing.Go(func() { f.publish(ctx) })
	f.end = sync.OnceFunc(func() {
		cancel()
		publishing.Wait()
		if err := f.running.Wait(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(f.end)
}

func (f *fleet) publish(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, s := range f.list {
			s.publish()
		}
	}
}

// until waits until something holds for each of some sidecars.
func until(t *testing.T, what string, of []*sidecar, holds func(*sidecar) bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for _, s := range of {
		for !holds(s) {
			if time.Now().After(deadline) {
				n := 0
				for _, other := range of {
					if holds(other) {
						n++
					}
				}
				t.Fatalf("%s: not so for sidecar %s and others, except for %d of %d, after %v: %+v", what, s.id, n, len(of), patience,
					s.control.Status())
			}
			time.Sleep(pollEvery)
		}
	}
}

// awaitSynced waits until all sidecars know the policies.
func (f *fleet) awaitSynced(t *testing.T) {
	t.Helper()
	until(t, "all policies known", f.list, (*sidecar).knows)
}

// awaitPeers waits until all sidecars know all others, and were sent themselves: the last one to come knows all others from its
// first answer, and would hear of itself in the middle of what is counted next.
func (f *fleet) awaitPeers(t *testing.T) {
	t.Helper()
	until(t, "all peers known", f.list, func(s *sidecar) bool {
		return len(s.control.Peers()) == len(f.list)-1 && s.wire.names[selfKind].Load() > 0
	})
}

func (f *fleet) awaitConnected(t *testing.T, connected bool) {
	t.Helper()
	until(t, fmt.Sprint("connected ", connected), f.list, func(s *sidecar) bool { return s.control.Status().Connected == connected })
}

// awaitRate waits until a rate is in force for some sidecars, and tells since when it is for the
// last one.
func awaitRate(t *testing.T, of []*sidecar, name string, rate float64) (last time.Time) {
	t.Helper()
	until(t, fmt.Sprintf("%s has rate %v", name, rate), of, func(s *sidecar) bool {
		at, ok := s.has(name, rate)
		if ok && at.After(last) {
			last = at
		}
		return ok
	})
	return last
}

// awaitAcks waits until the control plane shows that as many sidecars have acked a version.
func awaitAcks(t *testing.T, p *plane, name string, version int64, want int) {
	t.Helper()
	const askEvery = 20 * time.Millisecond // the answer is large
	for deadline := time.Now().Add(patience); ; time.Sleep(askEvery) {
		n := p.acked(t, name, version)
		if n == want {
			return
		}
		if n > want || time.Now().After(deadline) {
			t.Fatalf("%d sidecars have acked version %d of %s; want %d", n, version, name, want)
		}
	}
}

// seen is what each sidecar's wire has counted so far.
func (f *fleet) seen() []seen {
	all := make([]seen, len(f.list))
	for i, s := range f.list {
		all[i] = s.wire.seen()
	}
	return all
}

// since is what each wire has counted since then.
func (f *fleet) since(then []seen) []seen {
	now := f.seen()
	for i := range now {
		now[i] = now[i].minus(then[i])
	}
	return now
}

// ofTwo are topics with a policy that exactly two sidecars use.
func (f *fleet) ofTwo() (names []string) {
	for name, of := range f.using {
		if len(of) == 2 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// memory is what this process uses after a collection.
func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
