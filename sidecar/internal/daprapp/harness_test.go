package daprapp

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

// patience is how long a test waits for something that is sure to come.
const patience = 20 * time.Second

// sidecar is what an App needs around it, on a log in memory.
type sidecar struct {
	groups    *group.Manager
	publisher *admit.Publisher
	policies  *policy.Current
	logged    *lockedbuffer.Buffer
	log       *pebblelog.Log
}

func newSidecar(t testing.TB, policies string) *sidecar {
	t.Helper()
	list, err := policy.ParseYAML([]byte(policies))
	require.NoError(t, err)
	snapshot, err := policy.NewSnapshot(list, "test")
	require.NoError(t, err)
	store, err := pebblelog.Open(pebblelog.Options{FS: vfs.NewMem(), Dir: "data", Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	s := &sidecar{policies: policy.NewCurrent(snapshot), logged: &lockedbuffer.Buffer{}, log: store}
	metrics, tails := telemetry.Discard(), tail.New(tail.DefaultBounds())
	w := writer.New(writer.Config{Log: store, Notifier: writer.Notifier{Tails: tails}, Bounds: writer.DefaultBounds()})
	s.publisher = admit.New(admit.Config{Catalog: store, Writer: w, Policies: s.policies, Limits: wire.DefaultLimits(), Metrics: metrics,
		Logger: slog.Default()})
	ctx, cancel := context.WithCancel(context.Background())
	s.groups = group.NewManager(group.Config{
		Context: ctx, Log: store, Tails: tails,
		Policy:      func(topic string) *policy.Effective { return s.policies.Load().Topic(topic) },
		DeadLetters: s.publisher, Metrics: metrics, Roster: roster.Alone("node"), Logger: slog.Default(), Bounds: group.DefaultBounds(),
	})
	t.Cleanup(func() {
		soon, done := context.WithTimeout(context.Background(), patience)
		defer done()
		if err := s.groups.Stop(soon); err != nil {
			t.Error(err)
		}
		w.Stop(soon)
		cancel()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// publish publishes one event, which must be accepted.
func (s *sidecar) publish(t testing.TB, topic, id, key string, headers ...wire.Header) {
	t.Helper()
	s.publishPayload(t, wire.Event{Topic: topic, ID: id, Key: key, Headers: headers, Payload: []byte("1")})
}

func (s *sidecar) publishPayload(t testing.TB, ev wire.Event) {
	t.Helper()
	answered := make(chan []wire.ResultItem, 1)
	it := wire.PublishItem{Event: ev}
	if err := s.publisher.Publish(t.Context(), s.publisher.NewLogOnlyConnection(), []wire.PublishItem{it},
		func(r []wire.ResultItem) { answered <- r }); err != nil {
		t.Fatal(err)
	}
	if r := <-answered; r[0].Err != nil {
		t.Fatal(r[0].Err)
	}
}

// run runs an App at an address until the test ends, or stop is called.
func (s *sidecar) run(t testing.TB, addr string) (stop func()) {
	t.Helper()
	_, stop = s.runApp(t, "http://"+addr, Config{})
	return stop
}

// runApp runs an App with what cfg has beside an App's surroundings.
func (s *sidecar) runApp(t testing.TB, address string, cfg Config) (a *App, stop func()) {
	t.Helper()
	var err error
	cfg.Address, err = ParseAddress(address)
	require.NoError(t, err)
	cfg.AppID, cfg.Groups, cfg.Policies, cfg.Logger = "app", s.groups, s.policies, slog.New(slog.NewTextHandler(s.logged, nil))
	a, err = New(cfg)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		soon, done := context.WithTimeout(context.Background(), patience)
		defer done()
		a.Shutdown(soon)
		running.Wait()
	})
	t.Cleanup(stop)
	return a, stop
}

// call is an event that the application is given, and waits to be answered.
type call struct {
	path   string
	header http.Header
	event  map[string]any
	answer chan func(http.ResponseWriter) // closed: 200
}

func (c *call) id() string { return c.event["id"].(string) }

func (c *call) ok() { close(c.answer) }

func (c *call) say(status int, body string) {
	c.answer <- func(w http.ResponseWriter) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// application is one that was written for Dapr.
type application struct {
	addr  string
	calls chan *call
	stop  func()
}

// startApplication starts one at an address; ":0" picks a port.
func startApplication(t testing.TB, addr, subscriptions string) *application {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	app := &application{addr: ln.Addr().String(), calls: make(chan *call, 100)}
	mux := http.NewServeMux()
	if subscriptions != "" {
		mux.HandleFunc("GET /dapr/subscribe", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, subscriptions) })
	}
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		c := &call{path: r.URL.Path, header: r.Header, answer: make(chan func(http.ResponseWriter), 1)}
		kind := "application/cloudevents+json"
		err := json.NewDecoder(r.Body).Decode(&c.event)
		if c.event["entries"] != nil {
			kind = "application/json"
		}
		if err != nil || r.Header.Get("Content-Type") != kind {
			t.Errorf("%s is given %v: %v", r.URL, r.Header, err)
		}
		app.calls <- c
		select {
		case answer, said := <-c.answer:
			if said {
				answer(w)
			}
		case <-r.Context().Done():
		}
	})
	server := &http.Server{Handler: mux}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(ln) })
	app.stop = sync.OnceFunc(func() {
		_ = server.Close()
		serving.Wait()
	})
	t.Cleanup(app.stop)
	return app
}

// next is the next event that the application is given.
func (app *application) next(t testing.TB) *call {
	t.Helper()
	select {
	case c := <-app.calls:
		return c
	case <-time.After(patience):
		t.Fatal("the application is given nothing")
		return nil
	}
}

// eventually waits until a condition holds that nothing announces.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
	}
}

// lag is how many events of a topic the application's group at the pubsub p has not settled; -1: there is no group.
func (s *sidecar) lag(t testing.TB, topic string) int {
	t.Helper()
	return s.lagOf(t, topic, "app.p")
}

func (s *sidecar) lagOf(t testing.TB, topic, group string) int {
	t.Helper()
	info, err := s.groups.Info(t.Context(), topic, group)
	if err != nil {
		return -1
	}
	return int(info.Lag)
}
