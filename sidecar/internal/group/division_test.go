package group

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/test/require"
)

// partSink keeps its member's events and partitions, in order.
type partSink struct {
	mu   sync.Mutex
	told []string
	has  map[int]bool
	bad  []string
	ids  []string // in flight, as far as it knows
}

func (s *partSink) Room() bool { return true }

func (s *partSink) Deliver(ds []Delivery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range ds {
		if !s.has[d.Record.Partition] {
			s.bad = append(s.bad, fmt.Sprintf("%s of partition %d", d.Record.ID, d.Record.Partition))
		}
		s.ids = append(s.ids, d.Record.ID)
		s.told = append(s.told, fmt.Sprintf("%s/%d", d.Record.ID, d.Attempt))
	}
}

func (s *partSink) Assigned(partitions []int) { s.tell("+", partitions, true) }
func (s *partSink) Revoked(partitions []int)  { s.tell("-", partitions, false) }

func (s *partSink) tell(sign string, partitions []int, has bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range partitions {
		if s.has[p] == has {
			s.bad = append(s.bad, fmt.Sprintf("%s%d twice", sign, p))
		}
		s.has[p] = has
	}
	s.told = append(s.told, sign+fmt.Sprint(partitions))
}

// take returns the events and partitions since the last call.
func (s *partSink) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := strings.Join(s.told, " ")
	s.told = nil
	return told
}

// owned are the partitions that the member has.
func (s *partSink) owned() (ps []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p, has := range s.has {
		if has {
			ps = append(ps, p)
		}
	}
	slices.Sort(ps)
	return ps
}

// divided is a member that asked to be told of its partitions.
type divided struct {
	*partSink
	m *Member
}

func subscribeDivided(t *testing.T, m *Manager, id string, opts ...option) *divided {
	t.Helper()
	d := &divided{partSink: &partSink{has: make(map[int]bool)}}
	s := Subscription{Topic: topic, Group: "g", Sink: d.partSink, Pacer: &fakePacer{}, MemberID: id}
	s.Options.Rebalance = true
	for _, o := range append([]option{earliest}, opts...) {
		o(&s)
	}
	member, err := m.Subscribe(t.Context(), s)
	require.NoError(t, err)
	d.m = member
	synctest.Wait()
	if d.take() != "" {
		t.Error("it is told before the start")
	}
	member.Start()
	synctest.Wait()
	return d
}

func (d *divided) check(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.bad) > 0 {
		t.Errorf("%v", d.bad)
	}
}

func TestDivision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6)
		a := subscribeDivided(t, w.m, "a")
		if got := a.take(); got != "+[0 1 2 3 4 5]" {
			t.Fatalf("told %q", got)
		}
		w.publishN(30, "")
		first := a.take()
		if strings.Count(first, "/1") != 30 {
			t.Fatalf("got %q", first)
		}
		b := subscribeDivided(t, w.m, "b")
		pa, pb := a.owned(), b.owned()
		if all := slices.Sorted(slices.Values(append(slices.Clone(pa), pb...))); len(all) != 6 || len(pa) == 0 || len(pb) == 0 {
			t.Fatalf("%v and %v", pa, pb)
		}
		told := b.take()
		if !strings.HasPrefix(told, "+"+fmt.Sprint(pb)) || strings.Contains(told, "/2") {
			t.Errorf("told %q: what was in flight elsewhere comes, and does not count", told)
		}
		if got := a.take(); got != "-"+fmt.Sprint(pb) {
			t.Errorf("told %q", got)
		}
		plain := w.join() // did not ask, and has its share all the same
		if n := len(a.owned()) + len(b.owned()); n == 6 {
			t.Errorf("a has %v, b has %v", a.owned(), b.owned())
		}
		plain.leave(Unsubscribed)
		if !slices.Equal(a.owned(), pa) || !slices.Equal(b.owned(), pb) {
			t.Errorf("a has %v, b has %v", a.owned(), b.owned())
		}
		b.m.Close(Disconnected)
		synctest.Wait()
		if len(a.owned()) != 6 {
			t.Errorf("a has %v", a.owned())
		}
		a.check(t)
		b.check(t)
		w.stop()
	})
}

// If the filter of a partition's member keeps an event out, another member that wants the event
// gets it.
func TestDivisionAndFilters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		a := subscribeDivided(t, w.m, "a", onlyKey("nothing"))
		b := w.join()
		w.publishN(10, "")
		if n := b.waiting(); n != 10 {
			t.Errorf("%d came", n)
		}
		a.m.Close(Unsubscribed)
		w.publishN(10, "")
		if n := b.waiting(); n != 20 {
			t.Errorf("%d came when nobody had partitions any more", n)
		}
		w.stop()
	})
}

// With more members than partitions, the group tells each member without a partition once that it
// has none, and Info says so.
func TestDivisionOfTooFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		members := []*divided{subscribeDivided(t, w.m, "a"), subscribeDivided(t, w.m, "b"), subscribeDivided(t, w.m, "c")}
		none := 0
		for i, d := range members {
			told := d.take()
			if len(d.owned()) == 0 {
				none++
				if by := w.info().Members[i].BlockedBy; by == nil || *by != dispatch.BlockedNoPartition {
					t.Errorf("blocked by %v", by)
				}
				if told != "+[]" && !strings.HasSuffix(told, "-[0]") {
					t.Errorf("told %q", told)
				}
			}
			d.check(t)
		}
		if none != 2 {
			t.Errorf("%d have none", none)
		}
		w.stop()
	})
}

// Members are told when partitions move between sidecars. They are told of a lapse before another
// sidecar can have their partitions.
func TestDivisionAcrossSidecars(t *testing.T) {
	runFleet(t, 4, func(t *testing.T, f *fleet) {
		a, b := f.start("a"), f.start("b")
		ma := subscribeDivided(t, a.m, "a")
		if len(ma.owned()) != 4 {
			t.Fatalf("has %v", ma.owned())
		}
		mb := subscribeDivided(t, b.m, "b")
		advance(100 * 1e6)
		if fmt.Sprint(ma.owned(), mb.owned()) == fmt.Sprint([]int{0, 1, 2, 3}, []int(nil)) || len(ma.owned())+len(mb.owned()) != 4 {
			t.Fatalf("%v and %v", ma.owned(), mb.owned())
		}
		b.path.fail(errStore)
		advance(lease - lease/5 + 1e6)
		if len(mb.owned()) != 0 {
			t.Errorf("after the lapse it has %v", mb.owned())
		}
		advance(lease)
		if len(ma.owned()) != 4 {
			t.Errorf("after the takeover it has %v", ma.owned())
		}
		b.path.fail(nil)
		advance(2 * lease)
		if len(ma.owned())+len(mb.owned()) != 4 || len(mb.owned()) == 0 {
			t.Errorf("%v and %v", ma.owned(), mb.owned())
		}
		ma.check(t)
		mb.check(t)
	})
}
