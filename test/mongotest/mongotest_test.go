package mongotest

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

func connect(t *testing.T, uri string) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := c.Disconnect(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestDescribe(t *testing.T) {
	s := Shared(t)
	if info := s.Info(); !info.Real && (!info.Has(Transactions) || !info.Has(Restarts)) {
		t.Errorf("the model is taken for %+v", info)
	}
	require.NoError(t, connect(t, s.URI("admin")).Ping(t.Context(), nil))
}

func TestSharedIsOne(t *testing.T) {
	a, b := Shared(t), Shared(t)
	if a.URI("x") != b.URI("x") {
		t.Errorf("two shared servers: %s and %s", a.URI("x"), b.URI("x"))
	}
	if a.CanStop() {
		t.Error("a test may stop the shared server")
	}
}

func TestDataSurvivesKillsAndStops(t *testing.T) {
	s := Start(t)
	s.Needs(t, Restarts)
	database := s.NewDatabase(t)
	uri := s.URI(database)
	// A client that has seen a server die may fail once more.
	fresh := func() *mongo.Collection { return connect(t, uri).Database(database).Collection("events") }
	for i, end := range []func(){s.Kill, s.Stop, func() {}} {
		if _, err := fresh().InsertOne(t.Context(), bson.D{{Key: "_id", Value: i}}); err != nil {
			t.Fatal(err)
		}
		end()
		s.Restart()
		if s.URI(database) != uri {
			t.Errorf("restarted as %s, was %s", s.URI(database), uri)
		}
		got, err := fresh().CountDocuments(t.Context(), bson.D{})
		require.NoError(t, err)
		if got != int64(i+1) {
			t.Errorf("%d documents after restart %d, want %d", got, i+1, i+1)
		}
	}
}

func TestDuplicatesAreTold(t *testing.T) {
	s := Shared(t)
	database := s.NewDatabase(t)
	events := connect(t, s.URI(database)).Database(database).Collection("events")
	_, err := events.Indexes().CreateOne(t.Context(), mongo.IndexModel{
		Keys:    bson.D{{Key: "topic", Value: 1}, {Key: "seq", Value: 1}},
		Options: options.Index().SetUnique(true),
	})
	require.NoError(t, err)
	for _, test := range []struct {
		id        string
		seq       int
		duplicate bool
	}{
		{id: "a", seq: 1},
		{id: "b", seq: 2},
		{id: "a", seq: 3, duplicate: true},
		{id: "c", seq: 1, duplicate: true},
		{id: "c", seq: 3},
	} {
		_, err := events.InsertOne(t.Context(), bson.D{{Key: "_id", Value: test.id}, {Key: "topic", Value: "t"}, {Key: "seq", Value: test.seq}})
		if mongo.IsDuplicateKeyError(err) != test.duplicate || (err != nil) != test.duplicate {
			t.Errorf("inserting %s at %d: %v, want a duplicate: %v", test.id, test.seq, err, test.duplicate)
		}
		if exc, ok := err.(mongo.WriteException); test.duplicate && (!ok || !exc.HasErrorCode(11000)) {
			t.Errorf("inserting %s at %d: %v, want code 11000", test.id, test.seq, err)
		}
	}
}

func TestDatabasesAreDropped(t *testing.T) {
	s := Shared(t)
	var database string
	t.Run("uses one", func(t *testing.T) {
		database = s.NewDatabase(t)
		if other := s.NewDatabase(t); other == database {
			t.Error("two databases of one name")
		}
		if _, err := connect(t, s.URI(database)).Database(database).Collection("c").InsertOne(t.Context(), bson.D{}); err != nil {
			t.Fatal(err)
		}
	})
	names, err := connect(t, s.URI("admin")).ListDatabaseNames(t.Context(), bson.D{{Key: "name", Value: database}})
	require.NoError(t, err)
	if len(names) > 0 {
		t.Errorf("the database lives on: %v", names)
	}
}

// TestServerEndsWithItsTestProcess ends the pipe that the end of the test process would end.
func TestServerEndsWithItsTestProcess(t *testing.T) {
	p := &process{bin: testkit.MongoModelProgram.Binary(t), dir: t.TempDir()}
	require.NoError(t, p.start())
	p.end(p.stdin.Close)
}
