package bubbletest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

// A batch that follows another waits for the time that is set, and no other does.
func TestLinger(t *testing.T) {
	for _, c := range []struct{ set, want time.Duration }{{0, mongolog.DefaultLinger}, {-1, 0}, {time.Minute, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			set := mongomodel.New(mongomodel.Options{Polling: true})
			t.Cleanup(set.Close)
			l := open(t, set, mongolog.Options{Linger: c.set})
			withTopic(t, l)
			stored(t, l, eventlogtest.Events("first", 1), 1)
			time.Sleep(time.Hour)
			began := time.Now()
			stored(t, l, eventlogtest.Events("after a pause", 1), 2)
			if took := time.Since(began); took != 0 {
				t.Errorf("linger %v: after a pause it took %v", c.set, took)
			}
			stored(t, l, eventlogtest.Events("after a batch", 1), 3)
			if took := time.Since(began); took != c.want {
				t.Errorf("linger %v: after a batch it took %v; want %v", c.set, took, c.want)
			}
		})
	}
}
