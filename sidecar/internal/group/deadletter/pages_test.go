package deadletter

import (
	"cmp"
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// sorted is topics with their events by (ts, id).
type sorted struct {
	eventlog.Reader
	topics map[string][]*eventlog.Record
}

func (s sorted) Scan(_ context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	all, is := s.topics[topic]
	if !is {
		return nil, eventlog.ErrNotFound
	}
	all = slices.Clone(all)
	if q.Descending {
		slices.Reverse(all)
	}
	if q.After != nil {
		all = slices.DeleteFunc(all, func(rec *eventlog.Record) bool {
			n := pointOf(rec).Compare(*q.After)
			return n == 0 || (n < 0) != q.Descending
		})
	}
	return all[:min(len(all), b.Events)], nil
}

// Pages of several topics have each event once, in one order, also behind a point.
func TestPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := sorted{topics: map[string][]*eventlog.Record{}}
		var want []*eventlog.Record
		order := func(x, y *eventlog.Record) int { return pointOf(x).Compare(*pointOf(y)) }
		for _, topic := range []string{"a", "b", "c"} {
			ids := rapid.SliceOfNDistinct(rapid.StringMatching("[a-f]{3}"), 0, 12, rapid.ID[string]).Draw(t, topic)
			for _, id := range ids {
				ts := rapid.Int64Range(0, 3).Draw(t, "ts")
				rec := &eventlog.Record{Event: wire.Event{ID: topic + id, TS: ts, Topic: topic}}
				s.topics[topic], want = append(s.topics[topic], rec), append(want, rec)
			}
			slices.SortFunc(s.topics[topic], order)
		}
		slices.SortFunc(want, order)
		q := eventlog.ScanQuery{Descending: rapid.Bool().Draw(t, "descending")}
		if q.Descending {
			slices.Reverse(want)
		}
		if n := rapid.IntRange(0, len(want)).Draw(t, "after"); n > 0 {
			q.After, want = pointOf(want[n-1]), want[n:]
		}
		var got []*eventlog.Record
		bounds := eventlog.Bounds{Events: rapid.IntRange(1, 9).Draw(t, "page")}
		for page, err := range Pages(t.Context(), s, []string{"a", "none", "b", "c"}, q, bounds) {
			require.NoError(t, err)
			if len(page) == 0 || len(page) > max(bounds.Events, 4) {
				t.Fatalf("a page of %d", len(page))
			}
			got = append(got, page...)
		}
		if slices.CompareFunc(got, want, func(x, y *eventlog.Record) int { return cmp.Compare(x.ID, y.ID) }) != 0 {
			t.Fatalf("%d events, want %d", len(got), len(want))
		}
	})
}
