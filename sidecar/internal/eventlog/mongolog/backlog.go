package mongolog

import (
	"context"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// fewSeqs is how many seqs above a known head Backlog examines: perhaps none of them has an event,
// as after a writer that died. If there are more, Backlog assumes that some have events.
const fewSeqs = 100

// Backlog implements eventlog.Groups. It reads the heads of topics, and looks for events only where
// few seqs are above the known head.
func (l *Log) Backlog(ctx context.Context, known []eventlog.Hint) ([]eventlog.Extent, error) {
	ctx, end, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	heads, err := l.readHeads(ctx, known)
	if err != nil {
		return nil, l.unavailable(ctx, "read the heads of topics", err)
	}
	extents := make([]eventlog.Extent, len(known))
	hasEvents := map[eventlog.Hint]bool{} // of those with few seqs above them
	for i, k := range known {
		h := heads[k.Topic]
		extents[i] = eventlog.Extent{First: h.first(k.Partition), Head: max(h.head(k.Partition), k.Head)}
		if n := extents[i].Head - k.Head; 0 < n && n <= fewSeqs {
			hasEvents[k] = false
		}
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(hasEvents)), maxAheadEvents/fewSeqs) {
		ahead, err := l.aheadOf(ctx, some)
		if err != nil {
			return nil, l.unavailable(ctx, "look for events", err)
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
func (l *Log) readHeads(ctx context.Context, known []eventlog.Hint) (map[string]topicHead, error) {
	heads := map[string]topicHead{}
	var ids bson.A
	for _, k := range known {
		if _, asked := heads[k.Topic]; !asked {
			heads[k.Topic] = nil
			ids = append(ids, headID(k.Topic))
		}
	}
	for some := range slices.Chunk(ids, maxStatements) {
		found, err := findAll[bson.Raw](ctx, l, l.majority(eventsName), bson.D{{Key: document.FieldID, Value: bson.D{{Key: "$in", Value: some}}}}, options.Find())
		if err != nil {
			return nil, err
		}
		for _, raw := range found {
			topic, _ := raw.Lookup(document.FieldTopic).StringValueOK()
			heads[topic] = topicHead(raw)
		}
	}
	return heads, nil
}
