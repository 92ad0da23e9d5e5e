package mongomodel_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// simulate runs f in a bubble with a set and a client of it.
func simulate(t *testing.T, o mongomodel.Options, f func(t *testing.T, s *mongomodel.Set, db *mongo.Database)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		o.Polling = true
		s := mongomodel.New(o)
		defer s.Close()
		f(t, s, connect(t, s, "app").Database("d"))
		if t.Failed() {
			s.WriteTrace(t.Output())
		}
	})
}

func connect(t *testing.T, s *mongomodel.Set, from string) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(s.Client(from))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Disconnect(ctx)
	})
	return c
}

func TestPing(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
		if err := db.RunCommand(t.Context(), bson.D{{Key: "ping", Value: 1}}).Err(); err != nil {
			t.Error(err)
		}
	})
}
