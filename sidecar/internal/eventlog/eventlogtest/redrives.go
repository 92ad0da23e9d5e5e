package eventlogtest

import (
	"errors"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func redrive(topic, group string, partition int, seq uint64, letter string) eventlog.Redrive {
	return eventlog.Redrive{GroupPartition: eventlog.GroupPartition{Topic: topic, Group: group, Partition: partition}, Seq: seq,
		Letter: letter}
}

// testRedrives: entries are listed in order until they are ended, for any group name, and survive a
// restart.
func testRedrives(t *testing.T, s *suite) {
	topic, other := s.topic(t, 3), s.topic(t, 1)
	all := []eventlog.Redrive{
		redrive(topic, "g", 0, 2, "dlq-b"), redrive(topic, "g", 0, 10, "dlq-a"), redrive(topic, "g", 0, 10, "dlq-a-1"),
		redrive(topic, "g", 2, 1, "dlq-c"),
	}
	beside := []eventlog.Redrive{redrive(topic, "g/0", 0, 1, "x"), redrive(topic, "G", 0, 1, "x"), redrive(topic, "g\x00", 0, 1, "x"),
		redrive(topic, "g%", 0, 1, "x")}
	add := func(topic string, rs ...eventlog.Redrive) {
		t.Helper()
		must(t, s.log.AddRedrives(t.Context(), topic, rs))
	}
	list := func(group string, partition, limit int, want ...eventlog.Redrive) {
		t.Helper()
		got, err := s.log.ListRedrives(t.Context(), topic, group, partition, limit)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("ListRedrives(%q, %d, %d) = %v, %v; want %v", group, partition, limit, got, err, want)
		}
	}
	add(topic, all[3], all[1], all[0])
	add(topic, all[2], all[0], all[1]) // some are there already
	add(topic, beside...)
	add(other, redrive(other, "g", 0, 1, "x"))
	add(topic)
	for range 2 {
		list("g", -1, 10, all...)
		list("g", -1, 2, all[:2]...)
		list("g", 0, 10, all[:3]...)
		list("g", 1, 10)
		list("g", 2, 1, all[3])
		for _, r := range beside {
			list(r.Group, -1, 10, r)
		}
		s.reopen(t)
	}
	must(t, s.log.EndRedrives(t.Context(), topic, []eventlog.Redrive{all[1], redrive(topic, "g", 1, 1, "none")}))
	list("g", -1, 10, all[0], all[2], all[3])
	s.reopen(t)
	has, err := s.log.HasRedrives(t.Context(), topic, all)
	if err != nil || !slices.Equal(has, []bool{true, false, true, true}) {
		t.Errorf("HasRedrives = %v, %v", has, err)
	}

	t.Run("progress", func(t *testing.T) {
		own := epoch(topic, "h", 0, 1, "n")
		s.take(t, own)
		own.Progress.Since = 1_723_140_000_000
		own.Progress.Redrives = []eventlog.RedriveProgress{
			{Seq: 3, Letter: "a", Attempts: 2, Until: 1_723_140_000_001, Left: 7, Unsure: true}, {Seq: 1, Letter: "b", Out: true},
			{Seq: 9, Letter: "c-1", Done: true}}
		s.save(t, own)
		for range 2 {
			s.latest(t, topic, "h", own)
			s.reopen(t)
		}
		next := heir(topic, "h", 0, 2, "m", 1)
		s.take(t, next)
		s.latest(t, topic, "h", shown(next, own.Progress))
	})
	t.Run("dead letter topics", func(t *testing.T) { testDeadLetterTopics(t, s) })
	t.Run("remove", func(t *testing.T) { testRemove(t, s) })
}

// testDeadLetterTopics: a topic's own is always among them, others stay until the topic is deleted.
func testDeadLetterTopics(t *testing.T, s *suite) {
	topic, other := s.topic(t, 1), s.topic(t, 1)
	want := func(topic string, others ...string) {
		t.Helper()
		got, err := s.log.DeadLetterTopics(t.Context(), topic)
		if err != nil || !slices.Equal(got, append([]string{topic + wire.DeadLetterSuffix}, others...)) {
			t.Errorf("DeadLetterTopics(%s) = %q, %v; want its own and %q", topic, got, err, others)
		}
	}
	named := func(want bool, letters ...string) {
		t.Helper()
		got, err := s.log.NamedDeadLetterTopics(t.Context())
		for _, one := range letters {
			if err != nil || slices.Contains(got, one) != want || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
				t.Errorf("NamedDeadLetterTopics() = %q, %v; with %s: want %v", got, err, one, want)
			}
		}
	}
	want(topic)
	want("none")
	// Other tests share the store.
	dead, also := "dead-of-"+topic, "also-of-"+topic
	named(false, dead, also)
	for _, letters := range []string{dead, also, dead} {
		must(t, s.log.AddDeadLetterTopic(t.Context(), topic, letters))
	}
	must(t, s.log.AddDeadLetterTopic(t.Context(), other, also))
	for range 2 {
		want(topic, also, dead)
		want(other, also)
		named(true, dead, also)
		s.reopen(t)
	}
	if err := s.log.AddDeadLetterTopic(t.Context(), "none", "dead"); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("AddDeadLetterTopic of a topic that does not exist: %v", err)
	}
	must(t, s.log.DeleteTopic(t.Context(), topic))
	want(topic)
	named(true, also)
	named(false, dead)
	_, err := s.log.EnsureTopic(t.Context(), topic, 1)
	must(t, err)
	want(topic)
}

// testRemove: no reader finds removed events, their ids stay taken, and no seq is given out again,
// also if a partition's newest event is removed.
func testRemove(t *testing.T, s *suite) {
	topic := s.topic(t, 2)
	first := s.stored(t, topic, 0, Events("a", 5, Keyed("k"))...)
	s.stored(t, topic, 1, Events("b", 2)...)
	remove := func(want int, ids ...string) {
		t.Helper()
		n, err := s.log.Remove(t.Context(), topic, ids, eventlog.Retention{DedupeWindowMS: 1 << 50}, start)
		if err != nil || n != want {
			t.Errorf("Remove(%q) = %d, %v; want %d", ids, n, err, want)
		}
	}
	remove(3, "a-001", "a-004", "b-000", "none")
	remove(0, "a-001", "a-004")
	for range 2 {
		s.wantRead(t, topic, 0, "a-000", "a-002", "a-003")
		s.wantScan(t, topic, "a-000", "a-002", "a-003", "b-001")
		found, err := s.log.LookupEach(t.Context(), topic, []string{"a-004", "b-001", "none", "a-000", "b-001"})
		if err != nil || len(found) != 5 {
			t.Fatalf("LookupEach = %v, %v", found, err)
		}
		none, all := found[0] == nil && found[2] == nil, found[1] != nil && found[3] != nil && found[4] != nil
		if !none || !all || found[1].ID != "b-001" {
			t.Errorf("LookupEach = %v", found)
		}
		s.reopen(t)
	}
	out := s.append(t, topic, 0, Event("a-004", Keyed("k")), Event("new"))
	if !out[0].Duplicate {
		t.Errorf("a removed id was stored again: %+v", out[0])
	}
	if out[1].Err != nil || out[1].Seq <= first[4] {
		t.Errorf("the next event has seq %d after %d: %v", out[1].Seq, first[4], out[1].Err)
	}
}
