package capture

import (
	"bytes"
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// readAll publishes the documents of the collection that the re-read has not published yet, in the
// order of _id. It returns without an error, and with the re-read under way, if the capture is
// another sidecar's.
func (c *Capture) readAll(ctx context.Context) error {
	p := c.place
	defer func() { c.saveLast(ctx, p) }()
	// $gt would find only values of the same type. With $not and $lte, documents whose _id has an
	// earlier type come again, under their ids.
	filter := bson.D{}
	if last, err := p.Reading.LookupErr("_id"); err == nil {
		filter = bson.D{{Key: "_id", Value: bson.D{{Key: "$not", Value: bson.D{{Key: "$lte", Value: last}}}}}}
	}
	cursor, err := c.find(ctx, filter)
	if err != nil {
		return err
	}
	defer c.release(ctx, cursor)
	saved := c.cfg.Clock.Now()
	for c.mine() {
		items, last, err := c.fillDocuments(ctx, cursor, p)
		if err != nil {
			return err
		}
		if len(items) == 0 {
			p.Reading = nil
			return c.save(ctx, p)
		}
		c.health.captures()
		if err := c.publish(ctx, items); err != nil {
			return err
		}
		p.Reading = last
		if c.cfg.Clock.Since(saved) >= saveEvery {
			if err := c.save(ctx, p); err != nil {
				p = c.place
				return err
			}
			p, saved = c.place, c.cfg.Clock.Now()
		}
	}
	return nil
}

func (c *Capture) find(ctx context.Context, filter bson.D) (*mongo.Cursor, error) {
	ctx, cancel := c.cfg.Clock.WithTimeout(ctx, operationTimeout)
	defer cancel()
	return c.coll.Find(ctx, filter, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}).SetBatchSize(pageChanges))
}

// fillDocuments reads up to a page; last has the _id of its last document. An empty page is the
// end.
func (c *Capture) fillDocuments(ctx context.Context, cursor *mongo.Cursor, p place) (items []wire.PublishItem, last bson.Raw, _ error) {
	var id bson.RawValue
	for size := 0; len(items) < pageChanges && size < pageBytes && mongowatch.Next(ctx, c.cfg.Clock, cursor, operationTimeout); {
		id = cursor.Current.Lookup("_id")
		id.Value = bytes.Clone(id.Value)
		name := digest(opSnapshot, p.Token, []byte{byte(id.Type)}, id.Value)
		document := bson.RawValue{Type: bson.TypeEmbeddedDocument, Value: cursor.Current}
		it := c.cfg.Source.item(name, opSnapshot, c.cfg.Clock.Now(), id, document, c.cfg.Limits)
		items = append(items, it)
		size += it.Event.Size()
	}
	if err := cursor.Err(); err != nil || len(items) == 0 {
		return nil, nil, err
	}
	last, err := bson.Marshal(bson.D{{Key: "_id", Value: id}})
	return items, last, err
}
