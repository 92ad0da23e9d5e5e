package bubbletest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/outbox"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// app is an application with its outbox, and the drainer.
type app struct {
	*testing.T
	set     *mongomodel.Set
	coll    *mongo.Collection
	drainer *outbox.Drainer

	mu     sync.Mutex
	events []string // ids, in order
	at     []time.Time
	lost   atomic.Int64
}

// onModel runs a test in a bubble of its own.
func onModel(t *testing.T, o mongomodel.Options, test func(a *app)) {
	synctest.Test(t, func(t *testing.T) {
		o.Polling, o.Latencies = true, mongomodel.Measured
		a := &app{T: t, set: mongomodel.New(o)}
		defer a.set.Close()
		client, err := mongo.Connect(a.set.Client("app"))
		require.NoError(t, err)
		defer client.Disconnect(context.WithoutCancel(t.Context()))
		a.coll = client.Database("shop").Collection("outbox")
		test(a)
		if t.Failed() {
			a.set.WriteTrace(t.Output())
		}
	})
}

// drain starts the drainer, which ends with the function that it returns.
func (a *app) drain() (stop func()) {
	a.Helper()
	var err error
	a.drainer, err = outbox.New(outbox.Config{
		URL: strings.Replace(a.set.URI(), "/?", "/shop?", 1), Collection: "outbox", NodeID: "node", Publisher: a, Observer: a,
		LogID: func() string { return "log" }, Limits: wire.DefaultLimits(), Lease: 10 * time.Second, Roster: roster.Alone("node"),
		Logger: slog.New(slog.NewTextHandler(a.Output(), nil)), Dialer: a.set.Dialer("sidecar"),
	})
	require.NoError(a, err)
	ctx, cancel := context.WithCancel(a.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.drainer.Run(ctx); err != nil {
			a.Error(err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// Publish implements source.Publisher.
func (a *app) Publish(_ context.Context, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	results := make([]wire.ResultItem, len(items))
	for i := range items {
		e := &items[i].Event
		if !slices.Contains(a.events, e.ID) {
			a.events, a.at = append(a.events, e.ID), append(a.at, time.Now())
		}
		results[i].Receipt = wire.Receipt{ID: e.ID, Seq: 1}
	}
	done(results)
	return nil
}

func (a *app) MaxEvents(string) int { return 0 }
func (a *app) Published(int)        {}
func (a *app) Failed(wire.Code)     {}
func (a *app) Deferred(wire.Code)   {}
func (a *app) PlaceLost()           { a.lost.Add(1) }

// took is how long after since an event was published.
func (a *app) took(id string, since time.Time) time.Duration {
	a.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	i := slices.Index(a.events, id)
	if i < 0 {
		a.Fatalf("%s was not published in %v", id, time.Since(since))
	}
	return a.at[i].Sub(since)
}

func (a *app) insert(docs ...bson.D) {
	a.Helper()
	for i := range docs {
		docs[i] = append(docs[i], bson.E{Key: "topic", Value: "orders"}, bson.E{Key: "payload", Value: 1},
			bson.E{Key: "status", Value: "pending"})
	}
	if _, err := a.coll.InsertMany(context.Background(), docs); err != nil {
		a.Fatal(err)
	}
}

func (a *app) insertOne(id string) (at time.Time) {
	a.Helper()
	a.insert(bson.D{{Key: "_id", Value: id}})
	return time.Now()
}

const quick = 20 * time.Millisecond

// A document is published when it is inserted, not when the outbox is polled next.
func TestFollowsTheOutbox(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(a *app) {
		defer a.drain()()
		time.Sleep(time.Minute)
		for i := range 10 {
			id := fmt.Sprint("e", i)
			at := a.insertOne(id)
			time.Sleep(time.Duration(i) * 777 * time.Millisecond)
			time.Sleep(time.Second)
			if took := a.took(id, at); took > quick {
				a.Errorf("%s was published after %v; want %v at most", id, took, quick)
			}
		}
		// An operator has one tried once more.
		if _, err := a.coll.InsertOne(a.Context(),
			bson.D{{Key: "_id", Value: "again"}, {Key: "topic", Value: "orders"}, {Key: "payload", Value: 1},
				{Key: "status", Value: "error"}}); err != nil {
			a.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := a.coll.UpdateOne(a.Context(), bson.D{{Key: "_id", Value: "again"}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "pending"}}}}); err != nil {
			a.Fatal(err)
		}
		at := time.Now()
		time.Sleep(time.Second)
		if took := a.took("again", at); took > quick {
			a.Errorf("it was published after %v; want %v at most", took, quick)
		}
		if !a.drainer.Stats().Following {
			a.Error("it does not say that it follows the outbox")
		}
	})
}

// Where the server has no change streams, as a standalone one, the outbox is polled.
func TestPollsWithoutChangeStreams(t *testing.T) {
	var asked atomic.Int64
	onModel(t, mongomodel.Options{NoChangeStreams: true, Fault: func(r mongomodel.Request) (f mongomodel.Fault) {
		if r.Command == "aggregate" {
			asked.Add(1)
		}
		return f
	}}, func(a *app) {
		defer a.drain()()
		time.Sleep(time.Hour)
		at := a.insertOne("e")
		time.Sleep(time.Minute)
		if took := a.took("e", at); took > time.Second+quick {
			a.Errorf("it was published after %v", took)
		}
		if a.drainer.Stats().Following {
			a.Error("it says that it follows the outbox")
		}
		if n := asked.Load(); n > 70 {
			a.Errorf("it asked for a change stream %d times in an hour", n)
		}
	})
}

// A failover, and an outbox that is dropped, break the stream: another one follows, and nothing is
// missed.
func TestFollowsAnotherStream(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(a *app) {
		defer a.drain()()
		time.Sleep(time.Minute)
		for i, fail := range []func(){
			func() { a.set.Kill(a.set.Primary()) },
			func() { a.set.StepDown(a.set.Primary()) },
			func() {
				require.NoError(a, a.coll.Drop(context.Background()))
			},
		} {
			fail()
			time.Sleep(time.Minute)
			id := fmt.Sprint("e", i)
			at := a.insertOne(id)
			time.Sleep(time.Minute)
			if took := a.took(id, at); took > quick {
				a.Errorf("%s was published after %v; want %v at most", id, took, quick)
			}
			if i == 0 {
				a.set.Restart(0)
			}
		}
		if n := a.lost.Load(); n != 0 {
			a.Errorf("it says %d times that it lost its place in the oplog", n)
		}
	})
}

// The drainer notices a stream that has fallen out of the oplog, and publishes the documents
// inserted meanwhile at once.
func TestPlaceInTheOplogLost(t *testing.T) {
	onModel(t, mongomodel.Options{}, func(a *app) {
		defer a.drain()()
		time.Sleep(time.Minute)
		for i := range 3 {
			a.set.Part("sidecar", fmt.Sprint("m", i))
		}
		for i := range 3 {
			a.insertOne(fmt.Sprint("e", i))
			time.Sleep(time.Second)
		}
		a.set.ForgetOplog()
		a.set.JoinAll()
		at := time.Now()
		time.Sleep(time.Minute)
		for i := range 3 {
			if took := a.took(fmt.Sprint("e", i), at); took > time.Second {
				a.Errorf("e%d was published after %v", i, took)
			}
		}
		if n := a.lost.Load(); n != 1 {
			a.Errorf("it says %d times that it lost its place in the oplog", n)
		}
		at = a.insertOne("next")
		time.Sleep(time.Minute)
		if took := a.took("next", at); took > quick {
			a.Errorf("then a document was published after %v; want %v at most", took, quick)
		}
	})
}

// A document that becomes visible when a look at the outbox has passed its place is published
// before the one behind it, which that look finds.
func TestWaitsForTheOneBefore(t *testing.T) {
	var once sync.Once
	var late func()
	onModel(t, mongomodel.Options{Fault: func(r mongomodel.Request) mongomodel.Fault {
		if _, err := r.Body.LookupErr("maxTimeMS"); r.Command == "getMore" && err != nil { // not the change stream's
			once.Do(late)
		}
		return mongomodel.Fault{}
	}}, func(a *app) {
		var many []bson.D
		for i := range 2500 {
			many = append(many, bson.D{{Key: "_id", Value: i}, {Key: "ts", Value: 1000 + i}})
		}
		a.insert(many...)
		late = func() {
			a.insert(bson.D{{Key: "_id", Value: "first"}, {Key: "key", Value: "k"}, {Key: "ts", Value: 1}})
			a.insert(bson.D{{Key: "_id", Value: "second"}, {Key: "key", Value: "k"}, {Key: "ts", Value: 9000}, {Key: "after", Value: "first"}},
				bson.D{{Key: "_id", Value: "third"}, {Key: "key", Value: "k"}, {Key: "ts", Value: 9000}, {Key: "after", Value: "second"}})
		}
		defer a.drain()()
		time.Sleep(time.Minute)
		a.mu.Lock()
		defer a.mu.Unlock()
		var got []string
		for _, id := range a.events {
			if slices.Contains([]string{"first", "second", "third"}, id) {
				got = append(got, id)
			}
		}
		if want := []string{"first", "second", "third"}; !slices.Equal(got, want) {
			a.Errorf("published %q, want %q", got, want)
		}
		if len(a.events) != len(many)+3 {
			a.Errorf("%d events", len(a.events))
		}
	})
}
