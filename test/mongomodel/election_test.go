package mongomodel_test

import (
	"errors"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

func TestAKilledPrimaryIsReplaced(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, s *mongomodel.Set, _ *mongo.Database) {
		s.Kill(0)
		time.Sleep(10*time.Second - 1)
		if p := s.Primary(); p != -1 {
			t.Errorf("m%d was elected early", p)
		}
		time.Sleep(time.Millisecond)
		p := s.Primary()
		if p < 1 {
			t.Fatalf("primary %d after the election timeout", p)
		}
		s.Restart(0)
		time.Sleep(time.Hour)
		if s.Primary() != p {
			t.Errorf("m%d took over from m%d", s.Primary(), p)
		}
	})
}

func TestNoMajorityNoPrimary(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, s *mongomodel.Set, _ *mongo.Database) {
		s.Kill(1)
		s.Kill(2)
		time.Sleep(20*time.Second - 1)
		if s.Primary() != 0 {
			t.Error("the primary without a majority has given up early")
		}
		time.Sleep(time.Millisecond)
		if p := s.Primary(); p != -1 {
			t.Errorf("m%d is primary without a majority", p)
		}
		s.Restart(2)
		time.Sleep(10*time.Second + time.Millisecond)
		if s.Primary() == -1 {
			t.Error("two of three have elected nobody")
		}
	})
}

func TestAStepdownHandsOff(t *testing.T) {
	simulate(t, mongomodel.Options{}, func(t *testing.T, s *mongomodel.Set, _ *mongo.Database) {
		s.StepDown(0)
		if p := s.Primary(); p != -1 {
			t.Fatalf("m%d is primary after the stepdown", p)
		}
		time.Sleep(time.Second + time.Millisecond)
		if p := s.Primary(); p < 1 {
			t.Errorf("primary %d after the hand-off", p)
		}
	})
}

// TestRollback has a primary that was replaced go on with writes that no majority ever has.
func TestRollback(t *testing.T) {
	simulate(t, mongomodel.Options{ElectionTimeout: 2 * time.Second}, func(t *testing.T, s *mongomodel.Set, db *mongo.Database) {
		events := db.Collection("events", options.Collection().SetWriteConcern(writeconcern.Majority()))
		quick := db.Collection("events", options.Collection().SetWriteConcern(writeconcern.W1()))
		insert(t, events, "kept")
		s.Isolate(0)
		insert(t, quick, "lost")
		time.Sleep(5 * time.Second)
		if p := s.Primary(); p < 1 {
			t.Fatalf("primary %d while m0 is alone", p)
		}
		insert(t, quick, "lost too") // the client has not heard of the other
		s.JoinAll()
		var names []string
		for _, d := range find(t, events, bson.D{}) {
			names = append(names, d.Lookup("_id").StringValue())
		}
		if len(names) != 1 || names[0] != "kept" {
			t.Errorf("after the rollback there are %q", names)
		}
		insert(t, events, "after")
	})
}

func insert(t *testing.T, c *mongo.Collection, id any) {
	t.Helper()
	if _, err := c.InsertOne(t.Context(), bson.D{{Key: "_id", Value: id}}); err != nil {
		t.Fatalf("inserting %v: %v", id, err)
	}
}

func find(t *testing.T, c *mongo.Collection, filter bson.D) []bson.Raw {
	t.Helper()
	cur, err := c.Find(t.Context(), filter)
	require.NoError(t, err)
	var docs []bson.Raw
	require.NoError(t, cur.All(t.Context(), &docs))
	return docs
}

// codeOf is the server's code in an error, or 0.
func codeOf(err error) int {
	var se mongo.ServerError
	if errors.As(err, &se) {
		if codes := se.ErrorCodes(); len(codes) > 0 {
			return codes[0]
		}
	}
	return 0
}
