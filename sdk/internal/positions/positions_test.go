package positions

import (
	"maps"
	"testing"
)

func TestPositions(t *testing.T) {
	var p Positions
	heads := map[int]uint64{0: 2, 1: 1}
	if p.Behind(nil) != nil {
		t.Error("the beginning is behind a topic without events")
	}
	moved := p.Behind(heads)
	p.Advance(map[int]uint64{0: 3, 2: 1})
	select {
	case <-moved:
	default:
		t.Error("nobody was woken")
	}
	if p.Behind(heads) == nil {
		t.Error("nothing of partition 1 has come, and it is not behind")
	}
	p.AdvanceOne(1, 1)
	p.AdvanceOne(0, 2) // comes late
	if p.Behind(heads) != nil {
		t.Error("it is behind heads that it has come to")
	}
	if got, want := p.All(), (map[int]uint64{0: 3, 1: 1, 2: 1}); !maps.Equal(got, want) {
		t.Errorf("it is at %v, want %v", got, want)
	}
	moved = p.Behind(map[int]uint64{0: 4})
	p.Replace(map[int]uint64{0: 1})
	select {
	case <-moved:
	default:
		t.Error("nobody was woken by others in their place")
	}
	if got, want := p.All(), (map[int]uint64{0: 1}); !maps.Equal(got, want) {
		t.Errorf("it is at %v, want %v", got, want)
	}
}
