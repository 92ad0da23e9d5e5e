package nodes

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// membersDoc is an eventlog.NodeMembers.
type membersDoc struct {
	Members []memberDoc `bson:"members"`
	More    int         `bson:"more,omitempty"`
}

// memberDoc is a wire.GroupMember, whose node is the document's.
type memberDoc struct {
	ID          string  `bson:"id"`
	Address     string  `bson:"address"`
	Since       int64   `bson:"since"`
	Inflight    int     `bson:"inflight"`
	MaxInflight int     `bson:"max_inflight"`
	Oldest      int64   `bson:"oldest"`
	Paused      bool    `bson:"paused,omitempty"`
	BlockedBy   *string `bson:"blocked_by,omitempty"`
}

// groupKey is a group's field in Members. Names may have dots, and a digest does not, so that one
// query can ask for the members of one group.
func groupKey(g eventlog.GroupName) string {
	sum := sha256.Sum256([]byte(g.Topic + "\x00" + g.Group))
	return hex.EncodeToString(sum[:16])
}

func membersOf(all []eventlog.NodeMembers) map[string]membersDoc {
	docs := make(map[string]membersDoc, len(all))
	for _, g := range all {
		doc := membersDoc{More: g.More}
		for _, m := range g.Members {
			doc.Members = append(doc.Members, memberDoc{
				ID: m.ID, Address: m.Address, Since: m.Since, Inflight: m.Inflight, MaxInflight: m.MaxInflight,
				Oldest: m.OldestUnackedMS, Paused: m.Paused, BlockedBy: m.BlockedBy,
			})
		}
		docs[groupKey(g.GroupName)] = doc
	}
	return docs
}

// GroupNodes implements eventlog.Nodes.
func (r *Nodes) GroupNodes(ctx context.Context, g eventlog.GroupName) ([]eventlog.GroupNode, error) {
	now, err := r.store.ServerTime(ctx)
	if err != nil {
		return nil, err
	}
	key := groupKey(g)
	fields := bson.D{{Key: "name", Value: 1}, {Key: "described_at", Value: 1}, {Key: "members." + key, Value: 1}}
	docs, err := readNodes[nodeDoc](ctx, r, bson.D{isLive, {Key: "groups", Value: g}}, options.Find().SetProjection(fields))
	nodes := make([]eventlog.GroupNode, len(docs))
	for i := range docs {
		d := &docs[i]
		described, is := d.Members[key]
		n := eventlog.GroupNode{ID: d.ID, Name: d.Name, Described: is, Age: max(0, now.Sub(d.DescribedAt)), More: described.More}
		for _, m := range described.Members {
			n.Members = append(n.Members, wire.GroupMember{
				ID: m.ID, NodeID: d.Name, Address: m.Address, Since: m.Since, Inflight: m.Inflight, MaxInflight: m.MaxInflight,
				OldestUnackedMS: m.Oldest, Paused: m.Paused, BlockedBy: m.BlockedBy,
			})
		}
		nodes[i] = n
	}
	return nodes, err
}
