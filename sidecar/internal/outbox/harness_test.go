package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

const (
	// patience is how long a test waits for a condition.
	patience  = 2 * time.Minute
	testLease = 3 * time.Second
)

// app is the application whose outbox is drained.
type app struct {
	t      testing.TB
	server *mongotest.Server
	name   string // of the database
	coll   *mongo.Collection
	log    *fakeLog
	fleet  fleet
}

func newApp(t testing.TB) *app {
	t.Helper()
	s := mongotest.Shared(t)
	a := &app{t: t, server: s, name: s.NewDatabase(t), log: newFakeLog(), fleet: fleet{Nodes: eventlogtest.NewNodes()}}
	client, err := mongo.Connect(options.Client().ApplyURI(s.URI(a.name)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	a.coll = client.Database(a.name).Collection("outbox")
	return a
}

// insert inserts documents, with status pending.
func (a *app) insert(docs ...bson.D) {
	a.t.Helper()
	for i := range docs {
		docs[i] = append(slices.Clip(docs[i]), bson.E{Key: "status", Value: "pending"})
	}
	if _, err := a.coll.InsertMany(context.Background(), docs); err != nil {
		a.t.Fatal(err)
	}
}

// keyed is a document with a key.
func keyed(id any, topic, key string, ts int64) bson.D {
	doc := bson.D{{Key: "_id", Value: id}, {Key: "topic", Value: topic}, {Key: "payload", Value: bson.D{{Key: "n", Value: ts}}}}
	if key != "" {
		doc = append(doc, bson.E{Key: "key", Value: key})
	}
	if ts != 0 {
		doc = append(doc, bson.E{Key: "ts", Value: ts})
	}
	return doc
}

// running is a drainer that runs.
type running struct {
	*Drainer
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// stop stops it and waits.
func (r *running) stop() {
	r.cancel()
	r.done.Wait()
}

// fleet is the sidecars of one log, which hear of each other at once.
type fleet struct {
	*eventlogtest.Nodes
	mu      sync.Mutex
	rosters []*roster.Roster
}

func (f *fleet) announced([]eventlog.GroupName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.rosters {
		r.Wake()
	}
}

// member is a sidecar of the fleet with a drainer.
type member struct {
	*running
	nodes
}

// nodes is the way of one sidecar to the log.
type nodes struct {
	eventlog.Nodes
	away *atomic.Bool
}

func (n nodes) SaveNode(ctx context.Context, x eventlog.Node) error {
	if n.away.Load() {
		return eventlog.ErrUnavailable
	}
	return n.Nodes.SaveNode(ctx, x)
}

// startIn starts a drainer of another sidecar of the fleet.
func (a *app) startIn(name string, change ...func(*Config)) *member {
	a.t.Helper()
	f, m := &a.fleet, &member{nodes: nodes{a.fleet.Nodes, &atomic.Bool{}}}
	r := roster.New(roster.Config{Nodes: m.nodes, Name: name, Lease: testLease, Logger: slog.New(slog.DiscardHandler), Announced: f.announced})
	f.mu.Lock()
	f.rosters = append(f.rosters, r)
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	a.t.Cleanup(func() { // after the drainer has stopped
		cancel()
		running.Wait()
	})
	m.running = a.start(append(change, func(c *Config) { c.NodeID, c.Roster = name, r })...)
	running.Go(func() { _ = r.Run(ctx) })
	return m
}

// config is a drainer's on the one log that there is.
func (a *app) config(change ...func(*Config)) Config {
	c := Config{
		URL: a.server.URI(a.name), Collection: "outbox", NodeID: "node", Publisher: a.log, LogID: func() string { return "log" },
		Lease: testLease, Limits: wire.DefaultLimits(), Logger: slog.New(slog.NewTextHandler(a.t.Output(), nil)),
		Observer: telemetry.Discard().Outbox("outbox"), Roster: roster.Alone("node"),
	}
	for _, f := range change {
		f(&c)
	}
	return c
}

// start starts a drainer, which ends with the test.
func (a *app) start(change ...func(*Config)) *running {
	a.t.Helper()
	d, err := New(a.config(change...))
	if err != nil {
		a.t.Fatal(err)
	}
	r := &running{Drainer: d}
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.done.Go(func() {
		if err := d.Run(ctx); err != nil {
			a.t.Error(err)
		}
	})
	a.t.Cleanup(r.stop)
	return r
}

// until waits for something to become true.
func (a *app) until(what string, holds func() bool) {
	a.t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			a.t.Fatalf("timed out: %s", what)
		}
		pause.For(context.Background(), 200*time.Millisecond)
	}
}

// statuses counts the documents of each status.
func (a *app) statuses() map[string]int {
	a.t.Helper()
	counts := map[string]int{}
	for _, d := range a.documents() {
		counts[d.Status]++
	}
	return counts
}

func (a *app) untilStatus(status string, n int) {
	a.t.Helper()
	a.until(fmt.Sprintf("%d documents are to be %s", n, status), func() bool { return a.statuses()[status] == n })
}

// document has the fields that tests look at.
type document struct {
	ID        any       `bson:"_id"`
	Status    string    `bson:"status"`
	Seq       int64     `bson:"seq"`
	Partition *int      `bson:"partition"`
	DoneAt    time.Time `bson:"done_at"`
	Error     string    `bson:"error"`
	Attempts  int       `bson:"attempts"`
	FailedAt  time.Time `bson:"failed_at"`
}

func (a *app) documents() (docs []document) {
	a.t.Helper()
	cursor, err := a.coll.Find(context.Background(), bson.D{}, options.Find().SetProjection(bson.D{{Key: "payload", Value: 0}}))
	if err == nil {
		err = cursor.All(context.Background(), &docs)
	}
	if err != nil {
		a.t.Fatal(err)
	}
	return docs
}

func (a *app) document(id any) (d document) {
	a.t.Helper()
	if err := a.coll.FindOne(context.Background(), byID(id)).Decode(&d); err != nil {
		a.t.Fatal(err)
	}
	return d
}

// inKeyOrder fails unless the events of every key rise by id.
func (a *app) inKeyOrder() {
	a.t.Helper()
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	last := map[string]string{}
	for i := range a.log.events {
		e := &a.log.events[i]
		if e.Key == "" {
			continue
		}
		k := e.Topic + "/" + e.Key
		if last[k] >= e.ID {
			a.t.Errorf("%s of %s comes after %s", e.ID, k, last[k])
		}
		last[k] = e.ID
	}
}

// many are n events of a few topics and keys, in order by id.
func many(from, n int) (docs []bson.D) {
	for i := from; i < from+n; i++ {
		key := fmt.Sprintf("k%d", i%17)
		if i%5 == 0 {
			key = ""
		}
		docs = append(docs, keyed(fmt.Sprintf("e%06d", i), fmt.Sprintf("topic-%d", i%3), key, int64(1000+i/7)))
	}
	return docs
}

func refusal(code wire.Code) *wire.Error { return wire.Errorf(code, "as the test wants it") }
