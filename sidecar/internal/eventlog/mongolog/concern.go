package mongolog

import (
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

const concernMajority = "majority"

// majorityWrites is the write concern of everything except the events of topics whose policy names
// another one.
var majorityWrites = &writeconcern.WriteConcern{W: "majority", Journal: new(true)}

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
func (l *Log) concern(topic string) concern {
	name := concernMajority
	if l.opts.WriteConcern != nil {
		name = l.opts.WriteConcern(topic)
	}
	writes := writeConcernOf(name)
	c := concern{name: name, events: l.written(writes), heads: l.written(majorityWrites)}
	if c.members, _ = writes.W.(int); c.members == 1 {
		c.heads = c.events
	}
	return c
}

// written is the collection of events for writes.
func (l *Log) written(w *writeconcern.WriteConcern) *mongo.Collection {
	return l.db.Collection(l.opts.Prefix+eventsName, options.Collection().SetWriteConcern(w))
}

// writeConcernOf reads "majority" and "w:N"; anything else is majority.
func writeConcernOf(name string) *writeconcern.WriteConcern {
	text, named := strings.CutPrefix(name, "w:")
	w, err := strconv.Atoi(text)
	if !named || err != nil || w < 1 {
		return majorityWrites
	}
	return &writeconcern.WriteConcern{W: w}
}

// majority is a collection that is written and read at majority.
func (l *Log) majority(name string) *mongo.Collection { return l.majorityIn(l.db, name) }

func (l *Log) majorityIn(db *mongo.Database, name string) *mongo.Collection {
	o := options.Collection().SetWriteConcern(majorityWrites).SetReadConcern(readconcern.Majority())
	return db.Collection(l.opts.Prefix+name, o)
}
