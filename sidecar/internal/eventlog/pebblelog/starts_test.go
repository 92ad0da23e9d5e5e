package pebblelog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// A start by time, and a page of a replay from a time on, read few of many events, however their ts jump, also after
// events were removed, the log was started again, and its index was made anew. A record that is read is at least three
// allocations, so these bound the records.
func TestStartsByTimeReadFewRecords(t *testing.T) {
	const hour = 3_600_000
	events := 100_000
	if testing.Short() {
		events = 10_000
	}
	dice := rand.New(rand.NewPCG(1, 2))
	for name, ts := range map[string]func(i int) int64{
		"rising":                     func(i int) int64 { return int64(i) },
		"reversed":                   func(i int) int64 { return int64(-i) },
		"all equal":                  func(int) int64 { return 0 },
		"random within six hours":    func(i int) int64 { return int64(i) + dice.Int64N(6*hour) },
		"two clocks, an hour apart":  func(i int) int64 { return int64(i - i%2*hour) },
		"one of a thousand is ahead": func(i int) int64 { return int64(i + max(0, 1-i%1000)*50_000) },
	} {
		t.Run(name, func(t *testing.T) {
			x := starts{t: t, o: Options{Dir: "data", FS: vfs.NewMem(), segmentSize: 4 << 20, Logger: quiet}, dice: dice}
			x.l = mustOpen(t, x.o)
			defer func() { x.l.Close() }()
			ensure(t, x.l, "t", 1)
			x.fill(events, ts)
			x.wantFewReads("full")
			require.NoError(t, x.l.Close())
			require.NoError(t, x.o.FS.RemoveAll(x.o.FS.PathJoin("data", dbFolder)))
			x.l = mustOpen(t, x.o)
			x.wantFewReads("the index is made anew")
			x.erase("the highest", func(i int) bool { return i < events/10 })
			x.wantFewReads("the highest are erased")
			x.erase("what is in order", func(i int) bool { return !x.events[i].outOfOrder && dice.IntN(50) > 0 })
			x.wantFewReads("what is in order is erased")
			third := uint64(events / 3)
			require.NoError(t, x.l.Truncate(t.Context(), "t", 0, third))
			x.events = slices.DeleteFunc(x.events, func(r stored) bool { return r.Seq <= third })
			x.wantFewReads("the first third is truncated")
			require.NoError(t, x.l.reclaim.run(t.Context()))
			require.NoError(t, x.l.Close())
			x.l = mustOpen(t, x.o)
			x.wantFewReads("started again")
		})
	}
}

// starts is a log whose events have a ts of their own.
type starts struct {
	t      *testing.T
	o      Options
	l      *Log
	dice   *rand.Rand
	events []stored // those that are there, by seq
}

func (x *starts) fill(n int, ts func(i int) int64) {
	x.t.Helper()
	for first := 0; first < n; first += 1000 {
		batch := make([]*eventlog.Record, 1000)
		for i := range batch {
			r := &eventlog.Record{AcceptedAt: int64(first + i), FreshID: true}
			r.ID, r.TS, r.Payload = fmt.Sprintf("%d-%d", x.dice.IntN(1000), first+i), ts(first+i), []byte("1")
			batch[i] = r
		}
		for _, o := range x.l.Append(x.t.Context(), "t", 0, batch) {
			require.NoError(x.t, o.Err)
		}
	}
	for r, err := range x.l.records(x.t.Context(), x.l.catalog.topics["t"], 0, 1, uint64(n)) {
		require.NoError(x.t, err)
		x.events = append(x.events, r)
	}
}

// erase removes those that are chosen, by their place in the order of (ts, id), the highest first.
func (x *starts) erase(what string, chosen func(i int) bool) {
	x.t.Helper()
	slices.SortFunc(x.events, func(a, b stored) int { return b.point().Compare(a.point()) })
	var seqs []uint64
	var left []stored
	for i, r := range x.events {
		if chosen(i) {
			seqs = append(seqs, r.Seq)
		} else {
			left = append(left, r)
		}
	}
	x.events = left
	slices.SortFunc(x.events, func(a, b stored) int { return int(a.Seq) - int(b.Seq) })
	for some := range slices.Chunk(seqs, 1000) {
		n, err := x.l.Erase(x.t.Context(), "t", 0, some, eventlog.Retention{}, 0)
		if err != nil || n != len(some) {
			x.t.Fatalf("%s: %d of %d events erased: %v", what, n, len(some), err)
		}
	}
}

func (x *starts) wantFewReads(when string) {
	x.t.Helper()
	last := slices.MaxFunc(x.events, func(a, b stored) int { return a.point().Compare(b.point()) })
	ends := []eventlog.Point{{TS: -1 << 62}, last.point()}
	for range 15 {
		r := x.events[x.dice.IntN(len(x.events))]
		ends = append(ends, r.point(), eventlog.Point{TS: r.TS})
	}
	extents, err := x.l.Extents(x.t.Context(), "t")
	require.NoError(x.t, err)
	for _, at := range ends {
		want := extents[0].Head + 1
		if i := slices.IndexFunc(x.events, func(r stored) bool { return r.point().Compare(at) > 0 }); i >= 0 {
			want = x.events[i].Seq
		}
		x.wantFew(when, fmt.Sprintf("a start behind %v", at), func() {
			seqs, err := x.l.Seek(x.t.Context(), "t", eventlog.Position{From: wire.FromAfterID, After: at})
			require.NoError(x.t, err)
			if seqs[0] != want {
				x.t.Errorf("%s: behind %v a start is at %d; want %d", when, at, seqs[0], want)
			}
		})
		for _, q := range []eventlog.ScanQuery{{MinTS: at.TS}, {MinTS: at.TS, After: &at}, {MinTS: -1 << 62, After: &at, Descending: true}} {
			x.wantFew(when, fmt.Sprintf("a scan of %+v", q), func() {
				_, err := x.l.Scan(x.t.Context(), "t", q, eventlog.Bounds{Events: 1})
				require.NoError(x.t, err)
			})
		}
	}
}

// wantFew wants few allocations, of several tries the fewest: what the log does meanwhile counts, too.
func (x *starts) wantFew(when, what string, read func()) {
	x.t.Helper()
	const few = 2000
	allocations := testing.AllocsPerRun(1, read)
	for try := 0; try < 10 && allocations > few; try++ {
		require.NoError(x.t, x.l.reclaim.run(x.t.Context()))
		allocations = testing.AllocsPerRun(1, read)
	}
	if allocations > few {
		x.t.Fatalf("%s: %s takes %.0f allocations", when, what, allocations)
	}
}
