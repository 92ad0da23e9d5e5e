package bubbletest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

const timeout = 3 * time.Second

// withTimeout runs a test in a bubble, on a log that waits for so long and has one event.
func withTimeout(t *testing.T, test func(t *testing.T, set *mongomodel.Set, l *mongolog.Log)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Polling: true})
		t.Cleanup(set.Close)
		l := open(t, set, mongolog.Options{Timeout: timeout})
		withTopic(t, l)
		stored(t, l, eventlogtest.Events("a", 1), 1)
		test(t, set, l)
	})
}

func TestAnOutageIsUnavailable(t *testing.T) {
	withTimeout(t, func(t *testing.T, set *mongomodel.Set, l *mongolog.Log) {
		if err := l.Err(); err != nil {
			t.Errorf("Err = %v while all is well", err)
		}
		for i := range 3 {
			set.Kill(i)
		}
		fresh := eventlogtest.Event("b", func(r *eventlog.Record) { r.FreshID = true })
		if o := l.Append(t.Context(), "t", 0, []*eventlog.Record{fresh})[0]; !errors.Is(o.Err, eventlog.ErrUnavailable) || fresh.FreshID ||
			fresh.Seq != 0 {
			t.Errorf("Append = %+v; fresh %v, seq %d", o, fresh.FreshID, fresh.Seq)
		}
		if _, err := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 1}); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("Read: %v", err)
		}
		if err := l.Err(); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("Err = %v during an outage", err)
		}
		// A Seek may take twelve times as long, but finds out sooner that no server is there.
		began := time.Now()
		if _, err := l.Seek(t.Context(), "t", eventlog.Position{From: wire.FromEarliest}); !errors.Is(err, eventlog.ErrUnavailable) ||
			time.Since(began) > 6*timeout {
			t.Errorf("Seek: %v after %v", err, time.Since(began))
		}
		canceled, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := l.Extents(canceled, "t"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("Extents with a deadline of the caller's own: %v", err)
		}
		for i := range 3 {
			set.Restart(i)
		}
		for began := time.Now(); l.Ping(t.Context()) != nil; {
			if time.Since(began) > time.Minute {
				t.Fatal("the log does not come back")
			}
		}
		if err := l.Err(); err != nil {
			t.Errorf("Err = %v after a Ping", err)
		}
		stored(t, l, []*eventlog.Record{fresh}, 2)
	})
}

// A slow server that gets on is not taken for one that is away: the whole append takes longer than
// the timeout, and no single answer does.
func TestASlowServerIsNotAway(t *testing.T) {
	withTimeout(t, func(t *testing.T, set *mongomodel.Set, l *mongolog.Log) {
		for i := range 3 {
			set.Slow(i, timeout/5)
		}
		began := time.Now()
		for i, o := range l.Append(t.Context(), "t", 0, eventlogtest.Events("b", 6000)) { // of which one insert has a thousand
			if o.Err != nil || o.Seq != uint64(i)+2 {
				t.Fatalf("event %d: %+v", i, o)
			}
		}
		if took := time.Since(began); took < timeout {
			t.Errorf("it took %v: the test has not tested anything", took)
		}
	})
}
