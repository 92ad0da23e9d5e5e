package reads

import (
	"context"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
)

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

// aheadOf looks for live events above the heads. If there are none, the index answers without reading
// a document, whatever voids and stubs there are. The events of one partition may fill the query's bound; then aheadOf asks again without
// that partition.
func (r *Reader) aheadOf(ctx context.Context, known []eventlog.Hint) ([]eventlog.Hint, error) {
	o := options.Find().SetHint(r.store.Hint(events.ByLiveSeq)).SetLimit(maxAheadEvents).SetBatchSize(maxAheadEvents + 1).
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
				{Key: document.FieldSeq, Value: bson.D{{Key: "$gt", Value: int64(k.Head)}}}, events.Live})
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
	found, err := r.readHeads(ctx, topicsOf(known))
	if err != nil {
		return nil, r.store.Unavailable(ctx, "read the heads of topics", err)
	}
	extents := make([]eventlog.Extent, len(known))
	few := map[eventlog.Hint]bool{}  // those with few seqs above them
	lone := map[eventlog.Hint]bool{} // the heads of topics that have a lone writer
	for i, k := range known {
		h := found[k.Topic]
		extents[i] = eventlog.Extent{First: h.First(k.Partition), Head: max(h.Given(k.Partition), k.Head)}
		if h.Lone() != 0 {
			lone[eventlog.Hint{Topic: k.Topic, Partition: k.Partition, Head: extents[i].Head}] = true
		}
		if n := extents[i].Head - k.Head; 0 < n && n <= fewSeqs {
			few[k] = true
		}
	}
	inFew, err := r.highest(ctx, few, maxAheadEvents/fewSeqs)
	if err != nil {
		return nil, r.store.Unavailable(ctx, "look for events", err)
	}
	inLone, err := r.highest(ctx, lone, core.MaxBranches)
	if err != nil {
		return nil, r.store.Unavailable(ctx, "look for events", err)
	}
	for i, k := range known {
		at := eventlog.Hint{Topic: k.Topic, Partition: k.Partition}
		extents[i].Head = max(extents[i].Head, inLone[at])
		if few[k] && inFew[at] <= k.Head {
			extents[i].Head = k.Head
		}
	}
	return extents, nil
}

// highest looks for live events above heads, so many in a query. It returns the highest that it finds,
// by hint without head.
func (r *Reader) highest(ctx context.Context, known map[eventlog.Hint]bool, atOnce int) (map[eventlog.Hint]uint64, error) {
	highest := map[eventlog.Hint]uint64{}
	for some := range slices.Chunk(slices.Collect(maps.Keys(known)), atOnce) {
		ahead, err := r.aheadOf(ctx, some)
		if err != nil {
			return nil, err
		}
		for _, h := range ahead {
			at := eventlog.Hint{Topic: h.Topic, Partition: h.Partition}
			highest[at] = max(highest[at], h.Head)
		}
	}
	return highest, nil
}

// topicsOf are the topics of hints, each once.
func topicsOf(known []eventlog.Hint) []string {
	set := map[string]bool{}
	for _, k := range known {
		set[k.Topic] = true
	}
	return slices.Collect(maps.Keys(set))
}

// readHeads reads the heads of topics. A topic without a head is empty.
func (r *Reader) readHeads(ctx context.Context, names []string) (map[string]heads.Head, error) {
	found := map[string]heads.Head{}
	ids := make(bson.A, len(names))
	for i, name := range names {
		ids[i] = heads.ID(name)
	}
	for some := range slices.Chunk(ids, core.MaxStatements) {
		among := bson.D{{Key: document.FieldID, Value: bson.D{{Key: "$in", Value: some}}}}
		docs, err := core.FindAll[bson.Raw](ctx, r.store, core.Events, among, options.Find().SetBatchSize(core.MaxStatements))
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
