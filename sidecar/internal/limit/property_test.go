package limit_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

func someRate(t *rapid.T, label string) limit.Rate {
	return limit.Rate{
		PerSecond: rapid.OneOf(
			rapid.Float64Range(0.01, 20),
			rapid.Float64Range(1, 1e6),
		).Draw(t, label+" rate"),
		Burst: rapid.IntRange(1, 2000).Draw(t, label+" burst"),
	}
}

func somePause(t *rapid.T) time.Duration {
	return time.Duration(rapid.OneOf(
		rapid.Int64Range(0, 1000),
		rapid.Int64Range(0, int64(3*time.Second)),
	).Draw(t, "pause"))
}

// tolerance is what sums of floating point numbers may be off by.
const tolerance = 1e-6

// In any window without a retune: admitted ≤ burst + rate × (t + d), with times that arrive out of
// order, and d the longest time for which tokens that are refunded were taken; 0 where they are
// refunded at once.
func TestAnyWindowKeepsTheBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type admission struct {
			at time.Time // as the bucket saw it
			n  int
		}
		var (
			now      = epoch // of the world
			seen     = epoch // of the bucket: the latest time that it was handed
			tuned    = someRate(t, "first")
			b        = limit.NewBucket(tuned, now)
			admitted []admission
			held     []limit.Charge // to be refunded
			since    []time.Time
			longest  time.Duration
		)
		refund := func() {
			if len(held) > 0 {
				limit.RefundAll(held, now)
				seen, held, since = now, nil, nil
			}
		}
		late := rapid.Bool().Draw(t, "refund late")
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(somePause(t))
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				refund()
				tuned, admitted, longest = someRate(t, "next"), nil, 0
				b.Retune(tuned, now)
				seen = now
			case 1:
				refund()
			default:
				read := now.Add(-time.Duration(rapid.Int64Range(0, int64(time.Second)).Draw(t, "clock read earlier")))
				if read.After(seen) {
					seen = read
				}
				charges := []limit.Charge{{Bucket: b, N: rapid.IntRange(1, tuned.Burst).Draw(t, "n")}}
				switch {
				case !limit.TakeAll(charges, read).OK:
				case rapid.Bool().Draw(t, "keep"):
					admitted = append(admitted, admission{seen, charges[0].N})
				case late:
					held, since = append(held, charges[0]), append(since, seen)
				default:
					limit.RefundAll(charges, read)
				}
			}
			for _, at := range since {
				longest = max(longest, now.Sub(at))
			}
			sum := 0
			for i := len(admitted) - 1; i >= 0; i-- {
				sum += admitted[i].n
				window := seen.Sub(admitted[i].at) + longest
				if most := float64(tuned.Burst) + tuned.PerSecond*window.Seconds(); float64(sum) > most+tolerance {
					t.Fatalf("admitted %d within %v, at most %v are allowed", sum, window, most)
				}
			}
		}
	})
}

// model is a bucket in a few lines, with the time handed in in order.
type model struct {
	tuned  limit.Rate
	tokens float64
	last   time.Time
}

func (m *model) advance(now time.Time) {
	m.tokens = min(float64(m.tuned.Burst), m.tokens+m.tuned.PerSecond*now.Sub(m.last).Seconds())
	m.last = now
}

// The bucket decides as the model does, save where rounding decides; the bound of the model then is
// the bucket's.
func TestBucketEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{tuned: someRate(t, "first"), last: epoch}
		m.tokens = float64(m.tuned.Burst)
		b := limit.NewBucket(m.tuned, epoch)
		var held []limit.Charge
		now := epoch
		t.Repeat(map[string]func(*rapid.T){
			"pause": func(t *rapid.T) { now = now.Add(somePause(t)) },
			"take": func(t *rapid.T) {
				n := rapid.IntRange(1, m.tuned.Burst+1).Draw(t, "n")
				m.advance(now)
				charges := []limit.Charge{{Bucket: b, N: n}}
				v := limit.TakeAll(charges, now)
				switch {
				case n > m.tuned.Burst:
					if v.OK || !v.OverBurst || v.Burst != m.tuned.Burst {
						t.Fatalf("%d of a burst of %d: %+v", n, m.tuned.Burst, v)
					}
				case v.OK:
					if m.tokens+tolerance < float64(n) {
						t.Fatalf("took %d of %v", n, m.tokens)
					}
					m.tokens -= float64(n)
					held = append(held, charges[0])
				case m.tokens-tolerance > float64(n):
					t.Fatalf("refused %d of %v", n, m.tokens)
				}
			},
			"refund": func(t *rapid.T) {
				if len(held) == 0 {
					t.Skip("nothing to refund")
				}
				last := len(held) - 1
				m.advance(now)
				m.tokens = min(m.tokens+float64(held[last].N), float64(m.tuned.Burst))
				limit.RefundAll(held[last:], now)
				held = held[:last]
			},
			"retune": func(t *rapid.T) {
				m.advance(now)
				m.tuned = someRate(t, "next")
				b.Retune(m.tuned, now)
				m.tokens = min(m.tokens, float64(m.tuned.Burst))
			},
		})
	})
}

// A sole user that comes back after the wait is admitted, and one that comes back clearly earlier
// is not.
func TestWaitIsEnoughAndNotTooLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first, second := someRate(t, "first"), someRate(t, "second")
		now := epoch
		connection, topic := limit.NewBucket(first, now), limit.NewBucket(second, now)
		connection.Take(rapid.IntRange(0, first.Burst).Draw(t, "of connection"), now)
		topic.Take(rapid.IntRange(0, second.Burst).Draw(t, "of topic"), now)
		now = now.Add(somePause(t))
		n := rapid.IntRange(1, min(first.Burst, second.Burst)).Draw(t, "n")
		charges := []limit.Charge{{Bucket: connection, N: n}, {Bucket: topic, N: n}}
		v := limit.TakeAll(charges, now)
		if v.OK {
			return
		}
		slack := time.Duration(math.Ceil(1e9*tolerance/min(first.PerSecond, second.PerSecond))) + 2
		if early := v.Wait - slack; early > 0 {
			if limit.TakeAll(charges, now.Add(early)).OK {
				t.Fatalf("admitted %v before the wait of %v was over", slack, v.Wait)
			}
		}
		if v.Wait <= 0 {
			t.Fatalf("refused with a wait of %v", v.Wait)
		}
		if again := limit.TakeAll(charges, now.Add(v.Wait)); !again.OK {
			t.Fatalf("refused after the wait of %v: %+v", v.Wait, again)
		}
	})
}

// A request that one bucket refuses changes no other bucket, and a refund at once restores all of
// them.
func TestRefusedTakesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rates := []limit.Rate{someRate(t, "connection"), someRate(t, "topic"), someRate(t, "bytes")}
		used, wanted := make([]limit.Charge, len(rates)), make([]*limit.Bucket, len(rates))
		for i, r := range rates {
			spent := rapid.IntRange(0, r.Burst).Draw(t, "spent")
			used[i] = limit.Charge{Bucket: limit.NewBucket(r, epoch), N: rapid.IntRange(1, r.Burst+1).Draw(t, "n")}
			wanted[i] = limit.NewBucket(r, epoch)
			used[i].Bucket.Take(spent, epoch)
			wanted[i].Take(spent, epoch)
		}
		if limit.TakeAll(used, epoch).OK {
			limit.RefundAll(used, epoch)
		}
		for i := range rates {
			if got, want := available(used[i].Bucket, epoch), available(wanted[i], epoch); got != want {
				t.Fatalf("bucket %d has %d tokens, want %d", i, got, want)
			}
		}
	})
}
