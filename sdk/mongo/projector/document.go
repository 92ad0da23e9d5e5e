package projector

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	sluice "github.com/sluice-bus/sluice/sdk"
)

// GuardField is the field of a document that says which event it is of.
const GuardField = "_sluice"

// Live is the part of a filter that leaves deleted documents out:
//
//	collection.Find(ctx, bson.D{{"city", "Bern"}, projector.Live()})
func Live() bson.E { return bson.E{Key: GuardField + ".deleted", Value: nil} }

// maxDocumentBytes is less than the largest document that MongoDB stores, since a command adds to
// it.
const maxDocumentBytes = 16<<20 - 16<<10

// guard says which event a document is of.
type guard struct {
	Partition int        `bson:"partition"`
	Seq       int64      `bson:"seq"`
	Deleted   bool       `bson:"deleted,omitempty"`
	ExpireAt  *time.Time `bson:"expireAt,omitempty"` // of deleted ones
}

var (
	errNoKey    = errors.New("the event has no key, which would be the document's _id")
	errTooLarge = fmt.Errorf("the document is larger than the %d bytes that MongoDB stores", maxDocumentBytes)
)

// A refusal is the reason why an event cannot be projected. Another attempt would not help.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// document is the document of an event.
func (p *projection) document(e *sluice.Event) (bson.D, error) {
	if e.Key == "" {
		return nil, &refusal{errNoKey}
	}
	doc := bson.D{{Key: "_id", Value: e.Key}}
	g := guard{Partition: e.Partition, Seq: int64(e.Seq)}
	fields, err := p.fields(e)
	if err != nil {
		return nil, err
	}
	if fields == nil {
		until := time.Now().Add(p.cfg.KeepDeleted)
		g.Deleted, g.ExpireAt = true, &until
	}
	elements, err := fields.Elements()
	if fields != nil && err != nil {
		return nil, &refusal{fmt.Errorf("the document that Map returned: %w", err)}
	}
	for _, element := range elements {
		if name := element.Key(); name == "_id" || name == GuardField {
			return nil, &refusal{fmt.Errorf("the document that Map returned has a field %s, which is the projector's: leave it out", name)}
		}
		doc = append(doc, bson.E{Key: element.Key(), Value: element.Value()})
	}
	if len(fields) > maxDocumentBytes {
		return nil, &refusal{errTooLarge}
	}
	return append(doc, bson.E{Key: GuardField, Value: g}), nil
}

// fields are those of Map, or nil where the event deletes.
func (p *projection) fields(e *sluice.Event) (bson.Raw, error) {
	if !e.Binary && bytes.Equal(e.Payload, []byte("null")) {
		return nil, nil
	}
	value, err := p.cfg.Map(e)
	if err != nil || value == nil {
		return nil, err
	}
	raw, err := bson.Marshal(value)
	if err != nil {
		return nil, &refusal{fmt.Errorf("the document that Map returned cannot be encoded: %w", err)}
	}
	return raw, nil
}
