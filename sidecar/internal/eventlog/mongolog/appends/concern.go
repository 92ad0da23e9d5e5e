package appends

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
)

const concernMajority = "majority"

// concern is the store as the operations of a topic see it: writes have the write concern of the
// topic's policy, and reads return events that are at least as durable.
type concern struct {
	// Inserts write to events, and reservations to heads, in the same collection. Reads are at
	// majority for every write concern.
	events, heads *mongo.Collection
	// name is the policy's concern, and members the number in it; 0 for majority.
	name    string
	members int
}

// concern returns the topic's concern.
func (a *Appender) concern(topic string) concern {
	name := concernMajority
	if a.writeConcern != nil {
		name = a.writeConcern(topic)
	}
	writes := writeConcernOf(name)
	c := concern{name: name, events: a.store.Written(core.Events, writes), heads: a.store.Written(core.Events, core.MajorityWrites)}
	if c.members, _ = writes.W.(int); c.members == 1 {
		c.heads = c.events
	}
	return c
}

// writeConcernOf reads "majority" and "w:N"; anything else is majority.
func writeConcernOf(name string) *writeconcern.WriteConcern {
	text, named := strings.CutPrefix(name, "w:")
	w, err := strconv.Atoi(text)
	if !named || err != nil || w < 1 {
		return core.MajorityWrites
	}
	return &writeconcern.WriteConcern{W: w}
}

// setUnmet notes whether the topic's last append met its concern, and reports whether that has
// changed; an empty concern means that it was met.
func (a *Appender) setUnmet(topic, concern string) (changed bool) {
	if concern == "" {
		_, changed = a.unmet.LoadAndDelete(topic)
		return changed
	}
	was, _ := a.unmet.Swap(topic, concern)
	return was != concern
}

// UnmetConcerns are, by topic, the write concerns that the topic's last append did not meet, since
// too few members acknowledged it.
func (a *Appender) UnmetConcerns() map[string]string {
	concerns := map[string]string{}
	for topic, concern := range a.unmet.Range {
		concerns[topic.(string)] = concern.(string)
	}
	return concerns
}

// isUnmet reports whether the server says that it can never meet the write concern, since it has
// too few members.
func isUnmet(err error) bool { return core.HasCode(err, core.CodeUnsatisfiableWriteConcern) }

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
	ctx, cancel := b.store.Clock.WithTimeout(context.WithoutCancel(ctx), b.store.Timeout/2)
	defer cancel()
	for _, ln := range b.lines {
		if len(ln.pending) > 0 {
			if ln.pending[0].token != 0 {
				return false // it was stored before the append
			}
			id := ln.pending[0].raw.Lookup(document.FieldID)
			return b.store.Majority(core.Events).FindOne(ctx, bson.D{{Key: document.FieldID, Value: id}}).Err() == nil
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
	nobody := append(heads.Of(b.topic.Name), bson.E{Key: document.FieldSeq, Value: int64(0)})
	unset := bson.D{{Key: "$unset", Value: bson.D{{Key: events.FieldVoid, Value: ""}}}}
	_, err := b.concern.events.UpdateOne(ctx, nobody, unset)
	return err
}
