package mongolog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// ListGroups implements eventlog.Groups.
func (l *Log) ListGroups(ctx context.Context, topic string) (groups []string, err error) {
	next := options.FindOne().SetProjection(bson.D{{Key: "_id", Value: 0}, {Key: "group", Value: 1}}).
		SetSort(bson.D{{Key: "topic", Value: 1}, {Key: "group", Value: 1}})
	filter := bson.D{{Key: "topic", Value: topic}, notDeleted}
	err = l.withinSession(ctx, "list groups", func(ctx context.Context) error {
		for { // along the index from one group to the next
			var d epochDoc
			err := l.persist(ctx, func() error { return l.majority(epochsName).FindOne(ctx, filter, next).Decode(&d) })
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

// notDeleted selects the epochs with which no group was deleted.
var notDeleted = bson.E{Key: "deleted", Value: bson.D{{Key: "$ne", Value: true}}}

// LatestEpochs implements eventlog.Groups.
func (l *Log) LatestEpochs(ctx context.Context, topic, group string) ([]eventlog.Epoch, error) {
	var found chains
	err := l.withinSession(ctx, "read epochs", func(ctx context.Context) (err error) {
		found, err = l.readChains(ctx, bson.A{bson.D{{Key: "topic", Value: topic}, {Key: "group", Value: group}}}, nil)
		return err
	})
	return found.latest(), err
}

// AllEpochs implements eventlog.Groups.
func (l *Log) AllEpochs(ctx context.Context) ([]eventlog.Epoch, error) {
	ctx, end, err := l.beginWithin(ctx, l.seekTimeout())
	if err != nil {
		return nil, err
	}
	defer end()
	brief := bson.D{{Key: "progress.attempts", Value: 0}, {Key: "progress.out", Value: 0}, {Key: "progress.out_by", Value: 0},
		{Key: "progress.unsure", Value: 0}, {Key: "progress.delays", Value: 0},
		{Key: "progress.redrives", Value: 0}, {Key: "progress.since", Value: 0}}
	found, err := l.readChains(ctx, bson.A{bson.D{}}, brief)
	if err != nil {
		return nil, l.unavailable(ctx, "read the epochs of all groups", err)
	}
	return slices.DeleteFunc(found.latest(), func(e eventlog.Epoch) bool { return e.Deleted }), nil
}

// TakeEpochs implements eventlog.Groups. The insert decides which sidecar has an epoch. Reads
// afterwards find the outcome, so an insert with a lost reply may be repeated any number of times.
func (l *Log) TakeEpochs(ctx context.Context, epochs []eventlog.Epoch) []error {
	errs := make([]error, len(epochs))
	err := l.withinSession(ctx, "take epochs", func(ctx context.Context) error { return l.takeEpochs(ctx, epochs, errs) })
	for i := range errs {
		if errs[i] == nil {
			errs[i] = err
		}
	}
	return errs
}

// takeEpochs inserts the epochs and sets the errors of refused ones.
func (l *Log) takeEpochs(ctx context.Context, epochs []eventlog.Epoch, errs []error) error {
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
	coll := l.majority(epochsName)
	if err := l.insertNew(ctx, epochsName, docs); err != nil {
		return err
	}
	found, err := l.readChains(ctx, partitionFilters(epochs), nil)
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
		if _, err := l.bulkWrite(ctx, coll, fencing); err != nil {
			return err
		}
		if found, err = l.readChains(ctx, partitionFilters(epochs), nil); err != nil {
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
		if _, err := l.bulkWrite(ctx, coll, inheriting); err != nil {
			return err
		}
	}
	for at, number := range numbers {
		l.fences.learn(at, number)
	}
	l.forgetEpochs(ctx, old)
	return nil
}

// forgetEpochs deletes epochs that are not needed any more. If it fails, the next owner does it.
func (l *Log) forgetEpochs(ctx context.Context, old chain) {
	if len(old) == 0 {
		return
	}
	models := make([]mongo.WriteModel, len(old))
	for i, d := range old {
		models[i] = mongo.NewDeleteOneModel().SetFilter(append(byID(d.ID), bson.E{Key: "claim", Value: d.Claim}))
	}
	if _, err := l.bulkWrite(ctx, l.majority(epochsName), models); err != nil {
		l.opts.Logger.Debug("old epochs could not be deleted", "error", err)
	}
}

// Sync implements eventlog.Groups: saves are durable already.
func (l *Log) Sync(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errClosed
	}
	return nil
}

func refusal(e *eventlog.Epoch, why error, latest uint64) error {
	return fmt.Errorf("epoch %d of topic %q, group %q, partition %d: %w (the latest is %d)",
		e.Number, e.Topic, e.Group, e.Partition, why, latest)
}

// maxFences bounds the partitions that fences remember. A forgotten partition costs at most a write
// without effect.
const maxFences = 1 << 14

// fences are the latest epochs that this log knows of, so that a save by an owner that it knows to
// be replaced is refused before it writes anything.
type fences struct {
	mu     sync.Mutex
	latest map[eventlog.GroupPartition]uint64
}

func (f *fences) learn(at eventlog.GroupPartition, number uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.latest[at]; !known && len(f.latest) >= maxFences {
		for any := range f.latest {
			delete(f.latest, any)
			break
		}
	}
	f.latest[at] = max(f.latest[at], number)
}

func (f *fences) check(epochs []eventlog.Epoch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range epochs {
		if latest := f.latest[epochs[i].GroupPartition]; latest > epochs[i].Number {
			return refusal(&epochs[i], eventlog.ErrFenced, latest)
		}
	}
	return nil
}
