package bubbletest

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/event"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

// Each call that asks the server for its time waits for its own answer, and not for the answer to
// an earlier call.
func TestServerTimeIsAskedForWithoutALock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Polling: true})
		t.Cleanup(set.Close)
		var slow sync.Map
		l := open(t, set, mongolog.Options{Monitor: &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if d, ok := slow.Load(e.CommandName); ok {
				time.Sleep(d.(time.Duration))
			}
		}}})
		withTopic(t, l)
		for _, o := range l.Append(t.Context(), "t", 0, eventlogtest.Events("e", 2, eventlogtest.Due(time.Now().Add(time.Hour).UnixMilli()))) {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
		}
		slow.Store("find", time.Second) // so that both have read the event when they ask
		slow.Store("hello", time.Second)
		began := time.Now()
		var cancels sync.WaitGroup
		for _, id := range []string{"e-000", "e-001"} {
			cancels.Go(func() {
				if err := l.Cancel(t.Context(), "t", id); err != nil {
					t.Errorf("Cancel of %s: %v", id, err)
				}
			})
		}
		cancels.Wait()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("they took %v", took)
		}
	})
}
