package mongolog

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// setUnmet notes whether the topic's last append met its concern, and reports whether that has
// changed; an empty concern means that it was met.
func (l *Log) setUnmet(topic, concern string) (changed bool) {
	if concern == "" {
		_, changed = l.unmet.LoadAndDelete(topic)
		return changed
	}
	was, _ := l.unmet.Swap(topic, concern)
	return was != concern
}

// UnmetConcerns are, by topic, the write concerns that the topic's last append did not meet, since
// too few members acknowledged it.
func (l *Log) UnmetConcerns() map[string]string {
	concerns := map[string]string{}
	for topic, concern := range l.unmet.Range {
		concerns[topic.(string)] = concern.(string)
	}
	return concerns
}

// isUnmet reports whether the server says that it can never meet the write concern, since it has
// too few members.
func isUnmet(err error) bool { return hasCode(err, codeUnsatisfiableWriteConcern) }

// unmetConcern is the topic's refusal, if the append failed for its write concern alone: the server
// says so, or a majority has an event that too few members for the concern acknowledged in time. It
// is nil if the store itself may be away.
func (b *batch) unmetConcern(ctx context.Context, cause error) *eventlog.ConcernError {
	if b.concern.members < 2 {
		return nil
	}
	if !isUnmet(cause) && !b.majorityHasNext(ctx) {
		return nil
	}
	return &eventlog.ConcernError{Topic: b.topic.Name, Concern: b.concern.name, Cause: cause}
}

// majorityHasNext reports whether a majority of the members has the first event without an outcome.
// It has a timeout of its own, since the append's is over.
func (b *batch) majorityHasNext(ctx context.Context) bool {
	if !errors.Is(context.Cause(ctx), eventlog.ErrTimeout) {
		return false
	}
	ctx, cancel := b.log.opts.Clock.WithTimeout(context.WithoutCancel(ctx), b.log.opts.Timeout/2)
	defer cancel()
	for _, at := range b.lines {
		if len(at.pending) > 0 {
			if at.pending[0].token != 0 {
				return false // it was stored before the append
			}
			id := at.pending[0].raw.Lookup(document.FieldID)
			return b.log.majority(eventsName).FindOne(ctx, bson.D{{Key: document.FieldID, Value: id}}).Err() == nil
		}
	}
	return false
}

// confirm returns nil once the events that are stored already are acknowledged according to the
// topic's write concern. If the concern names a number of members, being readable does not prove
// that. A write that changes nothing waits for all earlier writes.
func (b *batch) confirm(ctx context.Context) error {
	if b.concern.members < 2 {
		return nil
	}
	nobody := append(byHead(b.topic.Name), bson.E{Key: document.FieldSeq, Value: int64(0)})
	unset := bson.D{{Key: "$unset", Value: bson.D{{Key: fieldVoid, Value: ""}}}}
	_, err := b.concern.events.UpdateOne(ctx, nobody, unset)
	return err
}
