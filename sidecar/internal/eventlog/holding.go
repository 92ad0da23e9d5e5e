package eventlog

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
)

// Holding is what a topic holds.
type Holding struct {
	Topic   string
	Extents []Extent // by partition
	Events  int64
	Bytes   int64 // as wire.Event.Size counts
	// FirstTS and LastTS are the lowest and the highest ts; 0 if there are no events.
	FirstTS, LastTS int64
}

// Sample bounds the part of a topic that HoldingOf reads.
var Sample = Bounds{Events: 256, Bytes: 64 << 10}

// AtOnce is how many topics HoldingsOf reads at a time.
const AtOnce = 8

// sampled is what HoldingOf needs of a log.
type sampled interface {
	Extents(ctx context.Context, topic string) ([]Extent, error)
	Scan(ctx context.Context, topic string, q ScanQuery, b Bounds) ([]*Record, error)
}

// HoldingOf reads what one topic holds. If that is more than a Sample, Events also counts the seqs of
// removed events in between, and Bytes is estimated from the Sample.
func HoldingOf(ctx context.Context, log sampled, topic string) (Holding, error) {
	h := Holding{Topic: topic}
	var err error
	if h.Extents, err = log.Extents(ctx, topic); err != nil {
		return Holding{}, err
	}
	for _, e := range h.Extents {
		h.Events += int64(e.Head - e.First + 1)
	}
	if h.Events == 0 {
		return h, nil
	}
	first, err := log.Scan(ctx, topic, ScanQuery{}, Sample)
	if err != nil || len(first) == 0 {
		h.Events = 0
		return h, err
	}
	for _, rec := range first {
		h.Bytes += int64(rec.Size())
	}
	h.FirstTS, h.LastTS = first[0].TS, first[len(first)-1].TS
	if len(first) < Sample.Events && h.Bytes < int64(Sample.Bytes) {
		h.Events = int64(len(first)) // that is the whole topic
		return h, nil
	}
	h.Events = max(h.Events, int64(len(first)))
	h.Bytes = int64(float64(h.Bytes) / float64(len(first)) * float64(h.Events))
	last, err := log.Scan(ctx, topic, ScanQuery{Descending: true}, Bounds{Events: 1})
	if err == nil && len(last) > 0 {
		h.LastTS = last[0].TS
	}
	return h, err
}

// HoldingsOf is HoldingOf for those of the topics that exist.
func HoldingsOf(ctx context.Context, log sampled, topics []string) ([]Holding, error) {
	list := make([]Holding, len(topics))
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(AtOnce)
	for i, name := range topics {
		work.Go(func() (err error) {
			if list[i], err = HoldingOf(ctx, log, name); errors.Is(err, ErrNotFound) {
				return nil // it was deleted just now
			}
			return err
		})
	}
	err := work.Wait()
	return slices.DeleteFunc(list, func(h Holding) bool { return h.Topic == "" }), err
}
