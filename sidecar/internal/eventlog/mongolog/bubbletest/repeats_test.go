package bubbletest

import (
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/mongomodel"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
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
				if o := l.Append(t.Context(), "t", 0, []*eventlog.Record{eventlogtest.Event("later", eventlogtest.Due(due.UnixMilli()))})[0]; o.Err != nil {
					t.Fatal(o.Err)
				}
				scheduled, _, err := l.Due(t.Context(), nil, nil, math.MaxInt64, 10)
				if err != nil || len(scheduled) != 1 {
					t.Fatalf("due: %+v, %v", scheduled, err)
				}
				if tc.cancelled {
					if err := l.Cancel(t.Context(), "t", "later"); err != nil {
						t.Fatal(err)
					}
				}
				stored(t, l, eventlogtest.Events("first", 1), 1) // those that follow linger, and are one batch
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
