package setup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/coretest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// indexing is the setup of a new, unused store, with its log lines and the indexes that it creates.
type indexing struct {
	*Setup
	lines bytes.Buffer

	mu      sync.Mutex
	created []string
}

func newIndexing(t *testing.T) *indexing {
	t.Helper()
	server, x := mongotest.Shared(t), &indexing{}
	store := coretest.Open(t, core.Config{
		URL: server.URI(server.NewDatabase(t)), Logger: slog.New(slog.NewTextHandler(&x.lines, nil)),
		Monitor: &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
			if e.CommandName != "createIndexes" {
				return
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			values, _ := e.Command.Lookup("indexes").Array().Values()
			for _, v := range values {
				x.created = append(x.created, e.Command.Lookup("createIndexes").StringValue()+"."+v.Document().Lookup("name").StringValue())
			}
		}},
	})
	x.Setup = New(store)
	store.Prepare = x.Prepare
	return x
}

// creates returns the indexes that do creates.
func (x *indexing) creates(t *testing.T, do func(ctx context.Context) error) []string {
	t.Helper()
	x.mu.Lock()
	x.created = nil
	x.mu.Unlock()
	require.NoError(t, do(t.Context()))
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.created
}

func (su *Setup) createIndex(t *testing.T, collection, name string, unique bool, keys ...string) {
	t.Helper()
	x := index{collection: collection, unique: unique, keys: events.Ascending(keys...)}
	if _, err := su.store.DB.Collection(collection).Indexes().CreateOne(t.Context(), x.model(name)); err != nil {
		t.Fatalf("create index %s of %s: %v", name, collection, err)
	}
}

func TestIndexesAreCreatedOnce(t *testing.T) {
	x := newIndexing(t)
	if got, want := x.creates(t, x.store.Ping), len(indexes()); len(got) != want {
		t.Errorf("on a new store it creates %q; want %d", got, want)
	}
	again := x.creates(t, func(ctx context.Context) error {
		_, err := x.ensureIndexes(ctx, 0)
		return err
	})
	// Creating a unique index again waits until it is complete.
	if want := []string{"events.topic_partition_seq", "epochs.topic_group_partition_number"}; !slices.Equal(again, want) {
		t.Errorf("when all are there, it creates %q; want %q", again, want)
	}
	if x.lines.Len() > 0 {
		t.Errorf("it logs %s", &x.lines)
	}
}

// An index with the right keys and another name counts.
func TestIndexesOfOtherNames(t *testing.T) {
	x := newIndexing(t)
	x.createIndex(t, core.Events, "somebodys", true, "topic", "partition", "seq")
	if got := x.creates(t, x.store.Ping); slices.Contains(got, "events.topic_partition_seq") {
		t.Errorf("it creates %q", got)
	}
	if x.lines.Len() > 0 {
		t.Errorf("it logs %s", &x.lines)
	}
}

func TestIndexesThatAreWrong(t *testing.T) {
	for _, c := range []struct {
		collection, name string
		unique           bool
		keys             []string
		unusable         bool
		want             string
	}{
		{core.Events, "topic_partition_seq", false, []string{"topic", "partition", "seq"}, true,
			"collection events has a wrong index topic_partition_seq: it is not unique"},
		{core.Epochs, "topic_group_partition_number", true, []string{"topic", "group"}, true,
			"collection epochs has a wrong index topic_group_partition_number: its keys are topic, group"},
		{core.Events, "topic_ts_id", false, []string{"topic", "ts"}, false,
			"collection events has a wrong index topic_ts_id: its keys are topic, ts"},
		{core.Events, "somebodys", false, []string{"topic", "ts", "id"}, false,
			"collection events has a wrong index somebodys: it has all documents"},
	} {
		x := newIndexing(t)
		x.createIndex(t, c.collection, c.name, c.unique, c.keys...)
		drop := fmt.Sprintf("in mongosh: db.getCollection(%[1]q).dropIndex(%[2]q); db.getCollection(%[1]q).createIndex(", c.collection, c.name)
		for range 2 {
			err := x.store.Ping(t.Context())
			switch {
			case !c.unusable && err != nil:
				t.Errorf("%s: Ping = %v", c.name, err)
			case c.unusable && (!errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), drop)):
				t.Errorf("%s: Ping = %v; want %q and what to do", c.name, err, c.want)
			}
		}
		level := map[bool]string{true: "ERROR", false: "WARN"}[c.unusable]
		if lines := x.lines.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "level="+level) ||
			!strings.Contains(lines, c.want) {
			t.Errorf("%s: it logs %s", c.name, lines)
		}
		require.NoError(t, x.store.DB.Collection(c.collection).Indexes().DropOne(t.Context(), c.name))
		if unindexed, err := x.ensureIndexes(t.Context(), 1); unindexed || err != nil || x.store.Ping(t.Context()) != nil {
			t.Errorf("%s: once it is dropped: %v, %v, %v", c.name, unindexed, err, x.store.Ping(t.Context()))
		}
	}
}

func TestIndexesOfLargeCollections(t *testing.T) {
	const (
		want    = "collection events has about 3 documents and no unique index on (topic, partition, seq)"
		command = `db.getCollection("events").createIndex({"topic":1,"partition":1,"seq":1}, {"name":"topic_partition_seq","unique":true})`
	)
	x := newIndexing(t)
	docs := []bson.D{{{Key: "_id", Value: "t/0"}}, {{Key: "_id", Value: "t/1"}, {Key: "seq", Value: 1}}, {{Key: "_id", Value: "t/2"},
		{Key: "seq", Value: 2}}}
	if _, err := x.store.DB.Collection(core.Events).InsertMany(t.Context(), docs); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := x.ensureIndexes(t.Context(), 2)
		if err == nil || err.Error() != want+"; in mongosh: "+command {
			t.Errorf("%v; want %s and %s", err, want, command)
		}
	}
	if lines := x.lines.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, want) {
		t.Errorf("it logs %s", lines)
	}
	if _, err := x.ensureIndexes(t.Context(), 3); err != nil {
		t.Errorf("of 3 documents it makes them by itself: %v", err)
	}
}

// Two sidecars may create an index at the same time, and another one may have come in between.
func TestIndexConflict(t *testing.T) {
	x := newIndexing(t)
	x.createIndex(t, core.Events, "topic_ts_id", false, "topic", "ts")
	wrong, err := x.ensureIndex(t.Context(), index{collection: core.Events, keys: events.ByTS}, nil, 0)
	if err != nil || !strings.Contains(wrong, "in place of topic_ts_id") {
		t.Errorf("%q, %v", wrong, err)
	}
	for code, want := range map[int32]bool{85: true, 86: true, 11000: false, 50: false} {
		if got := isIndexConflict(mongo.CommandError{Code: code}); got != want {
			t.Errorf("code %d: %v", code, got)
		}
	}
}

// The page on MongoDB names all indexes.
func TestIndexesAreDescribed(t *testing.T) {
	page, err := os.ReadFile("../../../../../deploy/mongodb.md")
	require.NoError(t, err)
	for _, x := range indexes() {
		if !strings.Contains(string(page), "`"+x.name()+"`") {
			t.Errorf("deploy/mongodb.md says nothing of %s", x.name())
		}
	}
}

func TestReadIndex(t *testing.T) {
	for _, c := range []struct {
		stored bson.D
		want   string
	}{
		{bson.D{{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "expireAt", Value: 1.0}}}, {Key: "name", Value: "expireAt"},
			{Key: "expireAfterSeconds", Value: int64(0)}, {Key: "sparse", Value: true}}, ""},
		{bson.D{{Key: "key", Value: bson.D{{Key: "expireAt", Value: int64(-1)}}}, {Key: "sparse", Value: true}},
			"its keys are -expireAt, nothing expires by it"},
		{bson.D{{Key: "key", Value: bson.D{{Key: "expireAt", Value: "hashed"}}}, {Key: "expireAfterSeconds", Value: 60},
			{Key: "unique", Value: 1},
			{Key: "partialFilterExpression", Value: bson.D{}}},
			"its keys are expireAt (hashed), it is unique, it is not sparse, it expires after 60 s, it has only documents with {}"},
	} {
		raw, err := bson.Marshal(c.stored)
		require.NoError(t, err)
		want := index{keys: events.Ascending("expireAt"), expires: true}.spec()
		if got := readIndex(raw).differs(want); got != c.want {
			t.Errorf("%v: %q; want %q", c.stored, got, c.want)
		}
	}
}
