package bubbletest

import (
	"fmt"
	"math"
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

// Where slots of scheduled events change hands, two sidecars release the same ones. The one has
// reserved its seqs, and its bulk is held up; the other has released some at higher seqs meanwhile.
// Events that were due at one time come in the order of their acceptance all the same.
func TestTwoReleasesKeepTheOrderOfTies(t *testing.T) {
	const n = 4
	for first := range n + 1 {
		t.Run(fmt.Sprintf("%d of %d", first, n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var held atomic.Bool
				set := mongomodel.New(mongomodel.Options{Polling: true, Fault: func(r mongomodel.Request) (f mongomodel.Fault) {
					if r.Command == "update" && r.Collection == events && held.CompareAndSwap(true, false) {
						f.Delay = time.Second
					}
					return f
				}})
				t.Cleanup(set.Close)
				quick := open(t, set, mongolog.Options{})
				withTopic(t, quick)
				due := time.Now().Add(time.Hour).UnixMilli()
				for i := range n {
					rec := eventlogtest.Event(fmt.Sprint("tie-", n-i), eventlogtest.Due(due))
					require.NoError(t, quick.Append(t.Context(), "t", 0, []*eventlog.Record{rec})[0].Err)
				}
				ties, _, err := quick.Due(t.Context(), nil, nil, math.MaxInt64, n)
				require.NoError(t, err)
				slow := open(t, set, mongolog.Options{})
				held.Store(true)
				var outcomes []eventlog.Outcome
				done := make(chan struct{})
				go func() {
					defer close(done)
					outcomes = slow.Release(t.Context(), "t", ties, due)
				}()
				for held.Load() {
					time.Sleep(time.Millisecond)
				}
				quick.Release(t.Context(), "t", ties[:first], due)
				<-done
				time.Sleep(time.Second) // voids come after the outcomes
				recs, err := quick.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 100})
				require.NoError(t, err)
				if len(recs) != n {
					t.Fatalf("%d events; want %d", len(recs), n)
				}
				for i, rec := range recs {
					if rec.ID != ties[i].ID || outcomes[i].Err != nil || outcomes[i].Seq != rec.Seq {
						t.Errorf("event %d is %s at %d, with the outcome %+v; want %s", i, rec.ID, rec.Seq, outcomes[i], ties[i].ID)
					}
				}
			})
		})
	}
}
