package mongolog

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Scan implements eventlog.Reader, by the index on (topic, ts, id) or the one
// on (topic, key, ts, id).
func (l *Log) Scan(ctx context.Context, name string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	ctx, t, end, err := l.beginOn(ctx, name)
	if err != nil {
		return nil, err
	}
	defer end()
	filter, some := scanFilter(bson.D{{Key: "topic", Value: name}}, q)
	if !some {
		return nil, nil
	}
	order, index := 1, byTS
	if q.Descending {
		order = -1
	}
	if q.Key != nil {
		index = byKeyTS
	}
	o := options.Find().SetHint(l.hint(index)).SetSort(bson.D{{Key: "ts", Value: order}, {Key: "id", Value: order}})
	return l.page(ctx, t, filter, o, b)
}

// scanFilter selects what q does within a scope; some is false if that is
// nothing.
func scanFilter(scope bson.D, q eventlog.ScanQuery) (filter bson.D, some bool) {
	if q.Key != nil {
		scope = append(scope, bson.E{Key: "key", Value: *q.Key})
	}
	scope = scope[:len(scope):len(scope)]
	least, most := q.MinTS, q.Upper()
	within := func(op string, bound int64) bson.D {
		ts := bson.D{{Key: "$gte", Value: least}, {Key: "$lte", Value: most}}
		if op != "" {
			ts = append(ts, bson.E{Key: op, Value: bound})
		}
		return append(scope, bson.E{Key: "ts", Value: ts}, live)
	}
	if least > most {
		return nil, false
	}
	if q.After == nil {
		return within("", 0), true
	}
	at, ahead, beyond := q.After.TS, q.After.TS < least, "$gt"
	behind := at > most
	if q.Descending {
		ahead, behind, beyond = behind, ahead, "$lt"
	}
	switch {
	case ahead:
		return within("", 0), true
	case behind:
		return nil, false
	}
	return behindPoint(scope, within(beyond, at), beyond, *q.After), true
}

// behindPoint selects the events behind a point: those of its own ts with ids
// beyond, and others. They are two ranges of one index, each in the order that
// is wanted, so the server merges them as it goes.
func behindPoint(scope, others bson.D, beyond string, p eventlog.Point) bson.D {
	same := append(scope[:len(scope):len(scope)], bson.E{Key: "ts", Value: p.TS},
		bson.E{Key: "id", Value: bson.D{{Key: beyond, Value: p.ID}}}, live)
	return bson.D{{Key: "$or", Value: bson.A{same, others}}}
}
