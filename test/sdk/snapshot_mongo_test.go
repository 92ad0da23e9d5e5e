package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/mongo/snapshotstore"
	"github.com/sluice-bus/sluice/sdk/snapshot"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

func collection(t *testing.T) *mongo.Collection {
	t.Helper()
	server := mongotest.Shared(t)
	name := server.NewDatabase(t)
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI(name)))
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client.Database(name).Collection("snapshots")
}

func numbered(n int) snapshot.Snapshot {
	return snapshot.Snapshot{State: bytes.Repeat([]byte{byte(n)}, n), Positions: map[int]uint64{n: uint64(n)}, At: time.UnixMilli(int64(n))}
}

func loads(t *testing.T, s snapshot.Store, want snapshot.Snapshot) {
	t.Helper()
	got, err := s.Load(t.Context())
	if err != nil || !bytes.Equal(got.State, want.State) || !maps.Equal(got.Positions, want.Positions) || !got.At.Equal(want.At) {
		t.Errorf("loaded %d bytes at %v of %v, %v; want those of %v", len(got.State), got.Positions, got.At, err, want.At)
	}
}

func saves(t *testing.T, s snapshot.Store, snap snapshot.Snapshot) {
	t.Helper()
	require.NoError(t, s.Save(t.Context(), snap))
}

// Snapshots are kept as in files: the last ones stay, one larger than a document is whole, and a
// torn or corrupt one is passed over.
func TestMongoStore(t *testing.T) {
	ctx, coll := t.Context(), collection(t)
	s := &snapshotstore.Store{Collection: coll, Name: "totals", Keep: 2, Logger: quiet}
	if _, err := s.Load(ctx); !errors.Is(err, snapshot.ErrNone) {
		t.Fatalf("where nothing is: %v", err)
	}
	other := &snapshotstore.Store{Collection: coll, Name: "totals2", Logger: quiet}
	saves(t, other, numbered(9))
	for n := range 4 {
		saves(t, s, numbered(n))
		loads(t, s, numbered(n))
	}
	large := numbered(5)
	large.State = bytes.Repeat([]byte("sluice"), 17<<20/6)
	saves(t, s, large)
	loads(t, s, large)
	count := func() int64 {
		t.Helper()
		n, err := coll.CountDocuments(ctx, bson.D{})
		require.NoError(t, err)
		return n
	}
	if n := count(); n != 2+2+1+3 { // the other's, number 3 and the large one
		t.Errorf("%d documents", n)
	}
	update := func(filter, set bson.D) {
		t.Helper()
		if r, err := coll.UpdateMany(ctx, filter, bson.D{{Key: "$set", Value: set}}); err != nil || r.ModifiedCount == 0 {
			t.Fatal(r, err)
		}
	}
	var last struct{ Save string }
	require.NoError(t, coll.FindOne(ctx, bson.D{{Key: "_id", Value: "totals #00000000000000000005"}}).Decode(&last))
	chunk := "totals " + last.Save + " 00001"
	if _, err := coll.DeleteOne(ctx, bson.D{{Key: "_id", Value: chunk}}); err != nil { // a chunk is gone
		t.Fatal(err)
	}
	loads(t, s, numbered(3))
	saves(t, s, numbered(6))
	loads(t, s, numbered(6))
	saves(t, s, numbered(7)) // the torn one goes
	if n := count(); n != 2+2+2 {
		t.Errorf("%d documents", n)
	}
	update(bson.D{{Key: "data", Value: bson.D{{Key: "$exists", Value: true}}}}, bson.D{{Key: "data", Value: []byte("something else")}})
	if _, err := s.Load(ctx); !errors.Is(err, snapshot.ErrCorrupt) || errors.Is(err, snapshot.ErrNone) ||
		!strings.Contains(err.Error(), "totals #00000000000000000006") {
		t.Errorf("after all are broken: %v", err)
	}
	for _, name := range []string{"", "a b", "a#b", strings.Repeat("x", 129)} {
		if err := (&snapshotstore.Store{Collection: coll, Name: name}).Save(ctx, numbered(1)); err == nil {
			t.Errorf("%q is a name", name)
		}
	}
}

// Pieces of a snapshot that a killed process left are ignored, and removed after a day.
func TestMongoOrphans(t *testing.T) {
	ctx, coll := t.Context(), collection(t)
	s := &snapshotstore.Store{Collection: coll, Name: "totals", Logger: quiet}
	saves(t, s, numbered(1))
	for id, age := range map[string]time.Duration{"AAAA": time.Hour, "2ZZZ": 25 * time.Hour} {
		_, err := coll.InsertOne(ctx, bson.D{
			{Key: "_id", Value: "totals " + id + " 00000"}, {Key: "save", Value: id},
			{Key: "data", Value: []byte("x")}, {Key: "at", Value: time.Now().Add(-age)},
		})
		require.NoError(t, err)
	}
	loads(t, s, numbered(1))
	saves(t, s, numbered(2))
	if n, err := coll.CountDocuments(ctx, bson.D{}); n != 2+2+1 || err != nil {
		t.Errorf("%d documents, %v", n, err)
	}
}

// Two processes that save at the same time, which none should, do not lose the snapshot that was
// acknowledged last.
func TestMongoTwoSave(t *testing.T) {
	coll := collection(t)
	var both sync.WaitGroup
	for range 2 {
		s := &snapshotstore.Store{Collection: coll, Name: "totals", Logger: quiet, Keep: 10}
		both.Go(func() {
			for n := range 4 {
				if err := s.Save(t.Context(), numbered(n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	both.Wait()
	loads(t, &snapshotstore.Store{Collection: coll, Name: "totals", Logger: quiet}, numbered(3))
	if n, err := coll.CountDocuments(t.Context(), bson.D{}); n != 16 || err != nil {
		t.Errorf("%d documents, %v", n, err)
	}
}
