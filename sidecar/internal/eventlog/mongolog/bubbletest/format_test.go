package bubbletest

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// unopened makes a log that has not reached its server yet.
func unopened(t *testing.T, set *mongomodel.Set, query string) *mongolog.Log {
	t.Helper()
	hosts, _, _ := strings.Cut(strings.TrimPrefix(set.URI(), "mongodb://"), "/")
	l, err := mongolog.Open(mongolog.Options{
		URL: "mongodb://" + hosts + "/" + database + query, Dialer: set.Dialer("sidecar"), Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return l
}

// wantRefused expects that the log refuses its store for good, with these words.
func wantRefused(t *testing.T, l *mongolog.Log, words ...string) {
	t.Helper()
	err := l.Ping(t.Context())
	if !errors.Is(err, eventlog.ErrUnavailable) {
		t.Errorf("Ping = %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	refusal := l.AwaitRefusal(ctx)
	if _, unsupported := errors.AsType[*mongolog.UnsupportedError](refusal); !unsupported {
		t.Fatalf("it is not refused: %v, %v", refusal, err)
	}
	for _, w := range words {
		if !strings.Contains(refusal.Error(), w) || !strings.Contains(err.Error(), w) {
			t.Errorf("it says %q and %q; want %q", refusal, err, w)
		}
	}
}

// A store of another format is refused before anything is written to it.
func TestFormat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Polling: true})
		t.Cleanup(set.Close)
		beside, err := mongo.Connect(set.Client("beside"))
		require.NoError(t, err)
		defer beside.Disconnect(context.Background())
		db := beside.Database(database)
		if _, err := db.Collection("meta").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "store"}, {Key: "id", Value: "x"},
			{Key: "format", Value: 5}}); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, unopened(t, set, ""), "format 5", "reads format 1")
		if names, err := db.ListCollectionNames(t.Context(), bson.D{}); err != nil || !slices.Equal(names, []string{"meta"}) {
			t.Errorf("there are the collections %q, %v", names, err)
		}
		require.NoError(t, db.Drop(t.Context()))
		l := unopened(t, set, "")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := errors.Join(l.Ping(ctx), l.AwaitRefusal(ctx)); err != nil || l.StoreID() == "" {
			t.Errorf("an empty store: %v, id %q", err, l.StoreID())
		}
	})
}

// without removes fields from an answer, and adds others.
func without(answer bson.D, fields []string, more ...bson.E) bson.D {
	return append(slices.DeleteFunc(answer, func(e bson.E) bool { return slices.Contains(fields, e.Key) }), more...)
}

// A server that is no replica set, nor a mongos, of MongoDB 4.4 or later is refused once it answers.
func TestServersThatAreRefused(t *testing.T) {
	member := []string{"setName", "hosts", "setVersion", "me", "primary", "electionId"}
	alone := func(command string, answer bson.D) bson.D {
		if command == "buildInfo" {
			return answer
		}
		return without(answer, member)
	}
	for name, c := range map[string]struct {
		query     string
		introduce func(command string, answer bson.D) bson.D
		want      []string
	}{
		"on its own":                            {"", alone, []string{"MongoDB 8.0.0 on its own", "rs.initiate()"}},
		"on its own, where the URL names a set": {"?replicaSet=rs0", alone, []string{"no server of its URL is a member", "rs.initiate()"}},
		"too old": {"", func(command string, answer bson.D) bson.D {
			if command == "buildInfo" {
				return answer
			}
			return without(answer, []string{"maxWireVersion"}, bson.E{Key: "maxWireVersion", Value: int32(8)})
		}, []string{"is MongoDB 4.2", "needs 4.4"}},
		"FerretDB": {"", func(command string, answer bson.D) bson.D {
			if command == "buildInfo" {
				return append(answer, bson.E{Key: "ferretdb", Value: bson.D{{Key: "version", Value: "v2.0.0"}}})
			}
			return answer
		}, []string{"FerretDB", "lacks capped collections"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true, Introduce: c.introduce})
				t.Cleanup(set.Close)
				wantRefused(t, unopened(t, set, c.query), c.want...)
			})
		})
	}
}

// A set that is not initiated yet is waited for.
func TestASetIsInitiatedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		initiated := false
		set := mongomodel.New(mongomodel.Options{Members: 1, Polling: true, Introduce: func(command string, answer bson.D) bson.D {
			if initiated || command == "buildInfo" {
				return answer
			}
			return without(answer, []string{"setName", "hosts", "isWritablePrimary", "ismaster"}, bson.E{Key: "isreplicaset", Value: true})
		}})
		t.Cleanup(set.Close)
		l := unopened(t, set, "")
		if err := l.Ping(t.Context()); !errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("Ping = %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := l.AwaitRefusal(ctx); err != nil {
			t.Errorf("it is refused: %v", err)
		}
		initiated = true
		time.Sleep(time.Minute)
		if err := l.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
