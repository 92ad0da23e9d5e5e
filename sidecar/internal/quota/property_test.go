package quota_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// event is something that happens to a fleet.
type event struct {
	after   time.Duration
	kind    string
	sidecar int
	load    load
	lasts   time.Duration
}

func (e event) String() string {
	return fmt.Sprintf("+%v %s %d %+v %v", e.after, e.kind, e.sidecar, e.load, e.lasts)
}

func someEvent(t *rapid.T, sidecars, burst int, rate float64) event {
	return event{
		after:   time.Duration(rapid.IntRange(0, 2000).Draw(t, "after")) * time.Millisecond,
		kind:    rapid.SampledFrom([]string{"load", "load", "load", "load", "cut", "stall", "restart", "replace"}).Draw(t, "kind"),
		sidecar: rapid.IntRange(0, sidecars-1).Draw(t, "sidecar"),
		load: load{
			perSecond: rapid.SampledFrom([]float64{0, 0.1, 0.5, 1, 3}).Draw(t, "load") * rate,
			batch:     rapid.SampledFrom([]int{1, 1, 1, max(1, burst/4), burst}).Draw(t, "batch"),
			poisson:   rapid.Bool().Draw(t, "poisson"),
		},
		lasts: time.Duration(rapid.IntRange(0, 4000).Draw(t, "lasts")) * time.Millisecond,
	}
}

// happen lets the event happen, without waiting for its end.
func (f *fleet) happen(e event) {
	s := f.sidecars[e.sidecar]
	switch e.kind {
	case "load":
		s.load.Store(&e.load)
	case "cut":
		s.port.cut(true)
		time.AfterFunc(e.lasts, func() { s.port.cut(false) })
	case "stall":
		s.port.stall(e.lasts)
	case "restart":
		f.stopServer()
		time.Sleep(e.lasts / 4)
		f.startServer()
	case "replace":
		s.leave()
		n := f.join()
		n.load.Store(s.load.Load())
		f.sidecars[e.sidecar] = n
	}
}

// Under any history, the events admitted by shares stay within burst + slack + rate × time in every
// window. Events that a sidecar admits by its fallback stay within the fallback's own bound.
func TestAnyHistoryKeepsTheBound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.SampledFrom([]float64{0.5, 3, 20, 100}).Draw(rt, "rate")
		burst := rapid.IntRange(1, 1+2*int(rate)).Draw(rt, "burst")
		sidecars := rapid.IntRange(1, 6).Draw(rt, "sidecars")
		slow := rapid.IntRange(1, 100).Draw(rt, "delay up to ms")
		events := make([]event, rapid.IntRange(1, 15).Draw(rt, "events"))
		for i := range events {
			events[i] = someEvent(rt, sidecars, burst, rate)
		}
		var f *fleet
		synctest.Test(t, func(*testing.T) {
			f = newFleet(rate, burst, time.Duration(slow)*time.Millisecond)
			for range sidecars {
				f.add()
			}
			for _, e := range events {
				time.Sleep(e.after)
				f.happen(e)
			}
			time.Sleep(4 * time.Second)
			f.close()
		})
		f.sort()
		if got, most := excess(f.accepted(0), rate), float64(burst)+slack(rate); got > most+1e-6 {
			rt.Fatalf("%.2f more than rate × time passed, at most %.2f are allowed", got, most)
		}
		alone, known := rate/float64(sidecars), float64(sidecars)
		for i := range f.joined {
			if got, most := excess(f.accepted(1+i), alone), max(1, float64(burst)/known); got > most+1e-6 {
				rt.Fatalf("sidecar %d: %.2f more than its fallback rate × time passed, at most %.2f are allowed", i, got, most)
			}
		}
	})
}

// However the load is spread, once it is settled at least 90 % are used of the rate, or of what one
// bucket for all would have let through.
func TestAnySpreadUsesTheRate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.SampledFrom([]float64{3, 10, 40}).Draw(rt, "rate")
		burst := rapid.IntRange(1+int(rate)/10, 1+2*int(rate)).Draw(rt, "burst")
		weights := rapid.SliceOfN(rapid.Float64Range(0.05, 1), 1, 12).Draw(rt, "weights")
		total := rate * rapid.Float64Range(1.05, 3).Draw(rt, "demand")
		batch := rapid.SampledFrom([]int{1, 1, max(1, burst/10)}).Draw(rt, "batch")
		poisson := rapid.Bool().Draw(rt, "poisson")
		sum := 0.0
		for _, w := range weights {
			sum += w
		}
		const from, window = 8 * time.Second, 10 * time.Second
		var f *fleet
		synctest.Test(t, func(*testing.T) {
			f = newFleet(rate, burst, 10*time.Millisecond)
			for range weights {
				f.add()
			}
			time.Sleep(4 * time.Second)
			for i, w := range weights {
				f.sidecars[i].load.Store(&load{perSecond: total * w / sum, batch: batch, poisson: poisson})
			}
			time.Sleep(from + window - 4*time.Second)
			f.close()
		})
		f.sort()
		got := within(f.accepted(0), from, from+window)
		could := min(10*rate, float64(within(f.ideal(rate, burst), from, from+window)))
		if float64(got) < 0.9*could-float64(batch) {
			rt.Fatalf("only %d passed in 10 s, of %v that could have", got, could)
		}
	})
}
