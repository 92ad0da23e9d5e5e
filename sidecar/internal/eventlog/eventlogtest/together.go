package eventlogtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// appendAll appends batches together. Each has to have an outcome for each event.
func (s *suite) appendAll(t tester, batches ...eventlog.Batch) []eventlog.Batch {
	t.Helper()
	eventlog.AppendAll(t.Context(), s.log, batches)
	for _, b := range batches {
		if len(b.Outcomes) != len(b.Records) {
			t.Fatalf("%d events of topic %q have %d outcomes", len(b.Records), b.Topic, len(b.Outcomes))
		}
	}
	return batches
}

func testTogether(t *testing.T, s *suite) {
	t.Run("batches of many topics and partitions are stored, and those that are refused refuse no others", func(t *testing.T) {
		one, two, gone := s.topic(t, 2), s.topic(t, 1), s.topic(t, 1)
		must(t, s.log.DeleteTopic(t.Context(), gone))
		out := s.appendAll(t,
			eventlog.Batch{Topic: one, Partition: 1, Records: Events("a", 3)},
			eventlog.Batch{Topic: gone, Records: Events("b", 2)},
			eventlog.Batch{Topic: "nowhere", Records: Events("c", 1)},
			eventlog.Batch{Topic: one, Partition: 2, Records: Events("d", 1)},
			eventlog.Batch{Topic: two, Records: Events("e", 1)},
			eventlog.Batch{Topic: two},
			eventlog.Batch{Topic: one, Records: Events("f", 2)},
		)
		for i, refused := range []bool{false, true, true, true, false, false, false} {
			for _, o := range out[i].Outcomes {
				if errors.Is(o.Err, eventlog.ErrNotFound) != refused || o.Err == nil && o.Seq == 0 {
					t.Errorf("batch %d: %+v", i, o)
				}
			}
		}
		s.wantRead(t, one, 1, "a-000", "a-001", "a-002")
		s.wantRead(t, two, 0, "e-000")
		s.wantRead(t, one, 0, "f-000", "f-001")
		s.reopen(t)
		s.wantRead(t, one, 1, "a-000", "a-001", "a-002")
		s.wantRead(t, one, 0, "f-000", "f-001")
	})

	t.Run("an id of two batches is stored once", func(t *testing.T) {
		topic, other := s.topic(t, 3), s.topic(t, 1)
		out := s.appendAll(t,
			eventlog.Batch{Topic: topic, Records: []*eventlog.Record{Event("a"), Event("x")}},
			eventlog.Batch{Topic: topic, Partition: 1, Records: []*eventlog.Record{Event("x"), Event("b")}},
			eventlog.Batch{Topic: topic, Partition: 2, Records: []*eventlog.Record{Event("x", Payload(`2`)), Event("c")}},
			eventlog.Batch{Topic: other, Records: []*eventlog.Record{Event("x")}},
		)
		first, again := out[0].Outcomes[1], out[1].Outcomes[0]
		want := first
		if want.Duplicate = true; first.Err != nil || first.Duplicate || again != want {
			t.Errorf("stored: %+v, again: %+v", first, again)
		}
		conflictAt(t, out[2].Outcomes[0], "x", first.Seq)
		if o := out[3].Outcomes[0]; o.Err != nil || o.Duplicate {
			t.Errorf("in another topic: %+v", o)
		}
		s.wantRead(t, topic, 0, "a", "x")
		s.wantRead(t, topic, 1, "b")
		s.wantRead(t, topic, 2, "c")
	})

	t.Run("batches of one partition are stored", func(t *testing.T) {
		topic := s.topic(t, 1)
		s.appendAll(t, eventlog.Batch{Topic: topic, Records: Events("a", 2)}, eventlog.Batch{Topic: topic, Records: Events("b", 1)})
		got := ids(s.readAll(t, topic, 0))
		if slices.Sort(got); !slices.Equal(got, []string{"a-000", "a-001", "b-000"}) {
			t.Errorf("the partition has %q", got)
		}
	})

	t.Run("events of two partitions are scheduled, and released by one call", func(t *testing.T) {
		topic := s.topic(t, 2)
		s.waiting(t, topic) // counted before
		at := start + 10
		s.appendAll(t,
			eventlog.Batch{Topic: topic, Records: append(Events("a", 2, Due(at)), Event("now"))},
			eventlog.Batch{Topic: topic, Partition: 1, Records: Events("b", 2, Due(at))},
		)
		s.waiting(t, topic, "a-000", "a-001", "b-000", "b-001")
		for i, o := range s.log.Release(t.Context(), topic, s.due(t, topic, at), at) {
			if o.Err != nil {
				t.Errorf("release of event %d: %v", i, o.Err)
			}
		}
		s.waiting(t, topic)
		if n := len(s.readAll(t, topic, 0)) + len(s.readAll(t, topic, 1)); n != 5 {
			t.Errorf("the topic holds %d events; want 5", n)
		}
	})

	t.Run("of racing batches each id is stored once", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) { raceTogether(rt, s) })
	})
}

// raceTogether has appends of many batches race for a few ids and partitions of two topics.
func raceTogether(t *rapid.T, s *suite) {
	const partitions = 3
	topics := []string{s.topic(t, partitions), s.topic(t, partitions)}
	var calls [][]eventlog.Batch
	for range rapid.IntRange(2, 4).Draw(t, "calls") {
		var batches []eventlog.Batch
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			b := eventlog.Batch{Topic: rapid.SampledFrom(topics).Draw(t, "topic"), Partition: rapid.IntRange(0, partitions-1).Draw(t, "partition")}
			for _, n := range rapid.SliceOfN(rapid.IntRange(0, 5), 1, 4).Draw(t, "ids") {
				b.Records = append(b.Records, Event(fmt.Sprint("id-", n)))
			}
			batches = append(batches, b)
		}
		calls = append(calls, batches)
	}
	var racing sync.WaitGroup
	for _, batches := range calls {
		racing.Go(func() { s.appendAll(t, batches...) })
	}
	racing.Wait()
	type id struct{ topic, id string }
	at, stored := map[id]eventlog.Outcome{}, map[id]int{}
	for _, b := range slices.Concat(calls...) {
		for i, o := range b.Outcomes {
			x := id{b.Topic, b.Records[i].ID}
			if !o.Duplicate {
				stored[x]++
			}
			o.Duplicate = false
			if was, seen := at[x]; o.Err != nil || seen && was != o {
				t.Fatalf("%v is at %+v and at %+v", x, was, o)
			}
			at[x] = o
		}
	}
	for x, o := range at {
		found, err := s.log.Lookup(t.Context(), x.topic, x.id)
		if must(t, err); stored[x] != 1 || found.Partition != o.Partition || found.Seq != o.Seq {
			t.Fatalf("%v was stored %d times, at %+v; it is at %d of partition %d", x, stored[x], o, found.Seq, found.Partition)
		}
	}
}
