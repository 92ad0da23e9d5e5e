package core

import (
	"context"
	"sync"
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

// serverClock is the server's time in a reply.
type serverClock struct {
	mu    sync.Mutex
	shown time.Time
	asOf  Moment // when the reply arrived
}

// serverTimeFor is for how long the log relies on a reply's time.
const serverTimeFor = time.Minute

// ServerTime is the time by the server's clock, or a little before it.
func (s *Store) ServerTime(ctx context.Context) (time.Time, error) {
	c := &s.clock
	c.mu.Lock()
	shown, asOf := c.shown, c.asOf
	c.mu.Unlock()
	if shown.IsZero() || asOf.Age(s.Clock) > serverTimeFor {
		var hello struct {
			LocalTime time.Time `bson:"localTime"`
		}
		if err := s.Run(ctx, "hello", &hello); err != nil {
			return time.Time{}, err
		}
		shown, asOf = hello.LocalTime, Now(s.Clock)
		c.mu.Lock()
		c.shown, c.asOf = shown, asOf
		c.mu.Unlock()
	}
	return shown.Add(s.Clock.Since(asOf.mono)), nil
}
