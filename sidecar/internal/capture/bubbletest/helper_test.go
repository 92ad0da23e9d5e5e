package bubbletest

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

// shop is an application with a collection that is captured, and the log that its changes go to.
type shop struct {
	*testing.T
	set    *mongomodel.Set
	orders *mongo.Collection
	log    log
	lines  lockedbuffer.Buffer
	stops  []func() // of sidecars
}

// onModel runs a test in a bubble of its own.
func onModel(t *testing.T, o mongomodel.Options, test func(s *shop)) {
	synctest.Test(t, func(t *testing.T) {
		o.Polling, o.Latencies = true, mongomodel.Measured
		s := &shop{T: t, set: mongomodel.New(o)}
		defer s.set.Close()
		client, err := mongo.Connect(s.set.Client("app"))
		require.NoError(t, err)
		defer client.Disconnect(context.WithoutCancel(t.Context()))
		s.orders = client.Database("shop").Collection("orders")
		defer func() {
			for _, stop := range s.stops {
				stop()
			}
			if t.Failed() {
				t.Log(s.lines.String())
			}
		}()
		test(s)
	})
}

// config is of a capture on a shared log. Its servers know the sidecar by that name.
func (s *shop) config(node string) capture.Config {
	url := strings.Replace(s.set.URI(), "/?", "/events?", 1)
	source, err := capture.ParseSource("shop.orders", url)
	require.NoError(s, err)
	return capture.Config{
		Source: source, Store: url, Database: "events", NodeID: node, Publisher: &s.log, Observer: &s.log,
		Roster: roster.Alone(node), Limits: wire.DefaultLimits(), Logger: slog.New(slog.NewTextHandler(&s.lines, nil)),
		Dialer: s.set.Dialer(node),
	}
}

// sidecar is one that captures.
type sidecar struct {
	*capture.Capture
	stop func()
}

func (s *shop) start(c capture.Config) sidecar {
	s.Helper()
	x, err := capture.New(c)
	require.NoError(s, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := x.Run(ctx); err != nil {
			s.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	s.stops = append(s.stops, stop)
	return sidecar{x, stop}
}

// reread asks a sidecar for a re-read.
func (s *shop) reread(x sidecar) {
	s.Helper()
	require.NoError(s, x.Reread(s.Context()))
}

// do makes one change: +id inserts, ~id updates, =id replaces and -id deletes.
func (s *shop) do(changes ...string) {
	s.Helper()
	ctx := s.Context()
	for _, change := range changes {
		id, n := change[1:], bson.E{Key: "n", Value: 1}
		var err error
		switch change[0] {
		case '+':
			_, err = s.orders.InsertOne(ctx, bson.D{{Key: "_id", Value: id}, n})
		case '~':
			_, err = s.orders.UpdateByID(ctx, id, bson.D{{Key: "$inc", Value: bson.D{n}}})
		case '=':
			_, err = s.orders.ReplaceOne(ctx, bson.D{{Key: "_id", Value: id}}, bson.D{{Key: "replaced", Value: true}})
		case '-':
			_, err = s.orders.DeleteOne(ctx, bson.D{{Key: "_id", Value: id}})
		}
		if err != nil {
			s.Fatalf("%s: %v", change, err)
		}
	}
}

// wants compares the events in the log, each as the change of which it is, with those that are
// wanted.
func (s *shop) wants(want ...string) {
	s.Helper()
	if got := s.changes(); !slices.Equal(got, want) {
		s.Fatalf("the log has %q, want %q", got, want)
	}
}

// wantsOfEachKey leaves out in which order changes of several documents are.
func (s *shop) wantsOfEachKey(want ...string) {
	s.Helper()
	byKey := func(changes []string) []string {
		slices.SortStableFunc(changes, func(a, b string) int { return strings.Compare(a[1:], b[1:]) })
		return changes
	}
	if got, want := byKey(s.changes()), byKey(want); !slices.Equal(got, want) {
		s.Fatalf("the log has, by key, %q, want %q", got, want)
	}
}

func (s *shop) changes() (changes []string) {
	for _, e := range s.log.all() {
		op, _ := e.Headers.Get("sluice-capture-op")
		changes = append(changes, map[string]string{"insert": "+", "update": "~", "replace": "=", "delete": "-", "snapshot": "."}[op]+e.Key)
	}
	return changes
}

// latest is the payload of each key's last event, as in a compacted topic.
func (s *shop) latest() map[string]string {
	all := map[string]string{}
	for _, e := range s.log.all() {
		all[e.Key] = string(e.Payload)
	}
	maps.DeleteFunc(all, func(_, payload string) bool { return payload == "null" })
	return all
}

// log is a publisher that stores each id once.
type log struct {
	most int // of MaxEvents

	mu         sync.Mutex
	events     []wire.Event
	duplicates int
	conflicts  int
	failed     map[wire.Code]int
	deferred   map[wire.Code]int
	refuse     func(e *wire.Event) *wire.Error
}

func (l *log) MaxEvents(string) int { return l.most }

func (l *log) Publish(_ context.Context, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	l.mu.Lock()
	defer l.mu.Unlock()
	results := make([]wire.ResultItem, len(items))
	for i := range items {
		results[i] = l.publish(&items[i].Event)
	}
	done(results)
	return nil
}

func (l *log) publish(e *wire.Event) wire.ResultItem {
	if l.refuse != nil {
		if err := l.refuse(e); err != nil {
			return wire.ResultItem{Err: err}
		}
	}
	if i := slices.IndexFunc(l.events, func(x wire.Event) bool { return x.ID == e.ID }); i < 0 {
		l.events = append(l.events, *e)
	} else if string(l.events[i].Payload) != string(e.Payload) {
		l.conflicts++
		return wire.ResultItem{Err: wire.Errorf(wire.Conflict, "another payload")}
	} else {
		l.duplicates++
	}
	return wire.ResultItem{Receipt: wire.Receipt{ID: e.ID}}
}

func (l *log) all() []wire.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// set changes how the log answers; nil: it takes everything.
func (l *log) set(refuse func(e *wire.Event) *wire.Error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuse = refuse
}

func (l *log) Published(int) {}

func (l *log) Failed(code wire.Code) { l.count(&l.failed, code) }

func (l *log) Deferred(code wire.Code) { l.count(&l.deferred, code) }

func (l *log) count(of *map[wire.Code]int, code wire.Code) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if *of == nil {
		*of = map[wire.Code]int{}
	}
	(*of)[code]++
}

// soon is more than a change takes to be captured.
const soon = 5 * time.Second
