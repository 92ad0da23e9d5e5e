package retention_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
	"github.com/sluice-bus/sluice/test/require"
)

// shifted is a log that is asked about another time than the sweeper's clock shows. It tells when a
// round over its one topic is over: the marks, which are swept first, have nothing to remove.
type shifted struct {
	*pebblelog.Log
	by     time.Duration
	rounds chan struct{}
}

func (l *shifted) Sweep(ctx context.Context, topic string, r eventlog.Retention, now int64, limit int) (int, bool, error) {
	n, more, err := l.Log.Sweep(ctx, topic, r, now+l.by.Milliseconds(), limit)
	if !more {
		l.rounds <- struct{}{}
	}
	return n, more, err
}

// Through the real log: events go with their ttl, their ids are remembered for the window and then
// forgotten, and the head stays where it was.
func TestLifeOfAnEventInTheEmbeddedLog(t *testing.T) {
	log, err := pebblelog.Open(pebblelog.Options{Dir: "data", FS: vfs.NewMem(), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer log.Close()
	ctx := t.Context()
	if _, err := log.EnsureTopic(ctx, "a", 1); err != nil {
		t.Fatal(err)
	}
	accepted := time.Now()
	const events = 25
	publish := func(n int) (outs []eventlog.Outcome) {
		var batch []*eventlog.Record
		for i := range n {
			batch = append(batch, &eventlog.Record{
				Event:      wire.Event{ID: string(rune('A' + i)), Topic: "a", Payload: []byte("1")},
				AcceptedAt: accepted.UnixMilli(),
			})
		}
		outs = log.Append(ctx, "a", 0, batch)
		for _, o := range outs {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
		}
		return outs
	}
	publish(events)

	// sweep runs one round as if at that time after the events were accepted.
	sweep := func(after time.Duration) {
		t.Helper()
		at := &shifted{Log: log, by: after - time.Since(accepted), rounds: make(chan struct{}, 1)}
		var out bytes.Buffer
		s := retention.Sweeper{
			Log: at, Policies: policy.NewCurrent(policies(t, "[{name: a, retention: {ttl: 1h}, dedupe: {window: 3h}}]")),
			Logger: slog.New(slog.NewTextHandler(&out, nil)), Interval: time.Hour, Batch: 10,
		}
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		<-at.rounds
		cancel()
		if err := <-ended; err != nil || out.Len() > 0 {
			t.Fatalf("Run = %v; the log says %q", err, out.String())
		}
	}
	extent := func(want eventlog.Extent) {
		t.Helper()
		if got, err := log.Extents(ctx, "a"); err != nil || got[0] != want {
			t.Fatalf("extent %+v, %v; want %+v", got, err, want)
		}
	}

	sweep(59 * time.Minute)
	extent(eventlog.Extent{First: 1, Head: events})
	sweep(61 * time.Minute)
	extent(eventlog.Extent{First: events + 1, Head: events, Removed: events})
	if _, err := log.Lookup(ctx, "a", "A"); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("Lookup of an expired event: %v", err)
	}
	sweep(179 * time.Minute)
	for i, o := range publish(events) {
		if !o.Duplicate || o.Seq != uint64(i)+1 {
			t.Errorf("event %d within the window: %+v; want a duplicate of seq %d", i, o, i+1)
		}
	}
	sweep(181 * time.Minute)
	for i, o := range publish(events) {
		if o.Duplicate || o.Seq != events+uint64(i)+1 {
			t.Errorf("event %d behind the window: %+v; want seq %d", i, o, events+i+1)
		}
	}
	extent(eventlog.Extent{First: events + 1, Head: 2 * events, Removed: events})
}
