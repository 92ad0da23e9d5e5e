package bubbletest

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/test/mongomodel"
)

// A store of an older version is refused while one of that version's sidecars lives, and is this
// version's for good once they are silent. One with a higher number is refused.
func TestFormat(t *testing.T) {
	t.Run("without a number", func(t *testing.T) {
		testFormat(t, bson.D{}, bson.D{})
	})
	for _, format := range []int{2, 3} {
		t.Run(fmt.Sprint(format), func(t *testing.T) {
			testFormat(t, bson.D{{Key: "format", Value: format}}, bson.D{{Key: "state", Value: "live"}})
		})
	}
}

// testFormat opens a store with this in its document, and with this in that of a node.
func testFormat(t *testing.T, store, node bson.D) {
	synctest.Test(t, func(t *testing.T) {
		set := mongomodel.New(mongomodel.Options{Polling: true})
		t.Cleanup(set.Close)
		beside, err := mongo.Connect(set.Client("beside"))
		if err != nil {
			t.Fatal(err)
		}
		defer beside.Disconnect(context.Background())
		db := beside.Database(database)
		must := func(_ any, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(db.Collection("meta").InsertOne(t.Context(), append(bson.D{{Key: "_id", Value: "store"}, {Key: "id", Value: "x"}}, store...)))
		must(db.Collection(nodes).InsertOne(t.Context(), append(bson.D{{Key: "_id", Value: "run"}, {Key: "name", Value: "edge-1"}, {Key: "beat", Value: 1}}, node...)))
		must(db.Collection(nodes).InsertOne(t.Context(), bson.D{{Key: "_id", Value: "gone"}, {Key: "beat", Value: 1}, {Key: "state", Value: "ended"}}))
		l, err := mongolog.Open(mongolog.Options{
			URL: strings.Replace(set.URI(), "/?", "/"+database+"?", 1), Dialer: set.Dialer("sidecar"), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		refused := func(want string) {
			t.Helper()
			if err := l.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("it says %v; want %q", err, want)
			}
		}
		refused("waiting 30s")
		time.Sleep(20 * time.Second)
		must(db.Collection(nodes).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "run"}}, bson.D{{Key: "$inc", Value: bson.D{{Key: "beat", Value: 1}}}}))
		refused(`sidecar "edge-1"`)
		time.Sleep(20 * time.Second)
		refused("waiting 10s")
		time.Sleep(10 * time.Second)
		must(nil, l.Ping(t.Context()))
		if id := l.StoreID(); id != "x" {
			t.Errorf("the store is called %q", id)
		}
		must(nil, open(t, set, mongolog.Options{}).Ping(t.Context()))
		must(db.Collection("meta").UpdateOne(t.Context(), bson.D{}, bson.D{{Key: "$set", Value: bson.D{{Key: "format", Value: 5}}}}))
		l.Close()
		l, err = mongolog.Open(mongolog.Options{
			URL: strings.Replace(set.URI(), "/?", "/"+database+"?", 1), Dialer: set.Dialer("sidecar"), Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		refused("has format 5")
	})
}
