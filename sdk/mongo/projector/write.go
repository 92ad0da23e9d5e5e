package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	sluice "github.com/sluice-bus/sluice/sdk"
)

const (
	codeDuplicateKey       = 11000
	codeDocumentValidation = 121
	codeDocumentTooLarge   = 10334
)

// violation is a unique index that a document violates.
type violation struct{ cause string }

func (v *violation) Error() string {
	return "a unique index of the collection has the value already: " + v.cause
}

// unavailable is an error after which the outcome of writes is not known.
type unavailable struct{ error }

func (u *unavailable) Unwrap() error { return u.error }

var (
	errForeign  = errors.New("the collection has a document with this _id that is not the projector's")
	errReplaced = errors.New("the document was removed and inserted again meanwhile")
)

// historyError says that the collection is of another history of the topic than the delivered
// events: the topic is another store's, or the store was restored.
type historyError struct{ says string }

func (e *historyError) Error() string {
	return "the collection is not of this topic's history: " + e.says
}

// write is one event on its way into the collection.
type write struct {
	event *sluice.Event
	doc   bson.D
	err   error // why it is not applied
	stale bool  // the document is as far, or further
}

func (w *write) model(upsert bool) mongo.WriteModel {
	filter := bson.D{
		{Key: "_id", Value: w.event.Key},
		{Key: GuardField + ".partition", Value: w.event.Partition},
		{Key: GuardField + ".seq", Value: bson.D{{Key: "$lt", Value: int64(w.event.Seq)}}},
	}
	return mongo.NewReplaceOneModel().SetFilter(filter).SetReplacement(w.doc).SetUpsert(upsert)
}

// apply writes the documents of events, no two of one key. When it returns, each event without an
// error is in the collection, or a later one of its key is, acknowledged by the majority.
func apply(ctx context.Context, coll *mongo.Collection, writes []*write) {
	// An upsert that does not find a lower guard inserts, which meets the _id of the document that
	// is as far, or that another process has just inserted; or a unique index.
	met := bulk(ctx, coll, writes, true)
	if len(met) == 0 {
		return
	}
	first := make(map[*write]error, len(met))
	for _, w := range met {
		first[w], w.err = w.err, nil
	}
	for _, w := range bulk(ctx, coll, met, false) {
		delete(first, w) // with the document there, it is not the _id
	}
	compareGuards(ctx, coll, first)
}

// bulk replaces documents, and returns those that violate a unique index, with that error.
func bulk(ctx context.Context, coll *mongo.Collection, writes []*write, upsert bool) (met []*write) {
	if len(writes) == 0 {
		return nil
	}
	models := make([]mongo.WriteModel, len(writes))
	for i, w := range writes {
		models[i] = w.model(upsert)
	}
	_, err := coll.BulkWrite(ctx, models, options.BulkWrite().SetOrdered(false))
	var failed mongo.BulkWriteException
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &failed), failed.WriteConcernError != nil:
		for _, w := range writes {
			w.err = &unavailable{err}
		}
		return nil
	}
	for _, of := range failed.WriteErrors {
		w := writes[of.Index]
		if w.err = outcome(of.Code, of.Message); of.Code == codeDuplicateKey {
			met = append(met, w)
		}
	}
	return met
}

// interrupted are the codes of writes that the state of the server has ended, whatever the document: HostUnreachable,
// HostNotFound, LockTimeout, MaxTimeMSExpired, NetworkTimeout, ShutdownInProgress, WriteConflict, PrimarySteppedDown,
// ExceededTimeLimit, SocketException, NotWritablePrimary, InterruptedAtShutdown, Interrupted,
// InterruptedDueToReplStateChange, NotPrimaryNoSecondaryOk and NotPrimaryOrSecondary.
var interrupted = []int{6, 7, 24, 50, 89, 91, 112, 189, 262, 9001, 10107, 11600, 11601, 11602, 13435, 13436}

// outcome is the error of an event whose document was not written, given MongoDB's.
func outcome(code int, message string) error {
	err := fmt.Errorf("MongoDB does not store the document: %s", message)
	switch {
	case code == codeDuplicateKey:
		return &violation{indexOf(message)}
	case code == codeDocumentValidation, code == codeDocumentTooLarge:
		return &refusal{err}
	case slices.Contains(interrupted, code):
		return &unavailable{err}
	}
	return err
}

// indexOf is the name of the index in the message of a duplicate key error; the message itself
// where it has none.
func indexOf(message string) string {
	_, after, found := strings.Cut(message, " index: ")
	if name, _, _ := strings.Cut(after, " "); found && name != "" {
		return name
	}
	return message
}

// compareGuards finds the outcome of events whose insertion violated a unique index, given its
// error. With the document there it was the _id's, and the document is as far.
func compareGuards(ctx context.Context, coll *mongo.Collection, first map[*write]error) {
	ids := bson.A{}
	for w := range first {
		if w.err == nil {
			ids = append(ids, w.event.Key)
		}
	}
	if len(ids) == 0 {
		return
	}
	found := map[string]*guard{}
	cursor, err := coll.Find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}},
		options.Find().SetProjection(bson.D{{Key: GuardField, Value: 1}}))
	if err == nil {
		var docs []struct {
			ID    string `bson:"_id"`
			Guard *guard `bson:"_sluice"`
		}
		err = cursor.All(ctx, &docs)
		for _, d := range docs {
			found[d.ID] = d.Guard
		}
	}
	for w, met := range first {
		g, there := found[w.event.Key]
		switch {
		case w.err != nil:
		case err != nil:
			w.err = &unavailable{err}
		case !there:
			w.err = met
		case g == nil:
			w.err = &refusal{errForeign}
		case g.Partition != w.event.Partition:
			w.err = &historyError{fmt.Sprintf("key %q was in partition %d, and is in %d", w.event.Key, g.Partition, w.event.Partition)}
		case g.Seq < int64(w.event.Seq):
			w.err = &unavailable{errReplaced}
		case g.Seq > int64(w.event.Seq):
			w.stale = true
		}
	}
}
