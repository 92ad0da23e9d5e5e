package eventlogtest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// deleteGroup deletes an unused group as callers do.
func (s *suite) deleteGroup(t tester, topic, group string) {
	t.Helper()
	latest, err := s.log.LatestEpochs(t.Context(), topic, group)
	must(t, err)
	for i := range latest {
		latest[i].Number++
		latest[i].Owner, latest[i].Released, latest[i].Inherit = "deleter", false, true
	}
	s.takeAtOnce(t, latest...)
	for i := range latest {
		latest[i].Released, latest[i].Deleted, latest[i].Inherit, latest[i].Progress = true, true, false, eventlog.Progress{}
	}
	s.save(t, latest...)
	must(t, s.log.Sync(t.Context()))
	for range 2 { // and again changes nothing
		must(t, s.log.ForgetGroup(t.Context(), topic, group))
	}
}

func testDeletion(t *testing.T, s *suite) {
	t.Run("a deleted group is not there any more", s.testGroupDeleted)
	t.Run("a group that is not deleted is not forgotten", func(t *testing.T) {
		topic := s.topic(t, 1)
		s.take(t, epoch(topic, "g", 0, 1, "n"))
		if err := s.log.ForgetGroup(t.Context(), topic, "g"); !errors.Is(err, eventlog.ErrFenced) {
			t.Errorf("ForgetGroup: %v; want ErrFenced", err)
		}
		s.latest(t, topic, "g", epoch(topic, "g", 0, 1, "n"))
	})
	t.Run("a deleted topic is not there any more", s.testTopicDeleted)
	t.Run("a topic that is made again has new events only", s.testMadeAgain)
	t.Run("a topic says whom it was made for", s.testMadeFor)
	t.Run("events are erased", s.testErase)
}

func (s *suite) testMadeFor(t *testing.T) {
	topic := s.topic(t, 1) + ".of"
	says := func(want string) {
		t.Helper()
		for range 2 {
			list, err := s.log.Topics(t.Context())
			one, notFound := s.log.LookupTopic(t.Context(), topic)
			i := slices.IndexFunc(list, func(tp eventlog.Topic) bool { return tp.Name == topic })
			there := err == nil && notFound == nil && i >= 0
			if !there || list[i].By != want || one.By != want || one.Partitions != 2 {
				t.Errorf("Topics = %+v, %v; LookupTopic = %+v, %v; want one made for %q", list, err, one, notFound, want)
			}
			s.reopen(t)
		}
	}
	for _, name := range []string{"orders", "", "payments"} {
		for _, later := range []string{name, "somebody"} { // a later call finds the topic
			must(t, errOf(s.log.EnsureTopic(eventlog.MadeBy(t.Context(), later), topic, 2)))
		}
		says(name)
		must(t, s.log.DeleteTopic(t.Context(), topic))
	}
}

// wantGone checks what is gone of topics, and of groups g and h of the first of them.
func (s *suite) wantGone(t *testing.T, topics []string, wantTopics []string, wantGroups ...string) {
	t.Helper()
	gone, groups, err := s.log.Gone(t.Context(), topics, []eventlog.GroupName{{Topic: topics[0], Group: "g"}, {Topic: topics[0], Group: "h"}})
	must(t, err)
	var names []string
	for _, g := range groups {
		names = append(names, g.Group)
	}
	if !slices.Equal(gone, wantTopics) || !slices.Equal(names, wantGroups) {
		t.Errorf("gone: topics %q and groups %q, want %q and %q", gone, names, wantTopics, wantGroups)
	}
}

func (s *suite) testGroupDeleted(t *testing.T) {
	topic := s.topic(t, 2)
	const later = 4_000_000_000_000
	owned := []eventlog.Epoch{epoch(topic, "g", 0, 3, "n"), epoch(topic, "g", 1, 1, "n")}
	other := epoch(topic, "h", 0, 1, "n")
	s.takeAtOnce(t, append(slices.Clone(owned), other)...)
	marks := []eventlog.Mark{{Topic: topic, Group: "g", ID: "a", ExpiresAt: later}, {Topic: topic, Group: "h", ID: "a", ExpiresAt: later}}
	must(t, s.log.SaveEpochs(t.Context(), owned, marks))
	s.deleteGroup(t, topic, "g")
	for range 2 {
		s.wantGroups(t, topic, "h")
		s.wantGone(t, []string{topic}, nil, "g")
		latest, err := s.log.LatestEpochs(t.Context(), topic, "g")
		if err != nil || slices.ContainsFunc(latest, func(e eventlog.Epoch) bool { return !e.Deleted || e.Progress.Cursor != 0 }) {
			t.Errorf("LatestEpochs = %+v, %v", latest, err)
		}
		all, err := s.log.AllEpochs(t.Context())
		if err != nil || slices.ContainsFunc(all, func(e eventlog.Epoch) bool { return e.Topic == topic && e.Group == "g" }) {
			t.Errorf("AllEpochs = %+v, %v", all, err)
		}
		for group, want := range map[string]bool{"g": false, "h": true} {
			if got, err := s.log.Marked(t.Context(), topic, group, []string{"a"}, 0); err != nil || got[0] != want {
				t.Errorf("Marked of group %s = %v, %v; want %v", group, got, err, want)
			}
		}
		// A late save of its owner changes nothing.
		owned[0].Progress.Cursor = 9
		err = s.log.SaveEpochs(t.Context(), owned[:1], nil)
		if !errors.Is(err, eventlog.ErrFenced) && !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("SaveEpochs of a deleted group's owner: %v", err)
		}
		s.reopen(t)
	}
	// The group begins again at the place that its first subscriber chooses.
	var first []eventlog.Epoch
	latest, err := s.log.LatestEpochs(t.Context(), topic, "g")
	must(t, err)
	for p := range 2 {
		e := epoch(topic, "g", p, 1, "m")
		for _, was := range latest {
			if was.Partition == p {
				e.Number = was.Number + 1
			}
		}
		e.Progress.Cursor = 7
		first = append(first, e)
	}
	s.takeAtOnce(t, first...)
	s.latest(t, topic, "g", first...)
	s.wantGroups(t, topic, "g", "h")
	s.wantGone(t, []string{topic}, nil)
}

func (s *suite) testTopicDeleted(t *testing.T) {
	topic, other := s.topic(t, 2), s.topic(t, 1)
	s.stored(t, topic, 0, Events("a", 3)...)
	s.stored(t, topic, 1, Events("b", 2)...)
	s.stored(t, other, 0, Events("a", 1)...)
	must(t, s.log.DeleteTopic(t.Context(), topic))
	for range 2 {
		notFound(t, "DeleteTopic again", s.log.DeleteTopic(t.Context(), topic))
		notFound(t, "LookupTopic", errOf(s.log.LookupTopic(t.Context(), topic)))
		notFound(t, "Extents", errOf(s.log.Extents(t.Context(), topic)))
		s.wantNoEvent(t, topic, "a-000")
		s.wantGone(t, []string{topic, other, "never-was"}, []string{topic}, "g", "h")
		for _, o := range s.log.Append(t.Context(), topic, 0, Events("late", 2)) {
			notFound(t, "Append", o.Err)
		}
		list, err := s.log.Topics(t.Context())
		if err != nil || slices.ContainsFunc(list, func(tp eventlog.Topic) bool { return tp.Name == topic }) {
			t.Errorf("Topics = %+v, %v", list, err)
		}
		s.wantRead(t, other, 0, "a-000")
		s.reopen(t)
	}
	notFound(t, "DeleteTopic of a topic that never was", s.log.DeleteTopic(t.Context(), "never-was"))
	if err := s.log.DeleteTopic(ended(), other); !errors.Is(err, context.Canceled) {
		t.Errorf("DeleteTopic with a context that is over: %v", err)
	}
}

func (s *suite) testMadeAgain(t *testing.T) {
	topic := s.topic(t, 2)
	keyed := func() []*eventlog.Record { return Events("e", 3, Keyed("k")) }
	before := s.stored(t, topic, 0, keyed()...)
	last := before[len(before)-1]
	for round := range 3 {
		must(t, s.log.DeleteTopic(t.Context(), topic))
		if round == 1 {
			s.reopen(t)
		}
		made, err := s.log.EnsureTopic(t.Context(), topic, 5)
		if err != nil || made.Partitions != 2 {
			t.Fatalf("EnsureTopic = %+v, %v; want the 2 partitions that it had", made, err)
		}
		s.wantGone(t, []string{topic}, nil, "g", "h")
		if round == 2 {
			s.reopen(t)
		}
		if x := s.extent(t, topic, 0); x.First <= last || x.Head != x.First-1 {
			t.Errorf("Extents of what was made again: %+v; want nothing above seq %d", x, last)
		}
		s.wantScan(t, topic)
		s.wantRead(t, topic, 0)
		s.wantNoEvent(t, topic, "e-000")
		s.wantLatestByKey(t, topic, "k", "")
		again := s.stored(t, topic, 0, keyed()...) // their ids are free
		if again[0] <= last {
			t.Errorf("seqs %d of what was made again: want above %d", again, last)
		}
		last = again[len(again)-1]
		if events := s.readAll(t, topic, 0); !slices.Equal(seqs(events), again) {
			t.Errorf("Read finds seqs %d; want %d", seqs(events), again)
		}
		starts, err := s.log.Seek(t.Context(), topic, eventlog.Position{From: wire.FromEarliest})
		if err != nil || starts[0] != again[0] {
			t.Errorf("Seek to the earliest = %d, %v; want %d", starts, err, again[0])
		}
		s.wantDuplicate(t, topic, 0, keyed()[0], again[0])
	}
}

func (s *suite) testErase(t *testing.T) {
	topic := s.topic(t, 1)
	at := s.stored(t, topic, 0, Events("e", 5, Keyed("k"))...)
	keep := eventlog.Retention{DedupeWindowMS: hour}
	victims := []uint64{at[1], at[4], at[4] + 100}
	for i, want := range []int{2, 0} {
		if n, err := s.log.Erase(t.Context(), topic, 0, victims, keep, start); err != nil || n != want {
			t.Fatalf("Erase, time %d, = %d, %v; want %d", i+1, n, err, want)
		}
	}
	for range 2 {
		s.wantRead(t, topic, 0, "e-000", "e-002", "e-003")
		s.wantScan(t, topic, "e-000", "e-002", "e-003")
		s.wantNoEvent(t, topic, "e-004")
		s.wantLatestByKey(t, topic, "k", "e-003")
		if x := s.extent(t, topic, 0); x.Head != at[3] && x.Head != at[4] {
			t.Errorf("Extents = %+v; want the head of what is left, or of all", x)
		}
		s.wantConflict(t, topic, 0, Event("e-004", Keyed("k")), at[4])
		s.reopen(t)
	}
	if next := s.stored(t, topic, 0, Events("f", 1)...); next[0] <= at[4] {
		t.Errorf("seq %d was given again", next[0])
	}
}
