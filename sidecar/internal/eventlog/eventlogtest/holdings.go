package eventlogtest

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// testHoldings: Holdings says what topics hold, after anything that changes it. Events of the test
// are of one size, so that an average size is exact.
func testHoldings(t *testing.T, s *suite) {
	t.Run("of topics that exist, in the order that was asked for", func(t *testing.T) {
		a, b := s.topic(t, 1), s.topic(t, 2)
		list, err := s.log.Holdings(t.Context(), []string{b, "nowhere", a})
		if err != nil || len(list) != 2 || list[0].Topic != b || len(list[0].Extents) != 2 || list[1].Topic != a {
			t.Errorf("%+v, %v", list, err)
		}
		if x := list[1]; x.Extents[0] != (eventlog.Extent{First: 1}) || x.Events != 0 || x.Bytes != 0 || x.FirstTS != 0 || x.LastTS != 0 {
			t.Errorf("an empty topic: %+v", x)
		}
	})
	t.Run("groups of many topics", func(t *testing.T) {
		a, b, none := s.topic(t, 1), s.topic(t, 1), s.topic(t, 1)
		for _, name := range []string{"h", "g"} {
			s.take(t, epoch(a, name, 0, 1, "n"))
		}
		s.take(t, epoch(b, "g", 0, 1, "n"))
		of, err := s.log.GroupsOf(t.Context(), []string{a, none, b, "nowhere"})
		if err != nil || !slices.Equal(of[a], []string{"g", "h"}) || !slices.Equal(of[b], []string{"g"}) || len(of[none])+len(of["nowhere"]) > 0 {
			t.Errorf("%v, %v", of, err)
		}
		if of, err := s.log.GroupsOf(t.Context(), nil); err != nil || len(of) > 0 {
			t.Errorf("of no topics: %v, %v", of, err)
		}
	})
	t.Run("after any change", func(t *testing.T) { rapid.Check(t, s.holdingsFollow) })
}

// holdingsFollow makes random changes, and compares Holdings with the events that are there.
func (s *suite) holdingsFollow(r *rapid.T) {
	const partitions = 2
	topic, made := s.topic(r, partitions), 0
	partition := func(r *rapid.T) int { return rapid.IntRange(0, partitions-1).Draw(r, "partition") }
	r.Repeat(map[string]func(*rapid.T){
		"append": func(r *rapid.T) {
			batch := make([]*eventlog.Record, rapid.IntRange(1, 5).Draw(r, "events"))
			for i := range batch {
				batch[i] = Event(fmt.Sprintf("id-%06d", made), At(start+rapid.Int64Range(0, 9).Draw(r, "ts")), Payload("1"),
					Keyed(rapid.SampledFrom([]string{"k1", "k2", "k3"}).Draw(r, "key")))
				made++
			}
			s.stored(r, topic, partition(r), batch...)
		},
		"erase": func(r *rapid.T) {
			seqs := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 20), 1, 4, rapid.ID).Draw(r, "seqs")
			slices.Sort(seqs)
			must(r, errOf(s.log.Erase(r.Context(), topic, partition(r), seqs, eventlog.Retention{}, start)))
		},
		"compact": func(r *rapid.T) { s.compact(r, topic, partition(r), keepAll) },
		"sweep": func(r *rapid.T) {
			upTo := make([]uint64, partitions)
			upTo[partition(r)] = rapid.Uint64Range(0, 20).Draw(r, "up to")
			s.sweep(r, topic, eventlog.Retention{UpTo: upTo}, start, 1000)
		},
		"delete": func(r *rapid.T) {
			if rapid.IntRange(0, 3).Draw(r, "delete, if 0") == 0 {
				must(r, s.log.DeleteTopic(r.Context(), topic))
				must(r, errOf(s.log.EnsureTopic(r.Context(), topic, partitions)))
			}
		},
		"": func(r *rapid.T) { s.wantHolding(r, topic) },
	})
}

// wantHolding compares Holdings with the events that Scan finds.
func (s *suite) wantHolding(t tester, topic string) {
	t.Helper()
	list, err := s.log.Holdings(t.Context(), []string{topic})
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("Holdings: %+v", list)
	}
	got, want := list[0], eventlog.Holding{Topic: topic}
	all := s.pages(t, topic, eventlog.ScanQuery{}, everything)
	for _, e := range all {
		want.Events++
		want.Bytes += int64(e.Size())
		if x := got.Extents[e.Partition]; e.Seq < x.First || e.Seq > x.Head {
			t.Errorf("seq %d of partition %d is outside %+v", e.Seq, e.Partition, x)
		}
	}
	if len(all) > 0 {
		want.FirstTS, want.LastTS = all[0].TS, all[len(all)-1].TS
	}
	for _, x := range got.Extents {
		if x.First > x.Head+1 || x.Removed >= x.First {
			t.Errorf("extent %+v", x)
		}
	}
	got.Extents = nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("Holdings = %+v; want %+v", got, want)
	}
}
