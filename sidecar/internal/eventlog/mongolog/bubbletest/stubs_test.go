package bubbletest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

// The server itself deletes stubs, and the head stays.
func TestServerDeletesStubs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Polling: true})
		t.Cleanup(set.Close)
		o := mongolog.Options{SeqTaken: time.Nanosecond}
		l := open(t, set, o)
		withTopic(t, l)
		const hour = int64(time.Hour / time.Millisecond)
		now := time.Now().UnixMilli()
		stored(t, l, eventlogtest.Events("a", 3, eventlogtest.Accepted(now-hour)), 1, 2, 3)
		sweep(t, l, eventlog.Retention{TTLMS: 1, DedupeWindowMS: 2 * hour}, now, 3)
		time.Sleep(time.Hour - time.Minute)
		if n := len(documents(t, set)); n != 3 {
			t.Errorf("%d of 3 stubs are there before their time", n)
		}
		time.Sleep(4 * time.Minute) // it looks every minute, and expireAt is rounded up to one
		if left := documents(t, set); len(left) != 0 {
			t.Errorf("still there: %v", left)
		}
		if e, err := open(t, set, o).Extents(t.Context(), "t"); err != nil || e[0] != (eventlog.Extent{First: 4, Head: 3, Removed: 3}) {
			t.Errorf("extent %+v, %v; want First 4, Head 3", e, err)
		}
	})
}
