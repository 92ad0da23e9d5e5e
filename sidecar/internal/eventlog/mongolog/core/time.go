package core

import (
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
)

// Moment is a point in time by both clocks: the monotonic one stands still while a machine sleeps,
// and the other may be set back.
type Moment struct{ mono, wall time.Time }

// Now is the present moment.
func Now(c clock.Clock) Moment {
	t := c.Now()
	return Moment{mono: t, wall: t.Round(0)}
}

// Age is the time since the moment, by the clock that shows the longer time.
func (m Moment) Age(c clock.Clock) time.Duration {
	t := c.Now()
	return max(t.Sub(m.mono), t.Round(0).Sub(m.wall))
}
