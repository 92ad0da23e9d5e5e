package sdk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/exactlyonce/storetest"
	"github.com/sluice-bus/sluice/sdk/mongo/oncestore"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
)

const scope = "billing/orders.created"

// connect returns the database of a URI.
func connectMongo(t testing.TB, uri, database string) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return client.Database(database)
}

// newDatabase returns an empty database of the shared server.
func newDatabase(t testing.TB) *mongo.Database {
	t.Helper()
	server := mongotest.Shared(t)
	name := server.NewDatabase(t)
	return connectMongo(t, server.URI(name), name)
}

func newStore(t testing.TB, db *mongo.Database) *oncestore.Store {
	t.Helper()
	s := oncestore.New(db, oncestore.Options{})
	if err := s.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

func newStoreHandler(t testing.TB, s exactlyonce.Store, o exactlyonce.Options) *exactlyonce.Handler {
	t.Helper()
	if o.Scope == "" {
		o.Scope = scope
	}
	return newHandler(t, s, o)
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) exactlyonce.Store { return newStore(t, newDatabase(t)) })
}

func TestEnsureIndexes(t *testing.T) {
	db := newDatabase(t)
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			if err := oncestore.New(db, oncestore.Options{}).EnsureIndexes(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	specs, err := db.Collection(oncestore.DefaultCollection).Indexes().ListSpecifications(t.Context())
	if err != nil || len(specs) != 2 {
		t.Fatalf("indexes %+v, %v", specs, err)
	}
	for _, s := range specs {
		if s.Name != "_id_" && (s.ExpireAfterSeconds == nil || *s.ExpireAfterSeconds != 0) {
			t.Errorf("not a TTL index: %+v", s)
		}
	}
}

// Several consumers get the same events at once.
func TestConsumersShareTheWork(t *testing.T) {
	db := newDatabase(t)
	s := newStore(t, db)
	const consumers, events = 4, 12
	var ran [events]atomic.Int32
	var all sync.WaitGroup
	for range consumers {
		h := newStoreHandler(t, s, exactlyonce.Options{Wait: time.Minute})
		all.Go(func() {
			for i := range events {
				_, err := h.Do(t.Context(), fmt.Sprint("order-", i), func(context.Context) error {
					ran[i].Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i := range ran {
		if n := ran[i].Load(); n != 1 {
			t.Errorf("order %d ran %d times", i, n)
		}
	}
}

// Some requests and some answers of the database are lost.
func TestLostAnswers(t *testing.T) {
	server := mongotest.Shared(t)
	name := server.NewDatabase(t)
	proxy := faultproxy.New(t, server.Addr())
	direct := connectMongo(t, server.URI(name), name)
	newStore(t, direct)
	var all sync.WaitGroup
	const consumers, events = 2, 5
	var ran [events]atomic.Int32
	for range consumers {
		db := connectMongo(t, server.URIVia(proxy.Addr(), name), name)
		h := newStoreHandler(t, oncestore.New(db, oncestore.Options{}), exactlyonce.Options{Wait: time.Minute, Timeout: time.Minute})
		all.Go(func() {
			for i := range events {
				_, err := h.Do(t.Context(), fmt.Sprint("order-", i), func(context.Context) error {
					ran[i].Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	proxy.Seed(1)
	proxy.Only(func(request []byte) bool { return bytes.Contains(request, []byte(oncestore.DefaultCollection)) })
	proxy.CutReplies(0.15)
	proxy.CutRequests(0.1)
	all.Wait()
	proxy.Heal()
	for i := range ran {
		if n := ran[i].Load(); n != 1 {
			t.Errorf("order %d ran %d times", i, n)
		}
	}
	if stats := proxy.Stats(); stats.LostRequests+stats.LostReplies == 0 {
		t.Error("nothing was lost, so nothing was tested")
	} else {
		t.Logf("%+v", stats)
	}
}

func TestSweep(t *testing.T) {
	ctx := t.Context()
	db := newDatabase(t)
	s := newStore(t, db)
	h := newStoreHandler(t, s, exactlyonce.Options{TTL: 3 * time.Hour, Lease: time.Minute})
	mishap := errors.New("mishap")
	for _, effect := range []error{mishap, nil} { // a chain of three
		if _, err := h.Do(ctx, "order-1", func(context.Context) error { return effect }); !errors.Is(err, effect) {
			t.Fatal(err)
		}
	}
	wantSweep := func(after time.Duration, want int64) {
		t.Helper()
		n, err := s.Sweep(ctx, time.Now().Add(after))
		if err != nil || n != want {
			t.Errorf("%d were removed after %v, %v; want %d", n, after, err, want)
		}
	}
	wantSweep(4*time.Hour-time.Minute, 0)
	wantSweep(4*time.Hour+time.Minute, 1) // the mark goes first, so that no chain loses its beginning before its end
	wantSweep(6*time.Hour, 2)
	if n, err := db.Collection(oncestore.DefaultCollection).CountDocuments(ctx, bson.D{}); n != 0 || err != nil {
		t.Errorf("%d documents are left, %v", n, err)
	}
}

// TestSweepSparesWhatIsKept: the sweep spares a record that is extended after it was found. The record expires only later, since
// the server removes what has expired, too.
func TestSweepSparesWhatIsKept(t *testing.T) {
	ctx := t.Context()
	server := mongotest.Shared(t)
	name := server.NewDatabase(t)
	other := newStore(t, connectMongo(t, server.URI(name), name))
	slot := exactlyonce.Slot{Key: "order-1", Number: 1, Chain: "c"}
	now := time.Now().Truncate(time.Millisecond)
	if err := other.Insert(ctx, exactlyonce.Record{Slot: slot, Kind: exactlyonce.KindClaim, Owner: "a", ExpireAt: now.Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	var found atomic.Bool
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI(name)).SetMonitor(&event.CommandMonitor{
		Succeeded: func(_ context.Context, e *event.CommandSucceededEvent) {
			if e.CommandName == "find" && found.CompareAndSwap(false, true) {
				if err := other.Extend(ctx, slot, exactlyonce.Beat{Number: 1, ExpireAt: now.Add(24 * time.Hour)}); err != nil {
					t.Error(err)
				}
			}
		},
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Disconnect(context.WithoutCancel(ctx))
	s := oncestore.New(client.Database(name), oncestore.Options{})
	if n, err := s.Sweep(ctx, now.Add(3*time.Hour)); n != 0 || err != nil {
		t.Errorf("%d were removed, %v", n, err)
	}
	if _, err := other.Get(ctx, slot); err != nil || !found.Load() {
		t.Errorf("what was kept: %v", err)
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	s := newStore(t, newDatabase(t))
	go func() { result <- s.Run(ctx) }()
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}

func TestRunRemovesWhatHasExpired(t *testing.T) {
	db := newDatabase(t)
	s := oncestore.New(db, oncestore.Options{SweepEvery: 10 * time.Millisecond})
	if err := s.EnsureIndexes(t.Context()); err != nil {
		t.Fatal(err)
	}
	expired := exactlyonce.Record{
		Slot: exactlyonce.Slot{Key: scope + " order-1", Chain: "C", Number: 1},
		Kind: exactlyonce.KindDone, Owner: "x", ExpireAt: time.Now().Add(-2 * time.Hour),
	}
	if err := s.Insert(t.Context(), expired); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // a server looks every minute
	defer cancel()
	result := make(chan error, 1)
	go func() { result <- s.Run(ctx) }()
	for {
		_, err := s.Get(ctx, expired.Slot)
		if errors.Is(err, exactlyonce.ErrNotFound) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	cancel()
	if err := <-result; err != nil {
		t.Error(err)
	}
}
