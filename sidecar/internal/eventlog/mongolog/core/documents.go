package core

import (
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

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

// InsertNew inserts the documents whose keys are not taken, and returns the indexes of the others.
func (s *Store) InsertNew(ctx context.Context, collection string, docs any) (taken []int, err error) {
	err = s.Persist(ctx, func() error {
		_, err := s.Majority(collection).InsertMany(ctx, docs, options.InsertMany().SetOrdered(false))
		duplicates, only := onlyDuplicates(err)
		if taken = duplicates; only {
			return nil
		}
		return err
	})
	return taken, err
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
