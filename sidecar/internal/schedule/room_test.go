package schedule

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// A topic never has more scheduled events than it may, and all releasing sidecars count. Events
// that were not scheduled in the end, released or cancelled make room.
func TestTopicsAreBounded(t *testing.T) {
	for _, mine := range []func(int) bool{nil, func(int) bool { return false }} {
		synctest.Test(t, func(t *testing.T) {
			l := newLog()
			for i := range 4 {
				l.schedule("t", fmt.Sprint("before", i), time.Now().Add(time.Hour))
			}
			s, stop := start(l, mine, clock.System())
			defer stop()
			s.cfg.Most = 10
			synctest.Wait()
			time.Sleep(500 * time.Millisecond) // no count is under way, here and later
			full := func() bool {
				err := s.Reserve("t", 10)
				var e *wire.Error
				if err != nil && (!errors.As(err, &e) || e.Code != wire.Overloaded || e.Reason != "scheduled" || e.RetryAfter != time.Second) {
					t.Errorf("Reserve: %v", err)
				}
				return err != nil
			}
			n := 4
			if mine != nil { // it has not counted a topic of others that nothing was scheduled in here
				if full() {
					t.Error("full before it was counted")
				}
				s.Return("t", 10)
				time.Sleep(2 * time.Second)
			}
			for ; n < 10; n++ {
				if full() {
					t.Errorf("full with %d events", n)
				}
				at := l.schedule("t", fmt.Sprint("e", n), time.Now().Add(time.Minute))
				s.Accepted("t", 10, at)
			}
			for range 3 {
				if !full() {
					t.Error("not full")
				}
				if err := s.Reserve("other", 10); err != nil {
					t.Errorf("another topic: %v", err)
				}
				s.Return("other", 10)
				time.Sleep(2 * time.Second) // they are counted
			}
			l.set(func() { delete(l.waiting, "e4") }) // cancelled
			time.Sleep(2 * time.Second)
			if full() {
				t.Error("full after one was cancelled")
			}
			s.Return("t", 10) // a duplicate
			if full() {
				t.Error("full after one was not scheduled")
			}
			if !full() {
				t.Error("not full")
			}
			l.set(func() { clear(l.waiting) })
			s.Return("t", 10)
			time.Sleep(2 * time.Second)
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.rooms) > 0 {
				t.Errorf("%d topics are kept account of that have none", len(s.rooms))
			}
			if (l.counted > 0) != (mine != nil) {
				t.Errorf("%d topics were counted by themselves", l.counted)
			}
		})
	}
}

// The scheduled events of a topic have as many bytes as its stored ones may have.
func TestTopicsAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		s, stop := start(l, nil, clock.System())
		defer stop()
		s.cfg.MostBytes = func(string) int64 { return 35 }
		synctest.Wait()
		var e *wire.Error
		if err := s.Reserve("t", 36); !errors.As(err, &e) || e.Reason != "scheduled" || !strings.Contains(e.Msg, "retention.max_bytes") {
			t.Errorf("one that is larger than all may be: %v", err)
		}
		for i := range 3 {
			if err := s.Reserve("t", 10); err != nil {
				t.Error(err)
			}
			s.Accepted("t", 10, l.schedule("t", fmt.Sprint(i), time.Now().Add(time.Minute)))
		}
		for range 2 {
			if s.Reserve("t", 6) == nil {
				t.Error("36 bytes of 35")
			}
			time.Sleep(2 * time.Second) // they are counted
		}
		time.Sleep(time.Minute) // they are released
		if err := s.Reserve("t", 35); err != nil {
			t.Error(err)
		}
	})
}

// A count misses events that were admitted before it and are stored after it: they stay admitted.
func TestEventsOnTheirWayAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLog()
		s, stop := start(l, nil, clock.System())
		defer stop()
		s.cfg.Most = 2
		synctest.Wait()
		time.Sleep(500 * time.Millisecond)
		full := func() bool { return s.Reserve("t", 10) != nil }
		for n := range 2 {
			if full() {
				t.Errorf("full with %d events", n)
			}
		}
		time.Sleep(time.Second) // they are counted
		for _, id := range []string{"a", "b"} {
			if !full() {
				t.Errorf("not full before %s was stored", id)
			}
			s.Accepted("t", 10, l.schedule("t", id, time.Now().Add(time.Minute)))
			time.Sleep(time.Second)
		}
		if !full() {
			t.Error("not full with two events")
		}
		l.set(func() { delete(l.waiting, "a") }) // cancelled
		time.Sleep(time.Second)
		if full() {
			t.Error("full after one was cancelled")
		}
	})
}
