package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

const (
	trialLease   = 3 * time.Second
	trialWorkers = 3
)

var errMishap = errors.New("mishap")

// trial is several processes that are given the same events again and again. They are killed,
// paused and cut off at any point.
type trial struct {
	db      *database
	workers [trialWorkers]*worker
	all     sync.WaitGroup
	seed    uint64

	mu         sync.Mutex
	violations []string
	ids        map[string]*work
}

// worker is a process; another one follows a killed one.
type worker struct {
	*proc
	h    *exactlyonce.Handler
	ctx  context.Context
	busy string // the id that it works on
}

// work is the state of an id.
type work struct {
	inside    map[*worker]context.Context // the workers whose effect runs
	fence     int64                       // the highest claimed
	finished  int                         // effects that have run to their end
	settled   int                         // Do said that it has run, and is marked
	known     bool                        // a worker was told that it is marked
	disturbed bool                        // something happened to a worker meanwhile
	written   int64                       // the highest fence of a write
	marked    int64                       // the fence of the worker that was told that its effect is marked
}

// errand is the course of one delivery.
type errand struct {
	id       string
	takes    time.Duration
	fails    bool
	stubborn bool // the effect does not look at its context
	killAt   int
	after    bool
}

func (e errand) tx() bool { return strings.HasPrefix(e.id, "tx") }

func TestNeverTwoEffectsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			x := &trial{
				db:   &database{Memory: exactlyonce.NewMemory(0), counters: map[string]int{}},
				ids:  map[string]*work{},
				seed: rapid.Uint64().Draw(t, "seed"),
			}
			for _, id := range []string{"a", "b", "tx-a", "tx-b"} {
				x.ids[id] = &work{inside: map[*worker]context.Context{}}
			}
			for i := range x.workers {
				x.workers[i] = x.newWorker()
			}
			defer x.end()
			t.Repeat(map[string]func(*rapid.T){
				"deliver":  x.deliver,
				"deliver2": x.deliver,
				"deliver3": x.deliver,
				"kill":     x.kill,
				"pause":    x.pause,
				"resume":   x.resume,
				"network":  x.network,
				"network2": x.network,
				"time":     x.passTime,
				"time2":    x.passTime,
				"":         x.check,
			})
			x.finish(t)
		})
	})
}

func (x *trial) newWorker() *worker {
	ctx, cancel := context.WithCancel(context.Background())
	x.seed++
	p := &proc{db: x.db, rand: rand.New(rand.NewPCG(x.seed, 1)), onDeath: cancel}
	h, err := exactlyonce.New(p, exactlyonce.Options{
		Scope: "trial", Lease: trialLease, Timeout: 2 * time.Second, Wait: []time.Duration{exactlyonce.NoWait, trialLease,
			2 * trialLease}[x.seed%3],
	})
	if err != nil {
		panic(err)
	}
	return &worker{proc: p, h: h, ctx: ctx}
}

func (x *trial) deliver(t *rapid.T) {
	i := rapid.IntRange(0, trialWorkers-1).Draw(t, "worker")
	e := errand{
		id:       rapid.SampledFrom([]string{"a", "b", "tx-a", "tx-b"}).Draw(t, "id"),
		takes:    rapid.SampledFrom([]time.Duration{0, trialLease / 5, trialLease * 2 / 3, trialLease * 5 / 2}).Draw(t, "takes"),
		fails:    rapid.IntRange(0, 5).Draw(t, "fails") == 0,
		stubborn: rapid.Bool().Draw(t, "stubborn"),
	}
	if rapid.IntRange(0, 3).Draw(t, "killed") == 0 {
		e.killAt, e.after = rapid.IntRange(1, 8).Draw(t, "at"), rapid.Bool().Draw(t, "after")
	}
	x.start(i, e)
}

// start gives a worker an event, unless it has one.
func (x *trial) start(i int, e errand) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.workers[i]
	if w.isDead() {
		w = x.newWorker()
		x.workers[i] = w
	}
	if w.busy != "" {
		return
	}
	w.busy = e.id
	w.mu.Lock()
	w.calls, w.killAt, w.after = 0, e.killAt, e.after
	if w.loses > 0 || w.killAt > 0 || w.paused != nil {
		x.ids[e.id].disturbed = true
	}
	w.mu.Unlock()
	x.all.Go(func() { x.do(w, e) })
}

func (x *trial) do(w *worker, e errand) {
	var ran bool
	var err error
	var fence int64
	if e.tx() {
		ran, err = w.h.DoTx(w.ctx, e.id, func(ctx context.Context) error {
			if err := x.effect(ctx, w, e); err != nil {
				return err
			}
			increment(ctx, e.id)
			return nil
		})
	} else {
		ran, err = w.h.DoClaimed(w.ctx, e.id, func(ctx context.Context, c *exactlyonce.Claim) error {
			fence = c.Fence
			x.claimed(e.id, fence)
			if err := x.effect(ctx, w, e); err != nil {
				return err
			}
			x.write(e.id, fence)
			return nil
		})
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	w.busy = ""
	at := x.ids[e.id]
	if w.isDead() {
		at.disturbed = true
		return // the worker is dead
	}
	if err != nil {
		return
	}
	at.known = true
	if ran {
		at.settled++
		at.marked = fence
	}
}

func (x *trial) claimed(id string, fence int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.ids[id]
	if fence <= at.fence {
		x.violated("%s was claimed with fence %d behind %d", id, fence, at.fence)
	}
	at.fence = fence
}

// write is an effect that is conditional on its fence.
func (x *trial) write(id string, fence int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	at := x.ids[id]
	at.finished++
	at.written = max(at.written, fence)
}

func (x *trial) effect(ctx context.Context, w *worker, e errand) error {
	x.mu.Lock()
	at := x.ids[e.id]
	for other, ctx := range at.inside {
		if ctx.Err() == nil && !other.isDead() && !other.isPaused() {
			x.violated("two effects of %s at once", e.id)
		}
	}
	if at.known {
		x.violated("the effect of %s runs although it is known to be marked", e.id)
	}
	at.inside[w] = ctx
	x.mu.Unlock()
	defer func() {
		x.mu.Lock()
		delete(at.inside, w)
		x.mu.Unlock()
	}()
	over := ctx.Done()
	if e.stubborn {
		over = w.ctx.Done()
	}
	select {
	case <-time.After(e.takes):
	case <-over:
	}
	if err := w.running(); err != nil {
		return err
	}
	switch {
	case e.fails:
		return errMishap
	case !e.stubborn && ctx.Err() != nil:
		return context.Cause(ctx)
	}
	return nil
}

func (x *trial) violated(format string, args ...any) {
	x.violations = append(x.violations, fmt.Sprintf(format, args...))
}

// someBusy picks a worker that has an event.
func (x *trial) someBusy(t *rapid.T) *worker {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.workers[rapid.IntRange(0, trialWorkers-1).Draw(t, "worker")]
	if w.busy == "" {
		return nil
	}
	x.ids[w.busy].disturbed = true
	return w
}

func (x *trial) kill(t *rapid.T) {
	if w := x.someBusy(t); w != nil {
		w.proc.kill()
	}
}

func (x *trial) pause(t *rapid.T) {
	if w := x.someBusy(t); w != nil {
		w.proc.pause()
	}
}

func (x *trial) resume(t *rapid.T) {
	x.workers[rapid.IntRange(0, trialWorkers-1).Draw(t, "worker")].proc.resume()
}

func (x *trial) network(t *rapid.T) {
	loses := rapid.SampledFrom([]int{0, 20, 100}).Draw(t, "loses")
	w := x.workers[rapid.IntRange(0, trialWorkers-1).Draw(t, "worker")]
	x.mu.Lock()
	defer x.mu.Unlock()
	if w.busy != "" {
		x.ids[w.busy].disturbed = true
	}
	w.mu.Lock()
	w.loses = loses
	w.mu.Unlock()
}

func (x *trial) passTime(t *rapid.T) {
	time.Sleep(rapid.SampledFrom([]time.Duration{
		time.Millisecond, 30 * time.Millisecond, trialLease / 4, trialLease * 11 / 10, 3 * trialLease,
	}).Draw(t, "time"))
}

func (x *trial) check(t *rapid.T) {
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.violations) > 0 {
		t.Fatal(strings.Join(x.violations, "\n"))
	}
	for id, at := range x.ids {
		if at.settled > 1 {
			t.Fatalf("%s was run and marked %d times", id, at.settled)
		}
		if n := x.db.counter(id); n > 1 {
			t.Fatalf("%s was committed %d times", id, n)
		}
		if at.marked != at.written && at.marked != 0 {
			t.Fatalf("%s was marked with fence %d, and then written with %d", id, at.marked, at.written)
		}
	}
}

// finish ends all faults, and delivers until all is done.
func (x *trial) finish(t *rapid.T) {
	for range 60 {
		for i, w := range x.workers {
			w.proc.resume()
			w.mu.Lock()
			w.loses = 0
			w.mu.Unlock()
			id := []string{"a", "b", "tx-a", "tx-b"}[rapid.IntRange(0, 3).Draw(t, "id")]
			x.start(i, errand{id: id, takes: trialLease / 5})
		}
		time.Sleep(trialLease / 2)
		x.check(t)
	}
	for _, id := range []string{"a", "b", "tx-a", "tx-b"} {
		x.all.Wait()
		time.Sleep(2 * trialLease)
		x.start(0, errand{id: id})
		x.all.Wait()
		x.check(t)
		at := x.ids[id]
		switch {
		case !at.known:
			t.Fatalf("%s never came to its end", id)
		case errand{id: id}.tx() && x.db.counter(id) != 1:
			t.Fatalf("%s was committed %d times", id, x.db.counter(id))
		case !(errand{id: id}).tx() && at.finished < 1:
			t.Fatalf("%s never ran to its end", id)
		case at.finished > 1 && !at.disturbed:
			t.Fatalf("%s ran %d times although nothing happened", id, at.finished)
		}
	}
}

// end stops all workers.
func (x *trial) end() {
	for _, w := range x.workers {
		w.proc.kill()
	}
	x.all.Wait()
}
