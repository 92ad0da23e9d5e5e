package appends

import (
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
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
