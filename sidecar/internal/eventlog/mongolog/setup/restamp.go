package setup

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// restamp sets the expireAt of stubs by their topic's policy.
func (m *migration) restamp(ctx context.Context) error {
	if m.options.Retention == nil {
		m.report.Notes = append(m.report.Notes, "Without policies the times of remembered ids stay as they are.")
		return nil
	}
	total, err := m.store.Majority(core.Events).EstimatedDocumentCount(ctx)
	if err != nil {
		return err
	}
	list, err := core.FindAll[topics.Document](ctx, m.store, core.Topics, bson.D{},
		options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	looked := int64(0)
	for _, t := range list {
		m.report.Stubs = append(m.report.Stubs, StubReport{Topic: t.Name, WindowMS: m.options.Retention(t.Name).DedupeWindowMS})
		for p := range t.Partitions {
			for from := int64(0); from >= 0; {
				n := 0
				if from, n, err = m.restampBatch(ctx, t.Name, p, from); err != nil {
					return fmt.Errorf("topic %s: %w", t.Name, err)
				}
				looked += int64(n)
				m.options.Progress(StepStubs, looked, total)
			}
		}
	}
	return nil
}

var stampedFields = append(slices.Clone(events.EntryFields), bson.E{Key: document.FieldExpireAt, Value: 1})

// restampBatch examines the documents of a partition from a seq on. It returns their number and the
// seq to continue at; -1 is the end. It adds to the counts of the last topic in the report.
func (m *migration) restampBatch(ctx context.Context, topic string, p int, from int64) (next int64, n int, err error) {
	ctx, cancel := m.store.Clock.WithTimeoutCause(ctx, m.store.LongTimeout(), eventlog.ErrTimeout)
	defer cancel()
	page, err := core.FindAll[events.Entry](ctx, m.store, core.Events,
		events.InPartition(topic, p, bson.E{Key: document.FieldSeq, Value: bson.D{{Key: "$gte", Value: from}}}),
		options.Find().SetSort(events.Ascending(document.FieldSeq)).SetLimit(events.Batch).SetProjection(stampedFields))
	if err != nil {
		return 0, 0, err
	}
	report := &m.report.Stubs[len(m.report.Stubs)-1]
	changes := map[change][]int64{}
	for _, e := range page {
		want := time.Time{} // a live event has none
		if e.Gone {
			report.Stubs++
			want = m.expireAt(e, report.WindowMS)
		}
		if want.IsZero() == e.ExpireAt.IsZero() && e.ExpireAt.Sub(want).Abs() <= events.StubDelay {
			continue
		}
		report.Changed++
		c := change{from: e.ExpireAt, expireAt: want, gone: e.Gone}
		changes[c] = append(changes[c], e.Seq)
	}
	if len(changes) > 0 && !m.options.DryRun {
		if err := m.stamp(ctx, topic, p, changes); err != nil {
			return 0, 0, err
		}
	}
	if len(page) < events.Batch {
		return -1, len(page), nil
	}
	return page[len(page)-1].Seq + 1, len(page), nil
}

// expireAt is when a stub expires: at the end of the window, and never before SeqTaken.
func (m *migration) expireAt(e events.Entry, windowMS int64) time.Time {
	gone := time.UnixMilli(e.GoneAt)
	if e.GoneAt == 0 { // it was removed by hand
		gone = m.store.Clock.Now()
	}
	return events.Remembering{WindowMS: windowMS, Now: gone.UnixMilli()}.ExpireAt(e.Accepted, gone, m.store.SeqTaken)
}

// change is a change of the expireAt of documents; the zero time stands for none.
type change struct {
	from, expireAt time.Time
	gone           bool // they are stubs
}

// stamp writes the changes to the documents with these seqs. A sidecar may sweep at the same time:
// an event that has become a stub since then has its expireAt from that sweep. A document whose
// expireAt has changed since the read keeps it, since the server may execute this long after the
// sender gave up.
func (m *migration) stamp(ctx context.Context, topic string, p int, changes map[change][]int64) error {
	var models []mongo.WriteModel
	for c, seqs := range changes {
		update := bson.D{{Key: "$unset", Value: bson.D{{Key: document.FieldExpireAt, Value: ""}}}}
		if !c.expireAt.IsZero() {
			update = bson.D{{Key: "$set", Value: bson.D{{Key: document.FieldExpireAt, Value: c.expireAt}}}}
		}
		kind := events.Live
		if c.gone {
			kind = events.Stubs
		}
		stamped := bson.E{Key: document.FieldExpireAt, Value: nil} // or there is none
		if !c.from.IsZero() {
			stamped.Value = c.from
		}
		filter := events.InPartition(topic, p, events.Among(seqs), kind, stamped)
		models = append(models, mongo.NewUpdateManyModel().SetFilter(filter).SetUpdate(update))
	}
	return m.store.WriteInOrder(ctx, core.Events, models)
}
