package outbox

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// TestAllAtOnce drains all shards by several drainers at the same time: more overlap than between
// sidecars that have not seen each other yet.
func TestAllAtOnce(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.insert(many(0, 400)...)
	for range 4 {
		a.start(func(c *Config) { c.Publisher = tardyLog{a.log} })
	}
	a.untilStatus(statusDone, 400)
	a.insert(many(400, 200)...)
	a.untilStatus(statusDone, 600)
	a.inKeyOrder()
	events, duplicates := a.log.count()
	if events != 600 || duplicates == 0 {
		t.Errorf("%d events and %d duplicates of 600 documents", events, duplicates)
	}
	t.Logf("%d duplicates", duplicates)
}

// tardyLog takes its time before an append, and after it.
type tardyLog struct{ *fakeLog }

func (l tardyLog) Publish(ctx context.Context, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	some := func() { pause.For(ctx, rand.N(20*time.Millisecond)) }
	some()
	return l.fakeLog.Publish(ctx, items, func(results []wire.ResultItem) {
		go func() {
			some()
			done(results)
		}()
	})
}

// TestHandover: a drainer that stops leaves its shards to the others at once, and one that dies
// leaves them to them after its lease.
func TestHandover(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	var all []*member
	for i := range 3 {
		all = append(all, a.startIn(fmt.Sprint("node-", i)))
	}
	shared := func(among ...*member) func() bool {
		return func() bool {
			sum := 0
			for _, m := range among {
				sum += m.Stats().Shards
				if m.Stats().Shards == 0 {
					return false
				}
			}
			return sum == Shards
		}
	}
	a.until("the shards are to be shared by three", shared(all...))
	began := time.Now()
	all[0].stop()
	a.until("the shards are to be shared by two", shared(all[1:]...))
	if took := time.Since(began); took > testLease {
		t.Errorf("what a drainer has that stops is others' after %v, with a lease of %v", took, testLease)
	}
	all[1].away.Store(true)
	a.until("the last one is to have all", shared(all[2]))
	if all[1].Stats().Shards != 0 {
		t.Error("a sidecar that is dead to others has shards")
	}
	all[1].away.Store(false)
	a.until("the shards are to be shared again", shared(all[1:]...))
}
