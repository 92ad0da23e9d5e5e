package mongolog

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// restamp sets the expireAt of stubs by their topic's policy.
func (m *migration) restamp(ctx context.Context) error {
	if m.options.Retention == nil {
		m.report.Notes = append(m.report.Notes, "Without policies the times of remembered ids stay as they are.")
		return nil
	}
	m.events = m.log.db.Collection(m.log.opts.Prefix+eventsName, options.Collection().SetWriteConcern(majorityWrites))
	total, err := m.events.EstimatedDocumentCount(ctx)
	if err != nil {
		return err
	}
	topics, err := findAll[topicDocument](ctx, m.log, m.log.db.Collection(m.log.opts.Prefix+topicsName), bson.D{},
		options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return err
	}
	looked := int64(0)
	for _, t := range topics {
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

var stampedFields = append(slices.Clone(entryFields), bson.E{Key: document.FieldExpireAt, Value: 1})

// restampBatch examines the documents of a partition from a seq on. It returns their number and the
// seq to continue at; -1 is the end. It adds to the counts of the last topic in the report.
func (m *migration) restampBatch(ctx context.Context, topic string, p int, from int64) (next int64, n int, err error) {
	ctx, cancel := m.log.opts.Clock.WithTimeoutCause(ctx, m.log.seekTimeout(), eventlog.ErrTimeout)
	defer cancel()
	page, err := findAll[entry](ctx, m.log, m.events,
		inPartition(topic, p, bson.E{Key: document.FieldSeq, Value: bson.D{{Key: "$gte", Value: from}}}),
		options.Find().SetSort(bson.D{{Key: document.FieldSeq, Value: 1}}).SetLimit(sweepBatch).SetProjection(stampedFields))
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
		if want.IsZero() == e.ExpireAt.IsZero() && e.ExpireAt.Sub(want).Abs() <= stubDelay {
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
	if len(page) < sweepBatch {
		return -1, len(page), nil
	}
	return page[len(page)-1].Seq + 1, len(page), nil
}

// expireAt is when a stub expires: at the end of the window, and never before SeqTaken.
func (m *migration) expireAt(e entry, windowMS int64) time.Time {
	gone := time.UnixMilli(e.GoneAt)
	if e.GoneAt == 0 { // it was removed by hand
		gone = m.log.opts.Clock.Now()
	}
	return remembering{windowMS: windowMS, now: gone.UnixMilli()}.expireAt(e.Accepted, gone, m.log.opts.SeqTaken)
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
		kind := live
		if c.gone {
			kind = stubs
		}
		stamped := bson.E{Key: document.FieldExpireAt, Value: nil} // or there is none
		if !c.from.IsZero() {
			stamped.Value = c.from
		}
		models = append(models, mongo.NewUpdateManyModel().SetFilter(inPartition(topic, p, among(seqs), kind, stamped)).SetUpdate(update))
	}
	return writeInOrder(ctx, m.log, m.events, models)
}
