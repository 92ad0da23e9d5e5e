package topics

import (
	"context"
	"errors"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

const fieldLetters = "letters" // of Document

// AddDeadLetterTopic implements eventlog.Redrives.
func (c *Catalog) AddDeadLetterTopic(ctx context.Context, name, letters string) error {
	return c.store.Within(ctx, "add a topic of dead letters to topic "+name, func(ctx context.Context) error {
		t, err := c.Stored(ctx, name)
		if err != nil {
			return err
		}
		absent := append(ofGeneration(name, t.Generation()), bson.E{Key: fieldLetters, Value: bson.D{{Key: "$ne", Value: letters}}})
		add := bson.D{{Key: "$push", Value: bson.D{{Key: fieldLetters, Value: letters}}}}
		return c.store.Persist(ctx, func() error {
			_, err := c.store.Majority(core.Topics).UpdateOne(ctx, absent, add)
			return err
		})
	})
}

// DeadLetterTopics implements eventlog.Redrives.
func (c *Catalog) DeadLetterTopics(ctx context.Context, name string) (list []string, err error) {
	err = c.store.Within(ctx, "look up the topics of dead letters of topic "+name, func(ctx context.Context) error {
		_, d, err := c.stored(ctx, name)
		if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
			return err
		}
		if list = []string{name + wire.DeadLetterSuffix}; d.Generation%2 == 0 {
			slices.Sort(d.Letters)
			list = append(list, d.Letters...)
		}
		return nil
	})
	return list, err
}

// NamedDeadLetterTopics implements eventlog.Redrives.
func (c *Catalog) NamedDeadLetterTopics(ctx context.Context) (list []string, err error) {
	err = c.store.Within(ctx, "look up the topics of dead letters", func(ctx context.Context) error {
		noted := bson.D{{Key: fieldLetters, Value: bson.D{{Key: "$exists", Value: true}}}}
		documents, err := core.FindAll[Document](ctx, c.store, core.Topics, noted, options.Find())
		for i := range documents {
			if documents[i].Generation%2 == 0 { // else the topic is being deleted
				list = append(list, documents[i].Letters...)
			}
		}
		return err
	})
	slices.Sort(list)
	return slices.Compact(list), err
}
