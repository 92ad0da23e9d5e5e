package fleet_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
)

func topic(t *testing.T, r *fleet.Registry, name string) fleet.Topic {
	t.Helper()
	for _, topic := range r.Topics(true) {
		if topic.Topic == name {
			return topic
		}
	}
	t.Fatalf("%s is not there", name)
	return fleet.Topic{}
}

func TestRatesAreThoseOfTheLastSeconds(t *testing.T) {
	r, c := newRegistry("cp1")
	c.pass(300 * time.Millisecond) // reports come in the middle of seconds
	for range 20 {
		c.pass(time.Second)
		r.Usage("a", "orders", 100, 10, c.at)
		r.Usage("b", "orders", 50, 0, c.at)
	}
	for _, later := range []time.Duration{0, 600 * time.Millisecond} {
		c.pass(later)
		got := topic(t, r, "orders")
		if got.AllowedPerSecond != 150 || got.DeniedPerSecond != 10 {
			t.Errorf("got %v and %v a second, want 150 and 10", got.AllowedPerSecond, got.DeniedPerSecond)
		}
		want := []fleet.Usage{{NodeID: "a", AllowedPerSecond: 100, DeniedPerSecond: 10}, {NodeID: "b", AllowedPerSecond: 50}}
		if !slices.Equal(got.BySidecar, want) || !slices.Equal(got.Sidecars, []string{"a", "b"}) {
			t.Errorf("got %+v of %v", got.BySidecar, got.Sidecars)
		}
		if n := len(got.History); n != 60 || got.History[n-1] != (fleet.Point{Allowed: 150, Denied: 10}) || got.History[0] != (fleet.Point{}) {
			t.Errorf("history of %d: %v", n, got.History)
		}
	}
	c.pass(8 * time.Second)
	if got := topic(t, r, "orders"); got.AllowedPerSecond != 0 || got.History[50].Allowed != 150 {
		t.Errorf("after 8 s of silence: %v a second, history %v", got.AllowedPerSecond, got.History)
	}
	if got := r.Topics(false)[0]; got.History != nil {
		t.Error("there is a history though nobody asked")
	}
}

func TestTheRateOfANewTopicIsOverTheTimeItHas(t *testing.T) {
	r, c := newRegistry("cp1")
	for range 4 {
		c.pass(time.Second)
		r.Usage("a", "orders", 100, 0, c.at)
	}
	if got := topic(t, r, "orders").AllowedPerSecond; got != 100 {
		t.Errorf("got %v a second, want 100", got)
	}
}

func TestIdleTopicsAreForgotten(t *testing.T) {
	r, c := newRegistry("cp1")
	r.Usage("a", "orders", 1, 0, c.at)
	r.Usage("b", "orders", 1, 0, c.at)
	r.Usage("a", "nothing", 0, 0, c.at)
	if got := r.Topics(false); len(got) != 1 {
		t.Errorf("got %v", got)
	}
	c.pass(fleet.KeepTopic)
	r.Usage("b", "orders", 1, 0, c.at)
	c.pass(time.Millisecond)
	if got := topic(t, r, "orders"); !slices.Equal(got.Sidecars, []string{"b"}) {
		t.Errorf("got %v", got.Sidecars)
	}
	c.pass(fleet.KeepTopic)
	if got := r.Topics(false); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestShares(t *testing.T) {
	r, _ := newRegistry("cp1")
	r.Share("a", "orders", 30)
	r.Share("a", "orders", 20)
	r.Share("b", "orders", 0)
	got := topic(t, r, "orders").BySidecar
	if len(got) != 2 || *got[0].SharePerSecond != 20 || *got[1].SharePerSecond != 0 {
		t.Errorf("got %+v", got)
	}
	r.Share("a", "orders", -1)
	r.Share("c", "orders", -1)
	r.Share("a", "no such topic", -1)
	if got := topic(t, r, "orders").BySidecar; len(got) != 2 || got[0].SharePerSecond != nil {
		t.Errorf("got %+v", got)
	}
}

func TestBeyondTheBoundNothingIsCounted(t *testing.T) {
	r, c := newRegistry("cp1")
	for i := range fleet.MaxTopics {
		r.Usage("a", fmt.Sprint(i), 1, 0, c.at)
	}
	r.Usage("a", "one more", 1, 0, c.at)
	if n := len(r.Topics(false)); n != fleet.MaxTopics || r.Uncounted() != 1 {
		t.Errorf("%d topics, %d uncounted", n, r.Uncounted())
	}
	c.pass(fleet.KeepTopic + time.Millisecond)
	r.Usage("a", "one more", 1, 0, c.at)
	if n := len(r.Topics(false)); n != 1 || r.Uncounted() != 1 {
		t.Errorf("later: %d topics, %d uncounted", n, r.Uncounted())
	}
}

// Histories add up to the reports of the last minute, whenever these come, and so do the parts.
func TestNothingIsLostOrCountedTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, c := newRegistry("cp1")
		var allowed, denied uint64
		for passed := time.Duration(0); passed < 50*time.Second; {
			pause := time.Duration(rapid.Int64Range(0, int64(4*time.Second)).Draw(t, "pause"))
			passed += pause
			c.pass(pause)
			a, d := rapid.Uint64Range(0, 1000).Draw(t, "allowed"), rapid.Uint64Range(0, 1000).Draw(t, "denied")
			late := time.Duration(rapid.Int64Range(0, int64(2*time.Second)).Draw(t, "late"))
			r.Usage(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "node"), "orders", a, d, c.at.Add(-late))
			allowed += a
			denied += d
		}
		c.pass(2 * time.Second)
		topics := r.Topics(true)
		if allowed+denied == 0 {
			return
		}
		var sum fleet.Point
		for _, p := range topics[0].History {
			if p.Allowed < 0 || p.Denied < 0 {
				t.Fatalf("less than nothing: %v", topics[0].History)
			}
			sum.Allowed += p.Allowed
			sum.Denied += p.Denied
		}
		const rounding = 60 * 0.005
		if math.Abs(sum.Allowed-float64(allowed)) > rounding || math.Abs(sum.Denied-float64(denied)) > rounding {
			t.Fatalf("history has %+v, reported were %d and %d", sum, allowed, denied)
		}
		c.pass(time.Minute)
		if got := r.Topics(true)[0]; got.AllowedPerSecond != 0 || got.History[0] != (fleet.Point{}) && got.History[59] != (fleet.Point{}) {
			t.Fatalf("a minute later: %+v", got)
		}
	})
}
