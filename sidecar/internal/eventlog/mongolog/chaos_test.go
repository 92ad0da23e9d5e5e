package mongolog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	chaosWriters = 4
	chaosReaders = 2
	chaosBatches = 12 // of each writer
	chaosPool    = 40 // ids that the writers share
)

// TestChaos: four sidecars write to one partition through networks that cut connections, lose
// requests, lose replies after the write, and are slow; two more read. Every answer has to fit the
// log in the end.
func TestChaos(t *testing.T) {
	s := mongotest.Shared(t)
	testkit.Rounds(t, func(t *testing.T, seed uint64) { chaos(t, s, seed) })
}

func chaos(t *testing.T, s *mongotest.Server, seed uint64) {
	database := s.NewDatabase(t)
	calm := mustOpen(t, Options{URL: s.URI(database), Timeout: testTimeout})
	ensure(t, calm, "t", 1)
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()

	var told [chaosWriters][]told
	var tails [chaosReaders][]*eventlog.Record
	var writing, reading sync.WaitGroup
	done := make(chan uint64, chaosReaders) // the last event
	var lost int
	var mu sync.Mutex
	for w := range chaosWriters {
		l, proxy := faulty(t, s, database, Options{Timeout: 2 * time.Second})
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		proxy.Seed(seed*100 + uint64(w))
		writing.Go(func() {
			told[w] = write(ctx, t, l, proxy, rng, w)
			mu.Lock()
			defer mu.Unlock()
			lost += proxy.Stats().LostReplies
		})
	}
	for r := range chaosReaders {
		l, proxy := faulty(t, s, database, Options{Timeout: 2 * time.Second})
		proxy.Seed(seed*100 + 50 + uint64(r))
		reading.Go(func() { tails[r] = tailLog(ctx, t, l, proxy, done) })
	}
	writing.Wait()
	var last uint64
	for _, a := range slices.Concat(told[:]...) {
		last = max(last, a.outcome.Seq)
	}
	for range chaosReaders {
		done <- last
	}
	reading.Wait()
	if t.Failed() {
		return
	}
	if lost == 0 {
		t.Error("no reply was lost: the test tests nothing")
	}
	events, err := calm.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 1 << 20})
	require.NoError(t, err)
	checkHistory(t, events, told[:], tails[:])
}

// told is one answer about one event. again says that an earlier append of it ended without an
// answer.
type told struct {
	record  *eventlog.Record
	outcome eventlog.Outcome
	again   bool
}

// write appends batches of its own events and of events that others append too, and repeats each
// batch until it has all its answers.
func write(ctx context.Context, t *testing.T, l *Log, proxy *faultproxy.Proxy, rng *rand.Rand, w int) (all []told) {
	for b := range chaosBatches {
		upset(proxy, rng)
		batch := eventlogtest.Events(fmt.Sprintf("w%d-%02d", w, b), 1+rng.IntN(5))
		for range rng.IntN(3) {
			shared := eventlogtest.Event(fmt.Sprintf("shared-%d", rng.IntN(chaosPool)))
			batch = slices.Insert(batch, rng.IntN(len(batch)+1), shared)
		}
		for again := false; len(batch) > 0; again = true {
			if ctx.Err() != nil {
				t.Errorf("writer %d comes to no end", w)
				return all
			}
			var open []*eventlog.Record
			for i, o := range l.Append(ctx, "t", 0, batch) {
				if errors.Is(o.Err, eventlog.ErrUnavailable) {
					open = append(open, batch[i])
					continue
				}
				all = append(all, told{batch[i], o, again})
			}
			batch = open
		}
	}
	proxy.Heal()
	return all
}

// upset changes the network of the writer. After a cut the driver takes half a second to look for
// its server again, so four cuts in a row outlast an append.
func upset(proxy *faultproxy.Proxy, rng *rand.Rand) {
	proxy.Heal()
	proxy.Only(isInsert)
	switch rng.IntN(8) {
	case 0, 1:
		proxy.CutAfterNextReply()
	case 2:
		proxy.CutNextRequest()
	case 3:
		proxy.Cut()
	case 4:
		proxy.Delay(faultproxy.ToServer, time.Duration(rng.IntN(10))*time.Millisecond)
	case 5:
		for range 4 {
			proxy.CutAfterNextReply()
		}
	}
}

// tailLog reads up to the last event. Where nothing is to be read there may be more behind: a
// duplicate is answered before the void that takes its seq is stored.
func tailLog(ctx context.Context, t *testing.T, l *Log, proxy *faultproxy.Proxy, done <-chan uint64) (seen []*eventlog.Record) {
	next, last := uint64(1), uint64(math.MaxUint64)
	proxy.CutReplies(0.01)
	for next <= last {
		events, err := l.Read(ctx, "t", 0, next, eventlog.Bounds{Events: 7})
		if ctx.Err() != nil {
			t.Errorf("a reader comes to no end: %v", err)
			return seen
		}
		if len(events) > 0 {
			seen = append(seen, events...)
			next = events[len(events)-1].Seq + 1
			continue
		}
		select {
		case last = <-done:
			proxy.Heal()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return seen
}

// checkHistory holds all answers and reads against the log.
func checkHistory(t *testing.T, events []*eventlog.Record, writers [][]told, tails [][]*eventlog.Record) {
	t.Helper()
	stored := map[string]*eventlog.Record{}
	for i, e := range events {
		if i > 0 && e.Seq <= events[i-1].Seq {
			t.Errorf("seq %d behind seq %d", e.Seq, events[i-1].Seq)
		}
		if stored[e.ID] != nil {
			t.Errorf("id %q is stored twice", e.ID)
		}
		stored[e.ID] = e
	}
	first, unsure := map[string]int{}, map[string]bool{}
	for w, answers := range writers {
		var own uint64
		for _, a := range answers {
			e := stored[a.record.ID]
			switch {
			case a.outcome.Err != nil:
				t.Errorf("id %q: %v", a.record.ID, a.outcome.Err)
			case e == nil || e.Seq != a.outcome.Seq:
				t.Errorf("id %q: told %+v; the log has %+v", a.record.ID, a.outcome, e)
			case !a.outcome.Duplicate:
				first[e.ID]++
				if e.Seq <= own {
					t.Errorf("writer %d: id %q at seq %d behind seq %d", w, e.ID, e.Seq, own)
				}
				own = e.Seq
			}
			unsure[a.record.ID] = unsure[a.record.ID] || a.again
		}
	}
	for id := range stored {
		if n := first[id]; n > 1 || n == 0 && !unsure[id] {
			t.Errorf("id %q: %d appends were told that they stored it", id, n)
		}
	}
	for i, seen := range tails {
		if !slices.EqualFunc(seen, events, func(a, b *eventlog.Record) bool { return a.Seq == b.Seq && a.ID == b.ID }) {
			t.Errorf("reader %d saw %d events, other than the %d of the log", i, len(seen), len(events))
		}
	}
}
