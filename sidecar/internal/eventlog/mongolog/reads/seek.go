package reads

import (
	"context"
	"fmt"
	"maps"
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

// maxAheadEvents bounds the events that one query of Ahead looks at.
const maxAheadEvents = 1000

// Ahead implements eventlog.Signals.
func (r *Reader) Ahead(ctx context.Context, known []eventlog.Hint) (ahead []eventlog.Hint, err error) {
	err = r.store.Within(ctx, "look for events", func(ctx context.Context) error {
		for some := range slices.Chunk(known, core.MaxBranches) {
			found, err := r.aheadOf(ctx, some)
			if err != nil {
				return err
			}
			ahead = append(ahead, found...)
		}
		return nil
	})
	return ahead, err
}

// aheadOf looks for events above the heads. If there are none, the index answers without reading a
// document. The events of one partition may fill the query's bound; then aheadOf asks again without
// that partition.
func (r *Reader) aheadOf(ctx context.Context, known []eventlog.Hint) ([]eventlog.Hint, error) {
	o := options.Find().SetHint(events.BySeq).SetLimit(maxAheadEvents).SetBatchSize(maxAheadEvents + 1).
		SetProjection(bson.D{{Key: document.FieldID, Value: 0},
			{Key: document.FieldTopic, Value: 1}, {Key: document.FieldPartition, Value: 1}, {Key: document.FieldSeq, Value: 1}})
	heads := map[eventlog.Hint]uint64{} // of those that are ahead, by hint without head
	for {
		var filters bson.A
		for _, k := range known {
			if _, found := heads[eventlog.Hint{Topic: k.Topic, Partition: k.Partition}]; found {
				continue
			}
			filters = append(filters, bson.D{
				{Key: document.FieldTopic, Value: k.Topic}, {Key: document.FieldPartition, Value: k.Partition},
				{Key: document.FieldSeq, Value: bson.D{{Key: "$gt", Value: int64(k.Head)}}},
				{Key: events.FieldVoid, Value: bson.D{{Key: "$exists", Value: false}}}})
		}
		if len(filters) == 0 {
			return hints(heads), nil
		}
		docs, err := core.FindAll[struct {
			Topic     string `bson:"topic"`
			Partition int    `bson:"partition"`
			Seq       int64  `bson:"seq"`
		}](ctx, r.store, core.Events, core.AnyOf(filters), o)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			at := eventlog.Hint{Topic: d.Topic, Partition: d.Partition}
			heads[at] = max(heads[at], uint64(d.Seq))
		}
		if len(docs) < maxAheadEvents {
			return hints(heads), nil
		}
	}
}

func hints(heads map[eventlog.Hint]uint64) []eventlog.Hint {
	list := make([]eventlog.Hint, 0, len(heads))
	for at, head := range heads {
		at.Head = head
		list = append(list, at)
	}
	return list
}

// fewSeqs is how many seqs above a known head Backlog examines: perhaps none of them has an event,
// as after a writer that died. If there are more, Backlog assumes that some have events.
const fewSeqs = 100

// Backlog implements eventlog.Groups. It reads the heads of topics, and looks for events only where
// few seqs are above the known head.
func (r *Reader) Backlog(ctx context.Context, known []eventlog.Hint) ([]eventlog.Extent, error) {
	ctx, end, err := r.store.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	found, err := r.readHeads(ctx, known)
	if err != nil {
		return nil, r.store.Unavailable(ctx, "read the heads of topics", err)
	}
	extents := make([]eventlog.Extent, len(known))
	hasEvents := map[eventlog.Hint]bool{} // of those with few seqs above them
	for i, k := range known {
		h := found[k.Topic]
		extents[i] = eventlog.Extent{First: h.First(k.Partition), Head: max(h.Given(k.Partition), k.Head)}
		if n := extents[i].Head - k.Head; 0 < n && n <= fewSeqs {
			hasEvents[k] = false
		}
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(hasEvents)), maxAheadEvents/fewSeqs) {
		ahead, err := r.aheadOf(ctx, some)
		if err != nil {
			return nil, r.store.Unavailable(ctx, "look for events", err)
		}
		highest := map[eventlog.Hint]uint64{}
		for _, h := range ahead {
			highest[eventlog.Hint{Topic: h.Topic, Partition: h.Partition}] = h.Head
		}
		for _, k := range some {
			hasEvents[k] = highest[eventlog.Hint{Topic: k.Topic, Partition: k.Partition}] > k.Head
		}
	}
	for i, k := range known {
		if has, asked := hasEvents[k]; asked && !has {
			extents[i].Head = k.Head
		}
	}
	return extents, nil
}

// readHeads reads the heads of topics. A topic without a head is empty.
func (r *Reader) readHeads(ctx context.Context, known []eventlog.Hint) (map[string]heads.Head, error) {
	found := map[string]heads.Head{}
	var ids bson.A
	for _, k := range known {
		if _, asked := found[k.Topic]; !asked {
			found[k.Topic] = nil
			ids = append(ids, heads.ID(k.Topic))
		}
	}
	for some := range slices.Chunk(ids, core.MaxStatements) {
		among := bson.D{{Key: document.FieldID, Value: bson.D{{Key: "$in", Value: some}}}}
		docs, err := core.FindAll[bson.Raw](ctx, r.store, core.Events, among, options.Find())
		if err != nil {
			return nil, err
		}
		for _, raw := range docs {
			topic, _ := raw.Lookup(document.FieldTopic).StringValueOK()
			found[topic] = heads.Head(raw)
		}
	}
	return found, nil
}
