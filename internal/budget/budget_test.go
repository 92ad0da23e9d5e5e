package budget_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// TestOneIdentityLeavesRoomForOthers: whatever one identity takes, also beyond its share, others have
// the rest of the whole; and all is free again once it was given back.
func TestOneIdentityLeavesRoomForOthers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const whole = 1000
		b := budget.New(budget.Bounds{Memory: whole, Places: budget.DefaultPlaces(), Identities: true})
		greedy, other := b.Of("greedy"), b.Of("other")
		var held []int
		places := map[budget.Place]int{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			n := rapid.IntRange(1, whole).Draw(t, "bytes")
			p := budget.Place(rapid.IntRange(int(budget.Pulls), int(budget.FleetReplays)).Draw(t, "place"))
			switch rapid.SampledFrom([]string{"take", "try", "give", "enter", "leave"}).Draw(t, "step") {
			case "take":
				greedy.Take(n)
				held = append(held, n)
			case "try":
				if greedy.TryTake(n) == nil {
					held = append(held, n)
				}
			case "give":
				if len(held) > 0 {
					greedy.Give(held[0])
					held = held[1:]
				}
			case "enter":
				for greedy.Enter(p) == nil {
					places[p]++
				}
			case "leave":
				if places[p] > 0 {
					greedy.Leave(p)
					places[p]--
				}
			}
			if err := other.TryTake(whole / budget.SharesOfAll); err != nil || other.TryTake(1) == nil {
				t.Fatalf("another identity does not get its share, or more: %v", err)
			}
			other.Give(whole / budget.SharesOfAll)
			if err := other.Enter(p); err != nil {
				t.Fatal(err)
			}
			other.Leave(p)
		}
		for _, n := range held {
			greedy.Give(n)
		}
		for p, n := range places {
			for range n {
				greedy.Leave(p)
			}
		}
		if b.Used() != 0 || greedy.Full() || greedy.Scarce() {
			t.Errorf("%d bytes are left taken", b.Used())
		}
	})
}

// TestRefusals say whose bound it was.
func TestRefusals(t *testing.T) {
	places := budget.DefaultPlaces()
	places[budget.Latest] = 4
	for _, c := range []struct {
		name       string
		identities bool
		try        func(b *budget.Budget) error
		says       string
	}{
		{"of an identity", true, func(b *budget.Budget) error {
			return b.Of("a").TryTake(251)
		}, `all clients of the identity "a" together may hold 250 bytes`},
		{"its places", true, func(b *budget.Budget) error {
			return errors.Join(b.Of("a").Enter(budget.Latest), b.Of("a").Enter(budget.Latest))
		}, `all clients of the identity "a" together may have 1 answers`},
		{"of all", true, func(b *budget.Budget) (err error) {
			for i := range 5 {
				err = b.Of(fmt.Sprint(i)).TryTake(250)
			}
			return err
		}, "all clients together may hold 1000 bytes"},
		{"all places", true, func(b *budget.Budget) (err error) {
			for i := range 5 {
				err = b.Of(fmt.Sprint(i)).Enter(budget.Latest)
			}
			return err
		}, "all clients together may have 4 answers"},
		{"without identities", false, func(b *budget.Budget) error {
			return b.Of("a").TryTake(1001)
		}, "all clients together may hold 1000 bytes"},
		{"strangers", true, func(b *budget.Budget) error {
			return b.Unauthenticated().TryTake(63)
		}, "that have not authenticated together may hold 62 bytes"},
		{"strangers' places", true, func(b *budget.Budget) error { return b.Unauthenticated().Enter(budget.Pulls) }, "may have 0 pulls"},
	} {
		err := c.try(budget.New(budget.Bounds{Memory: 1000, Places: places, Identities: c.identities}))
		if !errors.Is(err, &wire.Error{Code: wire.Overloaded}) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v; want %q", c.name, err, c.says)
		}
	}
}

// TestBeyondTheShare: what is in memory already is counted, and nothing more is free until it is given
// back.
func TestBeyondTheShare(t *testing.T) {
	b := budget.New(budget.Bounds{Memory: 100})
	s := b.Of("a")
	s.Take(105)
	if !s.Full() || s.TryTake(1) == nil || b.Used() != 105 || !b.Of("b").Full() {
		t.Errorf("%d bytes of 100 are taken, and it is not full", b.Used())
	}
	s.Give(6)
	if s.Full() || !s.Scarce() || s.TryTake(1) != nil || s.Used() != 100 {
		t.Errorf("%d bytes are taken; want 100", s.Used())
	}
}

// TestIdentitiesAreForgotten: identities that use nothing take no memory.
func TestIdentitiesAreForgotten(t *testing.T) {
	b := budget.New(budget.Bounds{Memory: 100, Identities: true})
	kept := b.Of("kept")
	kept.Take(1)
	for i := range 1000 {
		b.Of(fmt.Sprint(i))
	}
	for range 100 {
		runtime.GC()
		if b.Identities() == 1 {
			break
		}
	}
	if n := b.Identities(); n != 1 || b.Of("kept") != kept {
		t.Errorf("%d identities are kept; want 1", n)
	}
}

func TestNoBudgetIsNoBound(t *testing.T) {
	var b *budget.Budget
	s := b.Of("a")
	s.Take(1 << 40)
	if s.TryTake(1<<40) != nil || s.Enter(budget.Pulls) != nil || s.Full() || s.Scarce() || b.Unauthenticated() != nil {
		t.Error("a nil budget has a bound")
	}
	s.Give(1)
	s.Leave(budget.Pulls)
}
