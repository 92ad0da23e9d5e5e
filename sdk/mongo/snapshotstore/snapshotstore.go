// Package snapshotstore keeps snapshots of package snapshot in a collection of a MongoDB database.
//
// A snapshot is a document, and its bytes are in others, each below the most that a document may
// have:
//
//	{_id: "totals #00000000000000000012", save: "5F3K…", chunks: 2, at: Date}
//	{_id: "totals 5F3K… 00000", save: "5F3K…", data: Binary, at: Date}
//	{_id: "totals 5F3K… 00001", …}
//
// The chunks are there before the document that names them, and go after it, so a kill at any time
// leaves the snapshots before as they were. Writes and reads have the concern majority; reads go to
// the primary. No index but that of _id is needed.
package snapshotstore

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/mongo/internal/majority"
	"github.com/sluice-bus/sluice/sdk/snapshot"
)

// Store keeps the snapshots of one consumer. Several consumers may have one collection.
type Store struct {
	Collection *mongo.Collection
	Name       string // of the consumer: 1 to 128 of A-Z a-z 0-9 . _ -
	Keep       int    // how many snapshots stay; 0: 3
	Logger     *slog.Logger
}

const (
	defaultKeep = 3
	chunkBytes  = 8 << 20
	// orphansAfter is when chunks that no snapshot names, of a process that was killed while it
	// saved, are removed.
	orphansAfter = 24 * time.Hour
	maxTries     = 10 // to be the one with the next number
)

type document struct {
	ID     string    `bson:"_id"`
	Save   string    `bson:"save"`
	Chunks int       `bson:"chunks,omitempty"`
	Data   []byte    `bson:"data,omitempty"`
	At     time.Time `bson:"at"`
}

var names = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

func (s *Store) collection() (*mongo.Collection, error) {
	if s.Collection == nil || !names.MatchString(s.Name) {
		return nil, fmt.Errorf("snapshotstore: a Collection and a Name are needed; the Name is %q, and 1 to 128 of A-Z a-z 0-9 . _ - are allowed",
			s.Name)
	}
	return majority.Collection(s.Collection), nil
}

// between selects the documents whose _id is at least from and below to.
func between(from, to string) bson.D {
	return bson.D{{Key: "_id", Value: bson.D{{Key: "$gte", Value: from}, {Key: "$lt", Value: to}}}}
}

// heads are the documents of the snapshots, the last first.
func (s *Store) heads(ctx context.Context, coll *mongo.Collection) (heads []document, err error) {
	found, err := coll.Find(ctx, between(s.Name+" #", s.Name+" $"), options.Find().SetSort(bson.D{{Key: "_id", Value: -1}}))
	if err == nil {
		err = found.All(ctx, &heads)
	}
	return heads, err
}

// chunksOf selects the chunks of one save.
func (s *Store) chunksOf(save string) bson.D {
	return between(s.Name+" "+save+" ", s.Name+" "+save+"!")
}

// Save implements [snapshot.Store].
func (s *Store) Save(ctx context.Context, snap snapshot.Snapshot) error {
	coll, err := s.collection()
	if err != nil {
		return err
	}
	b, err := snapshot.Encode(snap)
	if err != nil {
		return err
	}
	head := document{Save: rand.Text(), At: time.Now()}
	for ; len(b) > 0; head.Chunks++ {
		n := min(len(b), chunkBytes)
		id := fmt.Sprintf("%s %s %05d", s.Name, head.Save, head.Chunks)
		if _, err := coll.InsertOne(ctx, document{ID: id, Save: head.Save, Data: b[:n], At: head.At}); err != nil {
			return err
		}
		b = b[n:]
	}
	for range maxTries {
		heads, err := s.heads(ctx, coll)
		if err != nil {
			return err
		}
		next := uint64(1)
		if len(heads) > 0 {
			last, err := strconv.ParseUint(strings.TrimPrefix(heads[0].ID, s.Name+" #"), 10, 64)
			if err != nil {
				return fmt.Errorf("snapshotstore: the _id %q has no number", heads[0].ID)
			}
			next = last + 1
		}
		head.ID = fmt.Sprintf("%s #%020d", s.Name, next)
		_, err = coll.InsertOne(ctx, head)
		if mongo.IsDuplicateKeyError(err) && !s.is(ctx, coll, head) {
			continue // another process was first
		}
		if err != nil && !mongo.IsDuplicateKeyError(err) {
			return err
		}
		return s.remove(ctx, coll, head, heads)
	}
	return fmt.Errorf("snapshotstore: other processes save snapshots of %s all the time; one may", s.Name)
}

// is reports whether the document that is there is this one: its insert was repeated.
func (s *Store) is(ctx context.Context, coll *mongo.Collection, head document) bool {
	var there document
	err := coll.FindOne(ctx, bson.D{{Key: "_id", Value: head.ID}}).Decode(&there)
	return err == nil && there.Save == head.Save
}

// remove removes the snapshots past those that are kept, and chunks that belong to none.
func (s *Store) remove(ctx context.Context, coll *mongo.Collection, last document, before []document) error {
	keep := cmp.Or(max(s.Keep, 0), defaultKeep)
	kept := bson.A{last.Save}
	for i, head := range before {
		if i < keep-1 {
			kept = append(kept, head.Save)
			continue
		}
		if _, err := coll.DeleteOne(ctx, bson.D{{Key: "_id", Value: head.ID}}); err != nil {
			return err
		}
		if _, err := coll.DeleteMany(ctx, s.chunksOf(head.Save)); err != nil {
			return err
		}
	}
	orphans := append(between(s.Name+" 2", s.Name+" ~"), // as rand.Text begins
		bson.E{Key: "save", Value: bson.D{{Key: "$nin", Value: kept}}},
		bson.E{Key: "at", Value: bson.D{{Key: "$lt", Value: last.At.Add(-orphansAfter)}}})
	_, err := coll.DeleteMany(ctx, orphans)
	return err
}

// Load implements [snapshot.Store].
func (s *Store) Load(ctx context.Context) (snapshot.Snapshot, error) {
	coll, err := s.collection()
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	heads, err := s.heads(ctx, coll)
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	var bad error
	for _, head := range heads {
		snap, err := s.read(ctx, coll, head)
		if err == nil || !errors.Is(err, snapshot.ErrCorrupt) {
			return snap, err
		}
		bad = errors.Join(bad, fmt.Errorf("%s: %w", head.ID, err))
		cmp.Or(s.Logger, slog.Default()).Error("a snapshot is passed over for the one before", "id", head.ID, "error", err)
	}
	if bad != nil {
		return snapshot.Snapshot{}, fmt.Errorf("no snapshot is good; remove the documents to start without one: %w", bad)
	}
	return snapshot.Snapshot{}, fmt.Errorf("%w of %s in the collection %s", snapshot.ErrNone, s.Name, coll.Name())
}

func (s *Store) read(ctx context.Context, coll *mongo.Collection, head document) (snapshot.Snapshot, error) {
	found, err := coll.Find(ctx, s.chunksOf(head.Save), options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
	if err != nil {
		return snapshot.Snapshot{}, err
	}
	var chunks []document
	if err := found.All(ctx, &chunks); err != nil {
		return snapshot.Snapshot{}, err
	}
	if len(chunks) != head.Chunks {
		return snapshot.Snapshot{}, fmt.Errorf("%w: %d of its %d chunks are there", snapshot.ErrCorrupt, len(chunks), head.Chunks)
	}
	var b []byte
	for _, chunk := range chunks {
		b = append(b, chunk.Data...)
	}
	return snapshot.Decode(b)
}
