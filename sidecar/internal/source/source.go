// Package source publishes events that come from another store than the log: an outbox, or a
// captured collection. It decides how many events go into a call and how long a refused event
// waits.
package source

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Publisher takes the events. Its methods may be called from several goroutines at once, but one
// call after the other for each topic.
type Publisher interface {
	// Publish publishes a batch, all of one topic, checked and within the limits. A non-nil error
	// refuses everything, and done is never called. Otherwise done is called exactly once, with one
	// result for each event, in order, possibly before Publish returns and from any goroutine. A
	// result without Err means that the event is in the log, not in a spool, where the events of
	// another sidecar would overtake it. Events of calls that follow one another are logged in that
	// order. An event that is published again under its id with the same content is answered as a
	// duplicate.
	Publish(ctx context.Context, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error

	// MaxEvents is the most events of one call to the topic, such as the burst of its rate limit; 0
	// is as many as a batch may have.
	MaxEvents(topic string) int
}

// Observer counts events for metrics. It must be quick, and safe for concurrent use.
type Observer interface {
	// Published counts events that are in the log.
	Published(n int)
	// Failed counts events that were refused for good.
	Failed(code wire.Code)
	// Deferred counts refusals of events that are published again later.
	Deferred(code wire.Code)
}

// Verdict is the meaning of a refusal for its event.
type Verdict int

const (
	// Passing refuses the event for now: its topic is paused, being deleted or not there, a rate is
	// used up, the store is away.
	Passing Verdict = iota
	// Final refuses the event itself, so the log would refuse it again.
	Final
	// Unclear is an internal error: the event may be its cause.
	Unclear
)

// VerdictOf decides by the code of a refusal. Only codes about the event itself are final: no event
// may be lost because of a fault that an operator can correct.
func VerdictOf(code wire.Code) Verdict {
	switch code {
	case wire.BadJSON, wire.BadRequest, wire.Conflict, wire.PayloadTooLarge, wire.SchemaViolation:
		return Final
	}
	if code.HTTPStatus() == http.StatusInternalServerError {
		return Unclear
	}
	return Passing
}

const (
	// waitMin is the shortest wait after a refusal.
	waitMin = 10 * time.Millisecond
	// waitUnsaid is the wait if the refusal names none.
	waitUnsaid = time.Second
)

// Wait is how long to wait after a refusal that is not final.
func Wait(refusal *wire.Error) time.Duration {
	return max(cmp.Or(refusal.RetryAfter, waitUnsaid), waitMin)
}

// MaxEvents is the most events of one call to a topic.
func MaxEvents(p Publisher, topic string, limits wire.Limits) int {
	if n := p.MaxEvents(topic); n > 0 {
		return min(limits.BatchEvents, n)
	}
	return limits.BatchEvents
}

// NextCall divides events into those of the next call and the rest: at most n events with at most
// so many bytes, but at least one, and no two of one key, since the Publisher may refuse the first
// of them and publish the second. It leaves out events that of does not want.
func NextCall[T any](events []T, n, bytes int, of func(T) (key string, size int, wanted bool)) (call, rest []T) {
	seen := make(map[string]bool, min(n, len(events)))
	for i, e := range events {
		if len(call) == n {
			return call, append(rest, events[i:]...)
		}
		key, size, wanted := of(e)
		if !wanted {
			continue
		}
		if seen[key] || len(call) > 0 && size > bytes {
			rest = append(rest, e)
		} else {
			call = append(call, e)
			bytes -= size
		}
		seen[key] = true
	}
	return call, rest
}

// Publish publishes a call, and waits for its results until giveUp ends. Events whose results it
// does not wait for are published again later, under the same ids.
func Publish(ctx, giveUp context.Context, p Publisher, items []wire.PublishItem) ([]wire.ResultItem, *wire.Error) {
	answer := make(chan []wire.ResultItem, 1)
	if err := p.Publish(ctx, items, func(r []wire.ResultItem) { answer <- r }); err != nil {
		return nil, err
	}
	select {
	case results := <-answer:
		if len(results) != len(items) {
			return nil, wire.Errorf(wire.Internal, "the publisher gave %d results for %d events", len(results), len(items))
		}
		return results, nil
	case <-giveUp.Done():
		return nil, wire.Errorf(wire.StoreUnavailable, "the sidecar stopped before the event was stored")
	}
}
