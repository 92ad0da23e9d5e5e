// Package outbox_test tests inserts into an outbox on a replica set, with the sidecar program that
// publishes them.
package sdk_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/mongo/outbox"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// app is an application with a database of its own.
type app struct {
	testing.TB
	uri    string
	db     *mongo.Database
	outbox *mongo.Collection
}

func newApp(t testing.TB) *app {
	t.Helper()
	server := mongotest.Shared(t)
	server.Needs(t, mongotest.Transactions)
	name := server.NewDatabase(t)
	a := &app{TB: t, uri: server.URI(name)}
	client, err := mongo.Connect(options.Client().ApplyURI(a.uri))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.Background()) })
	a.db = client.Database(name)
	a.outbox = a.db.Collection("outbox")
	require.NoError(t, outbox.Prepare(t.Context(), a.outbox))
	return a
}

func (a *app) sidecar(dir string) *testkit.Sidecar {
	a.Helper()
	return testkit.StartSidecar(a, filepath.Join(dir, "data"), "--lease", "2s", "--outbox", a.uri+"#outbox")
}

// do does something in a transaction.
func (a *app) do(f func(ctx context.Context) error) error {
	session, err := a.db.Client().StartSession()
	if err != nil {
		return err
	}
	defer session.EndSession(context.Background())
	_, err = session.WithTransaction(a.Context(), func(ctx context.Context) (any, error) { return nil, f(ctx) })
	return err
}

// next counts in the application's own data.
func (a *app) next(ctx context.Context, key string) (n int, _ error) {
	var doc struct{ N int }
	o := options.FindOneAndUpdate().SetUpsert(true).SetReturnDocument(options.After)
	err := a.db.Collection("counts").FindOneAndUpdate(ctx, bson.D{{Key: "_id", Value: key}},
		bson.D{{Key: "$inc", Value: bson.D{{Key: "n", Value: 1}}}}, o).Decode(&doc)
	return doc.N, err
}

// export waits until a topic has that many events.
func (a *app) export(p *testkit.Sidecar, topic string, n int) []wire.Event {
	a.Helper()
	h := &admin.HTTP{AppURL: p.URL(), ReplayURL: p.ReplayURL(), OpsURL: p.OpsURL()}
	defer h.CloseIdle()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		var events []wire.Event
		tomorrow := time.Now().Add(24 * time.Hour).UnixMilli()
		for e, err := range h.Export(a.Context(), sluice.ExportQuery{Topic: topic, ToTS: &tomorrow}) {
			require.NoError(a, err)
			events = append(events, e)
		}
		if len(events) >= n {
			return events
		}
		if time.Now().After(deadline) {
			a.Fatalf("%d of %d events of %s", len(events), n, topic)
		}
	}
}

// TestOrder has writers insert for the same keys while the sidecar is killed. The events of a key
// come in the order in which its transactions committed, even if one of the writers' clocks was an
// hour ahead of the others'.
func TestOrder(t *testing.T) {
	const writers, each, keys = 4, 25, 3
	a := newApp(t)
	ahead := time.Now().Add(time.Hour).Truncate(time.Millisecond)
	_, err := a.db.Collection("outbox_keys").InsertOne(t.Context(), bson.D{{Key: "_id", Value: "orders/k0"}, {Key: "n", Value: int64(7)},
		{Key: "ts", Value: ahead}, {Key: "last", Value: bson.NewObjectID().Hex()}})
	require.NoError(t, err)
	dir := t.TempDir()
	p := a.sidecar(dir)
	var writing sync.WaitGroup
	for range writers {
		writing.Go(func() {
			for range each {
				key := fmt.Sprint("k", rand.IntN(keys))
				err := a.do(func(ctx context.Context) error {
					var events []wire.Event
					for range 2 {
						n, err := a.next(ctx, key)
						if err != nil {
							return err
						}
						events = append(events, wire.Event{Topic: "orders", Key: key, Payload: []byte(strconv.Itoa(n))})
					}
					return outbox.Insert(ctx, a.outbox, append(events, wire.Event{Topic: "orders", Payload: []byte(`"no key"`)})...)
				})
				if err != nil {
					t.Errorf("insert: %v", err)
				}
			}
		})
	}
	a.export(p, "orders", writers*each)
	p.Kill()
	p = a.sidecar(dir)
	writing.Wait()
	events := a.export(p, "orders", writers*each*3)
	slices.SortFunc(events, func(a, b wire.Event) int { return int(a.Seq) - int(b.Seq) })
	got := map[string]int{}
	for _, e := range events {
		if e.Key == "" {
			continue
		}
		n, err := strconv.Atoi(string(e.Payload))
		if err != nil || n != got[e.Key]+1 {
			t.Errorf("%s follows %d of %s", e.Payload, got[e.Key], e.Key)
		}
		got[e.Key] = n
		if e.Key == "k0" && e.TS != ahead.UnixMilli() {
			t.Errorf("an event of the key with the clock ahead has ts %d, want %d", e.TS, ahead.UnixMilli())
		}
	}
	if len(events) != writers*each*3 {
		t.Errorf("%d events", len(events))
	}
}

// TestWholeEvents publishes an event with all fields, and for later.
func TestWholeEvents(t *testing.T) {
	a := newApp(t)
	p := a.sidecar(t.TempDir())
	want := wire.Event{ID: "e-1", Topic: "orders", Key: "k", Headers: wire.Headers{{Name: "b", Value: "2"}, {Name: "a", Value: "1"}},
		Tags:     []string{"eu"},
		CausedBy: []string{"c"}, SID: "boot", TTLMS: 60_000, Payload: []byte(`{"z":1e400,"a":12345678901234567890,"s":"$x.y"}`)}
	binary := wire.Event{ID: "e-2", Topic: "orders", Binary: true, Headers: wire.Headers{{Name: "content-type", Value: "image/png"}},
		Payload: []byte{0, 255}}
	due := time.Now().Add(time.Second).Truncate(time.Millisecond)
	err := a.do(func(ctx context.Context) error {
		if err := outbox.Insert(ctx, a.outbox, want, binary); err != nil {
			return err
		}
		return outbox.InsertAt(ctx, a.outbox, due, wire.Event{ID: "e-3", Topic: "later", Key: "k", Payload: []byte("1")})
	})
	require.NoError(t, err)
	byID := map[string]wire.Event{}
	for _, e := range slices.Concat(a.export(p, "orders", 2), a.export(p, "later", 1)) {
		byID[e.ID] = e
	}
	for _, w := range []wire.Event{want, binary} {
		g := byID[w.ID]
		w.TS, w.Partition, w.Seq = g.TS, g.Partition, g.Seq
		if got, want := string(codec.AppendEventJSON(nil, &g)), string(codec.AppendEventJSON(nil, &w)); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
	if g := byID["e-3"]; g.TS < due.UnixMilli() {
		t.Errorf("the event for later has ts %d, before %d", g.TS, due.UnixMilli())
	}
}

// TestNothingIsInserted: an insert outside of a transaction, in an aborted one, or of events that
// no sidecar would publish inserts nothing.
func TestNothingIsInserted(t *testing.T) {
	a := newApp(t)
	good := wire.Event{Topic: "orders", Key: "k", Payload: []byte("1")}
	if err := outbox.Insert(t.Context(), a.outbox, good); !errors.Is(err, outbox.ErrNoTransaction) {
		t.Errorf("without a session: %v", err)
	}
	session, err := a.db.Client().StartSession()
	require.NoError(t, err)
	defer session.EndSession(t.Context())
	if err := outbox.Insert(mongo.NewSessionContext(t.Context(), session), a.outbox, good); !errors.Is(err, outbox.ErrNoTransaction) {
		t.Errorf("without a transaction: %v", err)
	}
	failed := errors.New("as the test wants it")
	if err := a.do(func(ctx context.Context) error {
		return errors.Join(outbox.Insert(ctx, a.outbox, good),
			failed)
	}); !errors.Is(err, failed) {
		t.Errorf("the aborted one: %v", err)
	}
	for name, bad := range map[string]wire.Event{
		"topic": {Topic: "_orders", Payload: []byte("1")}, "payload": {Topic: "orders", Payload: []byte(`1,"opts":{}`)}, "ts": {Topic: "orders",
			TS: 1, Payload: []byte("1")},
		"id": {Topic: "orders", ID: "two words", Payload: []byte("1")},
	} {
		var refused *wire.Error
		if err := a.do(func(ctx context.Context) error { return outbox.Insert(ctx, a.outbox, good, bad) }); !errors.As(err, &refused) {
			t.Errorf("a bad %s: %v", name, err)
		} else {
			t.Log(err)
		}
	}
	for _, name := range []string{"outbox", "outbox_keys"} {
		if n, err := a.db.Collection(name).CountDocuments(t.Context(), bson.D{}); err != nil || n != 0 {
			t.Errorf("%s has %d documents, %v", name, n, err)
		}
	}
}
