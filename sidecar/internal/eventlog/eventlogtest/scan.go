package eventlogtest

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// disorder stores 30 events on three partitions and returns them in (ts, id) order. Three at a time
// have the same ts, and the order of ts is not that of seqs.
func disorder(t *testing.T, s *suite, topic string) []*eventlog.Record {
	t.Helper()
	var all []*eventlog.Record
	for i := range 30 {
		n := i * 7 % 30
		e := Event(fmt.Sprintf("e%02d", i), At(start+int64(n/3)))
		if n%2 == 0 {
			e.Key = []string{"even", "ev", "even\x00"}[n/2%3]
		}
		s.stored(t, topic, i%3, e)
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *eventlog.Record) int { return point(a).Compare(point(b)) })
	return all
}

func point(r *eventlog.Record) eventlog.Point { return eventlog.Point{TS: r.TS, ID: r.ID} }

func testScan(t *testing.T, s *suite) {
	topic := s.topic(t, 3)
	all := disorder(t, s, topic)
	even := "even"
	cases := []struct {
		name string
		q    eventlog.ScanQuery
	}{
		{"everything", eventlog.ScanQuery{}},
		{"everything, descending", eventlog.ScanQuery{Descending: true}},
		{"from a ts", eventlog.ScanQuery{MinTS: start + 3}},
		{"to a ts", eventlog.ScanQuery{MaxTS: start + 3}},
		{"between", eventlog.ScanQuery{MinTS: start + 2, MaxTS: start + 4, HasMaxTS: true}},
		{"between, descending", eventlog.ScanQuery{MinTS: start + 2, MaxTS: start + 4, HasMaxTS: true, Descending: true}},
		{"up to ts 0", eventlog.ScanQuery{HasMaxTS: true}},
		{"an empty range", eventlog.ScanQuery{MinTS: start + 4, MaxTS: start + 2, HasMaxTS: true}},
		{"after a point", eventlog.ScanQuery{After: new(point(all[10]))}},
		{"after a point, descending", eventlog.ScanQuery{After: new(point(all[10])), Descending: true}},
		{"after a point that no event has", eventlog.ScanQuery{After: &eventlog.Point{TS: start + 2, ID: "e"}}},
		{"after a point below the range", eventlog.ScanQuery{MinTS: start + 4, After: new(point(all[0]))}},
		{"after a point above the range, descending", eventlog.ScanQuery{
			MaxTS: start + 4, HasMaxTS: true, After: new(point(all[29])), Descending: true}},
		{"after the last", eventlog.ScanQuery{After: new(point(all[29]))}},
		{"a key", eventlog.ScanQuery{Key: &even}},
		{"a key, descending, after a point", eventlog.ScanQuery{Key: &even, Descending: true, After: new(point(all[20]))}},
		{"a key that no event has", eventlog.ScanQuery{Key: new("eve")}},
	}
	for _, c := range cases {
		want := selected(all, c.q)
		for _, size := range []int{1, 4, 1000} {
			t.Run(fmt.Sprintf("%s, %d to a page", c.name, size), func(t *testing.T) {
				got := s.pages(t, topic, c.q, eventlog.Bounds{Events: size})
				if !slices.Equal(ids(got), ids(want)) {
					t.Errorf("got %q\nwant %q", ids(got), ids(want))
				}
				for i := range got {
					sameRecord(t, got[i], placed(want[i], topic, want[i].Partition, want[i].Seq))
				}
			})
		}
	}
	t.Run("a page is bounded in bytes and has at least one event", func(t *testing.T) {
		for bytes, want := range map[int]int{1: 1, 2 * all[0].Size(): 2} {
			got, err := s.log.Scan(t.Context(), topic, eventlog.ScanQuery{}, eventlog.Bounds{Events: 100, Bytes: bytes})
			if err != nil || len(got) < 1 || len(got) > want+1 {
				t.Errorf("%d bytes: %d events, %v; want about %d", bytes, len(got), err, want)
			}
		}
	})
}

// selected is the right result of a scan of the events, which are in order.
func selected(all []*eventlog.Record, q eventlog.ScanQuery) []*eventlog.Record {
	var list []*eventlog.Record
	for _, e := range all {
		in := e.TS >= q.MinTS && e.TS <= q.Upper() && (q.Key == nil || e.Key == *q.Key)
		if q.After != nil {
			c := point(e).Compare(*q.After)
			in = in && (c > 0 && !q.Descending || c < 0 && q.Descending)
		}
		if in {
			list = append(list, e)
		}
	}
	if q.Descending {
		slices.Reverse(list)
	}
	return list
}

// pages scans page by page, each continuing behind the last event of the one before, until one is
// empty.
func (s *suite) pages(t tester, topic string, q eventlog.ScanQuery, b eventlog.Bounds) []*eventlog.Record {
	t.Helper()
	var all []*eventlog.Record
	for {
		page, err := s.log.Scan(t.Context(), topic, q, b)
		must(t, err)
		if len(page) == 0 {
			return all
		}
		if len(page) > b.Events {
			t.Fatalf("a page of %d events; at most %d were asked for", len(page), b.Events)
		}
		all = append(all, page...)
		q.After = new(point(page[len(page)-1]))
	}
}

func testSeek(t *testing.T, s *suite) {
	topic := s.topic(t, 4) // the last partition stays empty
	all := disorder(t, s, topic)
	s.seeks(t, topic, all, 4)
	t.Run("a position that is none of the four is refused", func(t *testing.T) {
		if _, err := s.log.Seek(t.Context(), topic, eventlog.Position{From: "yesterday"}); err == nil {
			t.Error("no error")
		}
	})
}

// seeks checks all four kinds of position against the events of a topic.
func (s *suite) seeks(t *testing.T, topic string, all []*eventlog.Record, partitions int) {
	t.Helper()
	positions := []eventlog.Position{{From: wire.FromLatest}, {From: wire.FromEarliest}}
	for ts := start - 1; ts <= start+11; ts++ {
		positions = append(positions, eventlog.Position{From: wire.FromTS, TS: ts})
	}
	for _, e := range all {
		positions = append(positions, eventlog.Position{From: wire.FromAfterID, After: point(e)})
	}
	for _, p := range positions {
		got, err := s.log.Seek(t.Context(), topic, p)
		if err != nil || len(got) != partitions {
			t.Fatalf("Seek(%+v) = %v, %v", p, got, err)
		}
		for i, seq := range got {
			extent := s.extent(t, topic, i)
			want := extent.Head + 1
			for _, e := range all {
				in := p.From == wire.FromTS && e.TS >= p.TS || p.From == wire.FromAfterID && point(e).Compare(p.After) > 0
				if e.Partition == i && in {
					want = min(want, e.Seq)
				}
			}
			if p.From == wire.FromEarliest {
				// Every seq up to the first event is right.
				if seq > extent.First {
					t.Errorf("Seek(%+v), partition %d: %d; the first event is at %d", p, i, seq, extent.First)
				}
				continue
			}
			if seq != want {
				t.Errorf("Seek(%+v), partition %d: %d; want %d", p, i, seq, want)
			}
		}
	}
}
