package reads

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Latest implements eventlog.Reader. It reads the index of keys and seqs backwards. That index has
// only live events, and the latest event of each key comes first.
func (r *Reader) Latest(ctx context.Context, name string, q eventlog.LatestQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	ctx, renew, end, err := r.store.BeginSteps(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	t, err := r.catalog.Find(ctx, name)
	if err != nil {
		return nil, err
	}
	b.Events = max(b.Events, 1)
	x := &latestReading{page: page{bounds: b}, Reader: r, topic: t, query: q, limit: b.Events}
	for more := true; more; renew() {
		err := r.store.Persist(ctx, func() error {
			return r.store.Causally(ctx, func(ctx context.Context) (err error) {
				more, err = x.read(ctx)
				return err
			})
		})
		if err != nil {
			return nil, r.store.Unavailable(ctx, "read the latest events of topic "+name, err)
		}
	}
	r.store.Reached()
	return x.events, nil
}

// latestReading is one call of Latest; each query starts after the page's last key.
type latestReading struct {
	page
	*Reader
	topic *topics.Topic
	query eventlog.LatestQuery
	limit int // documents that the next query reads
}

// passedOver is how many older events of a key one query reads before the next query starts at the
// next key.
const passedOver = 64

// read makes one query; more says that there may be more events.
func (r *latestReading) read(ctx context.Context) (more bool, _ error) {
	if r.query.UpTo != nil {
		// A primary that was replaced may lack events that the caller has seen. A primary that has
		// acknowledged a write since then has them, even where the write changes nothing, and later
		// reads in the session see them.
		nothing := bson.D{{Key: "$max", Value: bson.D{{Key: heads.Path(heads.FieldGiven, 0), Value: int64(0)}}}}
		if err := r.heads.Update(ctx, r.topic, nothing); err != nil {
			return false, err
		}
	}
	keys := bson.D{{Key: "$gte", Value: r.query.From}}
	if r.query.Below != "" {
		keys = append(keys, bson.E{Key: "$lt", Value: r.query.Below})
	}
	filter := bson.D{{Key: document.FieldTopic, Value: r.topic.Name}, {Key: document.FieldKey, Value: keys}, events.Live}
	cursor, err := r.store.Majority(core.Events).Find(ctx, filter, options.Find().SetHint(r.store.Hint(events.ByKeySeq)).
		SetSort(events.Order(events.ByKeySeq, -1)).
		SetLimit(int64(r.limit)).SetBatchSize(batchSize(r.topic, r.limit, r.bounds.Bytes)))
	if err != nil {
		return false, err
	}
	defer cursor.Close(ctx)
	before, seen := len(r.events), 0
	for passed := 0; !r.full() && passed < passedOver && cursor.Next(ctx); seen++ {
		key, _ := cursor.Current.Lookup(document.FieldKey).StringValueOK()
		switch {
		case len(r.events) > 0 && key == r.query.Below:
			passed++
			more = passed == passedOver
		case r.counts(cursor.Current):
			if err := r.add(cursor.Current); err != nil {
				return false, err
			}
			r.query.Below, passed = key, 0
		}
	}
	if err := cursor.Err(); err != nil || r.full() {
		return false, err
	}
	sized(r.topic, r.page)
	switch more = more || seen == r.limit; {
	case len(r.events) == before: // all of it is above UpTo
		r.limit *= 2
	case seen > 2*(len(r.events)-before):
		r.limit = passedOver
	default:
		r.limit = r.bounds.Events - len(r.events)
	}
	return more, nil
}

// counts reports whether an event is not above UpTo.
func (r *latestReading) counts(raw bson.Raw) bool {
	p, _ := raw.Lookup(document.FieldPartition).AsInt64OK()
	seq, _ := raw.Lookup(document.FieldSeq).AsInt64OK()
	return r.query.UpTo == nil || p >= 0 && p < int64(len(r.query.UpTo)) && uint64(seq) <= r.query.UpTo[p]
}
