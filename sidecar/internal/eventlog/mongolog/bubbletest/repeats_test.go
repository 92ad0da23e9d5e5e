package bubbletest

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// A release shares its batch with events that turn out to be stored already, since the answer to
// their insert was lost. The lookup of their ids must not decide about the release.
func TestReleaseBehindAnInsertWhoseAnswerIsLost(t *testing.T) {
	for _, tc := range []struct {
		name      string
		cancelled bool
		want      error
	}{{"scheduled", false, nil}, {"cancelled", true, eventlog.ErrNotFound}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var losing atomic.Bool
				set := mongomodel.New(mongomodel.Options{Polling: true, Fault: func(r mongomodel.Request) mongomodel.Fault {
					lost := r.Command == "insert" && r.Collection == events && losing.CompareAndSwap(true, false)
					return mongomodel.Fault{LoseAnswer: lost}
				}})
				t.Cleanup(set.Close)
				l := open(t, set, mongolog.Options{Linger: time.Second})
				withTopic(t, l)
				due := time.Now().Add(time.Hour)
				if o := l.Append(t.Context(), "t", 0, []*eventlog.Record{eventlogtest.Event("later",
					eventlogtest.Due(due.UnixMilli()))})[0]; o.Err != nil {
					t.Fatal(o.Err)
				}
				scheduled, _, err := l.Due(t.Context(), nil, nil, math.MaxInt64, 10)
				if err != nil || len(scheduled) != 1 {
					t.Fatalf("due: %+v, %v", scheduled, err)
				}
				if tc.cancelled {
					require.NoError(t, l.Cancel(t.Context(), "t", "later"))
				}
				stored(t, l, eventlogtest.Events("first", 1), 1) // the next ones linger, and are one batch
				losing.Store(true)
				var calls sync.WaitGroup
				calls.Go(func() { stored(t, l, eventlogtest.Events("now", 2), 2, 3) })
				synctest.Wait()
				var released eventlog.Outcome
				calls.Go(func() { released = l.Release(t.Context(), "t", scheduled, due.UnixMilli())[0] })
				calls.Wait()
				if !errors.Is(released.Err, tc.want) {
					t.Errorf("Release: %+v; want %v", released, tc.want)
				}
				want := 4
				if tc.cancelled {
					want--
				}
				recs, err := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 10})
				if err != nil || len(recs) != want {
					t.Errorf("Read: %d events, %v; want %d", len(recs), err, want)
				}
			})
		})
	}
}

// A batch that another sidecar has stored already, as where a client tries it again there, costs a
// few commands, not some for each event.
func TestRepeatsAreLookedUpTogether(t *testing.T) {
	const n, most = 500, 25
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Polling: true})
		t.Cleanup(set.Close)
		first := open(t, set, mongolog.Options{})
		withTopic(t, first)
		first.Append(t.Context(), "t", 0, eventlogtest.Events("e", n))
		l, commands := counted(t, set)
		before := commands.Load()
		for i, o := range l.Append(t.Context(), "t", 0, eventlogtest.Events("e", n)) {
			if o.Err != nil || !o.Duplicate || o.Seq != uint64(i+1) {
				t.Fatalf("event %d: %+v; want a duplicate of seq %d", i, o, i+1)
			}
		}
		if sent := commands.Load() - before; sent > most {
			t.Errorf("%d repeats cost %d commands; want %d at most", n, sent, most)
		}
	})
}
