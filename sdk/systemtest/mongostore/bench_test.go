package mongostore_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/internal/mongotest"
	"github.com/sluice-bus/sluice/sdk/exactlyonce"
)

// BenchmarkForms is what an event costs in each form, with an effect that does
// nothing (but one write, where its name says so), one consumer, on the test
// server. "insert" is one insert of a small document: a round trip.
func BenchmarkForms(b *testing.B) {
	ctx := b.Context()
	db := newDatabase(b)
	s := newStore(b, db)
	h := newHandler(b, s, exactlyonce.Options{})
	nothing := func(context.Context) error { return nil }
	next := 0
	id := func() string { next++; return "order-" + strconv.Itoa(next) }
	run := func(name string, do func() error) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
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
	if _, err := h.Do(ctx, "again", nothing); err != nil {
		b.Fatal(err)
	}
	run("DoAgain", func() error { _, err := h.Do(ctx, "again", nothing); return err })
	run("SeenAgain", func() error { _, err := h.Seen(ctx, "again"); return err })
	b.Run("tx", func(b *testing.B) {
		mongotest.Shared(b).Needs(b, mongotest.Transactions)
		write := func(ctx context.Context) error { return increment(ctx, db, "orders") }
		for b.Loop() {
			if _, err := h.DoTx(ctx, id(), write); err != nil {
				b.Fatal(err)
			}
		}
	})
}
