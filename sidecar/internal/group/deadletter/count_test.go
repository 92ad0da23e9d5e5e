package deadletter

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/test/require"
)

// scans counts the scans of many events of a log.
type scans struct {
	Log
	n int
}

func (s *scans) Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	if b.Events > 1 {
		s.n++
	}
	return s.Log.Scan(ctx, topic, q, b)
}

func TestCount(t *testing.T) {
	log, err := pebblelog.Open(pebblelog.Options{FS: vfs.NewMem(), Dir: "data", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	defer log.Close()
	die := func(topic string, from, to int) {
		if _, err := log.EnsureTopic(t.Context(), topic, 1); err != nil {
			t.Fatal(err)
		}
		var recs []*eventlog.Record
		for i := from; i < to; i++ {
			rec := &eventlog.Record{Event: wire.Event{ID: fmt.Sprint("e", i), TS: int64(1000 + i), Payload: []byte("1")}}
			rec.Headers = rec.Headers.With(wire.HeaderDeadGroup, fmt.Sprint("g", i%2))
			recs = append(recs, rec)
		}
		log.Append(t.Context(), topic, 0, recs)
	}
	die("a.dlq", 0, 2500)
	die("b.dlq", 0, 0)
	die("c", 0, 3)
	var counter Counter
	reader, now := &scans{Log: log}, time.Unix(1000, 0)
	check := func(want ...string) {
		t.Helper()
		stats, _, err := counter.Count(t.Context(), reader, now)
		require.NoError(t, err)
		slices.SortFunc(stats, func(a, b telemetry.DeadStat) int {
			return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group))
		})
		var got []string
		for _, s := range stats {
			oldest, newest := int64(0), int64(0)
			if s.Count > 0 {
				oldest, newest = s.Oldest.UnixMilli(), s.Newest.UnixMilli()
			}
			got = append(got, fmt.Sprint(s.Topic, "/", s.Group, " ", s.Count, " ", oldest, " ", newest))
		}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	check("a/g0 1250 1000 3498", "a/g1 1250 1001 3499", "b/ 0 0 0")
	before := reader.n
	check("a/g0 1250 1000 3498", "a/g1 1250 1001 3499", "b/ 0 0 0")
	if reader.n != before {
		t.Error("topics that have not changed are read again at once")
	}
	die("b.dlq", 1, 2)
	check("a/g0 1250 1000 3498", "a/g1 1250 1001 3499", "b/g1 1 1001 1001")
	_, err = log.Erase(t.Context(), "b.dlq", 0, []uint64{1}, eventlog.Retention{}, 0)
	require.NoError(t, err)
	check("a/g0 1250 1000 3498", "a/g1 1250 1001 3499", "b/ 0 0 0")
	die("b.dlq", 3, 4)
	check("a/g0 1250 1000 3498", "a/g1 1250 1001 3499", "b/g1 1 1003 1003")
	before, now = reader.n, now.Add(recountEvery)
	check("a/g0 1250 1000 3498", "a/g1 1250 1001 3499", "b/g1 1 1003 1003")
	if reader.n == before {
		t.Error("a count is never checked again")
	}

	// Letters in a topic that was named for them are counted with those of the topic's own, other events there are not.
	must := func(err error) { t.Helper(); require.NoError(t, err) }
	die("dead", 0, 5)
	must(log.AddDeadLetterTopic(t.Context(), "c", "dead"))
	src := &eventlog.Record{Event: wire.Event{ID: "e", Topic: "c", Payload: []byte("1")}}
	for i, group := range []string{"g", "g", "h"} {
		src.Seq = uint64(i)
		letter := Make(src, eventlog.Death{Group: group}, 0, time.UnixMilli(int64(9000+i)))
		if i == 0 {
			die("c.dlq", 0, 0)
		}
		log.Append(t.Context(), []string{"c.dlq", "dead", "dead"}[i], 0, []*eventlog.Record{letter})
	}
	check("a/g0 1250 1000 3498", "a/g1 1250 1001 3499", "b/g1 1 1003 1003", "c/g 2 9000 9001", "c/h 1 9002 9002")
}
