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
// events of times that rise, fall and repeat come, some with timed ids, some are erased, compacted or truncated, the log is
// started again, with its index or without, and its segments are reclaimed.
func TestOrderIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := orderModel{t: t, o: Options{Dir: "data", FS: vfs.NewMem(), segmentSize: 2 << 10, Logger: quiet}}
		m.whole = rapid.Bool().Draw(t, "whole")
		m.open()
		defer func() { m.l.Close() }()
		_, err := m.l.EnsureTopic(t.Context(), "t", orderPartitions)
		require.NoError(t, err)
		t.Repeat(map[string]func(*rapid.T){
			"append":   m.append,
			"restart":  m.restart,
			"erase":    m.erase,
			"compact":  m.compact,
			"truncate": m.truncate,
			"reclaim":  m.reclaim,
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
	whole  bool // no segment is dropped, so that the index can be made anew
}

func (m *orderModel) open() {
	var err error
	m.l, err = Open(m.o)
	require.NoError(m.t, err)
	if m.whole {
		m.l.reclaim.end()
	}
}

// restart starts the log again, sometimes without its index.
func (m *orderModel) restart(t *rapid.T) {
	require.NoError(m.t, m.l.Close())
	if m.whole && rapid.Bool().Draw(t, "without the index") {
		require.NoError(m.t, m.o.FS.RemoveAll(m.o.FS.PathJoin(m.o.Dir, dbFolder)))
	}
	m.open()
}

func (m *orderModel) reclaim(t *rapid.T) {
	if m.whole {
		t.Skip("nothing is dropped")
	}
	require.NoError(t, m.l.reclaim.run(t.Context()))
}

func (m *orderModel) append(t *rapid.T) {
	var batch []*eventlog.Record
	jumps := rapid.Bool().Draw(t, "jumps")
	for range rapid.SampledFrom([]int{1, 10, 100, 500}).Draw(t, "events") {
		m.n++
		r := &eventlog.Record{AcceptedAt: m.now}
		m.now += rapid.Int64Range(0, 2).Draw(t, "later")
		r.ID, r.Payload = fmt.Sprintf("%x", m.n*7919%65536), []byte("1")
		r.TS = m.now + rapid.SampledFrom([]int64{0, 0, 0, 0, 0, -1, -50, 2 * maxAhead}).Draw(t, "off")
		if jumps {
			r.TS = m.now - rapid.Int64Range(0, 1000).Draw(t, "behind")
		}
		r.Key = rapid.SampledFrom([]string{"", "", "a", "b"}).Draw(t, "key")
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

func (m *orderModel) compact(t *rapid.T) {
	p := rapid.IntRange(0, orderPartitions-1).Draw(t, "partition")
	_, n, err := m.l.Compact(t.Context(), "t", p, 1, eventlog.Compaction{Limit: 1 << 20})
	require.NoError(t, err)
	latest := map[string]uint64{}
	for _, r := range m.events {
		if r.Partition == p {
			latest[r.Key] = max(latest[r.Key], r.Seq)
		}
	}
	was := len(m.events)
	m.events = slices.DeleteFunc(m.events, func(r *eventlog.Record) bool {
		return r.Partition == p && r.Key != "" && r.Seq < latest[r.Key]
	})
	if was-len(m.events) != n {
		t.Fatalf("%d events are compacted; want %d", n, was-len(m.events))
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
	position := eventlog.Position{From: wire.FromAfterID, After: at}
	if rapid.Bool().Draw(t, "by ts") {
		position = eventlog.Position{From: wire.FromTS, TS: at.TS}
	}
	got, err := m.l.Seek(t.Context(), "t", position)
	require.NoError(t, err)
	extents, err := m.l.Extents(t.Context(), "t")
	require.NoError(t, err)
	for p := range orderPartitions {
		want := extents[p].Head + 1
		for _, r := range m.events {
			in := r.TS >= at.TS
			if position.From == wire.FromAfterID {
				in = (eventlog.Point{TS: r.TS, ID: r.ID}).Compare(at) > 0
			}
			if in && r.Partition == p {
				want = min(want, r.Seq)
			}
		}
		if got[p] != want {
			t.Fatalf("at %+v partition %d starts at %d; want %d", position, p, got[p], want)
		}
	}
}
