package bubbletest

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// The collections, as the log calls them.
const (
	database = "bubble"
	events   = "events"
	epochs   = "epochs"
	nodes    = "nodes"
)

// open opens a log on a set, and closes it with the test.
func open(t *testing.T, set *mongomodel.Set, o mongolog.Options) *mongolog.Log {
	t.Helper()
	o.URL, o.Dialer = strings.Replace(set.URI(), "/?", "/"+database+"?", 1), set.Dialer("sidecar")
	o.Logger = slog.New(slog.DiscardHandler)
	l, err := mongolog.Open(o)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	require.NoError(t, l.Ping(t.Context()))
	return l
}

// counted opens a log, and counts its commands about events.
func counted(t *testing.T, set *mongomodel.Set) (*mongolog.Log, *atomic.Int64) {
	t.Helper()
	return countedOn(t, set, events)
}

// countedOn does as counted, for another collection.
func countedOn(t *testing.T, set *mongomodel.Set, collection string) (*mongolog.Log, *atomic.Int64) {
	t.Helper()
	var commands atomic.Int64
	return open(t, set, mongolog.Options{Monitor: counting(collection, &commands)}), &commands
}

// counting counts commands about a collection.
func counting(collection string, commands *atomic.Int64) *event.CommandMonitor {
	return &event.CommandMonitor{Started: func(_ context.Context, e *event.CommandStartedEvent) {
		if e.Command.Lookup(e.CommandName).String() == `"`+collection+`"` {
			commands.Add(1)
		}
	}}
}

// withEvents runs do with the collection of events, as another client sees it.
func withEvents(t *testing.T, set *mongomodel.Set, do func(c *mongo.Collection) error) {
	t.Helper()
	client, err := mongo.Connect(set.Client("beside"))
	require.NoError(t, err)
	defer client.Disconnect(context.Background())
	require.NoError(t, do(client.Database(database).Collection(events)))
}

// documents are those of all events, removed ones too.
func documents(t *testing.T, set *mongomodel.Set) (docs []bson.M) {
	t.Helper()
	withEvents(t, set, func(c *mongo.Collection) error {
		found, err := c.Find(t.Context(), bson.D{{Key: "id", Value: bson.D{{Key: "$exists", Value: true}}}})
		if err != nil {
			return err
		}
		return found.All(t.Context(), &docs)
	})
	return docs
}

// withTopic makes the topic t, with one partition.
func withTopic(t *testing.T, l *mongolog.Log) {
	t.Helper()
	if _, err := l.EnsureTopic(t.Context(), "t", 1); err != nil {
		t.Fatal(err)
	}
}

// stored appends events to the partition of t, and expects them at these seqs.
func stored(t *testing.T, l *mongolog.Log, recs []*eventlog.Record, want ...uint64) {
	t.Helper()
	var seqs []uint64
	for i, o := range l.Append(t.Context(), "t", 0, recs) {
		if o.Err != nil || o.Duplicate {
			t.Fatalf("event %q: %+v", recs[i].ID, o)
		}
		seqs = append(seqs, o.Seq)
	}
	if !slices.Equal(seqs, want) {
		t.Errorf("seqs %v; want %v", seqs, want)
	}
}

// sweep removes from t what retention removes now, so many events.
func sweep(t *testing.T, l *mongolog.Log, r eventlog.Retention, now int64, want int) {
	t.Helper()
	if n, more, err := l.Sweep(t.Context(), "t", r, now, 1000); err != nil || more || n != want {
		t.Fatalf("Sweep = %d, %v, %v; want %d", n, more, err, want)
	}
}
