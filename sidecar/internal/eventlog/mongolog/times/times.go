// Package times finds the first event of a time. Publishers choose the ts of their events, so ts
// does not rise with seqs, and no index has the events from a time on in the order of seqs.
//
// The seqs of a partition are in blocks of fanout. A node has the highest ts of each of fanout
// blocks, a node of the next level that of each of fanout nodes, and so on. A search skips blocks
// and nodes whose highest ts is too low. It reads one document a level, and then the events of one
// block.
//
//   - A block is added once a majority has everything in it. The topic's head says up to which seq
//     blocks were added, and says so only after the nodes are acknowledged by a majority. Searches
//     read the rest event by event.
//   - The highest ts only rises by $max, so several sidecars may add a block. It may be too high,
//     since events are removed. A search that finds nothing in a block lowers it, if nobody has
//     changed it meanwhile.
//   - A node's highest ts in the level above is lowered only if all of the node's blocks were added.
package times

import (
	"context"
	"fmt"
	"strconv"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
)

const (
	// Block is how many seqs a block has, and fanout how many children a node.
	Block  = 128
	fanout = 128
	// levels are enough for some hundred million events below one node of the highest level.
	levels = 3
	// maxAdded bounds the seqs that one call of Add reads.
	maxAdded = 64 * Block
)

// blocksOf are the blocks below a node of a level; those of level 0 are blocks.
func blocksOf(level int) uint64 {
	n := uint64(1)
	for range level {
		n *= fanout
	}
	return n
}

// BlockOf is the block of a seq.
func BlockOf(seq uint64) uint64 { return (seq - 1) / Block }

// Partition is a partition's part of the collection.
type Partition struct {
	Store *core.Store
	Topic string
	P     int
}

// node is a document of the collection.
type node struct {
	Highest map[string]int64 `bson:"highest"` // the highest ts, by child
}

func (x Partition) id(level int, number uint64) string {
	return fmt.Sprintf("%s/%d/%d/%016x", x.Topic, x.P, level, number)
}

func childName(child uint64) string { return strconv.FormatUint(child, 10) }

// path is where a node has the highest ts of a child.
func path(child uint64) string { return "highest." + childName(child) }

// highest reads the live events from first to last, and returns the highest ts by block.
func (x Partition) highest(ctx context.Context, first, last uint64) (map[uint64]int64, error) {
	o := options.Find().SetHint(x.Store.Hint(events.ByLiveSeq)).SetBatchSize(maxAdded + 1).SetProjection(bson.D{
		{Key: document.FieldID, Value: 0}, {Key: document.FieldSeq, Value: 1}, {Key: document.FieldTS, Value: 1}})
	docs, err := core.FindAll[struct {
		Seq int64 `bson:"seq"`
		TS  int64 `bson:"ts"`
	}](ctx, x.Store, core.Events, events.InPartition(x.Topic, x.P, events.Between(int64(first), int64(last)), events.Live), o)
	highest := map[uint64]int64{}
	for _, d := range docs {
		b := BlockOf(uint64(d.Seq))
		if ts, found := highest[b]; !found || d.TS > ts {
			highest[b] = d.TS
		}
	}
	return highest, err
}

// Add returns the updates that add the next blocks from a seq on, which ends a block, and up to
// which seq that is. A majority has everything up to watermark, as the session of ctx knows.
func (x Partition) Add(ctx context.Context, from, watermark uint64) (updates []mongo.WriteModel, upTo uint64, err error) {
	upTo = min(watermark, from+maxAdded) / Block * Block
	if upTo <= from {
		return nil, from, nil
	}
	highest, err := x.highest(ctx, from+1, upTo)
	for level := 1; level <= levels && err == nil; level++ {
		size, nodes := blocksOf(level), map[uint64]bson.D{}
		for b, ts := range highest { // of one child, the highest one counts
			field := bson.E{Key: path(b % size / blocksOf(level-1)), Value: ts}
			nodes[b/size] = raise(nodes[b/size], field)
		}
		for number, fields := range nodes {
			updates = append(updates, mongo.NewUpdateOneModel().SetUpsert(true).
				SetFilter(core.ByID(x.id(level, number))).SetUpdate(bson.D{{Key: "$max", Value: fields}}))
		}
	}
	return updates, upTo, err
}

// raise adds a field, or raises it.
func raise(fields bson.D, field bson.E) bson.D {
	for i := range fields {
		if fields[i].Key == field.Key {
			fields[i].Value = max(fields[i].Value.(int64), field.Value.(int64))
			return fields
		}
	}
	return append(fields, field)
}

// Forget deletes the nodes whose events are all below a seq.
func (x Partition) Forget(ctx context.Context, first uint64) error {
	below := bson.D{{Key: "$gte", Value: x.id(1, 0)}, {Key: "$lt", Value: x.id(1, BlockOf(first)/fanout)}}
	return x.Store.Persist(ctx, func() error {
		_, err := x.Store.Majority(core.Times).DeleteMany(ctx, bson.D{{Key: "_id", Value: below}})
		return err
	})
}

// Forgets reports whether Forget deletes a node once the first event rises so.
func Forgets(from, to uint64) bool { return BlockOf(max(from, 1))/fanout < BlockOf(to)/fanout }
