package mongolog

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// maxAheadEvents bounds the events that one query of Ahead looks at.
const maxAheadEvents = 1000

// Ahead implements eventlog.Signals.
func (l *Log) Ahead(ctx context.Context, known []eventlog.Hint) (ahead []eventlog.Hint, err error) {
	err = l.within(ctx, "look for events", func(ctx context.Context) error {
		for some := range slices.Chunk(known, maxBranches) {
			found, err := l.aheadOf(ctx, some)
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
func (l *Log) aheadOf(ctx context.Context, known []eventlog.Hint) ([]eventlog.Hint, error) {
	o := options.Find().SetHint(bySeq).SetLimit(maxAheadEvents).SetBatchSize(maxAheadEvents + 1).
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
				{Key: document.FieldSeq, Value: bson.D{{Key: "$gt", Value: int64(k.Head)}}}, {Key: fieldVoid, Value: bson.D{{Key: "$exists", Value: false}}}})
		}
		if len(filters) == 0 {
			return hints(heads), nil
		}
		docs, err := findAll[struct {
			Topic     string `bson:"topic"`
			Partition int    `bson:"partition"`
			Seq       int64  `bson:"seq"`
		}](ctx, l, l.majority(eventsName), anyOf(filters), o)
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
