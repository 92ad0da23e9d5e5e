package times

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// Search goes through the blocks that may have an event of a ts or a later one. All of it runs in
// one causally consistent session, which has read the head before, so that it sees the events of
// each block that it sees in a node.
type Search struct {
	Partition
	TS  int64
	End uint64 // the first block that was not added

	nodes map[string]node // as they were read
}

// node reads a node.
func (s *Search) node(ctx context.Context, level int, number uint64) (node, error) {
	id := s.id(level, number)
	n, known := s.nodes[id]
	if known {
		return n, nil
	}
	found, err := core.FindAll[node](ctx, s.Store, core.Times, core.ByID(id), options.Find().SetLimit(1))
	if err != nil {
		return n, err
	}
	if len(found) > 0 {
		n = found[0]
	}
	if s.nodes == nil {
		s.nodes = map[string]node{}
	}
	s.nodes[id] = n
	return n, nil
}

// from is the first child from c on whose highest ts is not below the search's; fanout: none.
func (s *Search) from(n node, c uint64) uint64 {
	for c < fanout {
		if ts, found := n.Highest[childName(c)]; found && ts >= s.TS {
			break
		}
		c++
	}
	return c
}

// Next is the first block from b on to look at; End: none is left.
func (s *Search) Next(ctx context.Context, b uint64) (uint64, error) {
	for level := levels; b < s.End && level > 0; level-- {
		size, each := blocksOf(level), blocksOf(level-1)
		n, err := s.node(ctx, level, b/size)
		if err != nil {
			return 0, err
		}
		c := b % size / each
		switch next := s.from(n, c); {
		case next == fanout: // begin again behind the node
			b, level = (b/size+1)*size, levels+1
		case next > c:
			b = b/size*size + next*each
		}
	}
	return min(b, s.End), nil
}

// Lower lowers the highest ts of a block in which the search found nothing.
func (s *Search) Lower(ctx context.Context, b uint64) error {
	highest, err := s.highest(ctx, b*Block+1, (b+1)*Block)
	if err != nil {
		return err
	}
	ts, found := highest[b]
	for level := 1; level <= levels; level++ {
		size, each := blocksOf(level), blocksOf(level-1)
		if (b/each+1)*each > s.End { // blocks of the child are added yet
			return nil
		}
		n, err := s.node(ctx, level, b/size)
		if err != nil {
			return err
		}
		c := b % size / each
		name := childName(c)
		was, is := n.Highest[name]
		if !is || found && ts >= was {
			return nil
		}
		update := bson.D{{Key: "$unset", Value: bson.D{{Key: path(c), Value: ""}}}}
		delete(n.Highest, name)
		if found {
			update = bson.D{{Key: "$set", Value: bson.D{{Key: path(c), Value: ts}}}}
			n.Highest[name] = ts
		}
		unchanged := append(core.ByID(s.id(level, b/size)), bson.E{Key: path(c), Value: was})
		lowering := []mongo.WriteModel{mongo.NewUpdateOneModel().SetFilter(unchanged).SetUpdate(update)}
		if matched, err := s.Store.BulkWrite(ctx, core.Times, lowering); err != nil || matched == 0 {
			return err
		}
		found = false
		for _, other := range n.Highest {
			if !found || other > ts {
				ts, found = other, true
			}
		}
	}
	return nil
}
