package mongolog

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// setUnmet notes how the topic's last append went, and reports whether that is news; an empty
// concern was met.
func (l *Log) setUnmet(topic, concern string) (changed bool) {
	if concern == "" {
		_, changed = l.unmet.LoadAndDelete(topic)
		return changed
	}
	was, _ := l.unmet.Swap(topic, concern)
	return was != concern
}

// UnmetConcerns are the write concerns, by topic, for which fewer members than they ask for
// acknowledged the topic's last append.
func (l *Log) UnmetConcerns() map[string]string {
	concerns := map[string]string{}
	for topic, concern := range l.unmet.Range {
		concerns[topic.(string)] = concern.(string)
	}
	return concerns
}

// isUnmet reports whether the server says that no number of tries makes it meet the write concern:
// it has too few members.
func isUnmet(err error) bool { return hasCode(err, codeUnsatisfiableWriteConcern) }

// unmetConcern is the topic's refusal, if the append failed for its write concern alone: the server
// says so, or a majority has an event that the number of members that the topic asks for has not
// acknowledged in time. It is nil if the store itself may be away.
func (b *batch) unmetConcern(ctx context.Context, cause error) *eventlog.ConcernError {
	if b.concern.members < 2 {
		return nil
	}
	if !isUnmet(cause) && !b.majorityHasNext(ctx) {
		return nil
	}
	return &eventlog.ConcernError{Topic: b.topic.Name, Concern: b.concern.name, Cause: cause}
}

// majorityHasNext reports whether a majority of the members has the first event that has no
// outcome. It is not given up with the append's own patience, which is over.
func (b *batch) majorityHasNext(ctx context.Context) bool {
	if !errors.Is(context.Cause(ctx), eventlog.ErrTimeout) {
		return false
	}
	ctx, cancel := b.log.opts.Clock.WithTimeout(context.WithoutCancel(ctx), b.log.opts.Timeout/2)
	defer cancel()
	for _, at := range b.lines {
		if len(at.pending) > 0 {
			if at.pending[0].token != 0 {
				return false // it has been there all along
			}
			id := at.pending[0].raw.Lookup(document.FieldID)
			return b.log.majority(eventsName).FindOne(ctx, bson.D{{Key: document.FieldID, Value: id}}).Err() == nil
		}
	}
	return false
}

// confirm returns nil once the events that are stored already are acknowledged as the topic's write
// concern asks for. That they can be read does not say so where it names a number of members. A
// write that changes nothing waits for all that was written before it.
func (b *batch) confirm(ctx context.Context) error {
	if b.concern.members < 2 {
		return nil
	}
	nobody := append(byHead(b.topic.Name), bson.E{Key: document.FieldSeq, Value: int64(0)})
	unset := bson.D{{Key: "$unset", Value: bson.D{{Key: fieldVoid, Value: ""}}}}
	_, err := b.concern.events.UpdateOne(ctx, nobody, unset)
	return err
}
