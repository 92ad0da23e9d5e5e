package topics

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
)

// A topic's generation is even while it exists and odd while it is deleted. It is in the topic's
// document, which is written first, and in the head. Appends depend on the head. It only rises, and
// neither document is ever deleted.
//
// Deleting has these steps, in this order. Any sidecar may repeat each of them:
//
//  1. The topic's document gets the next, odd generation (BeginDeletion).
//  2. So does the head. A reservation names its generation, so from here on no seq is given out.
//     Once the claim of a lone writer has ended, too, the head's numbers are final.
//  3. Voids take the empty seqs up to the head. Inserts that are still on their way collide with
//     them, as with the voids of a hole.
//  4. Live events up to the head become stubs. Their seqs stay taken, as those of other stubs do.
//  5. The head's first is set above them. Heads are never lowered, so no reader confuses a later
//     event with one of these.
//  6. The topic's document gets the mark "emptied" (EndDeletion).
//
// Creating the topic again gives it the next, even generation. The _id of an event or a mark begins
// with the generation, so ids are free although stubs have them. Sidecars that know an earlier
// generation notice the later one in the head: when they reserve, when they read, and when they
// look for an id that they do not find.

// ofGeneration selects a topic's document while it has that generation.
func ofGeneration(name string, generation int64) bson.D {
	return append(core.ByID(name), bson.E{Key: document.FieldGeneration, Value: generation})
}

// update updates the topic's document while it has that generation. It may be repeated.
func (c *Catalog) update(ctx context.Context, name string, generation int64, update bson.D) error {
	return c.store.Persist(ctx, func() error {
		_, err := c.store.Majority(core.Topics).UpdateOne(ctx, ofGeneration(name, generation), update)
		return err
	})
}

// makeAgain creates a deleted topic again; made is false if the topic is not deleted.
func (c *Catalog) makeAgain(ctx context.Context, name string) (made bool, err error) {
	_, d, err := c.stored(ctx, name)
	switch {
	case errors.Is(err, eventlog.ErrNotFound):
		return false, nil
	case err != nil || d.Generation%2 == 0:
		return false, err
	case !d.Emptied:
		return false, fmt.Errorf("topic %q is %w: delete it again to finish the deletion", name, eventlog.ErrDeleting)
	}
	err = c.update(ctx, name, d.Generation, bson.D{
		{Key: "$set", Value: bson.D{{Key: document.FieldGeneration, Value: d.Generation + 1}, {Key: "by", Value: eventlog.Maker(ctx)}}},
		{Key: "$unset", Value: bson.D{{Key: "emptied", Value: ""}, {Key: fieldLetters, Value: ""}}}})
	return err == nil, err
}

// BeginDeletion gives the topic its next, odd generation, or continues an interrupted deletion. It
// is an operation of its own.
func (c *Catalog) BeginDeletion(ctx context.Context, name string) (t *Topic, generation int64, err error) {
	var d Document
	err = c.store.Within(ctx, "delete topic "+name, func(ctx context.Context) (err error) {
		if t, d, err = c.stored(ctx, name); err != nil || d.Generation%2 == 1 {
			return err
		}
		err = c.update(ctx, name, d.Generation, bson.D{{Key: "$set", Value: bson.D{{Key: document.FieldGeneration, Value: d.Generation + 1}}}})
		if err == nil {
			t, d, err = c.stored(ctx, name)
		}
		return err
	})
	switch {
	case err != nil:
		return nil, 0, err
	case d.Emptied:
		return nil, 0, NotThere(name)
	case d.Generation%2 == 0: // made again meanwhile
		return nil, 0, fmt.Errorf("delete topic %s: %w", name, eventlog.ErrDeleting)
	}
	return t, d.Generation, nil
}

// EndDeletion notes that nothing of the deleted generation is left, as an operation of its own.
func (c *Catalog) EndDeletion(ctx context.Context, name string, generation int64) error {
	return c.store.Within(ctx, "delete topic "+name, func(ctx context.Context) error {
		return c.update(ctx, name, generation, bson.D{{Key: "$set", Value: bson.D{{Key: "emptied", Value: true}}}})
	})
}

// EnsureTopic implements eventlog.Appender.
func (c *Catalog) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	ctx, end, err := c.store.Begin(ctx)
	if err != nil {
		return eventlog.Topic{}, err
	}
	defer end()
	var wait core.Backoff
	for {
		t, err := c.Find(ctx, name)
		if err == nil {
			return t.entry(), nil
		}
		if !errors.Is(err, eventlog.ErrNotFound) {
			return eventlog.Topic{}, err
		}
		d := Document{Name: name, Partitions: partitions, By: eventlog.Maker(ctx)}
		if err := d.check(); err != nil {
			return eventlog.Topic{}, err
		}
		// The first insert wins. The document is read at majority; another sidecar's insert may
		// appear there a moment later.
		longest := core.ShortWait
		if _, err = c.store.Majority(core.Topics).InsertOne(ctx, d); mongo.IsDuplicateKeyError(err) {
			var again bool
			if again, err = c.makeAgain(ctx, name); err == nil && !again {
				err = core.ErrBehind
			}
		} else if err != nil {
			longest = core.LongWait
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, eventlog.ErrDeleting):
			return eventlog.Topic{}, err
		}
		if core.IsPermanent(err) || wait.Sleep(ctx, c.store.Clock, longest) != nil {
			return eventlog.Topic{}, c.store.Unavailable(ctx, "create topic "+name, err)
		}
	}
}
