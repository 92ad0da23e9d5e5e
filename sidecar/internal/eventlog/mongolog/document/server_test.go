package document

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// TestAServerKeepsPayloads checks that a real engine returns equal payloads, with their members in
// order.
func TestAServerKeepsPayloads(t *testing.T) {
	server := mongotest.Shared(t)
	database := server.NewDatabase(t)
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI(database)))
	require.NoError(t, err)
	defer client.Disconnect(context.Background())
	events := client.Database(database).Collection("events")
	want := map[string]*wire.Event{}
	for i, x := range corpus {
		r := record(x.text)
		r.ID = fmt.Sprintf("event-%d", i)
		r.Headers = wire.Headers{{Name: "z", Value: x.text[:min(len(x.text), 20)]}, {Name: "a", Value: "\x00"}}
		if i%2 == 1 {
			r.Headers = append(r.Headers, wire.Header{Name: FieldID, Value: ""}, wire.Header{Name: "$a.b", Value: ""})
		}
		doc, err := Append(nil, "t", 0, r, 1)
		require.NoError(t, err)
		if _, err := events.InsertOne(t.Context(), bson.Raw(doc)); err != nil {
			t.Errorf("%s: %v", shown(x.text), err)
			continue
		}
		want[r.ID] = &r.Event
	}
	cursor, err := events.Find(t.Context(), bson.D{})
	require.NoError(t, err)
	defer cursor.Close(t.Context())
	for cursor.Next(t.Context()) {
		s, err := Decode(cursor.Current)
		if err != nil {
			t.Error(err)
			continue
		}
		got, e := &s.Record.Event, want[s.Record.ID]
		if e == nil {
			t.Fatalf("%q was not stored, or is read twice", got.ID)
		}
		delete(want, got.ID)
		if err := eventlogtest.SameJSON(e.Payload, got.Payload); err != nil || fmt.Sprintf("%q", e.Headers) != fmt.Sprintf("%q", got.Headers) {
			t.Errorf("%s with %q became %s with %q: %v", shown(string(e.Payload)), e.Headers, shown(string(got.Payload)), got.Headers, err)
		}
		if !bytes.Equal(s.Hash, hashOf(got)) {
			t.Errorf("%s: the hash became another", shown(string(e.Payload)))
		}
	}
	require.NoError(t, cursor.Err())
	for id, e := range want {
		t.Errorf("%s (%s) is not there", id, shown(string(e.Payload)))
	}
}
