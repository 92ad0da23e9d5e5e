package reads

import (
	"context"
	"errors"
	"math"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// maxCounted bounds the events that Holdings counts: those of the topics with the fewest seqs. It
// estimates the numbers of the others from their heads. It also bounds the seqs that one query reads
// to find the ends of partitions.
const maxCounted = 25_600

// Holdings implements eventlog.Reader. It makes one query for the heads, one for counting, and one for
// each MaxBranches topics to which somebody has appended lately, or partitions of lone writers.
func (r *Reader) Holdings(ctx context.Context, names []string) ([]eventlog.Holding, error) {
	var list []*holding
	err := r.store.Within(ctx, "read what topics hold", func(ctx context.Context) (err error) {
		if list, err = r.byHeads(ctx, names); err != nil {
			return err
		}
		if err := r.findEnds(ctx, list); err != nil {
			return err
		}
		return r.count(ctx, list)
	})
	if err != nil {
		return nil, err
	}
	all := make([]eventlog.Holding, 0, len(list))
	for _, h := range list {
		if h.known || h.Events == 0 {
			all = append(all, h.Holding)
			continue
		}
		// Somebody has deleted the head, or it is that of another generation.
		exact, err := eventlog.HoldingOf(ctx, r, h.Topic)
		if err == nil {
			all = append(all, exact)
		} else if !errors.Is(err, eventlog.ErrNotFound) {
			return nil, err
		}
	}
	return all, nil
}

// holding is what a topic holds by its head.
type holding struct {
	eventlog.Holding
	topic *topics.Topic
	each  float64 // the average size of an event
	known bool    // the head tells what the topic holds
	lone  bool    // there may be events above the head
}

func (r *Reader) byHeads(ctx context.Context, names []string) (list []*holding, err error) {
	found, err := r.readHeads(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		t, err := r.catalog.Find(ctx, name)
		if errors.Is(err, eventlog.ErrNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		list = append(list, newHolding(t, found[name]))
	}
	return list, nil
}

func newHolding(t *topics.Topic, head heads.Head) *holding {
	h := &holding{Holding: eventlog.Holding{Topic: t.Name, Extents: make([]eventlog.Extent, t.Partitions)}, topic: t}
	for p := range h.Extents {
		first := head.First(p)
		given := max(head.Given(p), first-1) // a reservation at w: 1 may be lost with a primary
		topics.Raise(&t.Parts[p].Seen, head.Watermark(p))
		h.Extents[p] = eventlog.Extent{First: first, Head: given, Removed: min(head.Removed(p), first-1)}
		h.Events += int64(given + 1 - first)
	}
	h.lone = head.Lone() != 0
	h.each, h.known = head.EventBytes()
	h.known = h.known && head.Generation() == t.Generation()
	h.Bytes = int64(h.each * float64(h.Events))
	if h.Events > 0 {
		h.FirstTS, h.LastTS = head.TSBounds()
	}
	return h
}

// place is where a document is.
type place struct {
	Topic     string `bson:"topic"`
	Partition int    `bson:"partition"`
	Seq       uint64 `bson:"seq"`
}

// findEnds lowers the extents to the first seq that is missing: whoever goes on behind an extent must
// not miss an event that is on its way. Where more seqs were given out than the queries read, the extent
// ends before them. What a lone writer has stored raises the extents.
func (r *Reader) findEnds(ctx context.Context, list []*holding) error {
	stored, err := r.aboveSeen(ctx, list)
	if err != nil {
		return err
	}
	for _, h := range list {
		for p := range h.Extents {
			seen := &h.topic.Parts[p].Seen
			end := seen.Load()
			for stored[place{h.Topic, p, end + 1}] {
				end++
			}
			topics.Raise(seen, end)
			given := h.Extents[p].Head
			if h.lone && end > given {
				h.Events += int64(end - given)
				h.Bytes = int64(h.each * float64(h.Events))
				given = end
			}
			h.Extents[p].Head = max(h.Extents[p].First-1, min(given, end))
		}
	}
	return nil
}

// maxLoneLooked bounds the partitions above whose heads findEnds looks for what lone writers have stored.
// The others end at their heads, which readers and sweeps raise.
const maxLoneLooked = 4 * core.MaxBranches

// aboveSeen reads the places of documents above what this process has seen: where seqs were given out
// since, or a lone writer may have stored events.
func (r *Reader) aboveSeen(ctx context.Context, list []*holding) (map[place]bool, error) {
	var filters bson.A
	above := func(topic string, seen uint64, partitions ...int) {
		filters = append(filters, bson.D{
			{Key: document.FieldTopic, Value: topic}, {Key: document.FieldPartition, Value: bson.D{{Key: "$in", Value: partitions}}},
			{Key: document.FieldSeq, Value: bson.D{{Key: "$gt", Value: int64(seen)}}}})
	}
	looked := 0
	for _, h := range list {
		var open []int
		lowest := uint64(math.MaxInt64)
		for p := range h.Extents {
			switch seen := h.topic.Parts[p].Seen.Load(); {
			case h.lone && looked < maxLoneLooked:
				looked++
				above(h.Topic, seen, p)
			case seen < h.Extents[p].Head:
				open, lowest = append(open, p), min(lowest, seen)
			}
		}
		if len(open) > 0 {
			above(h.Topic, lowest, open...)
		}
	}
	o := options.Find().SetHint(events.BySeq).SetLimit(maxCounted).SetBatchSize(maxCounted + 1).
		SetProjection(bson.D{{Key: document.FieldID, Value: 0},
			{Key: document.FieldTopic, Value: 1}, {Key: document.FieldPartition, Value: 1}, {Key: document.FieldSeq, Value: 1}})
	stored := map[place]bool{}
	for some := range slices.Chunk(filters, core.MaxBranches) {
		docs, err := core.FindAll[place](ctx, r.store, core.Events, core.AnyOf(some), o)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			stored[d] = true
		}
	}
	return stored, nil
}

// count replaces the estimates of the topics with the fewest seqs.
func (r *Reader) count(ctx context.Context, list []*holding) error {
	few := map[string]*holding{}
	var names []string
	left := int64(maxCounted)
	for _, h := range slices.SortedFunc(slices.Values(list), func(a, b *holding) int { return int(a.Events - b.Events) }) {
		if left -= h.Events; left < 0 {
			break
		}
		if h.Events > 0 {
			few[h.Topic], names = h, append(names, h.Topic)
		}
	}
	if len(names) == 0 {
		return nil
	}
	o := options.Aggregate().SetBatchSize(int32(len(names) + 1))
	if hint := r.store.Hint(events.ByLiveSeq); hint != nil {
		o.SetHint(hint)
	}
	var found []struct {
		Topic   string `bson:"_id"`
		Events  int64  `bson:"events"`
		FirstTS int64  `bson:"first_ts"`
		LastTS  int64  `bson:"last_ts"`
	}
	err := r.store.Persist(ctx, func() error {
		cursor, err := r.store.Majority(core.Events).Aggregate(ctx, bson.A{
			bson.D{{Key: "$match", Value: bson.D{
				{Key: document.FieldTopic, Value: bson.D{{Key: "$in", Value: names}}},
				{Key: document.FieldPartition, Value: bson.D{{Key: "$gte", Value: 0}}}, events.Live}}},
			bson.D{{Key: "$group", Value: bson.D{{Key: "_id", Value: "$" + document.FieldTopic},
				{Key: "events", Value: bson.D{{Key: "$sum", Value: 1}}},
				{Key: "first_ts", Value: bson.D{{Key: "$min", Value: "$" + document.FieldTS}}},
				{Key: "last_ts", Value: bson.D{{Key: "$max", Value: "$" + document.FieldTS}}}}}},
		}, o)
		if err == nil {
			err = cursor.All(ctx, &found)
		}
		return err
	})
	if err != nil {
		return err
	}
	for _, h := range few {
		h.Events, h.Bytes, h.FirstTS, h.LastTS = 0, 0, 0, 0
	}
	for _, f := range found {
		h := few[f.Topic]
		h.Events, h.FirstTS, h.LastTS = f.Events, f.FirstTS, f.LastTS
		h.Bytes = int64(h.each * float64(f.Events))
	}
	return nil
}
