package effect_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/controlplane/internal/effect"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/policy"
)

func limits(change func(*policy.Publish)) *policy.Effective {
	e := policy.Defaults()
	e.Publish.Rate, e.Publish.Burst = 10, 10
	change(&e.Publish)
	return &e
}

// steady is an hour of a rate, whose slots begin with a burst.
func steady(perSlot, peak float32) (h fleet.Hour) {
	for i := range h {
		h[i] = fleet.Slot{Events: perSlot, Peak: peak}
	}
	return h
}

func TestRefused(t *testing.T) {
	slots := float64(len(fleet.Hour{}))
	busy, bursts := steady(15*12, 12), steady(100, 100)
	paused := policy.Defaults()
	paused.Paused = true
	for name, c := range map[string]struct {
		policy *policy.Effective
		hours  []fleet.Hour
		want   float64
	}{
		"below the rate":  {limits(func(*policy.Publish) {}), []fleet.Hour{steady(150, 10)}, 0},
		"above it":        {limits(func(*policy.Publish) {}), []fleet.Hour{busy}, slots*30 - 10},
		"bursts":          {limits(func(*policy.Publish) {}), []fleet.Hour{bursts}, slots * 80},
		"bursts that may": {limits(func(p *policy.Publish) { p.Burst = 90 }), []fleet.Hour{bursts}, 0},
		"no limit":        {limits(func(p *policy.Publish) { p.Rate = 0 }), []fleet.Hour{busy}, 0},
		"each sidecar":    {limits(func(*policy.Publish) {}), []fleet.Hour{busy, busy, {}}, 2 * (slots*30 - 10)},
		"the fleet":       {limits(func(p *policy.Publish) { p.Scope = policy.ScopeFleet }), []fleet.Hour{busy, busy}, slots*210 - 10},
		"publishes that wait": {limits(func(p *policy.Publish) { p.OnLimit, p.MaxWait = policy.LimitWait, 8*time.Second }),
			[]fleet.Hour{bursts}, 0},
		"a paused topic":           {&paused, []fleet.Hour{busy}, slots * 180},
		"a topic that nobody used": {limits(func(*policy.Publish) {}), nil, 0},
	} {
		got, known := effect.Refused(c.policy, c.hours)
		if math.Abs(got-c.want) > 0.01 || !known {
			t.Errorf("%s: %v refused (known: %v), want %v", name, got, known, c.want)
		}
	}
	if _, known := effect.Refused(limits(func(p *policy.Publish) { p.Per = "header:tenant" }), []fleet.Hour{busy}); known {
		t.Error("the rates of tenants are not known")
	}
}

// What is accepted is at most burst + rate × time, and a wider limit never refuses more.
func TestRefusedKeepsTheBoundOfALimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var hour fleet.Hour
		for i := range hour {
			hour[i].Events = float32(rapid.IntRange(0, 200).Draw(t, "events"))
			hour[i].Peak = hour[i].Events * rapid.Float32Range(1./15, 1).Draw(t, "peak")
		}
		rate, burst := rapid.Float64Range(0.1, 20).Draw(t, "rate"), rapid.IntRange(1, 50).Draw(t, "burst")
		refused := func(rate float64, burst int) float64 {
			n, _ := effect.Refused(limits(func(p *policy.Publish) { p.Rate, p.Burst = rate, burst }), []fleet.Hour{hour})
			return n
		}
		events, n := effect.Events([]fleet.Hour{hour}), refused(rate, burst)
		if most := float64(burst) + rate*time.Hour.Seconds(); n < 0 || events-n > most+0.01 {
			t.Fatalf("%v of %v events refused, %v may be accepted", n, events, most)
		}
		if wider := refused(rate*1.5, burst+1); wider > n+0.01 {
			t.Fatalf("a wider limit refuses %v in place of %v", wider, n)
		}
	})
}
