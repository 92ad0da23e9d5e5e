package pebblelog

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

// TestOrderIsExact compares scans in both directions, and starts by time, with a sorted list, and looks events up by id, while
// events of times that rise, fall and repeat come, some with timed ids, some are erased or truncated, the log is started again,
// and its segments are reclaimed.
func TestOrderIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := orderModel{t: t, o: Options{Dir: "data", FS: vfs.NewMem(), segmentSize: 2 << 10, Logger: quiet}}
		m.open()
		defer func() { m.l.Close() }()
		_, err := m.l.EnsureTopic(t.Context(), "t", orderPartitions)
		require.NoError(t, err)
		t.Repeat(map[string]func(*rapid.T){
			"append":   m.append,
			"restart":  func(*rapid.T) { require.NoError(m.t, m.l.Close()); m.open() },
			"erase":    m.erase,
			"truncate": m.truncate,
			"reclaim":  func(t *rapid.T) { require.NoError(m.t, m.l.reclaim.run(t.Context())) },
			"scan":     m.scan,
			"seek":     m.seek,
			"look up":  m.lookUp,
		})
	})
}

const orderPartitions = 2

type orderModel struct {
	t      *rapid.T
	o      Options
	l      *Log
	now    int64
	n      int
	events []*eventlog.Record // those that are there
	erased []*eventlog.Record
}

func (m *orderModel) open() {
	var err error
	m.l, err = Open(m.o)
	require.NoError(m.t, err)
}

func (m *orderModel) append(t *rapid.T) {
	var batch []*eventlog.Record
	for range rapid.IntRange(1, 100).Draw(t, "events") {
		m.n++
		r := &eventlog.Record{AcceptedAt: m.now}
		m.now += rapid.Int64Range(0, 2).Draw(t, "later")
		r.ID, r.Payload = fmt.Sprintf("%x", m.n*7919%65536), []byte("1")
		r.TS = m.now + rapid.SampledFrom([]int64{0, 0, 0, 0, 0, -1, -50, 2 * maxAhead}).Draw(t, "off")
		if rapid.Bool().Draw(t, "timed") {
			r.ID, r.FreshID = eventlog.NewTimedID(r.TS), true
		}
		batch = append(batch, r)
	}
	p := rapid.IntRange(0, orderPartitions-1).Draw(t, "partition")
	for i, out := range m.l.Append(t.Context(), "t", p, batch) {
		require.NoError(t, out.Err)
		m.events = append(m.events, batch[i])
	}
}

func (m *orderModel) erase(t *rapid.T) {
	for p := range orderPartitions {
		var seqs []uint64
		m.events = slices.DeleteFunc(m.events, func(r *eventlog.Record) bool {
			gone := r.Partition == p && rapid.IntRange(0, 3).Draw(t, "gone") == 0
			if gone {
				seqs = append(seqs, r.Seq)
				m.erased = append(m.erased, r)
			}
			return gone
		})
		_, err := m.l.Erase(t.Context(), "t", p, seqs, eventlog.Retention{}, m.now)
		require.NoError(t, err)
	}
}

func (m *orderModel) truncate(t *rapid.T) {
	p := rapid.IntRange(0, orderPartitions-1).Draw(t, "partition")
	extents, err := m.l.Extents(t.Context(), "t")
	require.NoError(t, err)
	upTo := rapid.Uint64Range(0, extents[p].Head).Draw(t, "up to")
	require.NoError(t, m.l.Truncate(t.Context(), "t", p, upTo))
	m.events = slices.DeleteFunc(m.events, func(r *eventlog.Record) bool { return r.Partition == p && r.Seq <= upTo })
}

// point draws a place near an event, or a far one.
func (m *orderModel) point(t *rapid.T) eventlog.Point {
	p := eventlog.Point{TS: rapid.Int64Range(-60, m.now+10).Draw(t, "ts")}
	if len(m.events) > 0 && rapid.Bool().Draw(t, "an event's") {
		r := rapid.SampledFrom(m.events).Draw(t, "event")
		p = eventlog.Point{TS: r.TS, ID: r.ID}
	}
	return p
}

func (m *orderModel) scan(t *rapid.T) {
	q := eventlog.ScanQuery{Descending: rapid.Bool().Draw(t, "descending")}
	if rapid.Bool().Draw(t, "from") {
		q.MinTS = m.point(t).TS
	}
	if rapid.Bool().Draw(t, "to") {
		q.MaxTS, q.HasMaxTS = m.point(t).TS, true
	}
	if rapid.Bool().Draw(t, "after") {
		p := m.point(t)
		q.After = &p
	}
	var want []string
	for _, r := range m.sorted() {
		at := eventlog.Point{TS: r.TS, ID: r.ID}
		after := q.After == nil || at.Compare(*q.After) > 0 && !q.Descending || at.Compare(*q.After) < 0 && q.Descending
		if r.TS >= q.MinTS && r.TS <= q.Upper() && after {
			want = append(want, r.ID)
		}
	}
	if q.Descending {
		slices.Reverse(want)
	}
	var got []string
	for page, err := range eventlog.Pages(t.Context(), m.l, "t", q, eventlog.Bounds{Events: rapid.IntRange(1, 50).Draw(t, "page")}) {
		require.NoError(t, err)
		for _, r := range page {
			got = append(got, r.ID)
		}
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%+v: got %d events %q; want %d %q", q, len(got), got, len(want), want)
	}
}

func (m *orderModel) sorted() []*eventlog.Record {
	events := slices.Clone(m.events)
	slices.SortFunc(events, func(a, b *eventlog.Record) int {
		return eventlog.Point{TS: a.TS, ID: a.ID}.Compare(eventlog.Point{TS: b.TS, ID: b.ID})
	})
	return events
}

// lookUp finds an event by its id, and not an erased one. When they come again, it is a duplicate, and the other is refused.
func (m *orderModel) lookUp(t *rapid.T) {
	for i, events := range [][]*eventlog.Record{m.events, m.erased} {
		if len(events) == 0 {
			continue
		}
		r := rapid.SampledFrom(events).Draw(t, "event")
		again := *r
		again.FreshID = false
		found, err := m.l.Lookup(t.Context(), "t", r.ID)
		if there := err == nil && found.Seq == r.Seq && found.Partition == r.Partition; there != (i == 0) {
			t.Fatalf("%s is found: %v, %v; it is erased: %v", r.ID, found, err, i == 1)
		}
		out := m.l.Append(t.Context(), "t", rapid.IntRange(0, orderPartitions-1).Draw(t, "partition"), []*eventlog.Record{&again})[0]
		var refused *eventlog.ConflictError
		duplicate := out.Duplicate && out.Seq == r.Seq && out.Partition == r.Partition
		if i == 0 && !duplicate || i == 1 && !(errors.As(out.Err, &refused) && refused.Seq == r.Seq) {
			t.Fatalf("%s of partition %d, seq %d, again: %+v", r.ID, r.Partition, r.Seq, out)
		}
	}
	id := eventlog.NewTimedID(rapid.Int64Range(0, m.now+10).Draw(t, "ts"))
	if _, err := m.l.Lookup(t.Context(), "t", id); !errors.Is(err, eventlog.ErrNotFound) {
		t.Fatalf("%s, which there is not: %v", id, err)
	}
}

func (m *orderModel) seek(t *rapid.T) {
	at := m.point(t)
	got, err := m.l.Seek(t.Context(), "t", eventlog.Position{From: wire.FromAfterID, After: at})
	require.NoError(t, err)
	extents, err := m.l.Extents(t.Context(), "t")
	require.NoError(t, err)
	for p := range orderPartitions {
		want := extents[p].Head + 1
		for _, r := range m.events {
			if r.Partition == p && (eventlog.Point{TS: r.TS, ID: r.ID}).Compare(at) > 0 {
				want = min(want, r.Seq)
			}
		}
		if got[p] != want {
			t.Fatalf("after %+v partition %d starts at %d; want %d", at, p, got[p], want)
		}
	}
}
