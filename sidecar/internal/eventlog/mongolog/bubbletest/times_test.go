package bubbletest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// timed is a topic t whose events have times of their own.
type timed struct {
	*mongolog.Log
	dice *rand.Rand
	ts   []int64 // by seq - 1; -1: removed
}

// add stores events whose ts rises with the seq, but for this much.
func (x *timed) add(t *testing.T, n, spread int) {
	t.Helper()
	list, seqs := eventlogtest.Events(fmt.Sprintf("e-%d", len(x.ts)), n), make([]uint64, n)
	for i, e := range list {
		e.TS = firstTS + int64(len(x.ts)+x.dice.IntN(spread))
		x.ts, seqs[i] = append(x.ts, e.TS), uint64(len(x.ts))+1
	}
	stored(t, x.Log, list, seqs...)
	sweep(t, x.Log, eventlog.Retention{}, firstTS, 0) // raises the watermark
}

// erase removes some of the events.
func (x *timed) erase(t *testing.T, which func(i int) bool) {
	t.Helper()
	var seqs []uint64
	for i, ts := range x.ts {
		if ts >= 0 && which(i) {
			seqs, x.ts[i] = append(seqs, uint64(i)+1), -1
		}
	}
	for some := range slices.Chunk(seqs, 100) {
		_, err := x.Erase(t.Context(), "t", 0, some, eventlog.Retention{}, firstTS)
		require.NoError(t, err)
	}
}

// check compares a start at a ts with the lowest seq of all.
func (x *timed) check(t *testing.T, l *mongolog.Log, ts int64) {
	t.Helper()
	extents, err := l.Extents(t.Context(), "t")
	require.NoError(t, err)
	want := extents[0].Head + 1
	for i, have := range x.ts {
		if have >= ts {
			want = uint64(i) + 1
			break
		}
	}
	got, err := l.Seek(t.Context(), "t", eventlog.Position{From: wire.FromTS, TS: ts})
	if err != nil || got[0] != want {
		t.Errorf("a start at %d: %v, %v; want %d", ts-firstTS, got, err, want)
	}
}

// Starts by time find the first event, whatever was removed and by whom the topic is read.
func TestStartsByTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true})
		t.Cleanup(set.Close)
		x := &timed{Log: open(t, set, mongolog.Options{}), dice: rand.New(rand.NewPCG(rand.Uint64(), 1))}
		other := open(t, set, mongolog.Options{})
		withTopic(t, x.Log)
		for _, spread := range []int{1, 300, 3000, 10} {
			x.add(t, 1+x.dice.IntN(900), spread)
			for _, percent := range []int{0, 50, 95} {
				x.erase(t, func(int) bool { return x.dice.IntN(100) < percent })
				for range 20 {
					x.check(t, other, firstTS+int64(x.dice.IntN(len(x.ts)+spread)))
				}
			}
		}
	})
}

// A start by time examines few keys in a topic of any size, also where the latest event of each
// block was removed, once a start has found that out.
func TestAStartByTimeExaminesFewKeys(t *testing.T) {
	const most, events = 2000, 20_000
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true})
		t.Cleanup(set.Close)
		x := &timed{Log: open(t, set, mongolog.Options{}), dice: rand.New(rand.NewPCG(1, 1))}
		withTopic(t, x.Log)
		for range events / 1000 {
			x.add(t, 1000, 5000)
		}
		start := func(at int) int {
			synctest.Wait()
			before := set.Work()
			x.check(t, x.Log, firstTS+int64(at))
			return set.Work().Minus(before).Keys
		}
		for _, removed := range []bool{false, true} {
			if removed {
				x.erase(t, func(i int) bool { return x.ts[i] > firstTS+int64(i)+2500 })
				if keys := start(events); keys < most {
					t.Errorf("%d keys: nothing was looked for in vain", keys)
				}
			}
			for _, at := range []int{0, 1, 130, events / 2, events - 1, events, events + 2400, events + 4000, events + 6000} {
				if keys := start(at); keys > most && !removed || start(at) > most {
					t.Errorf("a start at %d examines %d keys; some are removed: %v", at, keys, removed)
				}
			}
		}
	})
}

// The head does not say that blocks were added before a majority has the nodes.
func TestBlocksAreAddedBeforeTheHeadSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var losing atomic.Bool
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true, Fault: func(r mongomodel.Request) mongomodel.Fault {
			return mongomodel.Fault{LoseRequest: losing.Load() && r.Collection == "times"}
		}})
		t.Cleanup(set.Close)
		x := &timed{Log: open(t, set, mongolog.Options{}), dice: rand.New(rand.NewPCG(1, 1))}
		withTopic(t, x.Log)
		x.add(t, 200, 10)
		losing.Store(true)
		list, seqs := eventlogtest.Events("late", 400), make([]uint64, 400)
		for i, e := range list {
			e.TS = firstTS + 1000
			x.ts, seqs[i] = append(x.ts, e.TS), uint64(len(x.ts))+1
		}
		stored(t, x.Log, list, seqs...)
		_, _, err := x.Sweep(t.Context(), "t", eventlog.Retention{}, firstTS, 10)
		if err == nil {
			t.Error("the nodes were written")
		}
		losing.Store(false)
		x.check(t, x.Log, firstTS+1000)
		time.Sleep(time.Minute)
		sweep(t, x.Log, eventlog.Retention{}, firstTS, 0)
		x.check(t, x.Log, firstTS+1000)
	})
}
