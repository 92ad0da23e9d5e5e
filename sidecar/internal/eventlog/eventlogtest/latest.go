package eventlogtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// LatestByKey returns the event of the key with the highest seq; ErrNotFound if there is none.
func LatestByKey(ctx context.Context, log eventlog.Reader, topic, key string) (*eventlog.Record, error) {
	page, err := log.Latest(ctx, topic, eventlog.OneKey(key), eventlog.Bounds{Events: 1})
	switch {
	case err != nil:
		return nil, err
	case len(page) == 0:
		return nil, fmt.Errorf("key %q: %w", key, eventlog.ErrNotFound)
	case page[0].Key != key:
		return nil, fmt.Errorf("the latest event of key %q is one of key %q", key, page[0].Key)
	}
	return page[0], nil
}

// latestOf reads the latest events page by page, and calls between after each page.
func (s *suite) latestOf(t tester, topic string, q eventlog.LatestQuery, b eventlog.Bounds, between func()) []*eventlog.Record {
	t.Helper()
	var all []*eventlog.Record
	for {
		page, err := s.log.Latest(t.Context(), topic, q, b)
		must(t, err)
		if len(page) == 0 {
			return all
		}
		if len(page) > b.Events {
			t.Fatalf("Latest(%+v): a page of %d events; at most %d are asked for", q, len(page), b.Events)
		}
		all, q.Below = append(all, page...), page[len(page)-1].Key
		between()
	}
}

// wantLatest fails the test unless the latest events are those with these ids.
func (s *suite) wantLatest(t tester, topic string, q eventlog.LatestQuery, page int, want ...string) {
	t.Helper()
	if got := ids(s.latestOf(t, topic, q, eventlog.Bounds{Events: page}, func() {})); !slices.Equal(got, want) {
		t.Errorf("Latest(%+v), %d to a page: %q; want %q", q, page, got, want)
	}
}

func testLatest(t *testing.T, s *suite) {
	t.Run("of all keys, those with a prefix, and up to a place", func(t *testing.T) {
		topic := s.topic(t, 2)
		s.keyed(t, topic, "a b - ab a c! b a")
		s.stored(t, topic, 1, Event("x", Keyed("\x00")), Event("y", Keyed("é\U0010FFFF")), Event("z", Keyed("é")))
		for _, c := range []struct {
			q    eventlog.LatestQuery
			want []string
		}{
			{eventlog.LatestQuery{}, []string{"y", "z", "e6", "e7", "e4", "e8", "x"}},
			{eventlog.KeyPrefix("a"), []string{"e4", "e8"}},
			{eventlog.KeyPrefix("é"), []string{"y", "z"}},
			{eventlog.KeyPrefix("é\U0010FFFF"), []string{"y"}},
			{eventlog.KeyPrefix("z"), nil},
			{eventlog.OneKey("b"), []string{"e7"}},
			{eventlog.OneKey("\x00"), []string{"x"}},
			{eventlog.LatestQuery{UpTo: []uint64{6, 2}}, []string{"y", "e6", "e2", "e4", "e5", "x"}},
			{eventlog.LatestQuery{UpTo: []uint64{0, 0}}, nil},
		} {
			for _, size := range []int{1, 2, 100} {
				s.wantLatest(t, topic, c.q, size, c.want...)
			}
		}
		if page, err := s.log.Latest(t.Context(), topic, eventlog.LatestQuery{}, eventlog.Bounds{Events: 9, Bytes: 1}); err != nil ||
			len(page) != 1 {
			t.Errorf("a page of one byte has %d events, %v; want 1", len(page), err)
		}
		notFound(t, "Latest of a topic that is not there", errOf(s.log.Latest(t.Context(), "no-such-topic", eventlog.LatestQuery{}, everything)))
	})

	t.Run("of keys with many events", func(t *testing.T) {
		topic := s.topic(t, 1)
		for i := range 3 {
			s.stored(t, topic, 0, Events(fmt.Sprintf("k%d", i), 150, Keyed(fmt.Sprintf("k%d", i)))...)
		}
		s.wantLatest(t, topic, eventlog.LatestQuery{}, 100, "k2-149", "k1-149", "k0-149")
		s.wantLatest(t, topic, eventlog.LatestQuery{UpTo: []uint64{170}}, 100, "k1-019", "k0-149")
	})

	t.Run("and what follows them are the fold of the topic", s.latestAndLive)
}

// table has the id of the latest event of each key.
type table map[string]string

func (t table) apply(e *eventlog.Record) {
	switch {
	case e.Key == "":
	case e.Tombstone():
		delete(t, e.Key)
	default:
		t[e.Key] = e.ID
	}
}

// latestAndLive: events are appended and compacted while the latest events are read page by page,
// up to earlier heads. These and the events above the heads make the same table as the whole topic.
func (s *suite) latestAndLive(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		const partitions = 2
		topic, n := s.topic(r, partitions), 0
		whole := table{}
		appendSome := func() {
			// A key is in one partition.
			p := rapid.IntRange(0, partitions-1).Draw(r, "partition")
			batch := make([]*eventlog.Record, rapid.IntRange(1, 6).Draw(r, "events"))
			for i := range batch {
				n++
				batch[i] = Event(fmt.Sprintf("e%d", n))
				if key := rapid.SampledFrom([]string{"", "a", "ab", "b"}).Draw(r, "key"); key != "" {
					batch[i].Key = fmt.Sprintf("%s%d", key, p)
				}
				if rapid.IntRange(0, 3).Draw(r, "tombstone, if 0") == 0 {
					batch[i].Payload = []byte("null")
				}
			}
			s.stored(r, topic, p, batch...)
			for _, e := range batch {
				whole.apply(e)
			}
		}
		change := func() {
			for range rapid.IntRange(0, 2).Draw(r, "changes") {
				if rapid.Bool().Draw(r, "compact") {
					s.compact(r, topic, rapid.IntRange(0, partitions-1).Draw(r, "partition"), keepAll)
				} else {
					appendSome()
				}
			}
		}
		appendSome()
		change()
		extents, err := s.log.Extents(r.Context(), topic)
		must(r, err)
		q := eventlog.LatestQuery{}
		for _, e := range extents {
			q.UpTo = append(q.UpTo, e.Head)
		}
		change()
		got := table{}
		for _, e := range s.latestOf(r, topic, q, eventlog.Bounds{Events: rapid.IntRange(1, 3).Draw(r, "page")}, change) {
			if _, twice := got[e.Key]; twice || e.Seq > q.UpTo[e.Partition] {
				r.Fatalf("%+v is read; twice: %v; up to %v", e, twice, q.UpTo)
			}
			got.apply(e)
		}
		change()
		for p := range partitions {
			live, err := s.log.Read(r.Context(), topic, p, q.UpTo[p]+1, everything)
			must(r, err)
			for _, e := range live {
				got.apply(e)
			}
		}
		if !maps.Equal(got, whole) {
			r.Fatalf("the table is %v; the topic says %v", got, whole)
		}
	})
}

// randomLatest asks for the latest events of some keys of the model.
func (s *suite) randomLatest(r *rapid.T, m *model) {
	q := rapid.SampledFrom([]eventlog.LatestQuery{{}, eventlog.KeyPrefix("k"), eventlog.KeyPrefix("k2"), eventlog.OneKey("k1"),
		{Below: "k2"}}).Draw(r, "query")
	if rapid.Bool().Draw(r, "up to a place") {
		for _, p := range m.partitions {
			q.UpTo = append(q.UpTo, rapid.Uint64Range(0, p.head+1).Draw(r, "up to"))
		}
	}
	want := map[string]uint64{}
	for _, e := range m.all() {
		within := e.Key >= q.From && (q.Below == "" || e.Key < q.Below)
		if e.Key != "" && within && (q.UpTo == nil || e.Seq <= q.UpTo[e.Partition]) {
			want[e.Key] = max(want[e.Key], e.Seq) // the model's keys are in several partitions
		}
	}
	got := s.latestOf(r, m.topic, q, drawBounds(r), func() {})
	if !slices.IsSortedFunc(got, func(a, b *eventlog.Record) int { return cmp.Compare(b.Key, a.Key) }) {
		r.Fatalf("Latest(%+v): not in descending order of keys: %v", q, ids(got))
	}
	found := map[string]uint64{}
	for _, e := range got {
		found[e.Key] = e.Seq
	}
	if !maps.Equal(found, want) || len(found) != len(got) {
		r.Fatalf("Latest(%+v): %v of %d events; want %v", q, found, len(got), want)
	}
}
