// Package epochs is the progress of consumer groups: who owned a partition when, how far the owner
// came, which ids groups have acked, and which dead letters they get again.
//
// A save counts until a later epoch is taken. The taker of epoch e+1 inserts it, then fences e,
// then reads e. An owner saves e only while it is not fenced. Both write the same document, so one
// comes after the other in the order of the writes that a majority has, which never changes once
// they are acknowledged: either the taker reads the save, or the save finds e fenced and changes
// nothing. A save costs one command. A save that changed nothing costs another to find the reason.
//
// The taker's read has to see all of that order up to its own fence, and up to the insert after
// which it read the epochs to fence. In a replica set a client (or one of several mongos) may read
// from a primary that does not know yet that it was replaced. Majority reads in a causally
// consistent session rule that out: the server waits until its majority-committed data has reached
// the session's time, which a replaced primary's never does.
//
// The collection of epochs must not be spread over shards other than by topic, group and partition.
package epochs

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// ListGroups implements eventlog.Groups.
func (es *Epochs) ListGroups(ctx context.Context, topic string) (groups []string, err error) {
	next := options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "group", Value: 1}}).
		SetSort(bson.D{{Key: "topic", Value: 1}, {Key: "group", Value: 1}})
	filter := bson.D{{Key: "topic", Value: topic}, notDeleted}
	err = es.store.WithinSession(ctx, "list groups", func(ctx context.Context) error {
		for { // along the index from one group to the next
			var d epochDoc
			err := es.store.Persist(ctx, func() error { return es.store.Majority(core.Epochs).FindOne(ctx, filter, next).Decode(&d) })
			if errors.Is(err, mongo.ErrNoDocuments) {
				return nil
			} else if err != nil {
				return err
			}
			groups = append(groups, d.Group)
			filter = bson.D{{Key: "topic", Value: topic}, {Key: "group", Value: bson.D{{Key: "$gt", Value: d.Group}}}, notDeleted}
		}
	})
	slices.Sort(groups)
	return slices.Compact(groups), err
}

// GroupsOf implements eventlog.Groups. Every group has an epoch of partition 0.
func (es *Epochs) GroupsOf(ctx context.Context, topics []string) (of map[string][]string, err error) {
	of = map[string][]string{}
	if len(topics) == 0 {
		return of, nil
	}
	filter := bson.D{{Key: "topic", Value: bson.D{{Key: "$in", Value: topics}}}, {Key: "partition", Value: 0}, notDeleted}
	names := options.Find().SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "topic", Value: 1}, {Key: "group", Value: 1}}).
		SetBatchSize(groupsAtOnce)
	var found []epochDoc
	err = es.store.Within(ctx, "list groups", func(ctx context.Context) (err error) {
		found, err = core.FindAll[epochDoc](ctx, es.store, core.Epochs, filter, names)
		return err
	})
	for _, d := range found {
		of[d.Topic] = append(of[d.Topic], d.Group)
	}
	for topic, groups := range of {
		slices.Sort(groups)
		of[topic] = slices.Compact(groups)
	}
	return of, err
}

// groupsAtOnce bounds the groups in one answer of the server.
const groupsAtOnce = 1000

// Missing returns those of the groups that do not exist.
func (es *Epochs) Missing(ctx context.Context, groups []eventlog.GroupName) (missing []eventlog.GroupName, err error) {
	var topics []string
	for _, g := range groups {
		topics = append(topics, g.Topic)
	}
	slices.Sort(topics)
	there, err := es.GroupsOf(ctx, slices.Compact(topics))
	for _, g := range groups {
		if err == nil && !slices.Contains(there[g.Topic], g.Group) {
			missing = append(missing, g)
		}
	}
	return missing, err
}

// notDeleted selects the epochs with which no group was deleted.
var notDeleted = bson.E{Key: "deleted", Value: bson.D{{Key: "$ne", Value: true}}}

// LatestEpochs implements eventlog.Groups.
func (es *Epochs) LatestEpochs(ctx context.Context, topic, group string) ([]eventlog.Epoch, error) {
	var found chains
	err := es.store.WithinSession(ctx, "read epochs", func(ctx context.Context) (err error) {
		found, err = es.readChains(ctx, bson.A{bson.D{{Key: "topic", Value: topic}, {Key: "group", Value: group}}}, nil)
		return err
	})
	return found.latest(), err
}

// AllEpochs implements eventlog.Groups.
func (es *Epochs) AllEpochs(ctx context.Context) ([]eventlog.Epoch, error) {
	ctx, end, err := es.store.BeginWithin(ctx, es.store.LongTimeout())
	if err != nil {
		return nil, err
	}
	defer end()
	brief := bson.D{{Key: "progress.attempts", Value: 0}, {Key: "progress.out", Value: 0}, {Key: "progress.out_by", Value: 0},
		{Key: "progress.reach", Value: 0}, {Key: "progress.reach_by", Value: 0},
		{Key: "progress.unsure", Value: 0}, {Key: "progress.delays", Value: 0},
		{Key: "progress.redrives", Value: 0}, {Key: "progress.since", Value: 0}}
	found, err := es.readChains(ctx, bson.A{bson.D{}}, brief)
	if err != nil {
		return nil, es.store.Unavailable(ctx, "read the epochs of all groups", err)
	}
	return slices.DeleteFunc(found.latest(), func(e eventlog.Epoch) bool { return e.Deleted }), nil
}

// TakeEpochs implements eventlog.Groups. The insert decides which sidecar has an epoch. Reads
// afterwards find the outcome, so an insert with a lost reply may be repeated any number of times.
func (es *Epochs) TakeEpochs(ctx context.Context, epochs []eventlog.Epoch) []error {
	errs := make([]error, len(epochs))
	err := es.store.WithinSession(ctx, "take epochs", func(ctx context.Context) error { return es.takeEpochs(ctx, epochs, errs) })
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
	return errs
}

// takeEpochs inserts the epochs and sets the errors of refused ones.
func (es *Epochs) takeEpochs(ctx context.Context, epochs []eventlog.Epoch, errs []error) error {
	claim := uuid.NewString()
	var docs []epochDoc
	for i := range epochs {
		if e := &epochs[i]; e.Number == 0 {
			errs[i] = fmt.Errorf("epoch 0 of topic %q, group %q, partition %d: epochs are numbered from 1", e.Topic, e.Group, e.Partition)
		} else {
			docs = append(docs, newEpochDoc(e, claim))
		}
	}
	if len(docs) == 0 {
		return nil
	}
	if _, err := es.store.InsertNew(ctx, core.Epochs, docs); err != nil {
		return err
	}
	found, err := es.readChains(ctx, partitionFilters(epochs), nil)
	if err != nil {
		return err
	}
	numbers := map[eventlog.GroupPartition]uint64{} // the highest taken by this call so far
	var fencing []mongo.WriteModel
	for i := range epochs {
		e := &epochs[i]
		if errs[i] == nil {
			errs[i] = found[e.GroupPartition].refusal(e, claim, numbers[e.GroupPartition])
		}
		if errs[i] == nil {
			numbers[e.GroupPartition] = e.Number
			fencing = append(fencing, found[e.GroupPartition].fenceUpdates(e.Number)...)
		}
	}
	// Only after the fencing are the saves of earlier owners final.
	if len(fencing) > 0 {
		if _, err := es.store.BulkWrite(ctx, core.Epochs, fencing); err != nil {
			return err
		}
		if found, err = es.readChains(ctx, partitionFilters(epochs), nil); err != nil {
			return err
		}
	}
	var inheriting []mongo.WriteModel
	var old chain
	for i := range epochs {
		e := &epochs[i]
		if errs[i] != nil {
			continue
		}
		chain := found[e.GroupPartition]
		if e.Inherit && chain.has(e.Number) {
			inheriting = append(inheriting, inheritUpdate(chain, e, claim))
		}
		old = append(old, chain.outdated(e.Number)...)
	}
	if len(inheriting) > 0 {
		if _, err := es.store.BulkWrite(ctx, core.Epochs, inheriting); err != nil {
			return err
		}
	}
	for at, number := range numbers {
		es.fences.learn(at, number)
	}
	es.forgetEpochs(ctx, old)
	return nil
}

// forgetEpochs deletes epochs that are not needed any more. If it fails, the next owner does it.
func (es *Epochs) forgetEpochs(ctx context.Context, old chain) {
	if len(old) == 0 {
		return
	}
	models := make([]mongo.WriteModel, len(old))
	for i, d := range old {
		models[i] = mongo.NewDeleteOneModel().SetFilter(append(core.ByID(d.ID), bson.E{Key: "claim", Value: d.Claim}))
	}
	if _, err := es.store.BulkWrite(ctx, core.Epochs, models); err != nil {
		es.store.Logger.Debug("old epochs could not be deleted", "error", err)
	}
}
