package fleet_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
)

func all(string) bool { return true }

func TestTheLastHourOfATopic(t *testing.T) {
	r, c := newRegistry("cp1")
	for range 4 * 60 * 60 { // four hours
		c.pass(time.Second)
		r.Usage("a", "orders", 3, 1, c.at)
	}
	r.Usage("b", "orders", 100, 0, c.at)
	got := r.Hours(all)
	if len(got.Topics["orders"]) != 2 || !got.Complete || !got.Since.Equal(c.at.Add(-time.Hour)) {
		t.Fatalf("%d hours since %v, complete: %v", len(got.Topics["orders"]), got.Since, got.Complete)
	}
	sums := map[float32]bool{}
	for _, hour := range got.Topics["orders"] {
		var sum float32
		for i, slot := range hour {
			sum += slot.Events
			if i > 0 && i < len(hour)-1 && slot != (fleet.Slot{}) && slot != (fleet.Slot{Events: 60, Peak: 4}) {
				t.Errorf("slot %d is %+v", i, slot)
			}
		}
		sums[sum] = true
	}
	if want := float32(4*3600 - 56); !sums[100] || !sums[want] { // the newest slot has just begun
		t.Errorf("the hours have %v events, want 100 and %v", sums, want)
	}
	c.pass(30 * time.Minute)
	r.Usage("b", "other", 1, 0, c.at)
	if now := r.Hours(func(topic string) bool { return topic == "orders" }); len(now.Topics) != 1 || len(now.Topics["orders"]) != 2 {
		t.Errorf("half an hour later: %d topics", len(now.Topics))
	}
	c.pass(31 * time.Minute)
	if later := r.Hours(all); len(later.Topics) != 1 {
		t.Errorf("an hour later: %d topics", len(later.Topics))
	}
}

func TestHoursHaveABound(t *testing.T) {
	r, c := newRegistry("cp1")
	c.pass(time.Second)
	for i := range fleet.MaxHours {
		r.Usage("a", fmt.Sprint(i), 1, 0, c.at)
		if i%10_000 == 0 && !r.Hours(func(string) bool { return false }).Complete {
			t.Fatalf("with %d topics some are left out", i)
		}
	}
	r.Usage("a", "one more", 1, 0, c.at)
	if got := r.Hours(all); got.Complete || len(got.Topics) != fleet.MaxHours {
		t.Errorf("%d topics, complete: %v", len(got.Topics), got.Complete)
	}
	c.pass(61 * time.Minute)
	r.Usage("a", "one more", 1, 0, c.at) // sweeps
	r.Usage("a", "one more", 1, 0, c.at)
	if got := r.Hours(all); len(got.Topics) != 1 {
		t.Errorf("an hour later: %d topics", len(got.Topics))
	}
}
