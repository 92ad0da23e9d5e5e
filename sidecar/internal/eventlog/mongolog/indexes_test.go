package mongolog

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/mongotest"
)

// indexing is a log on a new, unused store, with its log lines and the indexes that it creates.
type indexing struct {
	*Log
	lines bytes.Buffer

	mu      sync.Mutex
	created []string
}

func newIndexing(t *testing.T) *indexing {
	t.Helper()
	server := mongotest.Shared(t)
	x := &indexing{}
	x.Log = mustOpen(t, Options{
		URL: server.URI(server.NewDatabase(t)), Timeout: testTimeout, Logger: slog.New(slog.NewTextHandler(&x.lines, nil)),
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
	return x
}

// creates returns the indexes that do creates.
func (x *indexing) creates(t *testing.T, do func(ctx context.Context) error) []string {
	t.Helper()
	x.mu.Lock()
	x.created = nil
	x.mu.Unlock()
	if err := do(t.Context()); err != nil {
		t.Fatal(err)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.created
}

func TestIndexesAreCreatedOnce(t *testing.T) {
	x := newIndexing(t)
	if got, want := x.creates(t, x.Ping), len(indexes()); len(got) != want {
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
	x.createIndex(t, eventsName, "somebodys", true, "topic", "partition", "seq")
	if got := x.creates(t, x.Ping); slices.Contains(got, "events.topic_partition_seq") {
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
		{eventsName, "topic_partition_seq", false, []string{"topic", "partition", "seq"}, true,
			"collection events has a wrong index topic_partition_seq: it is not unique"},
		{epochsName, "topic_group_partition_number", true, []string{"topic", "group"}, true,
			"collection epochs has a wrong index topic_group_partition_number: its keys are topic, group"},
		{eventsName, "topic_ts_id", false, []string{"topic", "ts"}, false,
			"collection events has a wrong index topic_ts_id: its keys are topic, ts"},
		{eventsName, "somebodys", false, []string{"topic", "ts", "id"}, false,
			"collection events has a wrong index somebodys: it has all documents"},
	} {
		x := newIndexing(t)
		x.createIndex(t, c.collection, c.name, c.unique, c.keys...)
		for range 2 {
			err := x.Ping(t.Context())
			switch {
			case !c.unusable && err != nil:
				t.Errorf("%s: Ping = %v", c.name, err)
			case c.unusable && (!errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "sluice-sidecar migrate --store")):
				t.Errorf("%s: Ping = %v; want %q and what to do", c.name, err, c.want)
			}
		}
		level := map[bool]string{true: "ERROR", false: "WARN"}[c.unusable]
		if lines := x.lines.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "level="+level) || !strings.Contains(lines, c.want) {
			t.Errorf("%s: it logs %s", c.name, lines)
		}
		if _, err := x.Migrate(t.Context(), MigrateOptions{}); !errors.Is(err, errWrongIndex) {
			t.Errorf("%s: Migrate = %v", c.name, err)
		}
		if err := x.db.Collection(c.collection).Indexes().DropOne(t.Context(), c.name); err != nil {
			t.Fatal(err)
		}
		migrate(t, x.Log, MigrateOptions{})
		if _, err := x.ensureIndexes(t.Context(), 0); err != nil || x.Ping(t.Context()) != nil {
			t.Errorf("%s: after a migration: %v, %v", c.name, err, x.Ping(t.Context()))
		}
	}
}

func TestIndexesOfLargeCollections(t *testing.T) {
	for _, c := range []struct {
		collection, want string
		unusable         bool
	}{
		{eventsName, "collection events has about 3 documents and no unique index on (topic, partition, seq)", true},
	} {
		x := newIndexing(t)
		docs := []bson.D{{{Key: "_id", Value: "t/0"}}, {{Key: "_id", Value: "t/1"}, {Key: "seq", Value: 1}}, {{Key: "_id", Value: "t/2"}, {Key: "seq", Value: 2}}}
		if _, err := x.db.Collection(c.collection).InsertMany(t.Context(), docs); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			_, err := x.ensureIndexes(t.Context(), 2)
			if c.unusable != errors.Is(err, errNotMigrated) || c.unusable && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v; want %s", c.collection, err, c.want)
			}
		}
		if lines := x.lines.String(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, c.want) {
			t.Errorf("%s: it logs %s", c.collection, lines)
		}
		if _, err := x.ensureIndexes(t.Context(), 3); err != nil {
			t.Errorf("%s: of 3 documents it makes them by itself: %v", c.collection, err)
		}
	}
}

// Two sidecars may create an index at the same time, and another one may have come in between.
func TestIndexConflict(t *testing.T) {
	x := newIndexing(t)
	x.createIndex(t, eventsName, "topic_ts_id", false, "topic", "ts")
	wrong, err := x.ensureIndex(t.Context(), index{collection: eventsName, keys: byTS}, nil, 0)
	if err != nil || !strings.Contains(wrong, "in place of topic_ts_id") {
		t.Errorf("%q, %v", wrong, err)
	}
	for code, want := range map[int32]bool{85: true, 86: true, 11000: false, 50: false} {
		if got := isIndexConflict(mongo.CommandError{Code: code}); got != want {
			t.Errorf("code %d: %v", code, got)
		}
	}
}

func TestWriteConcernOf(t *testing.T) {
	for _, c := range []struct {
		name string
		w    any
	}{
		{"majority", "majority"}, {"", "majority"}, {"w:0", "majority"}, {"w:1", 1}, {"w:3", 3},
	} {
		if got := writeConcernOf(c.name); got.W != c.w {
			t.Errorf("%q: w %v; want %v", c.name, got.W, c.w)
		}
	}
}

func TestScanFilters(t *testing.T) {
	scope := bson.D{{Key: "topic", Value: "t"}}
	if got := scanFilters(scope, eventlog.ScanQuery{MinTS: 5}); len(got) != 1 {
		t.Errorf("%v", got)
	}
	got := scanFilters(scope, eventlog.ScanQuery{MinTS: 5, After: &eventlog.Point{TS: 5, ID: "a"}})
	if len(got) != 2 || got[0].(bson.D)[0].Key != "topic" || got[1].(bson.D)[0].Key != "topic" {
		t.Errorf("%v", got)
	}
	for _, q := range []eventlog.ScanQuery{
		{MinTS: 6, MaxTS: 5},
		{MaxTS: 5, After: &eventlog.Point{TS: 6}},
		{MinTS: 5, After: &eventlog.Point{TS: 4}, Descending: true},
		{MinTS: 5, After: &eventlog.Point{TS: math.MinInt64}, Descending: true},
	} {
		if got := scanFilters(scope, q); len(got) != 0 {
			t.Errorf("%+v: %v", q, got)
		}
	}
	if got := scanFilters(scope, eventlog.ScanQuery{MaxTS: 5, After: &eventlog.Point{TS: math.MaxInt64}}); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

// The page on MongoDB names all indexes.
func TestIndexesAreDescribed(t *testing.T) {
	page, err := os.ReadFile("../../../../deploy/mongodb.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range indexes() {
		if !strings.Contains(string(page), "`"+x.name()+"`") {
			t.Errorf("deploy/mongodb.md says nothing of %s", x.name())
		}
	}
}
