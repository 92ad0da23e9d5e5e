package sdk_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/mongo/projector"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

const (
	projectedTopic, projectedGroup = "customers", "view"
	projectorPolicies              = `
- name: "*"
  connection: {rate: 0}
  publish: {rate: 0}
  delivery: {max_inflight: 1000, max_attempts: 100000, ack_timeout: 1s, backoff: {min: 1ms, max: 10ms}}
  partitions: 4
`
)

// newCollection returns a collection that is not there yet.
func newCollection(t testing.TB) (coll *mongo.Collection, uri string) {
	t.Helper()
	server := mongotest.Shared(t)
	name := server.NewDatabase(t)
	return connectCustomers(t, server.URI(name), name), server.URI(name)
}

func startSidecar(t testing.TB, opts sluicetest.Options) *sluicetest.Sidecar {
	t.Helper()
	if opts.Policies == "" {
		opts.Policies = projectorPolicies
	}
	s := sluicetest.Start(opts)
	t.Cleanup(s.Close)
	return s
}

func dialURL(t testing.TB, url string) *sluice.Client {
	t.Helper()
	client, err := sluice.Dial(t.Context(), url, sluice.WithLogger(quiet), sluice.WithBackoff(time.Millisecond, 20*time.Millisecond))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// customer is a payload of the topic, and its document.
type customer struct {
	City  string `json:"city" bson:"city"`
	Email string `json:"email,omitempty" bson:"email,omitempty"`
}

func mapped(e *sluice.Event) (any, error) {
	var c customer
	if err := json.Unmarshal(e.Payload, &c); err != nil {
		return nil, err
	}
	if c.City == "" {
		return nil, nil
	}
	return c, nil
}

func configOf(coll *mongo.Collection) projector.Config {
	return projector.Config{
		Topic: projectedTopic, Group: projectedGroup, Collection: coll, Map: mapped, Logger: quiet, CheckEvery: 20 * time.Millisecond,
		Subscribe: []option.Subscribe{option.RetryFor(100 * time.Millisecond)},
	}
}

// start runs a projection until stop is called, or the test ends.
func startProjector(t testing.TB, client *sluice.Client, cfg projector.Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- projector.Run(ctx, client, cfg) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func publishCustomer(t testing.TB, client *sluice.Client, key, payload string) sluice.Receipt {
	t.Helper()
	r, err := client.Publish(t.Context(), &sluice.Event{Topic: projectedTopic, Key: key, Payload: []byte(payload)})
	require.NoError(t, err)
	return r
}

// eventually asks until the answer is nil.
func await(t testing.TB, ask func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for err := ask(); err != nil; err = ask() {
		if !pause.For(ctx, 5*time.Millisecond) {
			t.Fatal(err)
		}
	}
}

// settled waits until the group has settled all events of the topic.
func settled(t testing.TB, client *sluice.Client) {
	t.Helper()
	await(t, func() error {
		info, err := client.HTTP().GroupInfo(t.Context(), projectedTopic, projectedGroup)
		if err == nil && info.Lag > 0 {
			err = fmt.Errorf("the lag is %d", info.Lag)
		}
		return err
	})
}

// cities are the cities of the customers in the collection.
func cities(t testing.TB, coll *mongo.Collection) map[string]string {
	t.Helper()
	cursor, err := coll.Find(t.Context(), bson.D{projector.Live()})
	require.NoError(t, err)
	var docs []struct {
		ID   string `bson:"_id"`
		City string
	}
	require.NoError(t, cursor.All(t.Context(), &docs))
	all := map[string]string{}
	for _, d := range docs {
		all[d.ID] = d.City
	}
	return all
}

func wantCities(t testing.TB, coll *mongo.Collection, want map[string]string) {
	t.Helper()
	if got := cities(t, coll); !maps.Equal(got, want) {
		t.Errorf("the collection has %v, want %v", got, want)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	coll, _ := newCollection(t)
	client := dialURL(t, startSidecar(t, sluicetest.Options{}).URL)
	publishCustomer(t, client, "ann", `{"city":"Bern"}`) // before a projection runs
	lags := make(chan int64, 1)
	cfg := configOf(coll)
	cfg.Observer.Lag = func(events int64) {
		select {
		case lags <- events:
		default:
		}
	}
	startProjector(t, client, cfg)
	publishCustomer(t, client, "bob", `{"city":"Chur"}`)
	publishCustomer(t, client, "ann", `{"city":"Genf"}`)
	publishCustomer(t, client, "cas", `{"city":"Basel"}`)
	last := publishCustomer(t, client, "cas", `null`)
	publishCustomer(t, client, "dee", `{"city":"Thun"}`)
	publishCustomer(t, client, "dee", `{"city":""}`) // Map returns nil
	settled(t, client)
	wantCities(t, coll, map[string]string{"ann": "Genf", "bob": "Chur"})
	for lag := range lags {
		if lag == 0 {
			break
		}
	}

	var cas struct {
		City   *string
		Sluice struct {
			Partition int
			Seq       uint64
			Deleted   bool
			ExpireAt  time.Time `bson:"expireAt"`
		} `bson:"_sluice"`
	}
	require.NoError(t, coll.FindOne(t.Context(), bson.D{{Key: "_id", Value: "cas"}}).Decode(&cas))
	g := cas.Sluice
	if cas.City != nil || !g.Deleted || g.Partition != last.Partition || g.Seq != last.Seq || time.Until(g.ExpireAt) < 31*24*time.Hour {
		t.Errorf("the deleted document is %+v, want a guard of %+v", cas, last)
	}
	publishCustomer(t, client, "cas", `{"city":"Biel"}`)
	settled(t, client)
	wantCities(t, coll, map[string]string{"ann": "Genf", "bob": "Chur", "cas": "Biel"})
}

func TestSettingsAreChecked(t *testing.T) {
	coll, _ := newCollection(t)
	for name, change := range map[string]func(*projector.Config){
		"Topic":      func(c *projector.Config) { c.Topic = "" },
		"Group":      func(c *projector.Config) { c.Group = "" },
		"Collection": func(c *projector.Config) { c.Collection = nil },
		"Map":        func(c *projector.Config) { c.Map = nil },
	} {
		cfg := configOf(coll)
		change(&cfg)
		if err := projector.Run(t.Context(), nil, cfg); err == nil || !strings.Contains(err.Error(), "Config."+name+" is missing") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// An event that cannot be projected becomes a dead letter with the reason, and delays no other
// event.
func TestRefused(t *testing.T) {
	t.Parallel()
	coll, _ := newCollection(t)
	client := dialURL(t, startSidecar(t, sluicetest.Options{}).URL)
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "email", Value: 1}},
		Options: options.Index().SetName("one_email").SetUnique(true).SetSparse(true)})
	require.NoError(t, err)
	if _, err := coll.InsertOne(t.Context(), bson.D{{Key: "_id", Value: "hand-made"}}); err != nil {
		t.Fatal(err)
	}
	cfg := configOf(coll)
	cfg.Map = func(e *sluice.Event) (any, error) {
		switch e.Key {
		case "reserved":
			return bson.D{{Key: "_sluice", Value: 1}}, nil
		case "no document":
			return 17, nil
		case "large":
			return bson.D{{Key: "text", Value: strings.Repeat("x", 16<<20)}}, nil
		}
		return mapped(e)
	}
	var mu sync.Mutex
	refused := map[string]string{}
	cfg.Observer.Refused = func(e *sluice.Event, err error) {
		mu.Lock()
		defer mu.Unlock()
		refused[e.Key] = err.Error()
	}
	startProjector(t, client, cfg)
	publishCustomer(t, client, "ann", `{"city":"Bern","email":"a@x"}`)
	settled(t, client)
	want := map[string]string{
		"":            "no key",
		"bob":         "one_email",
		"reserved":    "has a field _sluice",
		"no document": "cannot be encoded",
		"large":       "larger than",
		"hand-made":   "not the projector's",
	}
	for key := range want {
		publishCustomer(t, client, key, `{"city":"Chur","email":"a@x"}`)
	}
	publishCustomer(t, client, "eve", `{"city":"Thun"}`)
	for range 2 { // two documents that lack the unique field
		publishCustomer(t, client, "gone", `null`)
		publishCustomer(t, client, "lost", `null`)
	}
	settled(t, client)
	wantCities(t, coll, map[string]string{"ann": "Bern", "eve": "Thun", "hand-made": ""})
	list, err := client.HTTP().DeadLetters(t.Context(), projectedTopic, admin.DeadLetterQuery{})
	require.NoError(t, err)
	for _, d := range list.DeadLetters {
		e, err := codec.ParseEvent(d.Event)
		require.NoError(t, err)
		if text := want[e.Key]; text == "" || !strings.Contains(d.Reason, text) {
			t.Errorf("the dead letter of key %q says %q, want %q", e.Key, d.Reason, text)
		}
		mu.Lock()
		if !strings.HasSuffix(d.Reason, refused[e.Key]) {
			t.Errorf("the observer was told %q of %q", refused[e.Key], d.Reason)
		}
		mu.Unlock()
	}
	if len(list.DeadLetters) != len(want) {
		t.Errorf("%d dead letters, want %d", len(list.DeadLetters), len(want))
	}
}

// An event needs a unique value that the event of another key frees a moment later.
func TestUniqueValueMovesOn(t *testing.T) {
	t.Parallel()
	coll, _ := newCollection(t)
	client := dialURL(t, startSidecar(t, sluicetest.Options{}).URL)
	_, err := coll.Indexes().CreateOne(t.Context(), mongo.IndexModel{Keys: bson.D{{Key: "email", Value: 1}},
		Options: options.Index().SetUnique(true).SetSparse(true)})
	require.NoError(t, err)
	cfg := configOf(coll)
	cfg.Subscribe = []option.Subscribe{option.RetryFor(patience)}
	met := make(chan struct{}, 100)
	cfg.Map = func(e *sluice.Event) (any, error) {
		if e.Key == "bob" {
			met <- struct{}{}
		}
		return mapped(e)
	}
	startProjector(t, client, cfg)
	publishCustomer(t, client, "ann", `{"city":"Bern","email":"a@x"}`)
	settled(t, client)
	publishCustomer(t, client, "bob", `{"city":"Chur","email":"a@x"}`)
	for range 2 {
		<-met
	}
	publishCustomer(t, client, "ann", `{"city":"Bern","email":"b@x"}`)
	settled(t, client)
	wantCities(t, coll, map[string]string{"ann": "Bern", "bob": "Chur"})
}

// While MongoDB is away events wait, and no attempt is counted.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	server := mongotest.Start(t)
	server.Needs(t, mongotest.Restarts)
	name := server.NewDatabase(t)
	coll := connectCustomers(t, server.URI(name)+"&serverSelectionTimeoutMS=2000", name)
	client := dialURL(t, startSidecar(t, sluicetest.Options{Policies: strings.Replace(projectorPolicies, "100000", "2", 1)}).URL)
	cfg := configOf(coll)
	mapping := make(chan struct{}, 1000)
	cfg.Map = func(e *sluice.Event) (any, error) {
		mapping <- struct{}{}
		return mapped(e)
	}
	startProjector(t, client, cfg)
	publishCustomer(t, client, "ann", `{"city":"Bern"}`)
	settled(t, client)
	<-mapping
	server.Stop()
	publishCustomer(t, client, "ann", `{"city":"Genf"}`)
	for range 3 { // more often than maxAttempts
		<-mapping
	}
	server.Restart()
	settled(t, client)
	wantCities(t, coll, map[string]string{"ann": "Genf"})
	list, err := client.HTTP().DeadLetters(t.Context(), projectedTopic, admin.DeadLetterQuery{})
	if err != nil && !errors.Is(err, sluice.ErrNotFound) || len(list.DeadLetters) > 0 {
		t.Errorf("%d dead letters, %v", len(list.DeadLetters), err)
	}
}

func connectCustomers(t testing.TB, uri, database string) *mongo.Collection {
	t.Helper()
	return connectMongo(t, uri, database).Collection("customers")
}
