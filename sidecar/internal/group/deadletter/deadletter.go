// Package deadletter makes the dead letters of consumer groups, finds them in the log, and reads
// which of them are redriven.
package deadletter

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Log has the dead letters, their events and their redrives.
type Log interface {
	eventlog.Reader
	eventlog.Redrives
}

// Make makes the dead letter of an event; since is that of the group's progress. A group that a seek
// moved back makes new dead letters of the same events, since the earlier ones may be settled and
// gone.
func Make(rec *eventlog.Record, d eventlog.Death, since int64, now time.Time) *eventlog.Record {
	d.Which = strconv.FormatUint(rec.Seq, 10) + "@" + strconv.FormatInt(since, 10)
	return eventlog.DeadLetter(rec, d, now)
}

// FirstID is the id of the dead letter that an event becomes when it dies first.
func FirstID(rec *eventlog.Record, group string, since int64) string {
	return Make(rec, eventlog.Death{Group: group}, since, time.Time{}).ID
}

// deathsLooked is the number of redrives up to which Of looks for a dead letter.
const deathsLooked = 4

// Lookup finds an event, as eventlog.Reader does.
type Lookup func(ctx context.Context, topic, id string) (*eventlog.Record, error)

// Of finds the dead letter that an event became for the group, in one of the topics; nil if there is none. The letter of a death
// stays a while beside that of the next one, which counts.
func Of(
	ctx context.Context, rec *eventlog.Record, topics []string, group string, since int64, lookup Lookup,
) (last *wire.EventDeadLetter, err error) {
	id := FirstID(rec, group, since)
	for range deathsLooked + 1 {
		got, err := lookUpIn(ctx, topics, id, lookup)
		if err != nil {
			return nil, err
		}
		if got == nil && last != nil {
			break
		}
		if got != nil {
			reason, _ := got.Headers.Get(wire.HeaderDeadReason)
			attempts, _ := got.Headers.Get(wire.HeaderDeadAttempts)
			n, _ := strconv.Atoi(attempts)
			last = &wire.EventDeadLetter{
				Topic: got.Topic, ID: got.ID, TS: got.TS, Partition: got.Partition, Seq: got.Seq, Reason: reason, Attempts: n,
			}
		}
		id = eventlog.NextLetter(id)
	}
	return last, nil
}

// lookUpIn finds an event in one of the topics; nil if there is none.
func lookUpIn(ctx context.Context, topics []string, id string, lookup Lookup) (*eventlog.Record, error) {
	for _, topic := range topics {
		if got, err := lookup(ctx, topic, id); !errors.Is(err, eventlog.ErrNotFound) {
			return got, err
		}
	}
	return nil, nil
}

// Find finds dead letters of a topic by id, wherever they are; nil for a missing one.
func Find(ctx context.Context, log Log, topic string, ids []string) ([]*eventlog.Record, error) {
	found := make([]*eventlog.Record, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	topics, err := log.DeadLetterTopics(ctx, topic)
	if err != nil {
		return nil, err
	}
	for _, letters := range topics {
		some, err := log.LookupEach(ctx, letters, ids)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) { // the topic need not exist
			return nil, err
		}
		for i, rec := range some {
			found[i] = cmp.Or(found[i], rec)
		}
	}
	return found, nil
}

// Remove removes dead letters of a topic by id, wherever they are. rules are the retention of a topic.
func Remove(
	ctx context.Context, log Log, topic string, ids []string, rules func(topic string) eventlog.Retention, now time.Time,
) error {
	topics, err := log.DeadLetterTopics(ctx, topic)
	if err != nil {
		return err
	}
	for _, letters := range topics {
		_, err := log.Remove(ctx, letters, ids, rules(letters), now.UnixMilli())
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return err
		}
	}
	return nil
}

// Events returns the events of the dead letters that exist, by the letter's id: the topic's event,
// or else the dead letter's copy.
func Events(ctx context.Context, log Log, topic string, ids []string) (map[string]*eventlog.Record, error) {
	found, err := Find(ctx, log, topic, ids)
	if err != nil {
		return nil, err
	}
	events := map[string]*eventlog.Record{}
	var dead []eventlog.Dead
	var eventIDs []string
	for _, rec := range found {
		if rec == nil {
			continue
		}
		if d, ok := eventlog.ReadDead(rec); ok {
			dead, eventIDs = append(dead, d), append(eventIDs, d.Event.ID)
		}
	}
	if len(dead) == 0 {
		return events, nil
	}
	originals, err := log.LookupEach(ctx, topic, eventIDs)
	if err != nil {
		return nil, err
	}
	for i, d := range dead {
		if o := originals[i]; o != nil && o.Partition == d.Event.Partition && o.Seq == d.Event.Seq {
			d.Event = o
		}
		rec := *d.Event
		rec.Headers = rec.Headers.With(wire.HeaderRedriven, d.ID)
		events[d.Letter.ID] = &rec
	}
	return events, nil
}
