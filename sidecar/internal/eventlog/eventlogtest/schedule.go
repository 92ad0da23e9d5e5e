package eventlogtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Due schedules the event.
func Due(at int64) func(*eventlog.Record) { return func(r *eventlog.Record) { r.DeliverAt = at } }

// scheduledIDs are the ids of scheduled events.
func scheduledIDs(list []eventlog.Scheduled) []string {
	ids := make([]string, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return ids
}

// due returns the due events of one topic.
func (s *suite) due(t tester, topic string, now int64) (list []eventlog.Scheduled) {
	t.Helper()
	var last *eventlog.Scheduled
	for {
		page, _, err := s.log.Due(t.Context(), []int{eventlog.SlotOf(topic)}, last, now, 3)
		must(t, err)
		for _, w := range page {
			if w.Topic == topic {
				list = append(list, w)
			}
		}
		if len(page) < 3 {
			return list
		}
		last = &page[len(page)-1]
	}
}

// wantDue returns the due events of one topic, and fails the test unless they have these ids.
func (s *suite) wantDue(t tester, topic string, now int64, want ...string) []eventlog.Scheduled {
	t.Helper()
	due := s.due(t, topic, now)
	if got := scheduledIDs(due); !slices.Equal(got, want) {
		t.Fatalf("due are %q; want %q", got, want)
	}
	return due
}

func (s *suite) listed(t tester, topic string) []eventlog.Scheduled {
	t.Helper()
	list, err := s.log.ListScheduled(t.Context(), topic, nil, 1000)
	must(t, err)
	return list
}

// schedule schedules events that must be new.
func (s *suite) schedule(t tester, topic string, batch ...*eventlog.Record) {
	t.Helper()
	for i, o := range s.append(t, topic, 0, batch...) {
		if o != (eventlog.Outcome{DeliverAt: batch[i].DeliverAt}) {
			t.Errorf("scheduling %q: %+v", batch[i].ID, o)
		}
	}
}

// waiting fails the test unless exactly these events are scheduled, in that order.
func (s *suite) waiting(t tester, topic string, want ...string) {
	t.Helper()
	if got := scheduledIDs(s.listed(t, topic)); !slices.Equal(got, want) {
		t.Errorf("scheduled: %q; want %q", got, want)
	}
	if n, err := s.log.CountScheduled(t.Context(), topic); err != nil || n.Events != int64(len(want)) || (n.Bytes == 0) != (len(want) == 0) {
		t.Errorf("CountScheduled = %+v, %v; want %d", n, err, len(want))
	}
	counts, err := s.log.CountSlots(t.Context(), []int{eventlog.SlotOf(topic)})
	if err != nil || counts[topic].Events != int64(len(want)) || (counts[topic].Bytes == 0) != (len(want) == 0) {
		t.Errorf("CountSlots = %v, %v; want %d for %s", counts, err, len(want), topic)
	}
}

func testScheduled(t *testing.T, s *suite) {
	t.Run("an event is read only once it was released, at its place by then", func(t *testing.T) {
		topic := s.topic(t, 2)
		later := []*eventlog.Record{
			Event("c", Due(start+30), Keyed("k")), Event("a", Due(start+10), Keyed("k"), func(r *eventlog.Record) { r.Tags = []string{"t"} }),
			Event("b", Due(start+20)), Event("d", Due(start+400)),
		}
		s.schedule(t, topic, later...)
		for range 2 {
			s.waiting(t, topic, "a", "b", "c", "d")
			s.wantRead(t, topic, 0)
			s.wantRead(t, topic, 1)
			s.wantScan(t, topic)
			key := "k"
			if got, err := s.log.Scan(t.Context(), topic, eventlog.ScanQuery{Key: &key}, everything); err != nil || len(got) > 0 {
				t.Errorf("Scan of a key = %q, %v", ids(got), err)
			}
			s.wantNoEvent(t, topic, "a")
			s.wantLatestByKey(t, topic, "k", "")
			s.reopen(t)
		}
		s.wantDue(t, topic, start+9)
		if due, next, err := s.log.Due(t.Context(), []int{eventlog.SlotOf(topic)}, nil, start+9, 10); err != nil || len(due) > 0 ||
			next != start+10 {
			t.Errorf("Due = %v, %d, %v; want the next at %d", due, next, err, start+10)
		}
		due := s.wantDue(t, topic, start+30, "a", "b", "c")
		for i, o := range s.log.Release(t.Context(), topic, due, start+31) {
			if o.Err != nil || o.Duplicate || o.Seq == 0 || o.TS != start+31 || o.Partition != eventlog.PartitionOf(due[i].Key, due[i].ID, 2) {
				t.Errorf("Release of %q: %+v", due[i].ID, o)
			}
		}
		for range 2 {
			s.waiting(t, topic, "d")
			p := eventlog.PartitionOf("k", "", 2)
			var keyed []string
			for _, r := range s.readAll(t, topic, p) {
				if r.Key == "k" {
					keyed = append(keyed, r.ID)
				}
			}
			if !slices.Equal(keyed, []string{"a", "c"}) {
				t.Errorf("the key has %q", keyed)
			}
			got, err := s.log.Lookup(t.Context(), topic, "a")
			must(t, err)
			want := *later[1]
			want.TS, want.AcceptedAt, want.DeliverAt = start+31, start+31, 0
			sameRecord(t, got, placed(&want, topic, p, got.Seq))
			s.reopen(t)
		}
		if o := s.append(t, topic, 0, Event("a", Keyed("k"), Due(start+9000)))[0]; !o.Duplicate || o.Seq == 0 || o.DeliverAt != 0 {
			t.Errorf("scheduled again after its release: %+v; want a duplicate of what is in the log", o)
		}
	})

	t.Run("an id is taken at once", func(t *testing.T) {
		topic := s.topic(t, 3)
		s.schedule(t, topic, Event("x", Due(start+10)))
		want := eventlog.Outcome{DeliverAt: start + 10, Duplicate: true}
		for range 2 {
			for p, again := range []*eventlog.Record{Event("x", Due(start+10)), Event("x", Due(start+99)), Event("x")} {
				if o := s.append(t, topic, p, again)[0]; o != want {
					t.Errorf("again, due at %d: %+v; want %+v", again.DeliverAt, o, want)
				}
			}
			for _, other := range []*eventlog.Record{Event("x", Payload("1"), Due(start+10)), Event("x", Keyed("k"))} {
				s.wantConflict(t, topic, 0, other, 0)
			}
			s.reopen(t)
		}
		out := s.append(t, topic, 0, Event("y", Due(start+20)), Event("z"), Event("y", Due(start+21)), Event("y", Payload("2")),
			Event("x", Due(start+10)))
		if out[0] != (eventlog.Outcome{DeliverAt: start + 20}) || out[1].Seq == 0 ||
			out[2] != (eventlog.Outcome{DeliverAt: start + 20, Duplicate: true}) || out[4] != want {
			t.Errorf("a mixed batch: %+v", out)
		}
		conflictAt(t, out[3], "y", 0)
		seq := s.stored(t, topic, 0, Event("stored"))[0]
		s.wantDuplicate(t, topic, 0, Event("stored", Due(start+50)), seq)
		s.wantConflict(t, topic, 0, Event("stored", Due(start+50), Payload("3")), seq)
		s.waiting(t, topic, "x", "y")
	})

	t.Run("a cancelled id is free", func(t *testing.T) {
		topic := s.topic(t, 1)
		s.schedule(t, topic, Event("a", Due(start+10)), Event("b", Due(start+20)))
		due := s.due(t, topic, start+10)
		must(t, s.log.Cancel(t.Context(), topic, "a"))
		notFound(t, "Cancel again", s.log.Cancel(t.Context(), topic, "a"))
		notFound(t, "Cancel of what never was", s.log.Cancel(t.Context(), topic, "none"))
		notFound(t, "Cancel in a topic that is not there", s.log.Cancel(t.Context(), "nowhere", "a"))
		s.reopen(t)
		s.waiting(t, topic, "b")
		notFound(t, "Release of what is cancelled", s.log.Release(t.Context(), topic, due, start+11)[0].Err)
		s.schedule(t, topic, Event("a", Due(start+5), Payload("7")))
		notFound(t, "Release of what was scheduled before", s.log.Release(t.Context(), topic, due, start+11)[0].Err)
		s.waiting(t, topic, "a", "b")
		must(t, s.log.Release(t.Context(), topic, s.due(t, topic, start+5), start+12)[0].Err)
		notFound(t, "Cancel of what is in the log", s.log.Cancel(t.Context(), topic, "a"))
		if got := s.readAll(t, topic, 0); len(got) != 1 || string(got[0].Payload) != "7" {
			t.Errorf("the log has %q", ids(got))
		}
		seq := s.stored(t, topic, 0, Event("z"))[0]
		if got := s.readAll(t, topic, 0); len(got) != 2 || got[1].Seq != seq {
			t.Errorf("the log has %q", ids(got))
		}
	})

	t.Run("a cancelled id is free for what goes into the log at once", func(t *testing.T) {
		topic := s.topic(t, 1)
		for range 2 {
			s.schedule(t, topic, Event("a", Due(start+10), Keyed("k")), Event("b", Due(start+20)), Event("c", Due(start+30)))
			for _, id := range []string{"a", "b", "c"} {
				must(t, s.log.Cancel(t.Context(), topic, id))
			}
			s.reopen(t)
		}
		batch := []*eventlog.Record{Event("x"), Event("a", Payload("1")), Event("b"), Event("y"), Event("a", Payload("1")),
			Event("b", Payload("2")), Event("c", Due(start+40))}
		out := s.append(t, topic, 0, batch...)
		for i, o := range out[:4] {
			if o.Err != nil || o.Duplicate || i > 0 && o.Seq <= out[i-1].Seq {
				t.Errorf("publish of %s: %+v, behind %+v", batch[i].ID, o, out[max(i-1, 0)])
			}
		}
		if o := out[4]; !o.Duplicate || o.Seq != out[1].Seq {
			t.Errorf("a published again: %+v; want a duplicate of %d", o, out[1].Seq)
		}
		conflictAt(t, out[5], "b", out[2].Seq)
		if o := out[6]; o != (eventlog.Outcome{DeliverAt: start + 40}) {
			t.Errorf("c scheduled again: %+v", o)
		}
		s.waiting(t, topic, "c")
		s.wantRead(t, topic, 0, "x", "a", "b", "y")
		notFound(t, "Cancel of what is in the log", s.log.Cancel(t.Context(), topic, "a"))
	})

	t.Run("of racing releases, cancels and publishes one wins", func(t *testing.T) {
		topic := s.topic(t, 2)
		for round := range 8 {
			id := fmt.Sprintf("r%d", round)
			s.schedule(t, topic, Event(id, Due(start+10)))
			due := s.due(t, topic, start+10)
			var outs [3]eventlog.Outcome
			var cancelled error
			var plain eventlog.Outcome
			var wg sync.WaitGroup
			for i := range outs {
				wg.Go(func() { outs[i] = s.log.Release(t.Context(), topic, due, start+11)[0] })
			}
			wg.Go(func() { cancelled = s.log.Cancel(t.Context(), topic, id) })
			wg.Go(func() { plain = s.append(t, topic, eventlog.PartitionOf("", id, 2), Event(id))[0] })
			wg.Wait()
			released := 0
			for _, o := range outs {
				if o.Err == nil && !o.Duplicate {
					released++
				} else if o.Err != nil {
					notFound(t, "Release", o.Err)
				}
			}
			_, err := s.log.Lookup(t.Context(), topic, id)
			stored := err == nil
			published := plain.Err == nil && !plain.Duplicate
			switch {
			case cancelled == nil && (released > 0 || stored != published):
				t.Errorf("round %d: cancelled, and released %d times; stored %t, published %t", round, released, stored, published)
			case cancelled != nil && (released != 1 || published || !stored):
				t.Errorf("round %d: released %d times, stored %t, published %t; cancel: %v", round, released, stored, published, cancelled)
			}
			s.waiting(t, topic)
		}
	})

	t.Run("scheduled events go with their topic", func(t *testing.T) {
		topic := s.topic(t, 2)
		s.schedule(t, topic, Events("e", 5, Due(start+10))...)
		due := s.due(t, topic, start+10)
		must(t, s.log.DeleteTopic(t.Context(), topic))
		for _, o := range s.log.Release(t.Context(), topic, due, start+11) {
			notFound(t, "Release", o.Err)
		}
		must(t, errOf(s.log.EnsureTopic(t.Context(), topic, 2)))
		s.waiting(t, topic)
		s.schedule(t, topic, Event("e-001", Due(start+20), Payload("1")))
		s.reopen(t)
		s.waiting(t, topic, "e-001")
		for _, w := range s.due(t, topic, start+10) {
			notFound(t, "Release of what went with its topic", s.log.Release(t.Context(), topic, []eventlog.Scheduled{w}, start+11)[0].Err)
		}
		s.wantDue(t, topic, start+10)
	})

	t.Run("lists go on where they ended", func(t *testing.T) {
		topic := s.topic(t, 1)
		s.schedule(t, topic, Events("e", 7, Due(start+10))...)
		s.schedule(t, topic, Event("first", Due(start+1)), Event("last", Due(start+99), Keyed("k")))
		var got []eventlog.Scheduled
		for after := (*eventlog.Point)(nil); ; {
			page, err := s.log.ListScheduled(t.Context(), topic, after, 4)
			must(t, err)
			if len(page) == 0 {
				break
			}
			last := page[len(page)-1]
			got, after = append(got, page...), &eventlog.Point{TS: last.DeliverAt, ID: last.ID}
		}
		if ids := scheduledIDs(got); len(ids) != 9 || ids[0] != "first" || ids[8] != "last" || got[8].Key != "k" || got[8].DeliverAt != start+99 {
			t.Errorf("listed %+v", got)
		}
		notFound(t, "ListScheduled", errOf(s.log.ListScheduled(t.Context(), "nowhere", nil, 4)))
	})

	t.Run("events due at one time keep the order in which they were accepted", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) { tiesModel(rt, t, s) })
	})

	t.Run("model", func(t *testing.T) { rapid.Check(t, func(rt *rapid.T) { scheduledModel(rt, t, s) }) })
}

// tiesModel schedules and cancels events for few different times, with restarts in between, and
// releases some or all of those that are due at a time.
func tiesModel(rt *rapid.T, t *testing.T, s *suite) {
	topic := s.topic(rt, 1)
	var waiting []*eventlog.Record // in the order in which they were accepted
	var want []string              // the ids in the log, in order
	byTime := func(a, b *eventlog.Record) int { return cmp.Compare(a.DeliverAt, b.DeliverAt) }
	isDue := func(at int64) func(*eventlog.Record) bool {
		return func(r *eventlog.Record) bool { return r.DeliverAt <= at }
	}
	at := rapid.Int64Range(start+1, start+3)
	rt.Repeat(map[string]func(*rapid.T){
		"schedule": func(rt *rapid.T) {
			var batch []*eventlog.Record
			for _, id := range rapid.SliceOfNDistinct(rapid.StringMatching("[a-z]"), 1, 6, rapid.ID).Draw(rt, "ids") {
				if !slices.Contains(want, id) && !slices.ContainsFunc(waiting, func(r *eventlog.Record) bool { return r.ID == id }) {
					batch = append(batch, Event(id, Keyed("k"), Due(at.Draw(rt, "at"))))
				}
			}
			s.schedule(rt, topic, batch...)
			waiting = append(waiting, batch...)
		},
		"cancel": func(rt *rapid.T) {
			if len(waiting) == 0 {
				rt.Skip("none is scheduled")
			}
			i := rapid.IntRange(0, len(waiting)-1).Draw(rt, "index")
			must(rt, s.log.Cancel(context.Background(), topic, waiting[i].ID))
			waiting = slices.Delete(waiting, i, i+1)
		},
		"release": func(rt *rapid.T) {
			now := at.Draw(rt, "now")
			for _, o := range s.log.Release(context.Background(), topic, s.due(rt, topic, now), now) {
				must(rt, o.Err)
			}
			slices.SortStableFunc(waiting, byTime)
			for _, r := range waiting {
				if isDue(now)(r) {
					want = append(want, r.ID)
				}
			}
			waiting = slices.DeleteFunc(waiting, isDue(now))
		},
		"restart": func(*rapid.T) { s.reopen(t) },
		"": func(rt *rapid.T) {
			if got := ids(s.readAll(rt, topic, 0)); !slices.Equal(got, want) {
				rt.Fatalf("the log has %q; want %q", got, want)
			}
		},
	})
}

// scheduledModel runs all operations on scheduled events in any order, with restarts in between,
// and compares the log with a map.
func scheduledModel(rt *rapid.T, t *testing.T, s *suite) {
	topic := s.topic(rt, 2)
	waiting, stored := map[string]int64{}, map[string]bool{}
	var seqs [2]uint64
	id := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"})
	now := start
	rt.Repeat(map[string]func(*rapid.T){
		"schedule": func(rt *rapid.T) {
			id, at := id.Draw(rt, "id"), now+rapid.Int64Range(1, 50).Draw(rt, "in")
			o := s.append(rt, topic, 0, Event(id, Due(at)))[0]
			switch was, is := waiting[id]; {
			case is && o != (eventlog.Outcome{DeliverAt: was, Duplicate: true}),
				!is && stored[id] && (!o.Duplicate || o.Seq == 0),
				!is && !stored[id] && o != (eventlog.Outcome{DeliverAt: at}):
				rt.Errorf("scheduling %q: %+v", id, o)
			}
			if _, is := waiting[id]; !is && !stored[id] {
				waiting[id] = at
			}
		},
		"publish": func(rt *rapid.T) {
			id := id.Draw(rt, "id")
			o := s.append(rt, topic, eventlog.PartitionOf("", id, 2), Event(id))[0]
			if _, is := waiting[id]; o.Duplicate != (is || stored[id]) || is && o.DeliverAt != waiting[id] {
				rt.Errorf("publishing %q: %+v", id, o)
			} else if !is {
				stored[id] = true
			}
		},
		"cancel": func(rt *rapid.T) {
			id := id.Draw(rt, "id")
			_, is := waiting[id]
			if err := s.log.Cancel(context.Background(), topic, id); (err == nil) != is {
				rt.Errorf("Cancel of %q: %v", id, err)
			}
			delete(waiting, id)
		},
		"release": func(rt *rapid.T) {
			now += rapid.Int64Range(0, 40).Draw(rt, "pass")
			due := s.due(rt, topic, now)
			if rapid.Bool().Draw(rt, "late") { // like another sidecar that looked before
				s.log.Release(context.Background(), topic, due, now)
			}
			for i, o := range s.log.Release(context.Background(), topic, due, now) {
				w := due[i]
				if o.Err != nil && !errors.Is(o.Err, eventlog.ErrNotFound) || o.Err == nil && o.TS < w.DeliverAt {
					rt.Errorf("Release of %+v: %+v", w, o)
				}
			}
			for id, at := range waiting {
				if at <= now {
					stored[id] = true
					delete(waiting, id)
				}
			}
		},
		"restart": func(rt *rapid.T) { s.reopen(t) },
		"": func(rt *rapid.T) {
			n := 0
			for p := range seqs {
				for _, r := range s.readAll(rt, topic, p) {
					if n++; !stored[r.ID] {
						rt.Errorf("%q is in the log", r.ID)
					}
				}
			}
			if n != len(stored) {
				rt.Errorf("the log has %d events; want %d", n, len(stored))
			}
			list := s.listed(rt, topic)
			for _, w := range list {
				if waiting[w.ID] != w.DeliverAt {
					rt.Errorf("%+v is scheduled; want %d", w, waiting[w.ID])
				}
			}
			if len(list) != len(waiting) || !slices.IsSortedFunc(list, func(a, b eventlog.Scheduled) int { return int(a.DeliverAt - b.DeliverAt) }) {
				rt.Errorf("scheduled: %+v; want %v", list, waiting)
			}
		},
	})
}
