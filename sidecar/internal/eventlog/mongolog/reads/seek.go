package reads

import (
	"context"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/times"
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
	var head heads.Head
	err = r.store.Causally(ctx, func(ctx context.Context) (err error) {
		head, err = r.heads.Find(ctx, t)
		return err
	})
	if err != nil {
		return nil, err
	}
	return seqs, heads.ForEach(ctx, len(seqs), func(ctx context.Context, p int) error {
		s := seeking{Reader: r, topic: t, p: p, query: q, last: extents[p].Head, renew: renew}
		return r.store.Causally(ctx, func(ctx context.Context) error {
			seq, err := s.find(ctx, extents[p].First, head.Timed(p))
			if seq > 0 {
				seqs[p] = seq
			}
			return err
		})
	})
}

// seekWindow is how many seqs one query of a seek covers.
const seekWindow = 100_000

// seeking is a seek in one partition.
type seeking struct {
	*Reader
	topic *topics.Topic
	p     int
	query eventlog.ScanQuery
	last  uint64
	renew func()
}

// find is the lowest seq from first on of an event that the query selects; 0: there is none. Up to
// timed it goes through the blocks that may have such an event.
func (s *seeking) find(ctx context.Context, first, timed uint64) (seq uint64, err error) {
	search := times.Search{
		Partition: times.Partition{Store: s.store, Topic: s.topic.Name, P: s.p}, TS: s.query.MinTS, End: timed / times.Block,
	}
	for b := times.BlockOf(first); b < search.End; b++ {
		if b, err = search.Next(ctx, b); err != nil || b == search.End || b*times.Block >= s.last {
			break
		}
		if seq, err = s.lowest(ctx, max(first, b*times.Block+1), (b+1)*times.Block); seq > 0 || err != nil {
			return seq, err
		}
		if err = search.Lower(ctx, b); err != nil {
			break
		}
	}
	for first = max(first, search.End*times.Block+1); seq == 0 && err == nil && first <= s.last; first += seekWindow {
		seq, err = s.lowest(ctx, first, first+seekWindow-1)
	}
	return seq, err
}

// lowest is the lowest seq from first to last, and not above the seek's, of an event that the query
// selects, or 0.
func (s *seeking) lowest(ctx context.Context, first, last uint64) (lowest uint64, _ error) {
	s.renew()
	// Together the filters do not return events in the order of seqs.
	within := events.InPartition(s.topic.Name, s.p, events.Between(int64(first), int64(min(last, s.last))))
	for _, filter := range scanFilters(within, s.query) {
		seq, err := events.FindSeq(ctx, s.store, filter.(bson.D), events.ByLiveSeq, 1)
		if err != nil {
			return 0, err
		}
		if seq > 0 && (lowest == 0 || seq < lowest) {
			lowest = seq
		}
	}
	return lowest, nil
}
