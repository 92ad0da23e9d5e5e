package sdk_test

import (
	"context"
	"errors"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sdk/exactlyonce"
	"github.com/sluice-bus/sluice/sdk/mongo/oncestore"
)

func TestSetFenced(t *testing.T) {
	ctx := t.Context()
	db := newDatabase(t)
	results := db.Collection("results")
	set := func(fence int64, value string) error {
		c := &exactlyonce.Claim{ID: "order-1", Fence: fence}
		return oncestore.SetFenced(ctx, results, c.ID, c, bson.D{{Key: "value", Value: value}})
	}
	for _, step := range []struct {
		fence  int64
		value  string
		fenced bool
		want   string
	}{
		{1, "first", false, "first"},
		{1, "first again", false, "first again"},
		{3, "third", false, "third"},
		{2, "the second woke up", true, "third"},
		{3, "third again", false, "third again"},
	} {
		err := set(step.fence, step.value)
		if errors.Is(err, exactlyonce.ErrFenced) != step.fenced || err != nil && !step.fenced {
			t.Errorf("%+v: %v", step, err)
		}
		var doc struct{ Value string }
		if err := results.FindOne(ctx, bson.D{{Key: "_id", Value: "order-1"}}).Decode(&doc); err != nil || doc.Value != step.want {
			t.Errorf("%+v: %q is stored, %v", step, doc.Value, err)
		}
	}
}

// The whole way: the effect of a failed claim is followed by the effect of the next claim, whose
// fence is higher.
func TestSetFencedByClaims(t *testing.T) {
	ctx := t.Context()
	db := newDatabase(t)
	h := newStoreHandler(t, newStore(t, db), exactlyonce.Options{})
	mishap := errors.New("mishap")
	var old *exactlyonce.Claim
	for _, result := range []error{mishap, nil} {
		_, err := h.DoClaimed(ctx, "order-1", func(ctx context.Context, c *exactlyonce.Claim) error {
			if err := oncestore.SetFenced(ctx, db.Collection("results"), c.ID, c, bson.D{{Key: "total", Value: 17}}); err != nil {
				return err
			}
			if old == nil {
				old = c
			}
			return result
		})
		if !errors.Is(err, result) {
			t.Fatal(err)
		}
	}
	if err := oncestore.SetFenced(ctx, db.Collection("results"), old.ID, old, bson.D{{Key: "total", Value: 18}}); !errors.Is(err,
		exactlyonce.ErrFenced) {
		t.Errorf("the first claim wrote late: %v", err)
	}
}
