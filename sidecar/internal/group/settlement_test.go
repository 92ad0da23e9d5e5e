package group

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// A nack to the dead letters during a seek: the event whose dead letter was on its way to the log is
// dead, and the other is lost, and comes again.
func TestDeadNackDuringASeek(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		k := w.joinPuller(unordered)
		ls := leases(k.pull(2)...)
		w.deadLetters.set(func() { w.deadLetters.hold = true })
		var appending, waiting []int
		w.m.NackLeases(topic, "g", ls[:1], toDeadLetters, func(_, lost []int, err error) { appending = append(lost, -1) })
		synctest.Wait()
		w.log.locked(func() { w.log.saveErr = errStore })
		w.m.NackLeases(topic, "g", ls[1:], toDeadLetters, func(_, lost []int, err error) { waiting = append(lost, -1) })
		synctest.Wait()
		w.log.locked(func() { w.log.saveErr = nil })
		w.seekEarliest()
		advance(time.Second)
		if !slices.Equal(waiting, []int{0, -1}) || appending != nil {
			t.Errorf("after the seek: %v and %v", appending, waiting)
		}
		w.deadLetters.release(nil)
		synctest.Wait()
		if !slices.Equal(appending, []int{-1}) {
			t.Errorf("after the append: %v", appending)
		}
		w.wantDead("a")
		if got := names(k.pull(2)); got != "a/1 b/1" {
			t.Errorf("it comes again as %s", got)
		}
	})
}

// movedGroup is a property's model of a group that is moved and redriven while members settle.
type movedGroup struct {
	*world
	k    *pullingClient
	got  map[string]int // deliveries, by event
	held []Delivery
	want map[string]int // how many a redrive promises

	mu       sync.Mutex
	answers  int            // that are to come
	promised map[string]int // dead letters, by event
}

// TestSettlingWhileMoved settles, seeks and redrives in any order while dead letters are appended and
// removed slowly. Whatever is answered is so: no answer is an error, a nack that is answered ok has
// made a dead letter, and each redrive is delivered, also while an earlier one ends.
func TestSettlingWhileMoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			w := newWorld(t, rapid.IntRange(1, 2).Draw(t, "partitions"))
			defer w.stop()
			x := &movedGroup{world: w, k: w.joinPuller(window(8), attempts(1000)),
				got: map[string]int{}, want: map[string]int{}, promised: map[string]int{}}
			t.Repeat(map[string]func(*rapid.T){
				"publish": func(*rapid.T) { w.publishN(2, "") },
				"pull":    func(*rapid.T) { x.take() },
				"ack":     func(t *rapid.T) { x.settle(t, nil) },
				"dead":    func(t *rapid.T) { x.settle(t, &toDeadLetters) },
				"seek":    x.seek,
				"redrive": func(t *rapid.T) { x.redrive(t) },
				"hold":    x.hold,
				"release": func(*rapid.T) { x.release() },
				"time":    func(*rapid.T) { advance(time.Second) },
			})
			x.finish(t)
		})
	})
}

func (x *movedGroup) take() {
	for _, d := range x.k.pull(4) {
		x.got[d.Record.ID]++
		x.held = append(x.held, d)
	}
}

// settle acks some of the held deliveries, or nacks them to the dead letters.
func (x *movedGroup) settle(t *rapid.T, nack *wire.Nack) {
	if len(x.held) == 0 {
		return
	}
	n := rapid.IntRange(1, len(x.held)).Draw(t, "events")
	some := slices.Clone(x.held[:n])
	x.held = x.held[n:]
	x.count(1)
	done := func(absent, lost []int, err error) {
		x.count(-1)
		if err != nil {
			t.Errorf("answered %v", err)
		}
		for i, d := range some {
			if nack != nil && !slices.Contains(absent, i) && !slices.Contains(lost, i) {
				x.kept(t, d.Record.ID)
			}
		}
	}
	if nack == nil {
		x.m.AckLeases(topic, "g", leases(some...), done)
	} else {
		x.m.NackLeases(topic, "g", leases(some...), *nack, done)
	}
	if rapid.Bool().Draw(t, "wait") {
		synctest.Wait()
	}
}

// count counts the answers that are to come.
func (x *movedGroup) count(by int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.answers += by
}

// kept wants one more dead letter of an event: as many as answers have promised.
func (x *movedGroup) kept(t *rapid.T, id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.promised[id]++
	made := 0
	x.deadLetters.set(func() {
		for _, rec := range x.deadLetters.appended {
			if d, _ := eventlog.ReadDead(rec); d.Event.ID == id {
				made++
			}
		}
	})
	if made < x.promised[id] {
		t.Errorf("%s has %d dead letters, and %d were promised", id, made, x.promised[id])
	}
}

func (x *movedGroup) hold(t *rapid.T) {
	if rapid.Bool().Draw(t, "appends") {
		x.deadLetters.set(func() { x.deadLetters.hold = true })
	} else {
		x.log.locked(func() {
			if x.log.ending == nil {
				x.log.ending = make(chan struct{})
			}
		})
	}
}

func (x *movedGroup) release() {
	x.deadLetters.release(nil)
	x.log.locked(func() {
		if x.log.ending != nil {
			close(x.log.ending)
			x.log.ending = nil
		}
	})
	synctest.Wait()
}

// seek moves the group, which may have to wait for removals.
func (x *movedGroup) seek(t *rapid.T) {
	x.count(1)
	go func() {
		if err := x.m.Seek(context.Background(), topic, "g", wire.SubscribeOptions{From: wire.FromEarliest}); err != nil {
			t.Errorf("sought: %v", err)
		}
		x.count(-1)
	}()
	synctest.Wait()
}

// redrive redrives the dead letters that are not redriven, as the API does.
func (x *movedGroup) redrive(t *rapid.T) (n int) {
	last := map[string]eventlog.Dead{} // by stable id
	for _, dead := range x.log.dead() {
		for _, d := range dead {
			if before, is := last[d.ID]; !is || eventlog.Deaths(before.Letter.ID) < eventlog.Deaths(d.Letter.ID) {
				last[d.ID] = d
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(last)) {
		d := last[id]
		r := []eventlog.Redrive{d.Redrive()}
		if has, _ := x.log.HasRedrives(context.Background(), topic, r); has[0] {
			continue
		}
		n++
		x.want[d.Event.ID] = x.got[d.Event.ID] + 1
		_ = x.log.AddRedrives(context.Background(), topic, r)
		x.m.Redriven(topic, "g")
		if rapid.Bool().Draw(t, "wait") {
			synctest.Wait()
		}
	}
	return n
}

// finish acks everything that comes, and redrives until nothing is dead.
func (x *movedGroup) finish(t *rapid.T) {
	for range 1000 {
		x.release()
		x.take()
		if len(x.held) > 0 {
			x.settle(t, nil)
		} else if advance(time.Minute); x.redrive(t) == 0 && len(x.held) == 0 && len(x.log.dead()) == 0 {
			break
		}
	}
	for id, want := range x.want {
		if x.got[id] < want {
			t.Errorf("%s came %d times, and was redriven for %d", id, x.got[id], want)
		}
	}
	if x.answers > 0 || len(x.log.dead()) > 0 {
		t.Errorf("%d answers are missing; dead are %v", x.answers, slices.Collect(maps.Keys(x.log.dead())))
	}
}

// TestALostAckIsNamed: the answer to a client that settles several events by id names those that were lost.
func TestALostAckIsNamed(t *testing.T) {
	var got error
	settledByID([]string{"a", "b", "c"}, func(err error) { got = err })(nil, []int{0, 2}, nil)
	stale := wire.AsError(got)
	if stale.Code != wire.StaleLease || !slices.Equal(stale.IDs, []string{"a", "c"}) {
		t.Errorf("%+v", stale)
	}
}
