// Package removal removes events: by retention, by compaction, on request, and with their topic.
package removal

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/reads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/scheduled"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/times"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Remover removes the events of a store.
type Remover struct {
	store     *core.Store
	catalog   *topics.Catalog
	heads     *heads.Heads
	reads     *reads.Reader
	scheduled *scheduled.Scheduler
}

// New makes a Remover.
func New(s *core.Store, c *topics.Catalog, h *heads.Heads, r *reads.Reader, later *scheduled.Scheduler) *Remover {
	return &Remover{s, c, h, r, later}
}

// DeleteTopic implements eventlog.Deleter, see generation.go of package topics.
func (r *Remover) DeleteTopic(ctx context.Context, name string) error {
	op := "delete topic " + name
	t, generation, err := r.catalog.BeginDeletion(ctx, name)
	if err != nil {
		return err
	}
	if err := r.empty(ctx, op, t, generation); err != nil {
		return err
	}
	if err := r.scheduled.Forget(ctx, op, name, generation); err != nil {
		return err
	}
	return r.catalog.EndDeletion(ctx, name, generation)
}

// empty removes the events of a topic that is being deleted.
func (r *Remover) empty(ctx context.Context, op string, t *topics.Topic, generation int64) error {
	var head heads.Head
	err := r.store.Within(ctx, op, func(ctx context.Context) (err error) {
		if _, err = r.heads.Find(ctx, t); err != nil { // the head exists from here on
			return err
		}
		if err = r.heads.RaiseGeneration(ctx, t, generation); err != nil {
			return err
		}
		if head, err = r.heads.Find(ctx, t); err != nil {
			return err
		}
		if err = r.heads.EndLone(ctx, t, head); err != nil {
			return err
		}
		// If no sidecar has read the topic lately, this raises the watermark.
		if head, err = r.heads.Find(ctx, t); err != nil {
			return err
		}
		if _, err = r.heads.Extents(ctx, t, head); err != nil {
			return err
		}
		if err = r.heads.RaiseWatermark(ctx, t, head); err != nil {
			return err
		}
		head, err = r.heads.Find(ctx, t)
		return err
	})
	for p := range t.Parts {
		if err != nil {
			return err
		}
		err = r.emptyPartition(ctx, op, t, p, head)
	}
	return err
}

func (r *Remover) emptyPartition(ctx context.Context, op string, t *topics.Topic, p int, head heads.Head) error {
	last := head.Given(p)
	if last < head.First(p) {
		return nil // the topic was empty, or was emptied before
	}
	for first := head.Watermark(p) + 1; first <= last; first += heads.MaxVoids {
		err := r.store.Within(ctx, op, func(ctx context.Context) error {
			return r.heads.Fill(ctx, t, p, first, min(first+heads.MaxVoids-1, last))
		})
		if err != nil {
			return err
		}
	}
	for on := true; on; {
		err := r.store.Within(ctx, op, func(ctx context.Context) error {
			page, err := events.FindLive(ctx, r.store, t.Name, p, events.Batch, events.Between(0, int64(last)))
			if on = len(page) > 0; err != nil || !on {
				return err
			}
			return r.retire(ctx, t, p, page, events.Forgetful)
		})
		if err != nil {
			return err
		}
	}
	err := r.store.Within(ctx, op, func(ctx context.Context) error {
		err := r.heads.Update(ctx, t, bson.D{{Key: "$max", Value: bson.D{
			{Key: heads.Path(heads.FieldWatermark, p), Value: int64(last)}, {Key: heads.Path(heads.FieldFirst, p), Value: int64(last) + 1}}}})
		if err != nil {
			return err
		}
		return times.Partition{Store: r.store, Topic: t.Name, P: p}.Forget(ctx, last+1)
	})
	if err == nil {
		t.Parts[p].Unswept.Store(0)
		topics.Raise(&t.Parts[p].Floor, last+1)
	}
	return err
}

// retire turns events into stubs for good. The head says so first: a void and a removed event look
// alike once their documents are gone.
func (r *Remover) retire(ctx context.Context, t *topics.Topic, p int, victims []events.Entry, remember events.Remembering) error {
	last := victims[len(victims)-1].Seq
	err := r.heads.Update(ctx, t, bson.D{{Key: "$max", Value: bson.D{{Key: heads.Path(heads.FieldRemoved, p), Value: last}}}})
	if err != nil {
		return err
	}
	return events.MakeStubs(ctx, r.store, t.Name, p, victims, remember)
}

// Erase implements eventlog.Deleter: events become stubs, without a hash.
func (r *Remover) Erase(
	ctx context.Context, name string, p int, seqs []uint64, keep eventlog.Retention, now int64,
) (removed int, err error) {
	t, part, err := r.catalog.KnownPartition(ctx, name, p)
	if err != nil {
		return 0, err
	}
	wanted := make(bson.A, len(seqs))
	for i, seq := range seqs {
		wanted[i] = int64(seq)
	}
	err = r.store.Within(ctx, "erase events of topic "+name, func(ctx context.Context) error {
		in := bson.E{Key: document.FieldSeq, Value: bson.D{{Key: "$in", Value: wanted}}}
		victims, err := events.FindLive(ctx, r.store, name, p, len(seqs), in)
		if err != nil || len(victims) == 0 {
			return err
		}
		removed = len(victims)
		part.Unswept.Store(0)
		return events.MakeStubs(ctx, r.store, t.Name, p, victims, events.Remembering{WindowMS: keep.DedupeWindowMS, Now: now}, events.ContentHash)
	})
	return removed, err
}

// Remove implements eventlog.Redrives. A removed event becomes a stub, see package events.
func (r *Remover) Remove(ctx context.Context, topic string, ids []string, keep eventlog.Retention, now int64) (removed int, err error) {
	for some := range slices.Chunk(ids, events.Batch) {
		victims := map[int][]events.Entry{}
		err := r.reads.EachByID(ctx, topic, some, events.EntryFields, func(raw bson.Raw) error {
			var e events.Entry
			if err := bson.Unmarshal(raw, &e); err != nil {
				return err
			}
			if !e.Gone {
				victims[e.Partition] = append(victims[e.Partition], e)
			}
			return nil
		})
		if err != nil {
			return removed, err
		}
		t, err := r.catalog.Known(ctx, topic)
		if err != nil {
			return removed, err
		}
		for p, es := range victims {
			slices.SortFunc(es, events.BySeqOf)
			err := r.store.WithinSession(ctx, "remove events of topic "+topic, func(ctx context.Context) error {
				t.Parts[p].Unswept.Store(0)
				return events.MakeStubs(ctx, r.store, t.Name, p, es, events.Remembering{WindowMS: keep.DedupeWindowMS, Now: now})
			})
			if err != nil {
				return removed, err
			}
			removed += len(es)
		}
	}
	return removed, nil
}
