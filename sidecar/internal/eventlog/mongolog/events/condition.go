// Package events is the collection of events: which documents it has, by which indexes they are
// found, and how an event becomes a stub.
package events

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// The indexes of events, as hints. All but the first have live or scheduled events alone.
var (
	// BySeq takes a seq once. It is also the read order where seqs may be missing.
	BySeq = Ascending(document.FieldTopic, document.FieldPartition, document.FieldSeq)
	// ByLiveSeq is the read order elsewhere. It includes ts for seeks, which then read only the
	// events that they look for.
	ByLiveSeq = Ascending(document.FieldTopic, document.FieldPartition, document.FieldSeq, document.FieldTS)
	// ByTS and ByKeyTS are for replay and export, of all keys or one.
	ByTS    = Ascending(document.FieldTopic, document.FieldTS, document.FieldEventID)
	ByKeyTS = Ascending(document.FieldTopic, document.FieldKey, document.FieldTS, document.FieldEventID)
	// ByKeySeq is for the latest event of a key, and for compaction.
	ByKeySeq = Ascending(document.FieldTopic, document.FieldKey, document.FieldSeq)
	// ByDue and ByTopicDue have entries of scheduled events only.
	ByDue      = Ascending(document.FieldDueSlot, document.FieldDeliverAt, document.FieldSeq)
	ByTopicDue = Ascending(document.FieldTopic, document.FieldDeliverAt, document.FieldEventID)
)

// Order is the order of an index, or against it (-1). A query asks for all of its fields,
// also for those that have one value: not every server sees that the others are in order then.
func Order(index bson.D, direction int) bson.D {
	order := slices.Clone(index)
	for i := range order {
		order[i].Value = direction
	}
	return order
}

// Ascending are the keys of an index, or an order.
func Ascending(fields ...string) (keys bson.D) {
	for _, f := range fields {
		keys = append(keys, bson.E{Key: f, Value: 1})
	}
	return keys
}

// Conditions on the kinds of documents.
var (
	// Live selects heads and events that nothing has removed. It has the form that partial indexes
	// need, so these indexes have no entries of stubs and voids.
	Live = bson.E{Key: document.FieldGone, Value: nil}
	// Stubs selects the documents that are not live.
	Stubs = bson.E{Key: document.FieldGone, Value: true}
	// Scheduled selects scheduled events.
	Scheduled = bson.E{Key: document.FieldDeliverAt, Value: bson.D{{Key: "$gt", Value: int64(0)}}}
)

// InPartition is a filter on a partition's documents.
func InPartition(topic string, p int, more ...bson.E) bson.D {
	return append(bson.D{{Key: document.FieldTopic, Value: topic}, {Key: document.FieldPartition, Value: p}}, more...)
}

// Between is the condition on seqs from first to last.
func Between(first, last int64) bson.E {
	return bson.E{Key: document.FieldSeq, Value: bson.D{{Key: "$gte", Value: first}, {Key: "$lte", Value: last}}}
}

// Among is the condition on listed seqs, ascending.
func Among(seqs []int64) bson.E {
	first, last := seqs[0], seqs[len(seqs)-1]
	if last-first == int64(len(seqs))-1 {
		return Between(first, last)
	}
	return bson.E{Key: document.FieldSeq, Value: bson.D{{Key: "$in", Value: seqs}}}
}

// Unchanged selects a scheduled event, or the stub of a cancelled one, while nothing has replaced,
// released or cancelled it.
func Unchanged(id, topic string, token int64) bson.D {
	return bson.D{{Key: document.FieldID, Value: id}, {Key: document.FieldTopic, Value: topic},
		{Key: document.FieldPartition, Value: document.Unplaced}, {Key: document.FieldSeq, Value: token}}
}

// FindSeq is the lowest (order 1), highest (-1) or some (0) seq that the filter selects, or 0.
func FindSeq(ctx context.Context, s *core.Store, filter, index bson.D, order int) (uint64, error) {
	o := options.Find().SetHint(s.Hint(index)).SetLimit(1).SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "seq", Value: 1}})
	if order != 0 {
		o.SetSort(Order(BySeq, order))
	}
	found, err := core.FindAll[struct {
		Seq int64 `bson:"seq"`
	}](ctx, s, core.Events, filter, o)
	if err != nil || len(found) == 0 {
		return 0, err
	}
	return uint64(found[0].Seq), nil
}

// FindByID returns the events' documents that a majority has, by _id.
func FindByID(ctx context.Context, s *core.Store, ids []string) (map[string]bson.Raw, error) {
	docs, err := core.FindAll[bson.Raw](ctx, s, core.Events, bson.D{core.IDAmong(ids)}, options.Find())
	found := map[string]bson.Raw{}
	for _, raw := range docs {
		id, _ := raw.Lookup(document.FieldID).StringValueOK()
		found[id] = raw
	}
	return found, err
}
