package sidecar

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/testkit"
)

// trouble begins a disturbance, and returns a function that ends it.
type trouble struct {
	name  string
	begin func(random *rand.Rand) (end func())
}

// disturb disturbs the sidecar, the services and their ways to the database until ctx ends, each
// independently of the others. It returns a function that waits until all is well again, and
// returns how often each disturbance has happened.
func (s *shop) disturb(ctx context.Context, seed uint64) (ended func() string) {
	var mu sync.Mutex
	counts := map[string]int{}
	var disturbing sync.WaitGroup
	for i, troubles := range [][]trouble{s.ofSidecar(), s.ofParts(), s.ofParts(), s.ofDatabase(), s.ofDatabase()} {
		random := rand.New(rand.NewPCG(seed, uint64(1+i)))
		disturbing.Go(func() {
			for pause.For(ctx, between(random, 300*time.Millisecond, 2*time.Second)) {
				trouble := troubles[random.IntN(len(troubles))]
				end := trouble.begin(random)
				if end == nil {
					continue
				}
				pause.For(ctx, between(random, 10*time.Millisecond, 3*time.Second))
				end()
				mu.Lock()
				counts[trouble.name]++
				mu.Unlock()
			}
		})
	}
	return func() string {
		disturbing.Wait()
		var text []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			text = append(text, fmt.Sprintf("%d × %s", counts[name], name))
		}
		return strings.Join(text, ", ")
	}
}

func between(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)))
}

func (s *shop) ofSidecar() []trouble {
	return []trouble{
		{"the sidecar killed", func(*rand.Rand) func() {
			old := s.sidecar
			old.Kill()
			return func() { s.sidecar = s.start("--listen", old.Listen, "--replay-listen", old.Replay) }
		}},
		{"the sidecar paused", func(*rand.Rand) func() { return s.freeze(s.sidecar.Process) }},
	}
}

// ofParts are the troubles of the services: a service in trouble has no other one.
func (s *shop) ofParts() []trouble {
	on := func(begin func(p *part) func()) func(*rand.Rand) func() {
		return func(random *rand.Rand) func() {
			p := s.parts[random.IntN(len(s.parts))]
			if !p.troubled.TryLock() {
				return nil
			}
			end := begin(p)
			return func() {
				end()
				p.troubled.Unlock()
			}
		}
	}
	return []trouble{
		{"a service killed", on(func(p *part) func() {
			p.process.Kill()
			return func() { p.start(s.t) }
		})},
		{"a service paused", on(func(p *part) func() { return s.freeze(p.process) })},
	}
}

// ofDatabase are the troubles of a service's way to the database. A second one at the same way ends
// with the first.
func (s *shop) ofDatabase() []trouble {
	on := func(begin func(p *faultproxy.Proxy)) func(*rand.Rand) func() {
		return func(random *rand.Rand) func() {
			p := s.parts[random.IntN(len(s.parts))].database
			begin(p)
			return p.Heal
		}
	}
	return []trouble{
		{"the database away", on((*faultproxy.Proxy).Down)},
		{"the database hanging", on(func(p *faultproxy.Proxy) { p.Pause(faultproxy.Both) })},
		{"answers of the database lost", on(func(p *faultproxy.Proxy) { p.CutReplies(0.2) })},
	}
}

// freeze stops a process, and returns a function that lets it go on.
func (s *shop) freeze(p *testkit.Process) func() {
	signal := func(what syscall.Signal) {
		if err := syscall.Kill(p.PID(), what); err != nil {
			s.t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	return func() { signal(syscall.SIGCONT) }
}
