// Package outbox inserts events into a collection of the application's own MongoDB database, in the
// transaction that writes the application's data, for a sidecar to publish (its flag --outbox):
// both happen, or neither does.
//
//	session.WithTransaction(ctx, func(ctx context.Context) (any, error) {
//		if _, err := orders.InsertOne(ctx, order); err != nil {
//			return nil, err
//		}
//		return nil, outbox.Insert(ctx, db.Collection("outbox"), wire.Event{Topic: "orders.created", Key: order.Customer, Payload: payload})
//	})
//
// # Order
//
// Events of one topic and key are published in the order in which their transactions wrote them.
// Clocks do not decide that: each topic and key has a counter, a document of <outbox>_keys, which
// Insert raises within the transaction. So if two transactions insert for the same key at the same
// time, one of them fails with a transient error, and Session.WithTransaction runs it again.
// Transactions of different keys do not conflict, because each key has a counter of its own.
// Prepare makes the server remove counters that were not used for [KeyKept]. Events without a key
// have no counter and no order.
//
// A document's ts, which is the event's, is the inserting process's time, or the previous ts of its
// key where that is later.
//
// Transactions need a replica set or a sharded cluster.
package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/mongo/internal/majority"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// ErrNoTransaction says that Insert was called outside of a transaction: its document would be
// published even if the application's data is not written.
var ErrNoTransaction = errors.New("outbox: Insert needs the context of a running transaction, as Session.WithTransaction gives it")

// KeyKept is how long the unused counter of a key is kept. Clocks of processes that insert for one
// key must differ by less.
const KeyKept = 30 * 24 * time.Hour

// Insert inserts events, to be published at once, in their order. It refuses an event that a
// sidecar with the contract's limits would refuse for good, with a *wire.Error that names the
// event. Events get an ID where they have none; a TS must not be set.
func Insert(ctx context.Context, coll *mongo.Collection, events ...wire.Event) error {
	return insert(ctx, coll, nil, events)
}

// InsertAt is Insert for events that are put into the log at a time, by the sidecars' clocks, and
// never before. They have no order among each other.
func InsertAt(ctx context.Context, coll *mongo.Collection, at time.Time, events ...wire.Event) error {
	return insert(ctx, coll, &at, events)
}

// Prepare makes the collection of counters and its index, which old servers cannot do within a
// transaction. It should be called once before Insert; any number of processes may, at any time.
func Prepare(ctx context.Context, coll *mongo.Collection) error {
	if err := majority.ExpireAfter(ctx, counters(coll), "ts_1", "ts", KeyKept); err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	err := coll.Database().CreateCollection(ctx, coll.Name())
	var there mongo.ServerError
	if errors.As(err, &there) && there.HasErrorCode(codeNamespaceExists) {
		return nil
	}
	return err
}

const codeNamespaceExists = 48

func counters(coll *mongo.Collection) *mongo.Collection {
	return coll.Database().Collection(coll.Name() + "_keys")
}

func insert(ctx context.Context, coll *mongo.Collection, at *time.Time, events []wire.Event) error {
	if s := mongo.SessionFromContext(ctx); s == nil || !s.TransactionRunning() {
		return ErrNoTransaction
	}
	if len(events) == 0 {
		return nil
	}
	chains := map[string][]*wire.Event{} // by the counter's _id; "": without a key
	for i := range events {
		e, err := check(&events[i])
		if err != nil {
			return wire.Errorf(err.Code, "event %d: %s", i, err.Msg)
		}
		name := ""
		if e.Key != "" {
			name = e.Topic + "/" + e.Key
		}
		chains[name] = append(chains[name], e)
	}
	now := time.Now().Truncate(time.Millisecond)
	var docs []bson.D
	for name, chain := range chains {
		var was counter
		last := unique()
		if name != "" {
			var err error
			if was, err = raise(ctx, counters(coll), name, len(chain), now, last); err != nil {
				return fmt.Errorf("outbox: raise the counter of %q: %w", name, err)
			}
		}
		docs = append(docs, was.documents(chain, now, last, at)...)
	}
	if _, err := coll.InsertMany(ctx, docs); err != nil {
		return fmt.Errorf("outbox: insert into %s: %w", coll.Name(), err)
	}
	return nil
}

// check is the event as a sidecar would read it.
func check(given *wire.Event) (*wire.Event, *wire.Error) {
	e := *given
	if e.ID == "" {
		e.ID = uuid.Must(uuid.NewV7()).String()
	}
	if e.TS != 0 {
		return nil, wire.Errorf(wire.BadRequest, "ts is %d; it must be 0: the outbox sets the time", e.TS)
	}
	if err := codec.CheckTopic(e.Topic); err != nil {
		return nil, err
	}
	limits := wire.DefaultLimits()
	if !e.Binary {
		var err *wire.Error
		if e.Payload, err = codec.CompactPayload(e.Payload, limits); err != nil {
			return nil, err
		}
	}
	p := codec.ParsePublishLine(codec.AppendPublishLine(nil, &wire.PublishItem{Event: e}), limits)
	if p.Err != nil {
		return nil, p.Err
	}
	return &e, nil
}

// counter is a document of <outbox>_keys: the place of the last event of one topic and key.
//
//	{_id: "orders.created/customer-17", n: 42, ts: Date, last: "0123456789abcdef01234567"}
//
// Package sdk/js writes such documents, too.
type counter struct {
	N    int64     `bson:"n"`
	TS   time.Time `bson:"ts"`
	Last string    `bson:"last"`
}

// raise counts n more events of a key, and returns the counter before. A transaction that has done
// so keeps others of the key out until it ends.
func raise(ctx context.Context, coll *mongo.Collection, name string, n int, now time.Time, last string) (was counter, _ error) {
	update := bson.D{
		{Key: "$inc", Value: bson.D{{Key: "n", Value: int64(n)}}},
		{Key: "$max", Value: bson.D{{Key: "ts", Value: now}}},
		{Key: "$set", Value: bson.D{{Key: "last", Value: last}}},
	}
	o := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.Before)
	err := coll.FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: name}}, update, o).Decode(&was)
	if errors.Is(err, mongo.ErrNoDocuments) {
		err = nil
	}
	return was, err
}

// documents are the documents of one key, or of the events without a key. A sidecar orders them by
// ts and _id, which both rise, and waits for the document that the field after names.
func (c counter) documents(chain []*wire.Event, now time.Time, last string, at *time.Time) []bson.D {
	ts := now
	if c.TS.After(ts) {
		ts = c.TS
	}
	after := ""
	if c.N > 0 {
		after = place(c.N, c.Last)
	}
	docs := make([]bson.D, len(chain))
	for i, e := range chain {
		own := last
		if i < len(chain)-1 {
			own = unique()
		}
		id := place(c.N+int64(i)+1, own)
		doc := bson.D{{Key: "_id", Value: id}, {Key: "id", Value: e.ID}, {Key: "topic", Value: e.Topic}, {Key: "ts", Value: ts},
			{Key: "status", Value: "pending"}}
		if e.Key != "" {
			doc = append(doc, bson.E{Key: "key", Value: e.Key})
			if after != "" {
				doc = append(doc, bson.E{Key: "after", Value: after})
			}
			after = id
		}
		docs[i] = append(doc, content(e, at)...)
	}
	return docs
}

// place is an _id that sorts by n.
func place(n int64, own string) string { return fmt.Sprintf("%016x-%s", n, own) }

func unique() string { return bson.NewObjectID().Hex() }

// content is the fields that have no part in the order.
func content(e *wire.Event, at *time.Time) (doc bson.D) {
	if e.Binary {
		doc = append(doc, bson.E{Key: "payload_binary", Value: bson.Binary{Data: e.Payload}})
	} else {
		doc = append(doc, bson.E{Key: "payload_json", Value: string(e.Payload)})
	}
	if len(e.Headers) > 0 {
		headers := bson.D{}
		for _, h := range e.Headers {
			headers = append(headers, bson.E{Key: h.Name, Value: h.Value})
		}
		doc = append(doc, bson.E{Key: "headers", Value: headers})
	}
	if len(e.Tags) > 0 {
		doc = append(doc, bson.E{Key: "tags", Value: e.Tags})
	}
	if len(e.CausedBy) > 0 {
		doc = append(doc, bson.E{Key: "caused_by", Value: e.CausedBy})
	}
	if e.SID != "" {
		doc = append(doc, bson.E{Key: "sid", Value: e.SID})
	}
	if e.TTLMS > 0 {
		doc = append(doc, bson.E{Key: "ttl_ms", Value: e.TTLMS})
	}
	if at != nil {
		doc = append(doc, bson.E{Key: "deliver_at", Value: *at})
	}
	return doc
}
