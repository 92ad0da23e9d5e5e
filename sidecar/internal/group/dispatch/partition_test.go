package dispatch

import (
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
)

// Events that retention has removed before the group got to them are counted.
func TestPassedOver(t *testing.T) {
	p := &Partition{Place: reader.Place{Next: 1}}
	p.PassOver(4)
	p.skip = append(p.skip, eventlog.SeqRange{First: 5, Last: 6}, eventlog.SeqRange{First: 9, Last: 20})
	p.PassOver(10)
	if p.PassedOver != 3+1+2 || p.Next != 21 {
		t.Errorf("%d passed over, next %d", p.PassedOver, p.Next)
	}
}
