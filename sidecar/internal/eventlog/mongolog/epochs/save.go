package epochs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// saveLinger is how long the next save waits after the previous one. A delivery waits for one save
// and its ack for another, so a busy group always has something to save.
const saveLinger = 5 * time.Millisecond

// saving is one call of SaveEpochs.
type saving struct {
	ctx    context.Context
	number int64 // among the saves of this log
	epochs []eventlog.Epoch
	marks  []eventlog.Mark
	done   chan error // holds the answer
}

// SaveEpochs implements eventlog.Groups. Calls that arrive during a write share the next one. A
// save that finds its epoch fenced changes nothing; epochs.go says why that is enough.
func (es *Epochs) SaveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	_, end, err := es.store.Begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := es.fences.check(epochs); err != nil {
		return err
	}
	s := &saving{ctx: ctx, number: es.saves.Add(1), epochs: epochs, marks: marks, done: make(chan error, 1)}
	if err := es.savings.Add(es.store, s, saveLinger, es.saveAll); err != nil {
		return err
	}
	select {
	case err := <-s.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("save epochs: %w", context.Cause(ctx))
	}
}

// saveAll makes one write for several calls, and answers them.
func (es *Epochs) saveAll(calls []*saving) {
	// The first caller may give up; other callers wait for the write too.
	var found chains
	err := es.store.WithinSession(context.WithoutCancel(calls[0].ctx), "save epochs", func(ctx context.Context) (err error) {
		found, err = es.saveEpochs(ctx, calls)
		return err
	})
	for _, s := range calls {
		if err == nil && found != nil {
			s.done <- es.refused(s, found)
		} else {
			s.done <- err
		}
	}
}

// saveEpochs writes first the marks, then the epochs. If it could not save every epoch, it returns
// the stored epochs.
func (es *Epochs) saveEpochs(ctx context.Context, calls []*saving) (chains, error) {
	var marks []eventlog.Mark
	var epochs []eventlog.Epoch
	var models []mongo.WriteModel
	for _, s := range calls {
		marks, epochs = append(marks, s.marks...), append(epochs, s.epochs...)
		for i := range s.epochs {
			models = append(models, saveUpdate(&s.epochs[i], s.number))
		}
	}
	if err := es.saveMarks(ctx, marks); err != nil || len(epochs) == 0 {
		return nil, err
	}
	matched, err := es.store.BulkWrite(ctx, core.Epochs, models)
	if err != nil || matched == len(models) {
		return nil, err
	}
	return es.readChains(ctx, partitionFilters(epochs), withoutProgress)
}

// refused is the error of a call whose epochs may not all have been saved.
func (es *Epochs) refused(s *saving, found chains) (refused error) {
	for i := range s.epochs {
		e := &s.epochs[i]
		c := found[e.GroupPartition]
		switch latest := c.latest(); {
		case latest > e.Number:
			es.fences.learn(e.GroupPartition, latest)
			refused = errors.Join(refused, refusal(e, eventlog.ErrFenced, latest))
		case latest < e.Number: // no sidecar ever took it
			refused = errors.Join(refused, refusal(e, eventlog.ErrNotFound, latest))
		case c[len(c)-1].Save < s.number:
			refused = errors.Join(refused, refusal(e, eventlog.ErrUnavailable, latest))
		}
	}
	return refused
}

// ForgetGroup implements eventlog.Deleter. A TTL index removes the last epochs once no late save of
// their owners can arrive.
func (es *Epochs) ForgetGroup(ctx context.Context, topic, group string) error {
	ctx, renew, end, err := es.store.BeginSteps(ctx)
	if err != nil {
		return err
	}
	defer end()
	t, err := es.catalog.Find(ctx, topic)
	if err != nil {
		return err
	}
	err = es.store.Causally(ctx, func(ctx context.Context) error { return es.forgetChains(ctx, topic, group) })
	prefixes := map[string]string{core.Marks: marksPrefix(topic, t.Generation(), group), core.Redrives: redrivePrefix(topic, group, -1)}
	for coll, prefix := range prefixes {
		for found := 1; found > 0 && err == nil; renew() {
			found, _, err = es.store.DeleteSome(ctx, coll, core.IDsUnder(prefix), options.Find().SetLimit(core.MaxStatements))
		}
	}
	if err != nil && !errors.Is(err, eventlog.ErrFenced) {
		err = es.store.Unavailable(ctx, "forget group "+group, err)
	}
	return err
}

func (es *Epochs) forgetChains(ctx context.Context, topic, group string) error {
	found, err := es.readChains(ctx, bson.A{bson.D{{Key: "topic", Value: topic}, {Key: "group", Value: group}}}, withoutProgress)
	if err != nil {
		return err
	}
	now, err := es.store.ServerTime(ctx)
	if err != nil {
		return err
	}
	var updates []mongo.WriteModel
	var old chain
	for at, c := range found {
		last := c[len(c)-1]
		if !last.Deleted {
			return fmt.Errorf("group %q of topic %q, partition %d: %w", group, topic, at.Partition, eventlog.ErrFenced)
		}
		old = append(old, c[:len(c)-1]...)
		updates = append(updates, mongo.NewUpdateOneModel().SetFilter(append(core.ByID(last.ID), bson.E{Key: "claim", Value: last.Claim})).
			SetUpdate(bson.D{{Key: "$max", Value: bson.D{{Key: document.FieldExpireAt, Value: now.Add(es.store.SeqTaken)}}}}))
	}
	es.forgetEpochs(ctx, old)
	if len(updates) == 0 {
		return nil
	}
	_, err = es.store.BulkWrite(ctx, core.Epochs, updates)
	return err
}
