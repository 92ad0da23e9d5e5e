// Package nodes is the register of the sidecars of a store.
package nodes

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
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// nodeDoc is a node in the store. It is inserted with the first beat and never upserted, so that no
// late request brings it back. After its life has ended it stays for overKept.
type nodeDoc struct {
	ID     string               `bson:"_id"`
	Name   string               `bson:"name"`
	Beat   int64                `bson:"beat"`
	Lease  int64                `bson:"lease"` // in milliseconds
	Groups []eventlog.GroupName `bson:"groups"`
	// Members describes the members of groups, by groupKey, as of DescribedAt, by the server's clock.
	Members     map[string]membersDoc `bson:"members,omitempty"`
	DescribedAt time.Time             `bson:"described_at,omitempty"`
	Version     int64                 `bson:"version"`
	State       string                `bson:"state"`
	OverAt      time.Time             `bson:"over_at,omitempty"` // by the clock of the sidecar that ended it
}

// rollID is the _id of the roll. Among the documents of nodes only the roll has a number.
const rollID = "roll"

// rollDoc is an eventlog.Roll. Its number rises by the number of changes pushed at once, so the
// changes need no numbers of their own. A push that is executed late or twice enters changes that
// were made earlier. A reader looks these up or knows them already.
type rollDoc struct {
	Number  int64       `bson:"n"`
	Changes []changeDoc `bson:"changes"`
}

// changeDoc is an eventlog.NodeChange.
type changeDoc struct {
	Life    string `bson:"life"`
	Version int64  `bson:"version"`
	State   string `bson:"state"`
}

// states are the names of a life's states in documents.
var states = []string{eventlog.NodeLive: "live", eventlog.NodeEnded: "ended", eventlog.NodeDead: "dead"}

const (
	// overKept is many times longer than any request can be on its way.
	overKept = 24 * time.Hour
	// overListed is how long after its end a life is listed.
	overListed = 10 * time.Minute
)

// isLive selects the nodes whose lives have not ended.
var isLive = bson.E{Key: "state", Value: states[eventlog.NodeLive]}

// Nodes is the register of the sidecars of a store.
type Nodes struct{ store *core.Store }

// New returns the register of a store.
func New(s *core.Store) *Nodes { return &Nodes{s} }

// docs is the collection, on connections of its own.
func (r *Nodes) docs() *mongo.Collection { return r.store.MajorityOfBeats(core.Nodes) }

// SaveNode implements eventlog.Nodes.
func (r *Nodes) SaveNode(ctx context.Context, n eventlog.Node) error {
	doc := nodeDoc{
		ID: n.ID, Name: n.Name, Beat: int64(n.Beat), Lease: n.Lease.Milliseconds(), Groups: n.Groups,
		Version: int64(n.Version), State: states[eventlog.NodeLive], Members: membersOf(n.Members),
	}
	return r.store.Within(ctx, "save node "+n.ID, func(ctx context.Context) (err error) {
		over := false
		if len(doc.Members) > 0 {
			if doc.DescribedAt, err = r.store.ServerTime(ctx); err != nil {
				return err
			}
		}
		err = r.store.Persist(ctx, func() error {
			accepted, err := r.writeNode(ctx, &doc)
			if err != nil || accepted {
				return err
			}
			var stored nodeDoc
			err = r.docs().FindOne(ctx, core.ByID(n.ID)).Decode(&stored)
			over = errors.Is(err, mongo.ErrNoDocuments) || err == nil && stored.State != states[eventlog.NodeLive]
			if over || err != nil || stored.Beat >= doc.Beat {
				return err
			}
			return core.ErrBehind // a majority does not have the document yet
		})
		if over {
			return fmt.Errorf("its life is over: %w", eventlog.ErrNotFound)
		}
		return err
	})
}

// writeNode writes one beat; it reports whether the document was in the state that the beat
// replaces.
func (r *Nodes) writeNode(ctx context.Context, doc *nodeDoc) (accepted bool, err error) {
	if doc.Beat == 1 {
		_, err := r.docs().InsertOne(ctx, doc)
		if mongo.IsDuplicateKeyError(err) {
			return false, nil
		}
		return err == nil, err
	}
	earlier := append(core.ByID(doc.ID), isLive, bson.E{Key: "beat", Value: bson.D{{Key: "$lt", Value: doc.Beat}}})
	result, err := r.docs().UpdateOne(ctx, earlier, bson.D{{Key: "$set", Value: bson.D{
		{Key: "beat", Value: doc.Beat}, {Key: "name", Value: doc.Name}, {Key: "lease", Value: doc.Lease}, {Key: "groups", Value: doc.Groups},
		{Key: "version", Value: doc.Version}, {Key: "members", Value: doc.Members}, {Key: "described_at", Value: doc.DescribedAt}}}})
	return err == nil && result.MatchedCount > 0, err
}

// EndNode implements eventlog.Nodes.
func (r *Nodes) EndNode(ctx context.Context, id string) error {
	_, err := r.endLife(ctx, append(core.ByID(id), isLive), eventlog.NodeEnded)
	return err
}

// DeclareDead implements eventlog.Nodes.
func (r *Nodes) DeclareDead(ctx context.Context, id string, beat uint64) (bool, error) {
	return r.endLife(ctx, append(core.ByID(id), isLive, bson.E{Key: "beat", Value: int64(beat)}), eventlog.NodeDead)
}

// endLife ends a life that the filter selects, and deletes the documents of lives that ended long
// ago.
func (r *Nodes) endLife(ctx context.Context, filter bson.D, state eventlog.NodeState) (ended bool, err error) {
	now := r.store.Clock.Now()
	over := bson.D{{Key: "$set", Value: bson.D{{Key: "state", Value: states[state]}, {Key: "over_at", Value: now}}}}
	long := bson.D{{Key: "state", Value: bson.D{{Key: "$ne", Value: isLive.Value}}},
		{Key: "over_at", Value: bson.D{{Key: "$lt", Value: now.Add(-overKept)}}}}
	err = r.store.Within(ctx, "end the life of a node", func(ctx context.Context) error {
		return r.store.Persist(ctx, func() error {
			result, err := r.docs().UpdateOne(ctx, filter, over)
			if err == nil {
				ended = ended || result.MatchedCount > 0
				_, err = r.docs().DeleteMany(ctx, long)
			}
			return err
		})
	})
	return ended && err == nil, err
}

// Enter implements eventlog.Nodes.
func (r *Nodes) Enter(ctx context.Context, changes ...eventlog.NodeChange) error {
	docs := make([]changeDoc, len(changes))
	for i, c := range changes {
		docs[i] = changeDoc{Life: c.ID, Version: int64(c.Version), State: states[c.State]}
	}
	push := bson.D{
		{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(len(docs))}}},
		{Key: "$push", Value: bson.D{{Key: "changes", Value: bson.D{{Key: "$each", Value: docs}, {Key: "$slice", Value: -eventlog.RollKept}}}}},
	}
	return r.store.Within(ctx, "enter changes of nodes", func(ctx context.Context) error {
		return r.store.Persist(ctx, func() error {
			_, err := r.docs().UpdateOne(ctx, core.ByID(rollID), push, options.UpdateOne().SetUpsert(true))
			return err
		})
	})
}

// Look implements eventlog.Nodes. Only the roll has a number.
func (r *Nodes) Look(ctx context.Context, ids []string, known uint64) ([]eventlog.Node, eventlog.Roll, error) {
	type sight struct {
		Node nodeDoc `bson:",inline"`
		Roll rollDoc `bson:",inline"`
	}
	filter := bson.D{core.IDAmong(append([]string{rollID}, ids...)), {Key: "n", Value: bson.D{{Key: "$ne", Value: int64(known)}}}}
	docs, err := readNodes[sight](ctx, r, filter, options.Find().SetProjection(bson.D{{Key: "groups", Value: 0}, {Key: "members", Value: 0}}))
	if err != nil {
		return nil, eventlog.Roll{}, err
	}
	var nodes []eventlog.Node
	roll := eventlog.Roll{Number: known}
	for i := range docs {
		if d := &docs[i]; d.Node.ID == rollID {
			roll = d.Roll.roll()
		} else {
			nodes = append(nodes, d.Node.node())
		}
	}
	return nodes, roll, nil
}

// ListNodes implements eventlog.Nodes.
func (r *Nodes) ListNodes(ctx context.Context, ids ...string) ([]eventlog.Node, error) {
	filter := bson.D{core.IDAmong(ids)}
	if len(ids) == 0 {
		lately := bson.E{Key: "over_at", Value: bson.D{{Key: "$gt", Value: r.store.Clock.Now().Add(-overListed)}}}
		filter = bson.D{{Key: "$or", Value: bson.A{bson.D{isLive}, bson.D{lately}}}}
	}
	docs, err := readNodes[nodeDoc](ctx, r, filter, options.Find().SetProjection(bson.D{{Key: "members", Value: 0}}))
	nodes := make([]eventlog.Node, len(docs))
	for i := range docs {
		nodes[i] = docs[i].node()
	}
	return nodes, err
}

// readNodes reads causally after everything that this log has seen in the store, on any connection.
func readNodes[T any](ctx context.Context, r *Nodes, filter bson.D, o *options.FindOptionsBuilder) (docs []T, err error) {
	err = r.store.Within(ctx, "look at the nodes", func(ctx context.Context) error {
		return r.store.CausallyOn(ctx, r.store.Beats, func(ctx context.Context) (err error) {
			docs, err = core.FindIn[T](ctx, r.store, r.docs(), filter, o)
			return err
		})
	})
	return docs, err
}

// node is the document's node.
func (d *nodeDoc) node() eventlog.Node {
	return eventlog.Node{
		ID: d.ID, Name: d.Name, Beat: uint64(d.Beat), Lease: time.Duration(d.Lease) * time.Millisecond,
		Groups: d.Groups, Version: uint64(d.Version), State: stateOf(d.State),
	}
}

func (d *rollDoc) roll() eventlog.Roll {
	r := eventlog.Roll{Number: uint64(d.Number), Changes: make([]eventlog.NodeChange, len(d.Changes))}
	for i, c := range d.Changes {
		r.Changes[i] = eventlog.NodeChange{ID: c.Life, Version: uint64(c.Version), State: stateOf(c.State)}
	}
	return r
}

// stateOf is the state that a document names.
func stateOf(name string) eventlog.NodeState {
	return eventlog.NodeState(max(slices.Index(states, name), 0))
}
