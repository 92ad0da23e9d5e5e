package limit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluice-bus/sluice/sidecar/internal/limit"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// available counts the tokens that can be taken one by one at now.
func available(b *limit.Bucket, now time.Time) int {
	n := 0
	for b.Take(1, now).OK {
		n++
	}
	return n
}

// The refund rests on rate.Limiter taking negative numbers, and capping what it holds whenever it
// is looked at. This pins that behaviour of our version.
func TestLimiterTakesNegativeNumbers(t *testing.T) {
	l := rate.NewLimiter(10, 5)
	l.AllowN(epoch, 4)
	if !l.AllowN(epoch, -3) || l.TokensAt(epoch) != 4 {
		t.Fatalf("after taking 4 of 5 and -3: %v tokens, want 4", l.TokensAt(epoch))
	}
	if !l.AllowN(epoch, -3) || l.TokensAt(epoch) != 5 {
		t.Fatalf("after giving back more than is missing: %v tokens, want the burst of 5", l.TokensAt(epoch))
	}
	l.SetBurstAt(epoch, 100)
	if got := l.TokensAt(epoch); got != 5 {
		t.Fatalf("a larger burst made hidden tokens visible: %v, want 5", got)
	}
}

func TestTakeIsAllOrNothing(t *testing.T) {
	b := limit.NewBucket(limit.Rate{PerSecond: 10, Burst: 5}, epoch)
	if v := b.Take(3, epoch); !v.OK {
		t.Fatalf("3 of 5 refused: %+v", v)
	}
	v := b.Take(3, epoch)
	if v.OK || v.Wait != 100*time.Millisecond {
		t.Fatalf("3 of 2: %+v, want a refusal with a wait of 100ms", v)
	}
	if got := available(b, epoch); got != 2 {
		t.Fatalf("%d tokens left, want 2", got)
	}
}

func TestOverBurstIsToldApart(t *testing.T) {
	b := limit.NewBucket(limit.Rate{PerSecond: 10, Burst: 5}, epoch)
	want := limit.Verdict{OverBurst: true, Burst: 5}
	if v := b.Take(6, epoch); v != want {
		t.Fatalf("got %+v, want %+v", v, want)
	}
	if got := available(b, epoch); got != 5 {
		t.Fatalf("%d tokens left, want 5", got)
	}
}

func TestNoLimit(t *testing.T) {
	b := limit.NewBucket(limit.Rate{}, epoch)
	if v := b.Take(1<<40, epoch); !v.OK {
		t.Fatalf("refused without a limit: %+v", v)
	}
}

func TestWaitOfATinyRate(t *testing.T) {
	b := limit.NewBucket(limit.Rate{PerSecond: 1e-300, Burst: 1}, epoch)
	b.Take(1, epoch)
	if v := b.Take(1, epoch); v.OK || v.Wait < 70*365*24*time.Hour || v.Wait+v.Wait < 0 {
		t.Fatalf("got %+v, want a very long wait that can be added to", v)
	}
}

func TestTimesOutOfOrderPayOnce(t *testing.T) {
	b := limit.NewBucket(limit.Rate{PerSecond: 10, Burst: 10}, epoch)
	available(b, epoch)
	later := epoch.Add(500 * time.Millisecond)
	got := available(b, later)
	for range 10 {
		got += available(b, epoch)
		got += available(b, later)
	}
	if got != 5 {
		t.Fatalf("%d tokens in half a second at 10/s, want 5", got)
	}
}

func TestRetuneKeepsTokens(t *testing.T) {
	for _, c := range []struct {
		name     string
		from, to limit.Rate
		want     int // tokens at once, after taking 4 under from
	}{
		{"faster", limit.Rate{PerSecond: 10, Burst: 10}, limit.Rate{PerSecond: 1000, Burst: 10}, 6},
		{"larger", limit.Rate{PerSecond: 10, Burst: 10}, limit.Rate{PerSecond: 10, Burst: 100}, 6},
		{"smaller", limit.Rate{PerSecond: 10, Burst: 10}, limit.Rate{PerSecond: 10, Burst: 2}, 2},
		{"from no limit", limit.Rate{}, limit.Rate{PerSecond: 10, Burst: 7}, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := limit.NewBucket(c.from, epoch)
			b.Take(4, epoch)
			b.Retune(c.to, epoch)
			if got := available(b, epoch); got != c.want {
				t.Fatalf("%d tokens, want %d", got, c.want)
			}
		})
	}
	b := limit.NewBucket(limit.Rate{PerSecond: 10, Burst: 10}, epoch)
	b.Retune(limit.Rate{}, epoch)
	if v := b.Take(1000, epoch); !v.OK {
		t.Fatalf("refused after the limit was lifted: %+v", v)
	}
}

func TestRefundOfWhatHadNoLimit(t *testing.T) {
	b := limit.NewBucket(limit.Rate{}, epoch)
	charges := []limit.Charge{{Bucket: b, N: 10}}
	limit.TakeAll(charges, epoch)
	b.Retune(limit.Rate{PerSecond: 1, Burst: 10}, epoch)
	available(b, epoch)
	limit.RefundAll(charges, epoch)
	if got := available(b, epoch); got != 0 {
		t.Fatalf("%d tokens were given back that nobody had taken", got)
	}
}

func TestTakeAllNamesTheBucket(t *testing.T) {
	connection := limit.NewBucket(limit.Rate{PerSecond: 10, Burst: 10}, epoch)
	topic := limit.NewBucket(limit.Rate{PerSecond: 1, Burst: 4}, epoch)
	take := func(n int) limit.Verdict {
		return limit.TakeAll([]limit.Charge{{Bucket: connection, N: n}, {Bucket: topic, N: n}}, epoch)
	}
	if v := take(4); !v.OK {
		t.Fatalf("refused: %+v", v)
	}
	if v, want := take(2), (limit.Verdict{Refused: 1, Wait: 2 * time.Second}); v != want {
		t.Fatalf("got %+v, want %+v", v, want)
	}
	connection.Take(6, epoch)
	if v, want := take(1), (limit.Verdict{Refused: 1, Wait: time.Second}); v != want {
		t.Fatalf("both empty: got %+v, want the longer wait %+v", v, want)
	}
	if v, want := take(5), (limit.Verdict{Refused: 1, OverBurst: true, Burst: 4}); v != want {
		t.Fatalf("got %+v, want %+v", v, want)
	}
}

func TestOneSecond(t *testing.T) {
	for perSecond, burst := range map[float64]int{0.5: 1, 1: 1, 2.5: 2, 1000: 1000, 1e300: 1<<31 - 1} {
		if got := limit.OneSecond(perSecond); got.Burst != burst || got.PerSecond != perSecond {
			t.Errorf("OneSecond(%v) = %+v, want a burst of %d", perSecond, got, burst)
		}
	}
	if b := limit.NewBucket(limit.OneSecond(0), epoch); !b.Take(100, epoch).OK {
		t.Error("a rate of 0 limits")
	}
}

func TestConcurrentUse(t *testing.T) {
	const burst, each, workers = 1000, 400, 8
	connection := limit.NewBucket(limit.Rate{PerSecond: 1e-9, Burst: burst}, epoch)
	topic := limit.NewBucket(limit.Rate{PerSecond: 1e-9, Burst: burst / 2}, epoch)
	var kept atomic.Int64
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			for i := range each {
				charges := []limit.Charge{{Bucket: connection, N: 1}, {Bucket: topic, N: 1}}
				now := epoch.Add(time.Duration(i))
				switch {
				case !limit.TakeAll(charges, now).OK:
				case worker%2 == 0:
					limit.RefundAll(charges, now)
				default:
					kept.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if got, want := available(connection, epoch), burst-int(kept.Load()); got != want {
		t.Errorf("%d tokens left to the connection, want %d", got, want)
	}
	if got, want := available(topic, epoch), burst/2-int(kept.Load()); got != want {
		t.Errorf("%d tokens left to the topic, want %d", got, want)
	}
}

func BenchmarkTakeAll(b *testing.B) {
	now := time.Now()
	connection := limit.NewBucket(limit.Rate{PerSecond: 1e9, Burst: 1e9}, now)
	topic := limit.NewBucket(limit.Rate{PerSecond: 1e9, Burst: 1e9}, now)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		charges := [2]limit.Charge{{Bucket: connection, N: 1}, {Bucket: topic, N: 1}}
		if !limit.TakeAll(charges[:], now.Add(time.Duration(i)*100)).OK {
			b.Fatal("refused")
		}
	}
}
