package retention_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
	"github.com/sluice-bus/sluice/test/require"
)

const eventBytes = 1000 // of each event here

// sized is an embedded log with one topic of four partitions.
type sized struct {
	*pebblelog.Log
	events int
}

func openSized(t *testing.T) *sized {
	log, err := pebblelog.Open(pebblelog.Options{Dir: "data", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	if _, err := log.EnsureTopic(t.Context(), "a", 4); err != nil {
		t.Fatal(err)
	}
	return &sized{Log: log}
}

// publish appends n events in turn to the partitions, a millisecond apart.
func (l *sized) publish(t *testing.T, n int, key func(i int) string) {
	t.Helper()
	for range n {
		p := l.events % 4
		r := &eventlog.Record{Event: wire.Event{ID: fmt.Sprintf("%04d", l.events), Topic: "a", Key: key(l.events)}, AcceptedAt: int64(l.events)}
		r.Payload = []byte(`"` + strings.Repeat("x", eventBytes-r.Size()-2) + `"`)
		l.events++
		if out := l.Append(t.Context(), "a", p, []*eventlog.Record{r})[0]; out.Err != nil {
			t.Fatal(out.Err)
		}
	}
}

// kept are the events that are left, by when they were accepted.
func (l *sized) kept(t *testing.T) (list []int64) {
	t.Helper()
	for p := range 4 {
		recs, err := l.Read(t.Context(), "a", p, 0, eventlog.Bounds{Events: 10_000})
		require.NoError(t, err)
		for _, r := range recs {
			if r.Size() != eventBytes {
				t.Fatalf("an event of %d bytes", r.Size())
			}
			list = append(list, r.AcceptedAt)
		}
	}
	return list
}

// newest wants the newest events of the log to be left, at least so many and not more than that.
func (l *sized) newest(t *testing.T, when string, least, most int) {
	t.Helper()
	kept := l.kept(t)
	if len(kept) < least || len(kept) > most {
		t.Errorf("%s: %d events are left; want %d to %d", when, len(kept), least, most)
	}
	for _, at := range kept {
		if at < int64(l.events-len(kept)) {
			t.Errorf("%s: event %d of %d is left, and %d are", when, at, l.events, len(kept))
		}
	}
}

// sweeping runs a sweeper of a policy in a bubble.
func sweeping(t *testing.T, log retention.Log, current *policy.Current) (stop func()) {
	s := retention.Sweeper{Log: log, Policies: current, Logger: slog.New(slog.DiscardHandler), Interval: interval, Batch: 10}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	return func() { cancel(); <-ended }
}

func nextRound() {
	time.Sleep(interval + time.Second) // steps rest in between
	synctest.Wait()
}

func noKey(int) string { return "" }

// The oldest events go once a topic holds more than its policy lets it, and no more of them than
// that.
func TestBytesOfATopicAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := openSized(t)
		defer log.Close()
		current := policy.NewCurrent(policies(t, "[{name: a, retention: {max_bytes: 50000}}]"))
		log.publish(t, 50, noKey)
		stop := sweeping(t, log, current)
		nextRound()
		log.newest(t, "with as many as it may hold", 50, 50)
		log.publish(t, 13, noKey)
		nextRound()
		log.newest(t, "with more", 50, 50)
		log.publish(t, 300, noKey)
		nextRound()
		log.newest(t, "with many more", 50, 50)
		stop()

		// Another sweeper counts again.
		log.publish(t, 5, noKey)
		stop = sweeping(t, log, current)
		nextRound()
		log.newest(t, "after a restart", 50, 50)
		current.Swap(policies(t, "[]"))
		log.publish(t, 100, noKey)
		nextRound()
		log.newest(t, "without a bound", 150, 150)
		current.Swap(policies(t, "[{name: a, retention: {max_bytes: 1}}]"))
		nextRound()
		log.newest(t, "with room for no event", 0, 0)
		stop()
	})
}

// A piece is as large as what is counted at once: of large topics a little more goes than has to.
func TestATopicLosesAPieceTooMuchAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := openSized(t)
		defer log.Close()
		log.publish(t, 1600, noKey)
		stop := sweeping(t, log, policy.NewCurrent(policies(t, "[{name: a, retention: {max_bytes: 1000000}}]")))
		defer stop()
		nextRound()
		if n := len(log.kept(t)); n < 1000-3 || n > 1000 {
			t.Errorf("%d events are left; want 1000, or 3 fewer", n)
		}
	})
}

// Events that compaction removed do not count towards the size.
func TestCompactedEventsDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := openSized(t)
		defer log.Close()
		log.publish(t, 60, func(i int) string { return fmt.Sprint("same", i%4) })
		// A round that begins while they are published would leave some until the next pass.
		stop := sweeping(t, log, policy.NewCurrent(policies(t, "[{name: a, retention: {compact: true, max_bytes: 80000}}]")))
		defer stop()
		nextRound()
		nextRound()
		if n := len(log.kept(t)); n != 4 {
			t.Fatalf("%d events are left of 4 keys", n)
		}
		log.publish(t, 60, func(i int) string { return fmt.Sprint(i) })
		nextRound()
		nextRound()
		if n := len(log.kept(t)); n != 64 {
			t.Errorf("%d events are left; want 64, which fit", n)
		}
	})
}
