package eventlogtest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// model is one topic by the promises, made of lists and a map.
type model struct {
	topic      string
	partitions []modelPartition
	ids        map[string]modelID
	now        int64 // when events are accepted; rises
}

type modelPartition struct {
	events []*eventlog.Record // ascending by seq
	head   uint64
}

// isHead reports whether a seq may be the partition's head. If all events are removed, the head may
// be a higher seq that was given out and has held no event.
func (p *modelPartition) isHead(seq uint64) bool {
	return seq == p.head || len(p.events) == 0 && seq > p.head
}

// modelID is what a topic remembers of an id.
type modelID struct {
	first   *eventlog.Record
	removed bool
}

func newModel(topic string, partitions int) *model {
	return &model{topic: topic, partitions: make([]modelPartition, partitions), ids: map[string]modelID{}, now: start}
}

// all is the topic in (ts, id) order.
func (m *model) all() []*eventlog.Record {
	var all []*eventlog.Record
	for _, p := range m.partitions {
		all = append(all, p.events...)
	}
	slices.SortFunc(all, func(a, b *eventlog.Record) int { return point(a).Compare(point(b)) })
	return all
}

// appended compares one event's outcome with the model, and adds the event to it.
func (m *model) appended(t tester, partition int, r *eventlog.Record, got eventlog.Outcome) {
	t.Helper()
	if was, known := m.ids[r.ID]; known {
		want := eventlog.Outcome{Partition: was.first.Partition, Seq: was.first.Seq, TS: was.first.TS, Duplicate: true}
		if !codec.SameContent(&was.first.Event, &r.Event) {
			conflictAt(t, got, r.ID, was.first.Seq)
		} else if got != want {
			t.Fatalf("append of known id %q: %+v; want %+v", r.ID, got, want)
		}
		return
	}
	p := &m.partitions[partition]
	if got.Err != nil || got.Duplicate || got.Partition != partition || got.TS != r.TS || got.Seq <= p.head {
		t.Fatalf("append of new id %q to partition %d at head %d: %+v", r.ID, partition, p.head, got)
	}
	p.head = got.Seq
	p.events = append(p.events, placed(r, m.topic, partition, got.Seq))
	m.ids[r.ID] = modelID{first: p.events[len(p.events)-1]}
}

// sweep removes expired events and ids and returns the number of events.
func (m *model) sweep(keep eventlog.Retention) (removed int) {
	for i := range m.partitions {
		p := &m.partitions[i]
		for len(p.events) > 0 && keep.Over(i, p.events[0].Seq, p.events[0].AcceptedAt, m.now) {
			m.ids[p.events[0].ID] = modelID{first: p.events[0], removed: true}
			p.events = p.events[1:]
			removed++
		}
	}
	for id, known := range m.ids {
		if known.removed && keep.DedupeWindowMS > 0 && known.first.AcceptedAt <= m.now-keep.DedupeWindowMS {
			delete(m.ids, id)
		}
	}
	return removed
}

// testModel makes the same random calls on the log and the model, and compares the answers.
func testModel(t *testing.T, s *suite) {
	rapid.Check(t, func(r *rapid.T) {
		const partitions = 3
		m := newModel(s.topic(r, partitions), partitions)
		r.Repeat(map[string]func(*rapid.T){
			"append": func(r *rapid.T) { s.randomAppend(r, m) },
			"read":   func(r *rapid.T) { s.randomRead(r, m) },
			"scan":   func(r *rapid.T) { s.randomScan(r, m) },
			"find":   func(r *rapid.T) { s.randomFind(r, m) },
			"latest": func(r *rapid.T) { s.randomLatest(r, m) },
			"seek":   func(r *rapid.T) { s.randomSeek(r, m) },
			"sweep":  func(r *rapid.T) { s.randomSweep(r, m) },
			"reopen": func(r *rapid.T) {
				if rapid.IntRange(0, 7).Draw(r, "reopen, if 0") == 0 {
					s.reopen(t)
				}
			},
		})
		for p := range partitions {
			s.wantPage(r, m, p, 1, everything)
		}
	})
}

// drawRecord makes events of a few ids and contents, so that they collide.
func drawRecord(r *rapid.T, now int64) *eventlog.Record {
	return Event(fmt.Sprintf("id-%d", rapid.IntRange(0, 12).Draw(r, "id")),
		At(start+rapid.Int64Range(0, 3).Draw(r, "ts")), Accepted(now),
		Keyed(rapid.SampledFrom([]string{"", "", "k1", "k2"}).Draw(r, "key")),
		Payload(rapid.SampledFrom([]string{"1", "1.0", "1", "2"}).Draw(r, "payload")))
}

func (s *suite) randomAppend(r *rapid.T, m *model) {
	m.now += rapid.Int64Range(0, 3).Draw(r, "ms later")
	partition := rapid.IntRange(0, len(m.partitions)-1).Draw(r, "partition")
	batch := make([]*eventlog.Record, rapid.IntRange(1, 5).Draw(r, "events"))
	for i := range batch {
		batch[i] = drawRecord(r, m.now)
	}
	for i, o := range s.append(r, m.topic, partition, batch...) {
		m.appended(r, partition, batch[i], o)
	}
}

func drawBounds(r *rapid.T) eventlog.Bounds {
	return eventlog.Bounds{Events: rapid.SampledFrom([]int{1, 2, 5, 100}).Draw(r, "page")}
}

func (s *suite) randomRead(r *rapid.T, m *model) {
	p := rapid.IntRange(0, len(m.partitions)-1).Draw(r, "partition")
	from := rapid.Uint64Range(0, m.partitions[p].head+2).Draw(r, "from")
	s.wantPage(r, m, p, from, drawBounds(r))
}

func (s *suite) wantPage(t tester, m *model, p int, from uint64, b eventlog.Bounds) {
	t.Helper()
	got, err := s.log.Read(t.Context(), m.topic, p, from, b)
	must(t, err)
	var want []*eventlog.Record
	for _, e := range m.partitions[p].events {
		if e.Seq >= from && len(want) < b.Events {
			want = append(want, e)
		}
	}
	if !slices.Equal(seqs(got), seqs(want)) {
		t.Fatalf("Read of partition %d from %d: seqs %v; want %v", p, from, seqs(got), seqs(want))
	}
	for i := range got {
		sameRecord(t, got[i], want[i])
	}
	if e := s.extent(t, m.topic, p); !m.partitions[p].isHead(e.Head) || len(want) > 0 && e.First > want[0].Seq {
		t.Fatalf("extent %+v; the head is %d", e, m.partitions[p].head)
	}
}

func (s *suite) randomScan(r *rapid.T, m *model) {
	q := eventlog.ScanQuery{
		MinTS:      start + rapid.Int64Range(-1, 3).Draw(r, "min"),
		MaxTS:      start + rapid.Int64Range(0, 4).Draw(r, "max"),
		Descending: rapid.Bool().Draw(r, "descending"),
	}
	if rapid.Bool().Draw(r, "by key") {
		q.Key = new(rapid.SampledFrom([]string{"k1", "k2", "k"}).Draw(r, "key"))
	}
	if rapid.Bool().Draw(r, "after") {
		q.After = new(point(drawRecord(r, 0)))
	}
	got, want := s.pages(r, m.topic, q, drawBounds(r)), selected(m.all(), q)
	if !slices.Equal(ids(got), ids(want)) {
		r.Fatalf("Scan(%+v): %q; want %q", q, ids(got), ids(want))
	}
}

func (s *suite) randomFind(r *rapid.T, m *model) {
	id := drawRecord(r, 0).ID
	got, err := s.log.Lookup(r.Context(), m.topic, id)
	if known, ok := m.ids[id]; ok && !known.removed {
		must(r, err)
		sameRecord(r, got, known.first)
	} else if !errors.Is(err, eventlog.ErrNotFound) {
		r.Fatalf("Lookup(%q) = %v, %v; want ErrNotFound", id, got, err)
	}

	key := rapid.SampledFrom([]string{"k1", "k2", "k"}).Draw(r, "key")
	keyed := selected(m.all(), eventlog.ScanQuery{Key: &key})
	got, err = LatestByKey(r.Context(), s.log, m.topic, key)
	if len(keyed) == 0 {
		if !errors.Is(err, eventlog.ErrNotFound) {
			r.Fatalf("LatestByKey(%q) = %v, %v; want ErrNotFound", key, got, err)
		}
		return
	}
	// A key of the model may be in several partitions, so seqs may be equal.
	want := slices.MaxFunc(keyed, func(a, b *eventlog.Record) int { return cmp.Compare(a.Seq, b.Seq) })
	if err != nil || got.Key != key || got.Seq != want.Seq {
		r.Fatalf("LatestByKey(%q) = %+v, %v; want seq %d", key, got, err, want.Seq)
	}
}

func (s *suite) randomSeek(r *rapid.T, m *model) {
	p := eventlog.Position{From: wire.FromTS, TS: start + rapid.Int64Range(-1, 4).Draw(r, "ts")}
	q := eventlog.ScanQuery{MinTS: p.TS}
	if rapid.Bool().Draw(r, "after an id") {
		p = eventlog.Position{From: wire.FromAfterID, After: point(drawRecord(r, 0))}
		q = eventlog.ScanQuery{After: &p.After}
	}
	want := make([]uint64, len(m.partitions))
	for i := range want {
		want[i] = m.partitions[i].head + 1
	}
	for _, e := range selected(m.all(), q) {
		want[e.Partition] = min(want[e.Partition], e.Seq)
	}
	got, err := s.log.Seek(r.Context(), m.topic, p)
	for i, seq := range got {
		if want[i] == m.partitions[i].head+1 && m.partitions[i].isHead(seq-1) {
			want[i] = seq
		}
	}
	if err != nil || !slices.Equal(got, want) {
		r.Fatalf("Seek(%+v) = %v, %v; want %v", p, got, err, want)
	}
}

func (s *suite) randomSweep(r *rapid.T, m *model) {
	keep := eventlog.Retention{
		TTLMS:          rapid.Int64Range(0, 8).Draw(r, "ttl"),
		DedupeWindowMS: rapid.Int64Range(0, 16).Draw(r, "window"),
	}
	if rapid.Bool().Draw(r, "also by seq") {
		for _, p := range m.partitions {
			keep.UpTo = append(keep.UpTo, rapid.Uint64Range(0, p.head+1).Draw(r, "up to"))
		}
	}
	limit := rapid.IntRange(1, 5).Draw(r, "limit")
	got, want := s.sweep(r, m.topic, keep, m.now, limit), m.sweep(keep)
	if got != want {
		r.Fatalf("Sweep(%+v) removed %d events; want %d", keep, got, want)
	}
}
