package mongolog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
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
// save that finds its epoch fenced changes nothing; causal.go says why that is enough.
func (l *Log) SaveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	_, end, err := l.begin(ctx)
	if err != nil {
		return err
	}
	defer end()
	if err := l.fences.check(epochs); err != nil {
		return err
	}
	s := &saving{ctx: ctx, number: l.saves.Add(1), epochs: epochs, marks: marks, done: make(chan error, 1)}
	if err := l.savings.add(l, s, saveLinger, l.saveAll); err != nil {
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
func (l *Log) saveAll(calls []*saving) {
	// The first caller may give up; other callers wait for the write too.
	var found chains
	err := l.withinSession(context.WithoutCancel(calls[0].ctx), "save epochs", func(ctx context.Context) (err error) {
		found, err = l.saveEpochs(ctx, calls)
		return err
	})
	for _, s := range calls {
		if err == nil && found != nil {
			s.done <- l.refused(s, found)
		} else {
			s.done <- err
		}
	}
}

// saveEpochs writes first the marks, then the epochs. If it could not save every epoch, it returns
// the stored epochs.
func (l *Log) saveEpochs(ctx context.Context, calls []*saving) (chains, error) {
	var marks []eventlog.Mark
	var epochs []eventlog.Epoch
	var models []mongo.WriteModel
	for _, s := range calls {
		marks, epochs = append(marks, s.marks...), append(epochs, s.epochs...)
		for i := range s.epochs {
			models = append(models, saveUpdate(&s.epochs[i], s.number))
		}
	}
	if err := l.saveMarks(ctx, marks); err != nil || len(epochs) == 0 {
		return nil, err
	}
	matched, err := l.bulkWrite(ctx, l.majority(epochsName), models)
	if err != nil || matched == len(models) {
		return nil, err
	}
	return l.readChains(ctx, partitionFilters(epochs), withoutProgress)
}

// refused is the error of a call whose epochs may not all have been saved.
func (l *Log) refused(s *saving, found chains) (refused error) {
	for i := range s.epochs {
		e := &s.epochs[i]
		c := found[e.GroupPartition]
		switch latest := c.latest(); {
		case latest > e.Number:
			l.fences.learn(e.GroupPartition, latest)
			refused = errors.Join(refused, refusal(e, eventlog.ErrFenced, latest))
		case latest < e.Number: // no sidecar ever took it
			refused = errors.Join(refused, refusal(e, eventlog.ErrNotFound, latest))
		case c[len(c)-1].Save < s.number:
			refused = errors.Join(refused, refusal(e, eventlog.ErrUnavailable, latest))
		}
	}
	return refused
}
