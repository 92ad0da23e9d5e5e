package group

import (
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
)

func TestDeleteGroup(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b:k", "c")
		if err := w.m.Delete(t.Context(), topic, "g"); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("a group that nobody has: %v", err)
		}
		c := w.join()
		c.wants("a/1 c/1")
		c.ack("a")
		c.wants("b/1")
		if err := w.m.Delete(t.Context(), topic, "g"); !errors.Is(err, &wire.Error{Code: wire.InUse}) {
			t.Errorf("a group with a member: %v; want in_use", err)
		}
		c.leave(Unsubscribed)
		require.NoError(t, w.m.Delete(t.Context(), topic, "g"))
		if _, err := w.m.Info(t.Context(), topic, "g"); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("Info of a deleted group: %v; want ErrNotFound", err)
		}
		if err := w.m.Delete(t.Context(), topic, "g"); !errors.Is(err, eventlog.ErrNotFound) {
			t.Errorf("deleted again: %v", err)
		}
		w.join().wants("a/1 c/1") // it starts over
	})
}

// TestDeleteIsBrokenOff: where a step of a deletion fails, the group is as it was. Another deletion
// deletes it.
func TestDeleteIsBrokenOff(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b")
		c := w.join()
		c.ack("a")
		c.leave(Unsubscribed)
		w.log.locked(func() { w.log.saveErr = errStore })
		if err := w.m.Delete(t.Context(), topic, "g"); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Fatalf("error %v", err)
		}
		w.log.locked(func() { w.log.saveErr = nil })
		again := w.join()
		again.wants("b/1")
		again.leave(Unsubscribed)
		require.NoError(t, w.m.Delete(t.Context(), topic, "g"))
		w.join().wants("a/1 b/1")
	})
}

func TestUnused(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		inUse := func() bool {
			err := w.m.Unused(t.Context(), topic)
			if err != nil && !errors.Is(err, &wire.Error{Code: wire.InUse}) {
				t.Errorf("Unused: %v", err)
			}
			return err != nil
		}
		c := w.join()
		if !inUse() {
			t.Error("a topic with a member")
		}
		c.leave(Unsubscribed)
		if inUse() {
			t.Error("a topic that nobody has")
		}
	})
}

func TestPlanSeek(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c", "d")
		c := w.join()
		c.ack("a", "b")
		before, err := w.m.Info(t.Context(), topic, "g")
		require.NoError(t, err)
		last := slices.MaxFunc(before.Partitions, func(a, b wire.GroupPartition) int { return int(a.Head) - int(b.Head) })
		for _, tc := range []struct {
			o              wire.SubscribeOptions
			replays, skips int64
		}{
			{wire.SubscribeOptions{From: wire.FromEarliest}, 2, 0},
			{wire.SubscribeOptions{From: wire.FromLatest}, 0, 2},
			{wire.SubscribeOptions{From: wire.FromPositions}, 0, 0},
		} {
			plan, err := w.m.PlanSeek(t.Context(), topic, "g", tc.o)
			if err != nil || plan.Replays != tc.replays || plan.Skips != tc.skips || len(plan.Partitions) != len(before.Partitions) {
				t.Errorf("%s: %+v, %v; want %d replays and %d skips", tc.o.From, plan, err, tc.replays, tc.skips)
			}
		}
		for seq, code := range map[uint64]wire.Code{last.Head + 1: wire.BadRequest} {
			o := wire.SubscribeOptions{From: wire.FromPositions, Positions: map[int]uint64{last.Partition: seq}}
			if err := w.m.Seek(t.Context(), topic, "g", o); !errors.Is(err, &wire.Error{Code: code}) {
				t.Errorf("position %d: %v; want %s", seq, err, code)
			}
		}
		after, err := w.m.Info(t.Context(), topic, "g")
		if err != nil || after.Lag != before.Lag {
			t.Errorf("a plan has moved the group: %+v, %v", after, err)
		}
	})
}

// A seek to the position of one partition goes on right behind it, and leaves the others as they are.
// Its plan says the same.
func TestSeekToAPosition(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a", "b", "c", "d", "e", "f")
		c := w.join()
		c.ack("a", "b", "c", "d", "e", "f")
		before, err := w.m.Info(t.Context(), topic, "g")
		require.NoError(t, err)
		far := slices.MaxFunc(before.Partitions, func(a, b wire.GroupPartition) int { return int(a.Head) - int(b.Head) })
		o := wire.SubscribeOptions{From: wire.FromPositions, Positions: map[int]uint64{far.Partition: far.Head - 1}}
		plan, err := w.m.PlanSeek(t.Context(), topic, "g", o)
		if err != nil || plan.Replays != 1 || plan.Skips != 0 {
			t.Errorf("%+v, %v", plan, err)
		}
		require.NoError(t, w.m.Seek(t.Context(), topic, "g", o))
		after, err := w.m.Info(t.Context(), topic, "g")
		require.NoError(t, err)
		for i, p := range after.Partitions {
			want := before.Partitions[i].Cursor
			if p.Partition == far.Partition {
				want = far.Head
			}
			if move := plan.Partitions[i]; p.Cursor != want || move.From != before.Partitions[i].Cursor || move.To != want {
				t.Errorf("partition %d is at %d, planned as %+v; want %d", p.Partition, p.Cursor, move, want)
			}
		}
	})
}

// TestTooManyGroups: no caller can make more groups than the store is to have.
func TestTooManyGroups(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.m.count.most = 3
		subscribe := func(name string) error {
			m, err := w.m.Subscribe(t.Context(), Subscription{Topic: topic, Group: name, Sink: &fakeSink{}, Pacer: &fakePacer{}})
			if err == nil {
				m.Close(Unsubscribed)
			}
			return err
		}
		made := 0
		for i := range 101 {
			switch err := subscribe(strconv.Itoa(i)); {
			case err == nil:
				made++
			case !errors.Is(err, &wire.Error{Code: wire.Overloaded}):
				t.Fatal(err)
			}
		}
		if made != 3 {
			t.Errorf("%d groups were made; want 3", made)
		}
		if err := subscribe("0"); err != nil {
			t.Errorf("a group that is there: %v", err)
		}
		require.NoError(t, w.m.Delete(t.Context(), topic, "0"))
		advance(countEvery)
		if err := subscribe("new"); err != nil {
			t.Errorf("after a deletion: %v", err)
		}
	})
}

// TestRecheckForgetsErased: an event that was erased is not delivered from memory, and another one
// may have its id.
func TestRecheckForgetsErased(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b:k", "c:k")
		c := w.join()
		c.wants("a/1") // b and c wait for it in memory
		w.log.locked(func() {
			gone := *w.log.topics[topic][0][1]
			gone.ID = "gone"
			w.log.topics[topic][0][1] = &gone
		})
		require.NoError(t, w.m.Recheck(t.Context(), topic))
		w.publish("b:k")
		c.ack("a")
		c.wants("c/1")
		c.ack("c")
		c.wants("b/1")
	})
}

// TestRecheckForgetsRedriven: the group does not redrive an erased dead letter from memory. A
// request to redrive is gone with its group.
func TestRecheckForgetsRedriven(t *testing.T) {
	run(t, func(t *testing.T, w *world) {
		w.publish("a:k", "b:k", "c:k")
		c := w.join()
		for _, id := range []string{"a", "b", "c"} {
			c.wants(id + "/1")
			c.nackAs(toDeadLetters, id)
		}
		letter := w.log.dead()["b"][0].Letter.ID
		w.redrive("a", "b", "c")
		c.wants("a/1") // b and c wait for it in memory
		if _, err := w.log.Remove(t.Context(), topic+wire.DeadLetterSuffix, []string{letter}, eventlog.Retention{}, 0); err != nil {
			t.Fatal(err)
		}
		require.NoError(t, w.m.Recheck(t.Context(), topic+wire.DeadLetterSuffix))
		c.ack("a")
		c.wants("c/1")
		c.leave(Unsubscribed)
		require.NoError(t, w.m.Delete(t.Context(), topic, "g"))
		if n := len(w.log.redrives); n != 0 {
			t.Errorf("%d redrives are left of a deleted group", n)
		}
	})
}
