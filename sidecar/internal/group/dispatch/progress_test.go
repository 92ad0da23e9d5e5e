package dispatch

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
	"github.com/sluice-bus/sluice/test/clocktest"
)

// Deliveries under way count if their owner died, and not if it ended in order, seq by seq. So does
// each unsettled event within its reach, up to the head, that the progress does not name.
func TestInherited(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const seqs = 12
		var pr eventlog.Progress
		var attempts [seqs]int
		var out, unsure, named [seqs]bool
		pr.Cursor = rapid.Uint64Range(0, 3).Draw(t, "cursor")
		pr.Reach, pr.ReachBy = rapid.Uint64Range(0, seqs+2).Draw(t, "reach"), "life"
		head := rapid.Uint64Range(0, seqs-1).Draw(t, "head")
		for seq := range uint64(seqs) {
			attempts[seq] = rapid.IntRange(0, 2).Draw(t, "attempts")
			out[seq] = attempts[seq] > 0 && rapid.Bool().Draw(t, "out")
			unsure[seq] = attempts[seq] > 0 && rapid.Bool().Draw(t, "unsure")
			pr.Attempts = addAttempts(pr.Attempts, seq, attempts[seq])
			if out[seq] {
				pr.Out, pr.OutBy = addSeq(pr.Out, seq), "life"
			}
			if unsure[seq] {
				pr.Unsure = addSeq(pr.Unsure, seq)
			}
			if named[seq] = attempts[seq] > 0; !named[seq] && seq > pr.Cursor {
				switch rapid.IntRange(0, 2).Draw(t, "otherwise") {
				case 1:
					pr.Settled, named[seq] = addSeq(pr.Settled, seq), true
				case 2:
					pr.Delays, named[seq] = append(pr.Delays, eventlog.Delay{Seq: seq}), true
				}
			}
		}
		ended := rapid.Bool().Draw(t, "ended")
		got := Inherit(pr, func(life string) bool { return ended && life == "life" }, head, time.Now())
		if len(got.Out) > 0 || got.OutBy != "" || got.Reach != 0 || got.ReachBy != "" {
			t.Fatalf("out: %v", got)
		}
		for seq := range uint64(seqs) {
			want, n := attempts[seq], 0
			if ended && out[seq] {
				want--
			}
			reached := !ended && !named[seq] && seq >= pr.Cursor && seq <= min(pr.Reach, head)
			if reached {
				want++
			}
			for _, r := range got.Attempts {
				if Holds(seq)(r.SeqRange) {
					n += r.Attempts
				}
			}
			if n != want {
				t.Errorf("seq %d has %d attempts, want %d: %+v", seq, n, want, got)
			}
			if is := slices.ContainsFunc(got.Unsure, Holds(seq)); is != (unsure[seq] || reached || out[seq] && !ended) {
				t.Errorf("seq %d is unsure: %v: %+v", seq, is, got)
			}
		}
	})
}

// A delay does not get longer for the next owner, although the clock of the owner that saved it may
// be ahead. If that clock is behind, the time itself counts.
func TestInheritedDelays(t *testing.T) {
	const wait = 5 * time.Second
	now := time.UnixMilli(1_723_140_000_000)
	never := func(string) bool { return false }
	for ahead, want := range map[time.Duration]time.Duration{time.Hour: wait, 0: wait, -time.Hour: wait - time.Hour} {
		saved := now.Add(ahead)
		p := &Partition{
			events:  []*Event{{Seq: 3, State: Delayed, wakeAt: saved.Add(wait)}},
			Redrive: redrives{events: []*Event{{Seq: 1, Letter: "a", State: Delayed, wakeAt: saved.Add(wait)}}},
		}
		p.Next = 4
		pr := p.Progress("", saved)
		for range 2 { // delays of events that are not fetched yet go on with the rest
			pr = Inherit(pr, never, 0, now)
			p = &Partition{}
			p.Restore(pr, now)
			if d, r := pr.Delays, pr.Redrives; len(d) != 1 || len(r) != 1 || d[0].Until != now.Add(want).UnixMilli() || r[0].Until != d[0].Until {
				t.Errorf("saved by a clock that is %v ahead: %+v %+v; want %v from now", ahead, d, r, want)
			}
			pr = p.Progress("", now)
		}
	}
}

// For the next owner a delay has its full length also where the owner's wall clock is set right
// after it began, whether the event is in memory or not.
func TestDelaysOfAClockThatIsSetRight(t *testing.T) {
	const wait = 5 * time.Second
	synctest.Test(t, func(t *testing.T) {
		for _, off := range []time.Duration{time.Hour, -time.Hour} {
			c := clocktest.New()
			c.SetWall(off)
			due := c.Now().Add(wait)
			p := &Partition{
				events:  []*Event{{Seq: 3, State: Delayed, wakeAt: due}},
				Redrive: redrives{events: []*Event{{Seq: 1, Letter: "a", State: Delayed, wakeAt: due}}},
				Place:   reader.Place{Next: 4},
			}
			kept := &Partition{}
			kept.Restore(p.Progress("", c.Now()), c.Now())
			time.Sleep(time.Second)
			c.SetWall(0)
			want := time.Now().Add(wait - time.Second).UnixMilli()
			for what, p := range map[string]*Partition{"in memory": p, "kept": kept} {
				pr := p.Progress("", c.Now())
				d, r := pr.Delays[0], pr.Redrives[0]
				if left := (wait - time.Second).Milliseconds(); d.Until != want || d.Left != left || r.Until != want || r.Left != left {
					t.Errorf("%s, of a clock that was %v ahead: %+v %+v; want %d", what, off, d, r, want)
				}
			}
			rec := &eventlog.Record{}
			rec.Seq = 3
			if e := kept.Fetched(rec); e.wakeAt.Sub(c.Now()) != wait-time.Second {
				t.Errorf("due in %v", e.wakeAt.Sub(c.Now()))
			}
		}
	})
}
