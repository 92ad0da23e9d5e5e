package reads

import (
	"context"
	"fmt"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Extents implements eventlog.Reader.
func (r *Reader) Extents(ctx context.Context, name string) ([]eventlog.Extent, error) {
	ctx, t, end, err := r.catalog.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	defer end()
	extents, err := r.extents(ctx, t)
	if err != nil {
		return nil, r.store.Unavailable(ctx, "read the extents of topic "+name, err)
	}
	r.store.Reached()
	return extents, nil
}

func (r *Reader) extents(ctx context.Context, t *topics.Topic) ([]eventlog.Extent, error) {
	head, err := r.heads.Read(ctx, t)
	if err != nil {
		return nil, err
	}
	return r.heads.Extents(ctx, t, head)
}

// Seek implements eventlog.Reader.
func (r *Reader) Seek(ctx context.Context, name string, p eventlog.Position) ([]uint64, error) {
	ctx, renew, end, err := r.store.BeginSteps(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t, err := r.catalog.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	var q eventlog.ScanQuery
	switch p.From {
	case wire.FromLatest, wire.FromEarliest:
	case wire.FromTS:
		q = eventlog.ScanQuery{MinTS: p.TS}
	case wire.FromAfterID:
		q = eventlog.ScanQuery{MinTS: p.After.TS, After: &p.After}
	default:
		return nil, fmt.Errorf("position %q is not one of %s, %s, %s and %s",
			p.From, wire.FromLatest, wire.FromEarliest, wire.FromTS, wire.FromAfterID)
	}
	seqs, err := r.seek(ctx, renew, t, p.From, q)
	if err != nil {
		return nil, r.store.Unavailable(ctx, "seek in topic "+name, err)
	}
	r.store.Reached()
	return seqs, nil
}

// seek starts from the extents, so it skips no event that is appended meanwhile.
func (r *Reader) seek(ctx context.Context, renew func(), t *topics.Topic, from string, q eventlog.ScanQuery) ([]uint64, error) {
	extents, err := r.extents(ctx, t)
	if err != nil {
		return nil, err
	}
	renew()
	seqs := make([]uint64, len(extents))
	for i, e := range extents {
		seqs[i] = e.Head + 1
		if from == wire.FromEarliest {
			seqs[i] = e.First
		}
	}
	if from == wire.FromLatest || from == wire.FromEarliest {
		return seqs, nil
	}
	if slices.ContainsFunc(extents, func(e eventlog.Extent) bool { return e.Head >= e.First+seekWindow }) {
		if done, err := r.seekByTS(ctx, t, extents, q, seqs); done || err != nil {
			return seqs, err
		}
	}
	return seqs, heads.ForEach(ctx, len(seqs), func(ctx context.Context, p int) error {
		for first, head := int64(extents[p].First), int64(extents[p].Head); first <= head; first += seekWindow {
			// Together the filters do not return events in the order of seqs.
			for _, filter := range scanFilters(events.InPartition(t.Name, p, events.Between(first, min(first+seekWindow-1, head))), q) {
				seq, err := events.FindSeq(ctx, r.store, filter.(bson.D), events.ByLiveSeq, 1)
				if err != nil {
					return err
				}
				if seq > 0 {
					seqs[p] = min(seqs[p], seq)
				}
			}
			renew()
			if seqs[p] <= extents[p].Head {
				break
			}
		}
		return nil
	})
}

const (
	// seekWindow is how many seqs one query of a seek covers.
	seekWindow = 100_000
	// seekEvents is how many events a seek reads by ts. If there are that many or more, it goes
	// through the seqs instead.
	seekEvents = 1000
)

// seekByTS finds the seqs by reading the events of the time, in all partitions, if there are few.
func (r *Reader) seekByTS(
	ctx context.Context, t *topics.Topic, extents []eventlog.Extent, q eventlog.ScanQuery, seqs []uint64,
) (done bool, _ error) {
	filters := scanFilters(bson.D{{Key: document.FieldTopic, Value: t.Name}}, q)
	if len(filters) == 0 {
		return true, nil
	}
	found, err := core.FindAll[events.Entry](ctx, r.store, core.Events, core.AnyOf(filters), options.Find().SetHint(r.store.Hint(events.ByTS)).
		SetLimit(seekEvents).SetProjection(events.EntryFields))
	if err != nil || len(found) == seekEvents {
		return false, err
	}
	for _, e := range found {
		if p := e.Partition; p >= 0 && p < len(seqs) && uint64(e.Seq) >= extents[p].First {
			seqs[p] = min(seqs[p], uint64(e.Seq))
		}
	}
	return true, nil
}
