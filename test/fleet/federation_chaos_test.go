package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/testkit"
)

// disturbances of one round
const disturbances = 3

// TestExportIsTheUnionOrFails publishes through every sidecar of a fleet, some events into spools,
// and kills sidecars at random while exports of the fleet run. Each export has all events accepted
// before it, or says that it has failed. In the end, with everything back, there is a complete one.
func TestExportIsTheUnionOrFails(t *testing.T) { testkit.Rounds(t, exportWhileDisturbed) }

func exportWhileDisturbed(t *testing.T, seed uint64) {
	f := newFederation(t)
	h := newHistory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var publishing sync.WaitGroup
	for i, s := range f.sites {
		publishing.Go(func() { h.publish(ctx, s, seed+uint64(i)) })
	}
	f.awaitWhole(t, h) // each sidecar knows all others

	exporting, stop := context.WithCancel(ctx)
	defer stop()
	var asking sync.WaitGroup
	asking.Go(func() { f.exportAll(t, exporting, h) })
	f.disturb(t, h, rand.New(rand.NewPCG(seed, 1)))
	stop()
	asking.Wait()
	cancel()
	publishing.Wait()

	f.awaitWhole(t, h)
	t.Logf("%d exports were whole and %d failed; %d events accepted, %d of them by a spool", h.count.whole, h.count.failed, len(h.accepted),
		h.count.spooled)
}

// disturb takes the shared store away for a while, kills sidecars and starts them again: first one
// of each, then by chance. After each disturbance it waits for complete exports.
func (f *federation) disturb(t *testing.T, h *history, random *rand.Rand) {
	for n := range disturbances {
		pause.For(t.Context(), time.Duration(random.IntN(2000))*time.Millisecond)
		before := h.counts()
		if n == 0 || n > 1 && random.IntN(3) == 0 {
			f.store.Down()
			h.await(t, "an event to be spooled", func() bool { return h.counts().spooled > before.spooled })
			pause.For(t.Context(), time.Duration(random.IntN(2000))*time.Millisecond)
			f.store.Up()
		} else {
			s := f.sites[random.IntN(len(f.sites))]
			s.kill()
			h.await(t, "an export to fail without "+s.name, func() bool { return h.counts().failed > before.failed })
			pause.For(t.Context(), time.Duration(random.IntN(1000))*time.Millisecond)
			s.start(t)
		}
		before = h.counts()
		h.await(t, "a whole export again", func() bool { return h.counts().whole > before.whole })
	}
}

// exportAll asks one sidecar after the other until ctx ends.
func (f *federation) exportAll(t *testing.T, ctx context.Context, h *history) {
	for i := 0; ctx.Err() == nil; i++ {
		p := f.sites[i%len(f.sites)].process()
		if p == nil {
			continue
		}
		before := h.known()
		events, err := export(t.Context(), p)
		if err == nil {
			h.check(t, events, before)
		}
		h.exported(err)
		if err != nil {
			pause.For(ctx, 50*time.Millisecond)
		}
	}
}

// awaitWhole exports from every sidecar until that works, and checks the result. A failure on the
// way has to say what is missing, or that the export broke off.
func (f *federation) awaitWhole(t *testing.T, h *history) {
	t.Helper()
	deadline := time.Now().Add(federationPatience)
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
			pause.For(t.Context(), 100*time.Millisecond)
		}
	}
}

// covers reports whether there are events of every site: before all sidecars know all others, the
// fleet is smaller.
func covers(events []wire.Event, f *federation) bool {
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
