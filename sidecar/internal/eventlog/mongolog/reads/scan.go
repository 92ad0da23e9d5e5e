package reads

import (
	"context"
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
)

// Scan implements eventlog.Reader with the index on (topic, ts, id) or the one on (topic, key, ts,
// id).
func (r *Reader) Scan(ctx context.Context, name string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	ctx, t, end, err := r.catalog.Begin(ctx, name)
	if err != nil {
		return nil, err
	}
	defer end()
	filters := scanFilters(bson.D{{Key: "topic", Value: name}}, q)
	if len(filters) == 0 {
		return nil, nil
	}
	order, index := 1, events.ByTS
	if q.Descending {
		order = -1
	}
	if q.Key != nil {
		index = events.ByKeyTS
	}
	o := options.Find().SetHint(r.store.Hint(index)).SetSort(events.Order(index, order))
	return r.page(ctx, t, core.AnyOf(filters), o, b)
}

// scanFilters returns filters that together select the events of q within a scope; no filter means
// that there are no such events. If the query continues after a point, one filter selects the
// events with the point's ts and later ids, and another the events of other times. These are two
// ranges of one index, each in the wanted order, and the server merges them.
func scanFilters(scope bson.D, q eventlog.ScanQuery) (filters bson.A) {
	if q.Key != nil {
		scope = append(scope, bson.E{Key: "key", Value: *q.Key})
	}
	scope = slices.Clip(scope)
	least, most := q.MinTS, q.Upper()
	if p := q.After; p != nil {
		within, beyond := least <= p.TS && p.TS <= most, "$gt"
		if q.Descending {
			most, beyond = min(most, max(p.TS, math.MinInt64+1)-1), "$lt"
		} else {
			least = max(least, min(p.TS, math.MaxInt64-1)+1)
		}
		if within {
			further := bson.E{Key: "id", Value: bson.D{{Key: beyond, Value: p.ID}}}
			filters = append(filters, append(scope, bson.E{Key: "ts", Value: p.TS}, further, events.Live))
		}
	}
	if least <= most {
		times := bson.E{Key: "ts", Value: bson.D{{Key: "$gte", Value: least}, {Key: "$lte", Value: most}}}
		filters = append(filters, append(scope, times, events.Live))
	}
	return filters
}
