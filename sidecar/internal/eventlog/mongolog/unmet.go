package mongolog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// unmet are the topics whose last append was stored, and acknowledged by fewer
// members than the topic's write concern asks for. There are no more of them
// than topics whose policy names a number of members.
type unmet struct {
	mu       sync.Mutex
	concerns map[string]string // by topic
}

// set notes how the topic's last append went, and reports whether that is news;
// an empty concern was met.
func (u *unmet) set(topic, concern string) (changed bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	changed = u.concerns[topic] != concern
	if concern == "" {
		delete(u.concerns, topic)
		return changed
	}
	if u.concerns == nil {
		u.concerns = map[string]string{}
	}
	u.concerns[topic] = concern
	return changed
}

// UnmetConcern is a topic whose write concern the store does not meet.
type UnmetConcern struct {
	Topic        string `json:"topic"`
	WriteConcern string `json:"write_concern"`
}

// UnmetConcerns lists the topics, by name, whose last append fewer members
// acknowledged than the topic's write concern asks for.
func (l *Log) UnmetConcerns() []UnmetConcern {
	l.unmet.mu.Lock()
	defer l.unmet.mu.Unlock()
	list := make([]UnmetConcern, 0, len(l.unmet.concerns))
	for topic, concern := range l.unmet.concerns {
		list = append(list, UnmetConcern{Topic: topic, WriteConcern: concern})
	}
	slices.SortFunc(list, func(a, b UnmetConcern) int { return cmp.Compare(a.Topic, b.Topic) })
	return list
}

// isUnmet reports whether the server says that no number of tries makes it meet
// the write concern: it has too few members.
func isUnmet(err error) bool {
	var server mongo.ServerError
	return errors.As(err, &server) && server.HasErrorCode(codeUnsatisfiableWriteConcern)
}

// unmetConcern is the topic's refusal, if the append failed for its write
// concern alone: the server says so, or a majority has an event that the number
// of members that the topic asks for has not acknowledged in time. It is nil if
// the store itself may be away.
func (a *appending) unmetConcern(ctx context.Context, cause error) *eventlog.ConcernError {
	if a.concern.members < 2 {
		return nil
	}
	if !isUnmet(cause) && !a.majorityHasNext(ctx) {
		return nil
	}
	return &eventlog.ConcernError{Topic: a.topic.Name, Concern: a.concern.name, Cause: cause}
}

// majorityHasNext reports whether a majority of the members has the first event
// that has no outcome. It is not given up with the append's own patience, which
// is over.
func (a *appending) majorityHasNext(ctx context.Context) bool {
	if len(a.todo) == 0 || !errors.Is(context.Cause(ctx), eventlog.ErrTimeout) {
		return false
	}
	ctx, cancel := a.log.opts.Clock.WithTimeout(context.WithoutCancel(ctx), a.log.opts.Timeout/2)
	defer cancel()
	id := document.ID(a.topic.Name, a.batch[a.todo[0]].ID)
	return a.log.majority(eventsName).FindOne(ctx, byID(id)).Err() == nil
}

// confirm returns nil once the events that are stored already are acknowledged
// as the topic's write concern asks for. That they can be read does not say so
// where it names a number of members. A write that changes nothing waits for all
// that was written before it.
func (a *appending) confirm(ctx context.Context) error {
	if a.concern.members < 2 {
		return nil
	}
	nobody := append(byID(document.ID(a.topic.Name, a.batch[a.todo[0]].ID)), bson.E{Key: document.FieldTopic, Value: ""})
	unset := bson.D{{Key: "$unset", Value: bson.D{{Key: document.FieldTopic, Value: ""}}}}
	_, err := a.concern.events.UpdateOne(ctx, nobody, unset)
	return err
}
