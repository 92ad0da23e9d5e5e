package federation_test

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
)

var (
	chaos = flag.Duration("chaos", 15*time.Second, "how long sidecars of a fleet are killed and cut off")
	seed  = flag.Uint64("seed", 0, "seed of the choices; 0 takes one from the clock")
)

// TestExportIsTheUnionOrFails publishes through every sidecar of a fleet, some
// events into spools, and kills sidecars at random while exports of the fleet
// run. Each export has exactly what was accepted before it, or has visibly
// failed; in the end, with everything back, there is a whole one.
func TestExportIsTheUnionOrFails(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-chaos %s -seed %d", *chaos, *seed)
	f := newFleet(t)
	h := newHistory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var publishing sync.WaitGroup
	for i, s := range f.sites {
		publishing.Go(func() { h.publish(ctx, s, *seed+uint64(i)) })
	}
	f.awaitWhole(t, h) // everybody knows everybody

	var disturbing sync.WaitGroup
	over, stop := context.WithTimeout(ctx, *chaos)
	defer stop()
	disturbing.Go(func() { f.disturb(t, over) })
	whole, failed := f.exportAll(t, over, h)
	disturbing.Wait()
	cancel()
	publishing.Wait()

	f.store.Up()
	f.awaitWhole(t, h)
	t.Logf("%d exports were whole and %d failed; %d events accepted, %d of them by a spool", whole, failed, len(h.accepted), h.spooled)
	if whole == 0 || failed == 0 || h.spooled == 0 {
		t.Error("one of these never happened: the test has not tested everything")
	}
}

// disturb kills sidecars and starts them again, and takes the shared store away
// for a while.
func (f *fleet) disturb(t *testing.T, ctx context.Context) {
	random := rand.New(rand.NewPCG(*seed, 1))
	for wait(ctx, time.Duration(1000+random.IntN(2000))*time.Millisecond) {
		if random.IntN(3) == 0 {
			f.store.Down()
			wait(ctx, time.Duration(1000+random.IntN(3000))*time.Millisecond)
			f.store.Up()
			continue
		}
		s := f.sites[random.IntN(len(f.sites))]
		s.kill()
		wait(ctx, time.Duration(random.IntN(1000))*time.Millisecond)
		s.start(t)
	}
}

// exportAll asks one sidecar after the other until ctx ends.
func (f *fleet) exportAll(t *testing.T, ctx context.Context, h *history) (whole, failed int) {
	for i := 0; ctx.Err() == nil; i++ {
		p := f.sites[i%len(f.sites)].process()
		if p == nil {
			continue
		}
		before := h.known()
		events, err := export(t.Context(), p)
		if err != nil {
			failed++
			wait(ctx, 50*time.Millisecond)
			continue
		}
		whole++
		h.check(t, events, before)
	}
	return whole, failed
}

// awaitWhole exports from every sidecar until that works, and checks the result.
// Failures on the way have to say what is missing, or that they broke off.
func (f *fleet) awaitWhole(t *testing.T, h *history) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for _, s := range f.sites {
		for {
			before := h.known()
			events, err := export(t.Context(), s.process())
			if err == nil && len(before) > 0 && covers(events, f) {
				h.check(t, events, before)
				break
			}
			if err != nil && !visible(err) {
				t.Fatalf("%s: %v", s.name, err)
			}
			if time.Now().After(deadline) {
				t.Fatalf("%s: no whole export of the fleet: %v, %d events", s.name, err, len(events))
			}
			wait(t.Context(), 100*time.Millisecond)
		}
	}
}

// covers says whether events of every site are there: before all sidecars know
// of all others, the fleet is smaller.
func covers(events []wire.Event, f *fleet) bool {
	from := map[string]bool{}
	for _, e := range events {
		from[e.ID[:2]] = true
	}
	for _, s := range f.sites {
		if !from[s.name] {
			return false
		}
	}
	return true
}

func visible(err error) bool {
	if errors.Is(err, sluice.ErrTruncated) {
		return true
	}
	refused, ok := errors.AsType[*wire.Error](err)
	return ok && (refused.Code != wire.PartialFleet || len(refused.Missing) > 0)
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
