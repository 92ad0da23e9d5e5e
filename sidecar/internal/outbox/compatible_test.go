package outbox

import (
	"context"
	"testing"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/mongotest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
)

// TestOnACompatibleServer: one without change streams is polled, and one without causal sessions
// read all the same.
func TestOnACompatibleServer(t *testing.T) {
	s := mongotest.FerretDB(t)
	a := &app{t: t, server: s, name: s.NewDatabase(t), log: newFakeLog(), fleet: fleet{Nodes: eventlogtest.NewNodes()}}
	client, err := mongo.Connect(options.Client().ApplyURI(s.URI(a.name)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	a.coll = client.Database(a.name).Collection("outbox")
	r := a.start()
	a.insert(many(0, 50)...)
	a.untilStatus(statusDone, 50)
	a.insert(many(50, 50)...)
	a.untilStatus(statusDone, 100)
	a.inKeyOrder()
	if r.Stats().Following {
		t.Error("it says that it follows the outbox")
	}
}
