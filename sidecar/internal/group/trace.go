package group

import (
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// traceSettle begins the span of an ack or nack that has arrived; the next call
// of whenDurable, under the same mu, ends it.
func (g *Group) traceSettle(e *entry, how tracing.Outcome, now time.Time) {
	if s := e.process.Settle(how, now); s != nil {
		g.settles = append(g.settles, s)
	}
}

// traced is done, and the end of the spans of what it waits for.
func (g *Group) traced(done func(error)) func(error) {
	spans := g.settles
	if len(spans) == 0 {
		return done
	}
	g.settles = nil
	return func(err error) {
		for _, s := range spans {
			s.End(err)
		}
		done(err)
	}
}
