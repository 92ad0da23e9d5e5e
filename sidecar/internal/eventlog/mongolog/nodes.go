package mongolog

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// nodeDoc is a node in the store.
type nodeDoc struct {
	ID     string     `bson:"_id"`
	Name   string     `bson:"name"`
	Beat   int64      `bson:"beat"`
	Groups []groupDoc `bson:"groups"`
}

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
	err = persist(ctx, func() error {
		_, err := l.nodes().ReplaceOne(ctx, byID(n.ID), doc, options.Replace().SetUpsert(true))
		return err
	})
	if err != nil {
		return unavailable(ctx, "save node", err)
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
	err = persist(ctx, func() error {
		_, err := l.nodes().DeleteOne(ctx, byID(id))
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
	docs, err := findAll[nodeDoc](ctx, l.nodes(), bson.D{}, options.Find())
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
