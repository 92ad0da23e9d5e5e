package sidecar

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

var (
	takeoversFlag = flag.Int("takeovers", 1, "how often TestTakeoverTimes and TestRestartTimes end a sidecar in each way")
	fleetsFlag    = flag.Int("takeover-fleets", 1, "over how many fleets TestTakeoverTimes spreads them, all at once")
	leaseFlag     = flag.Duration("takeover-lease", 2*time.Second, "the --lease of TestTakeoverTimes")
)

// ways are the ways in which a sidecar's process ends, or stands still.
var ways = []string{"SIGTERM", "SIGKILL", "SIGSTOP"}

// times are how long something took.
type times struct {
	mu  sync.Mutex
	all []time.Duration
}

func (x *times) add(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all = append(x.all, d)
}

// tell logs a line for people and one for programs.
func (x *times) tell(t *testing.T, what string, lease time.Duration) {
	slices.Sort(x.all)
	n := len(x.all)
	median, p90, worst := x.all[n/2], x.all[n*9/10], x.all[n-1]
	t.Logf("%-8s n %4d  median %6.2f s  p90 %6.2f s  worst %6.2f s", what, n, median.Seconds(), p90.Seconds(), worst.Seconds())
	line, err := json.Marshal(map[string]any{"test": t.Name(), "way": what, "lease_ms": lease.Milliseconds(), "n": n,
		"median_ms": median.Milliseconds(), "p90_ms": p90.Milliseconds(), "max_ms": worst.Milliseconds()})
	require.NoError(t, err)
	t.Log(string(line))
}

// TestTakeoverTimes measures how long a group stands still when its partition's owner ends, until
// another sidecar delivers from the partition. It logs the time and does not check it, since that
// depends on the machine.
func TestTakeoverTimes(t *testing.T) {
	t.Parallel()
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			var took times
			t.Run("fleets", func(t *testing.T) {
				for i := range *fleetsFlag {
					t.Run(fmt.Sprint(i), func(t *testing.T) {
						t.Parallel()
						takeOver(t, way, (*takeoversFlag+*fleetsFlag-1-i) / *fleetsFlag, &took)
					})
				}
			})
			if !t.Failed() {
				took.tell(t, way, *leaseFlag)
			}
		})
	}
}

// rivals are the sidecars of a fleet that have members of one group, of which one owns its only
// partition. Another sidecar publishes.
type rivals struct {
	*fleet
	comes [2]<-chan wire.Delivery
	end   [2]func()
}

func takeOver(t *testing.T, way string, n int, took *times) {
	db := mongotest.Shared(t)
	dir := t.TempDir()
	f := &rivals{fleet: &fleet{store: db.URI(db.NewDatabase(t)),
		file: testkit.Write(t, filepath.Join(dir, "policies.yaml"), policies+"  partitions: 1\n")}}
	for i := range 3 {
		f.dirs = append(f.dirs, filepath.Join(dir, fmt.Sprint(i)))
		f.lives = append(f.lives, nil)
		f.begin(t, i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	publishing.Go(func() {
		h := &admin.HTTP{AppURL: f.lives[2].URL()}
		defer h.CloseIdle()
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = h.Publish(ctx, &wire.Event{ID: fmt.Sprint(n), Topic: topic, Payload: []byte(`1`)})
			pause.For(t.Context(), 20*time.Millisecond)
		}
	})
	defer publishing.Wait()
	defer cancel()
	for range n {
		owner := f.settle(t)
		pause.For(t.Context(), rand.N(*leaseFlag/4)) // which is the time between two beats
		f.drain(1 - owner)
		began := time.Now()
		switch way {
		case "SIGKILL":
			f.lives[owner].Kill()
		case "SIGTERM":
			_ = syscall.Kill(f.lives[owner].PID(), syscall.SIGTERM)
		default:
			_ = syscall.Kill(f.lives[owner].PID(), syscall.SIGSTOP)
		}
		select {
		case <-f.comes[1-owner]:
			took.add(time.Since(began))
		case <-time.After(settleTimeout):
			t.Fatal("nobody takes over")
		}
		if way == "SIGSTOP" {
			_ = syscall.Kill(f.lives[owner].PID(), syscall.SIGCONT)
			continue
		}
		f.lives[owner].Kill() // which has ended, or is about to
		f.begin(t, owner)
	}
}

// begin begins a life of a sidecar, with its member.
func (f *rivals) begin(t *testing.T, i int) {
	t.Helper()
	f.lives[i] = testkit.StartSidecar(t, f.dirs[i], "--store", f.store, "--policies", f.file, "--node-id", fmt.Sprintf("s%d", i), "--lease",
		leaseFlag.String())
	if i == 2 {
		return
	}
	if f.end[i] != nil {
		f.end[i]()
	}
	f.comes[i], f.end[i] = listen(t, f.lives[i], groupName, wire.FromLatest)
}

// drain takes the events that have come to a member.
func (f *rivals) drain(i int) (n int) {
	for {
		select {
		case <-f.comes[i]:
			n++
		default:
			return n
		}
	}
}

// settle waits until only one of them gets deliveries, and returns which.
func (f *rivals) settle(t *testing.T) int {
	t.Helper()
	for deadline := time.Now().Add(settleTimeout); time.Now().Before(deadline); {
		f.drain(0)
		f.drain(1)
		pause.For(t.Context(), time.Second)
		switch first, second := f.drain(0), f.drain(1); {
		case first > 0 && second == 0:
			return 0
		case second > 0 && first == 0:
			return 1
		}
	}
	t.Fatal("nobody has the partition for itself")
	return 0
}

// TestRestartTimes measures how long a sidecar with an embedded log is away when it ends and is
// started again, until it delivers an event that is published through it.
func TestRestartTimes(t *testing.T) {
	t.Parallel()
	for _, way := range ways[:2] {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			var took times
			dir := t.TempDir()
			n := 0
			start := func() *testkit.Sidecar {
				p := testkit.StartSidecar(t, dir)
				comes, end := listen(t, p, groupName, wire.FromLatest)
				defer end()
				n++
				publishOne(t, p, fmt.Sprint(n))
				for d := (wire.Delivery{}); d.Event.ID != fmt.Sprint(n); { // those before may come again
					select {
					case d = <-comes:
					case <-time.After(settleTimeout):
						t.Fatalf("event %d did not come", n)
					}
				}
				return p
			}
			for p := start(); n <= *takeoversFlag; {
				began := time.Now()
				if way == "SIGKILL" {
					p.Kill()
				} else if err := p.Stop(t.Context()); err != nil {
					t.Fatal(err)
				}
				p = start()
				took.add(time.Since(began))
			}
			took.tell(t, way, 0)
		})
	}
}
