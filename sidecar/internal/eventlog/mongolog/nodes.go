package mongolog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// nodeDoc is a node in the store. It is inserted with its first beat and never upserted, so that nothing that comes late brings
// it back; one that is over stays for overKept.
type nodeDoc struct {
	ID     string     `bson:"_id"`
	Name   string     `bson:"name"`
	Beat   int64      `bson:"beat"`
	Lease  int64      `bson:"lease"` // in milliseconds
	Groups []groupDoc `bson:"groups"`
	State  string     `bson:"state"`
	OverAt time.Time  `bson:"over_at,omitempty"` // by the clock of whoever has ended it
}

// states are the states of a life, as documents have them.
var states = []string{eventlog.NodeLive: "live", eventlog.NodeEnded: "ended", eventlog.NodeDead: "dead"}

const (
	// overKept is many times what a request can be on its way.
	overKept = 24 * time.Hour
	// overListed is for how long after its end a life is listed.
	overListed = 10 * time.Minute
)

// isLive are the nodes whose lives have not ended.
var isLive = bson.E{Key: "state", Value: states[eventlog.NodeLive]}

// groupDoc is an eventlog.GroupName.
type groupDoc struct {
	Topic string `bson:"topic"`
	Group string `bson:"group"`
}

// nodes is the collection, on connections of its own.
func (l *Log) nodes() *mongo.Collection {
	return l.majorityIn(l.beats.Database(l.db.Name()), nodesName)
}

// SaveNode implements eventlog.Nodes.
func (l *Log) SaveNode(ctx context.Context, n eventlog.Node) error {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	doc := nodeDoc{
		ID: n.ID, Name: n.Name, Beat: int64(n.Beat), Lease: n.Lease.Milliseconds(), Groups: make([]groupDoc, len(n.Groups)), State: states[eventlog.NodeLive],
	}
	for i, g := range n.Groups {
		doc.Groups[i] = groupDoc(g)
	}
	over := false
	err = l.persist(ctx, func() error {
		accepted, err := l.writeNode(ctx, &doc)
		if err != nil || accepted {
			return err
		}
		var stored nodeDoc
		err = l.nodes().FindOne(ctx, byID(n.ID)).Decode(&stored)
		over = errors.Is(err, mongo.ErrNoDocuments) || err == nil && stored.State != states[eventlog.NodeLive]
		if over || err != nil || stored.Beat >= doc.Beat {
			return err
		}
		return errBehind // a majority does not have it yet
	})
	switch {
	case over:
		return fmt.Errorf("save node %s: its life is over: %w", n.ID, eventlog.ErrNotFound)
	case err != nil:
		return unavailable(ctx, "save node", err)
	}
	return nil
}

// writeNode writes one beat; it reports whether the document was as it has to be for that.
func (l *Log) writeNode(ctx context.Context, doc *nodeDoc) (accepted bool, err error) {
	if doc.Beat == 1 {
		_, err := l.nodes().InsertOne(ctx, doc)
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		return err == nil, err
	}
	earlier := append(byID(doc.ID), isLive, bson.E{Key: "beat", Value: bson.D{{Key: "$lt", Value: doc.Beat}}})
	result, err := l.nodes().UpdateOne(ctx, earlier, bson.D{{Key: "$set", Value: bson.D{
		{Key: "beat", Value: doc.Beat}, {Key: "name", Value: doc.Name}, {Key: "lease", Value: doc.Lease}, {Key: "groups", Value: doc.Groups}}}})
	return err == nil && result.MatchedCount > 0, err
}

// EndNode implements eventlog.Nodes.
func (l *Log) EndNode(ctx context.Context, id string) error {
	_, err := l.endLife(ctx, append(byID(id), isLive), eventlog.NodeEnded)
	return err
}

// DeclareDead implements eventlog.Nodes.
func (l *Log) DeclareDead(ctx context.Context, id string, beat uint64) (bool, error) {
	return l.endLife(ctx, append(byID(id), isLive, bson.E{Key: "beat", Value: int64(beat)}), eventlog.NodeDead)
}

// endLife ends a life that the filter selects, and deletes those that ended long ago.
func (l *Log) endLife(ctx context.Context, filter bson.D, state eventlog.NodeState) (ended bool, err error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return false, err
	}
	defer end()
	now := l.opts.Clock.Now()
	over := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: states[state]}, {Key: "over_at", Value: now}}}}
	long := bson.D{{Key: "state", Value: bson.D{{Key: "$ne", Value: isLive.Value}}}, {Key: "over_at", Value: bson.D{{Key: "$lt", Value: now.Add(-overKept)}}}}
	err = l.persist(ctx, func() error {
		result, err := l.nodes().UpdateOne(ctx, filter, over)
		if err == nil {
			ended = ended || result.MatchedCount > 0
			_, err = l.nodes().DeleteMany(ctx, long)
		}
		return err
	})
	if err != nil {
		return false, unavailable(ctx, "end the life of a node", err)
	}
	return ended, nil
}

// ListNodes implements eventlog.Nodes.
func (l *Log) ListNodes(ctx context.Context) ([]eventlog.Node, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	lately := bson.E{Key: "over_at", Value: bson.D{{Key: "$gt", Value: l.opts.Clock.Now().Add(-overListed)}}}
	docs, err := findAll[nodeDoc](ctx, l, l.nodes(), bson.D{{Key: "$or", Value: bson.A{bson.D{isLive}, bson.D{lately}}}}, options.Find())
	if err != nil {
		return nil, unavailable(ctx, "list nodes", err)
	}
	nodes := make([]eventlog.Node, len(docs))
	for i, d := range docs {
		nodes[i] = eventlog.Node{
			ID: d.ID, Name: d.Name, Beat: uint64(d.Beat), Lease: time.Duration(d.Lease) * time.Millisecond,
			State: eventlog.NodeState(max(slices.Index(states, d.State), 0)),
		}
		for _, g := range d.Groups {
			nodes[i].Groups = append(nodes[i].Groups, eventlog.GroupName(g))
		}
	}
	return nodes, nil
}
