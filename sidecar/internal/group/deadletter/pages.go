package deadletter

import (
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Pages scans topics that have dead letters, as eventlog.Pages scans one, in one order. A topic need not exist.
func Pages(
	ctx context.Context, log eventlog.Reader, topics []string, q eventlog.ScanQuery, b eventlog.Bounds,
) iter.Seq2[[]*eventlog.Record, error] {
	each := eventlog.Bounds{Events: max(1, b.Events/max(1, len(topics))), Bytes: b.Bytes / max(1, len(topics))}
	return func(yield func([]*eventlog.Record, error) bool) {
		left := slices.Clone(topics)
		for len(left) > 0 {
			page, rest, err := merged(ctx, log, left, q, each)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) > 0 && !yield(page, nil) {
				return
			}
			if left = rest; len(page) > 0 {
				q.After = pointOf(page[len(page)-1])
			}
		}
	}
}

func pointOf(rec *eventlog.Record) *eventlog.Point { return &eventlog.Point{TS: rec.TS, ID: rec.ID} }

// merged merges the next page of each topic, up to the point to which all of them were read. rest are the topics that
// may have more.
func merged(
	ctx context.Context, log eventlog.Reader, topics []string, q eventlog.ScanQuery, b eventlog.Bounds,
) (page []*eventlog.Record, rest []string, err error) {
	order := func(x, y *eventlog.Record) int { return pointOf(x).Compare(*pointOf(y)) }
	if q.Descending {
		order = func(x, y *eventlog.Record) int { return pointOf(y).Compare(*pointOf(x)) }
	}
	var upTo *eventlog.Record
	for _, topic := range topics {
		some, err := log.Scan(ctx, topic, q, b)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return nil, nil, err
		}
		if len(some) == 0 {
			continue
		}
		rest, page = append(rest, topic), append(page, some...)
		if last := some[len(some)-1]; upTo == nil || order(last, upTo) < 0 {
			upTo = last
		}
	}
	slices.SortStableFunc(page, order)
	end := slices.IndexFunc(page, func(rec *eventlog.Record) bool { return order(rec, upTo) > 0 })
	if end >= 0 {
		page = page[:end]
	}
	return page, rest, nil
}
