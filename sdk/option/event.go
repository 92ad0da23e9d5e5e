package option

import (
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Event sets how an event, or each event of a batch, is published.
type Event = func(*wire.PublishItem)

// Delay puts the event into the log that long after the sidecar accepts it, up to a year. Until
// then no consumer reads it, and [admin.HTTP.CancelScheduled] cancels it.
func Delay(d time.Duration) Event {
	ms := wholeMS(d)
	return func(p *wire.PublishItem) { p.Later.DelayMS = &ms }
}

// DeliverAt is [Delay] with the time at which the event is put into the log; one that is past means
// at once.
func DeliverAt(t time.Time) Event {
	ms := t.UnixMilli()
	if t.After(time.UnixMilli(ms)) {
		ms++ // never before it is due
	}
	return func(p *wire.PublishItem) { p.Later.DeliverAt = &ms }
}

// TTL ends the delivery of the event to groups that long after the sidecar accepts it. The event
// stays in the topic for as long as the policy says.
func TTL(d time.Duration) Event {
	ms := wholeMS(d)
	return func(p *wire.PublishItem) { p.Event.TTLMS = ms }
}

// wholeMS is in milliseconds, rounded up.
func wholeMS(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d > time.Duration(ms)*time.Millisecond {
		ms++
	}
	return ms
}
