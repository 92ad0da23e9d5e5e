package mongolog

import (
	"context"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// nodeDoc is a node in the store. One that was removed stays for leftKept, as a
// beat that comes late, when its sender has given up, would bring it back.
type nodeDoc struct {
	ID     string     `bson:"_id"`
	Name   string     `bson:"name"`
	Beat   int64      `bson:"beat"`
	Groups []groupDoc `bson:"groups"`
	Left   bool       `bson:"left,omitempty"`
}

// leftKept is many times what a request can be on its way.
const leftKept = 24 * time.Hour

// there are the nodes that have not left.
var there = bson.E{Key: "left", Value: bson.D{{Key: "$ne", Value: true}}}

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
	doc := nodeDoc{ID: n.ID, Name: n.Name, Beat: int64(n.Beat), Groups: make([]groupDoc, len(n.Groups))}
	for i, g := range n.Groups {
		doc.Groups[i] = groupDoc(g)
	}
	earlier := append(byID(n.ID), there, bson.E{Key: "beat", Value: bson.D{{Key: "$lt", Value: doc.Beat}}})
	var stored nodeDoc // where it is not an earlier beat
	err = l.persist(ctx, func() error {
		_, err := l.nodes().ReplaceOne(ctx, earlier, doc, options.Replace().SetUpsert(true))
		if !mongo.IsDuplicateKeyError(err) {
			return err
		}
		finding := l.nodes().FindOne(ctx, byID(n.ID)).Decode(&stored)
		if finding == nil && (stored.Left || stored.Beat >= doc.Beat) {
			return nil
		}
		return err // a majority does not have it yet
	})
	switch {
	case err != nil:
		return unavailable(ctx, "save node", err)
	case stored.Left:
		return fmt.Errorf("save node %s: it was removed: %w", n.ID, eventlog.ErrNotFound)
	}
	return nil
}

// RemoveNode implements eventlog.Nodes.
func (l *Log) RemoveNode(ctx context.Context, id string) error {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	now := l.opts.Clock.Now()
	left := bson.D{{Key: "$set", Value: bson.D{{Key: "left", Value: true}, {Key: "left_at", Value: now}}}}
	long := bson.D{{Key: "left", Value: true}, {Key: "left_at", Value: bson.D{{Key: "$lt", Value: now.Add(-leftKept)}}}}
	err = l.persist(ctx, func() error {
		_, err := l.nodes().UpdateOne(ctx, append(byID(id), there), left, options.UpdateOne().SetUpsert(true))
		if err == nil || mongo.IsDuplicateKeyError(err) { // a duplicate has left already
			_, err = l.nodes().DeleteMany(ctx, long)
		}
		return err
	})
	if err != nil {
		return unavailable(ctx, "remove node", err)
	}
	return nil
}

// ListNodes implements eventlog.Nodes.
func (l *Log) ListNodes(ctx context.Context) ([]eventlog.Node, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	docs, err := findAll[nodeDoc](ctx, l, l.nodes(), bson.D{there}, options.Find())
	if err != nil {
		return nil, unavailable(ctx, "list nodes", err)
	}
	nodes := make([]eventlog.Node, len(docs))
	for i, d := range docs {
		nodes[i] = eventlog.Node{ID: d.ID, Name: d.Name, Beat: uint64(d.Beat)}
		for _, g := range d.Groups {
			nodes[i].Groups = append(nodes[i].Groups, eventlog.GroupName(g))
		}
	}
	return nodes, nil
}
