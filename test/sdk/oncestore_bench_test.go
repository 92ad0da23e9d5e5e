package sdk_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/mongo/oncestore"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// counted counts a handler's calls of its store.
type counted struct {
	*oncestore.Store
	calls atomic.Int64
}

func (s *counted) Insert(ctx context.Context, r exactlyonce.Record) error {
	s.calls.Add(1)
	return s.Store.Insert(ctx, r)
}

func (s *counted) Get(ctx context.Context, at exactlyonce.Slot) (exactlyonce.Record, error) {
	s.calls.Add(1)
	return s.Store.Get(ctx, at)
}

func (s *counted) Extend(ctx context.Context, at exactlyonce.Slot, b exactlyonce.Beat) error {
	s.calls.Add(1)
	return s.Store.Extend(ctx, at, b)
}

func (s *counted) Keep(ctx context.Context, at exactlyonce.Slot, until time.Time) (bool, error) {
	s.calls.Add(1)
	return s.Store.Keep(ctx, at, until)
}

func (s *counted) Transact(ctx context.Context, f func(context.Context) error) error {
	s.calls.Add(1) // its commit
	return s.Store.Transact(ctx, f)
}

// BenchmarkForms measures the cost of an event in each form on the test server, and how many calls
// of the store it makes, with one consumer. The effect does nothing, or one write where the name
// says so. "insert" is one insert of a small document: a round trip.
func BenchmarkForms(b *testing.B) {
	ctx := b.Context()
	db := newDatabase(b)
	s := &counted{Store: newStore(b, db)}
	h := newStoreHandler(b, s, exactlyonce.Options{})
	nothing := func(context.Context) error { return nil }
	next := 0
	id := func() string { next++; return "order-" + strconv.Itoa(next) }
	run := func(name string, do func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			before := s.calls.Load()
			for b.Loop() {
				require.NoError(b, do())
			}
			b.ReportMetric(float64(s.calls.Load()-before)/float64(b.N), "calls/op")
		})
	}
	run("insert", func() error {
		_, err := db.Collection("plain").InsertOne(ctx, bson.D{{Key: "_id", Value: id()}, {Key: "expireAt", Value: time.Now()}})
		return err
	})
	run("SeenAndMark", func() error {
		id := id()
		_, err := h.Seen(ctx, id)
		return errors.Join(err, h.Mark(ctx, id))
	})
	run("Do", func() error { _, err := h.Do(ctx, id(), nothing); return err })
	run("DoClaimedAndOneWrite", func() error {
		_, err := h.DoClaimed(ctx, id(), func(ctx context.Context, c *exactlyonce.Claim) error {
			return oncestore.SetFenced(ctx, db.Collection("results"), c.ID, c, bson.D{{Key: "total", Value: 17}})
		})
		return err
	})
	if _, err := h.Do(ctx, "again", nothing); err != nil {
		b.Fatal(err)
	}
	run("DoAgain", func() error { _, err := h.Do(ctx, "again", nothing); return err })
	run("SeenAgain", func() error { _, err := h.Seen(ctx, "again"); return err })
	if !mongotest.Shared(b).Info().Has(mongotest.Transactions) {
		return
	}
	run("DoTxAndOneWrite", func() error {
		_, err := h.DoTx(ctx, id(), func(ctx context.Context) error { return incrementStored(ctx, db, "orders") })
		return err
	})
}
