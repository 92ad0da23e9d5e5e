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

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/exactlyonce/storetest"
	"github.com/sluice-bus/sluice/sdk/mongo/oncestore"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

const scope = "billing/orders.created"

// connect returns the database of a URI.
func connectMongo(t testing.TB, uri, database string) *mongo.Database {
	t.Helper()
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
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
	require.NoError(t, s.EnsureIndexes(t.Context()))
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

func TestTheServerRemovesWhatHasExpired(t *testing.T) {
	s := newStore(t, newDatabase(t))
	expired := exactlyonce.Record{
		Slot: exactlyonce.Slot{Key: scope + " order-1", Chain: "C", Number: 1},
		Kind: exactlyonce.KindDone, Owner: "x", ExpireAt: time.Now().Add(-2 * time.Hour),
	}
	require.NoError(t, s.Insert(t.Context(), expired))
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute) // a server looks every minute
	defer cancel()
	for {
		_, err := s.Get(ctx, expired.Slot)
		if errors.Is(err, exactlyonce.ErrNotFound) {
			break
		}
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
	}
}
