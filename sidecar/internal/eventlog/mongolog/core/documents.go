package core

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

// The collections of a log. Documents:
//
//	topics   {_id: topic, partitions}                          inserted once
//	events   {_id: topic/id, topic, partition, seq, ts, id, …} see package document
//	         the same with deliver_at, …                       see package scheduled
//	         {_id: {head: topic}, head, settled, first, …}     see package heads
//	         {_id: {void: topic, partition, seq}, …}           see package events
//	epochs   {_id: topic/group/partition/number, …}            inserted once, then written by its owner alone
//	marks    {_id: topic/group/id, expireAt}                   without a group: an erasure, by its digest
//	redrives {_id: topic/group/partition/seq/letter}           inserted on request, deleted once the dead letter is gone
//	nodes    {_id: life, name, beat, state, …}                 inserted once, then written by the node, or who declares it dead
//	         {_id: "roll", n, changes}                         upserted; see package nodes
//	signals_0, …  {node, slots, appended, moved, nodes}        capped: messages between sidecars about topics of these slots
//	meta     {_id: "store", id, format}                        inserted once
//
// The server may execute a request long after its sender has given it up. So every update and
// delete names in its filter the state that it replaces: a number that only rises (save, beat), a
// claim or a seq that is given once, or that the document is over (gone, expired), or is not
// (live). Only a push on the roll may be late.
const (
	Topics   = "topics"
	Events   = "events"
	Epochs   = "epochs"
	Marks    = "marks"
	Redrives = "redrives"
	Nodes    = "nodes"
	Signals  = "signals"
	Meta     = "meta"
)

// SignalShards is the number of collections of signals.
const SignalShards = 8

// SignalsName is the name of one of the collections of signals.
func SignalsName(shard int) string { return Signals + "_" + strconv.Itoa(shard) }

// Owns reports whether a collection of the log's database belongs to the log.
func Owns(collection string) bool {
	switch collection {
	case Topics, Events, Epochs, Marks, Redrives, Nodes, Meta:
		return true
	}
	return strings.HasPrefix(collection, Signals+"_")
}

const (
	// MaxStatements bounds the statements of one command of updates or deletes, and the ids of one
	// query.
	MaxStatements = 1000
	// MaxBranches bounds the alternatives of one query. Several queries cost less than planning a
	// huge one.
	MaxBranches = 100
)

// ByID selects a document.
func ByID(id string) bson.D { return bson.D{{Key: "_id", Value: id}} }

// IDAmong is the condition on ids.
func IDAmong(ids []string) bson.E { return bson.E{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}} }

// IDsUnder selects the ids that begin with a prefix that ends with a slash; '0' is the character
// after the slash.
func IDsUnder(prefix string) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gt", Value: prefix}, {Key: "$lt", Value: prefix[:len(prefix)-1] + "0"}}}}
}

// AnyOf selects what any of the filters selects.
func AnyOf(filters bson.A) bson.D {
	if len(filters) == 1 {
		return filters[0].(bson.D)
	}
	return bson.D{{Key: "$or", Value: filters}}
}

// IDDoc is a document of which only the _id is read.
type IDDoc struct {
	ID string `bson:"_id"`
}

// FindAll reads all documents of a collection that a filter selects, at majority.
func FindAll[T any](ctx context.Context, s *Store, collection string, filter bson.D, o *options.FindOptionsBuilder) ([]T, error) {
	return FindIn[T](ctx, s, s.Majority(collection), filter, o)
}

// FindIn reads all documents that a filter selects. It decodes each document itself, since the
// cursor's decoder allocates a buffer of 4 KiB for each.
func FindIn[T any](ctx context.Context, s *Store, coll *mongo.Collection, filter bson.D, o *options.FindOptionsBuilder) ([]T, error) {
	var docs []T
	err := s.Persist(ctx, func() error {
		docs = nil
		cur, err := coll.Find(ctx, filter, o)
		if err != nil {
			return err
		}
		defer cur.Close(ctx)
		for cur.Next(ctx) {
			var d T
			if err := bson.Unmarshal(cur.Current, &d); err != nil {
				return err
			}
			docs = append(docs, d)
		}
		return cur.Err()
	})
	return docs, err
}

// InsertNew inserts the documents that are not stored yet.
func (s *Store) InsertNew(ctx context.Context, collection string, docs any) error {
	return s.Persist(ctx, func() error {
		_, err := s.Majority(collection).InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
		if onlyDuplicates(err) {
			return nil
		}
		return err
	})
}

// BulkWrite makes writes that may be executed in any order, and repeatedly. It returns how many
// documents matched the filters of updates; a document that an earlier try has updated does not
// count.
func (s *Store) BulkWrite(ctx context.Context, collection string, models []mongo.WriteModel) (matched int, err error) {
	for some := range slices.Chunk(models, MaxStatements) {
		err := s.Persist(ctx, func() error {
			result, err := s.Majority(collection).BulkWrite(ctx, some, options.BulkWrite().SetOrdered(false))
			if err == nil {
				matched += int(result.MatchedCount)
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	return matched, nil
}

// WriteInOrder makes repeatable writes, one after the other.
func (s *Store) WriteInOrder(ctx context.Context, collection string, models []mongo.WriteModel) error {
	return s.Persist(ctx, func() error {
		_, err := s.Majority(collection).BulkWrite(ctx, models, options.BulkWrite().SetOrdered(true))
		return err
	})
}

// DeleteSome finds documents, and deletes each of them if the conditions still hold.
func (s *Store) DeleteSome(
	ctx context.Context, collection string, filter bson.D, o *options.FindOptionsBuilder, still ...bson.E,
) (found, removed int, err error) {
	docs, err := FindAll[IDDoc](ctx, s, collection, filter, o.SetProjection(bson.D{{Key: "_id", Value: 1}}))
	if err != nil || len(docs) == 0 {
		return 0, 0, err
	}
	ids := make([]string, len(docs))
	for i, d := range docs {
		ids[i] = d.ID
	}
	err = s.Persist(ctx, func() error {
		result, err := s.Majority(collection).DeleteMany(ctx, append(bson.D{IDAmong(ids)}, still...))
		if err == nil {
			removed = int(result.DeletedCount)
		}
		return err
	})
	return len(docs), removed, err
}

// MajorityWrites is the write concern of everything except the events of topics whose policy names
// another one.
var MajorityWrites = &writeconcern.WriteConcern{W: "majority", Journal: new(true)}

// Majority is a collection that is written and read at majority.
func (s *Store) Majority(name string) *mongo.Collection { return majority(s.DB, name) }

// MajorityOfBeats is Majority on the connections for beats.
func (s *Store) MajorityOfBeats(name string) *mongo.Collection {
	return majority(s.Beats.Database(s.DB.Name()), name)
}

func majority(db *mongo.Database, name string) *mongo.Collection {
	return db.Collection(name, options.Collection().SetWriteConcern(MajorityWrites).SetReadConcern(readconcern.Majority()))
}

// Written is a collection for writes with a write concern.
func (s *Store) Written(name string, w *writeconcern.WriteConcern) *mongo.Collection {
	return s.DB.Collection(name, options.Collection().SetWriteConcern(w))
}
