package eventlogtest

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func testCatalog(t *testing.T, s *suite) {
	t.Run("a topic is created once and keeps its partitions", func(t *testing.T) {
		for _, asked := range []int{3, 5, 1} {
			got, err := s.log.EnsureTopic(t.Context(), "orders.created", asked)
			if err != nil || got != (eventlog.Topic{Name: "orders.created", Partitions: 3}) {
				t.Fatalf("EnsureTopic with %d partitions = %+v, %v; want 3 partitions", asked, got, err)
			}
		}
		s.reopen(t)
		got, err := s.log.LookupTopic(t.Context(), "orders.created")
		if err != nil || got.Partitions != 3 {
			t.Fatalf("LookupTopic after a restart = %+v, %v; want 3 partitions", got, err)
		}
	})

	t.Run("racing creators agree", func(t *testing.T) {
		const racers = 16
		var got [racers]eventlog.Topic
		var wg sync.WaitGroup
		for i := range racers {
			wg.Go(func() {
				var err error
				if got[i], err = s.log.EnsureTopic(t.Context(), "raced", i+1); err != nil {
					t.Errorf("EnsureTopic: %v", err)
				}
			})
		}
		wg.Wait()
		for _, topic := range got {
			if topic != got[0] {
				t.Fatalf("racing creators were told different things: %+v", got)
			}
		}
	})

	t.Run("the number of partitions is bounded", func(t *testing.T) {
		for _, n := range []int{-1, 0, 1025} {
			if errOf(s.log.EnsureTopic(t.Context(), "bounded", n)) == nil {
				t.Errorf("EnsureTopic with %d partitions succeeded", n)
			}
		}
		must(t, errOf(s.log.EnsureTopic(t.Context(), "bounded", 1024)))
	})

	t.Run("topics are listed by name, and case counts", func(t *testing.T) {
		for _, name := range []string{"b", "A", "a", "a.b", "_sys"} {
			must(t, errOf(s.log.EnsureTopic(t.Context(), name, 1)))
		}
		list, err := s.log.Topics(t.Context())
		must(t, err)
		var names []string
		for _, topic := range list {
			names = append(names, topic.Name)
		}
		if !slices.IsSorted(names) {
			t.Errorf("topics are not sorted: %q", names)
		}
		for _, name := range []string{"b", "A", "a", "a.b", "_sys"} {
			if !slices.Contains(names, name) {
				t.Errorf("topic %q is missing from %q", name, names)
			}
		}
	})

	t.Run("topics are counted, and those of an identity", func(t *testing.T) {
		before, own := s.counted(t, "mallory")
		for _, name := range []string{"m1", "m2", "m3"} {
			must(t, errOf(s.log.EnsureTopic(eventlog.MadeBy(t.Context(), "mallory"), name, 1)))
		}
		must(t, s.log.DeleteTopic(t.Context(), "m2"))
		all, now := s.counted(t, "mallory")
		if all != before+2 || own != 0 || now != 2 {
			t.Errorf("%d topics, %d of mallory's; want %d and 2", all, now, before+2)
		}
		if list, err := s.log.Topics(t.Context()); err != nil || len(list) != all {
			t.Errorf("%d topics are listed, %v; %d are counted", len(list), err, all)
		}
	})

	t.Run("what does not exist is not found", func(t *testing.T) {
		notFound(t, "LookupTopic", errOf(s.log.LookupTopic(t.Context(), "nowhere")))
		notFound(t, "Extents", errOf(s.log.Extents(t.Context(), "nowhere")))
		notFound(t, "Read", errOf(s.log.Read(t.Context(), "nowhere", 0, 1, everything)))
		notFound(t, "Scan", errOf(s.log.Scan(t.Context(), "nowhere", eventlog.ScanQuery{}, everything)))
		notFound(t, "Read of a partition too far", errOf(s.log.Read(t.Context(), s.topic(t, 2), 2, 1, everything)))
		notFound(t, "Append", s.log.Append(t.Context(), "nowhere", 0, Events("x", 1))[0].Err)
	})
}

func notFound(t tester, what string, err error) {
	t.Helper()
	if !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("%s: %v; want ErrNotFound", what, err)
	}
}

// counted are the topics, and those of an identity.
func (s *suite) counted(t tester, by string) (all, own int) {
	t.Helper()
	all, own, err := s.log.CountTopics(t.Context(), by)
	must(t, err)
	return all, own
}
