package budget

import "testing"

func TestBudget(t *testing.T) {
	b := New(100)
	if !b.TryTake(60) || b.TryTake(41) || !b.TryTake(40) || b.Used() != 100 {
		t.Errorf("%d of 100 bytes are taken after 60 and 40, and 41 in between", b.Used())
	}
	if !b.Full() {
		t.Error("not full with all bytes taken")
	}
	b.Take(5)
	b.Give(6)
	if b.Full() || b.Used() != 99 || b.Limit() != 100 {
		t.Errorf("%d of %d bytes are taken; want 99 of 100", b.Used(), b.Limit())
	}
}

func TestNoBudgetIsNoBound(t *testing.T) {
	var b *Budget
	b.Take(1 << 40)
	if !b.TryTake(1<<40) || b.Full() || b.Used() != 0 || b.Limit() != 0 {
		t.Error("a nil budget has a bound")
	}
	b.Give(1)
}
