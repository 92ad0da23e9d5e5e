package gateway

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// patience is how long a test waits for an event that is sure to come.
const patience = 20 * time.Second

// unlimited lets tests publish as fast as they like.
const unlimited = `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"delivery":{"max_inflight":10000,"backoff":{"min":"1ms","max":"1ms"}}}]`

// setup has a test's wishes for its sidecar; zero values are the defaults.
type setup struct {
	policies   string // JSON
	bounds     *Bounds
	limits     *wire.Limits
	origins    []string
	access     *access.Access
	memory     *budget.Budget
	mostTopics int          // 0: 1000
	mostEach   int          // of topics and of groups; 0: any number
	listener   net.Listener // nil: TCP

	spooled []eventlog.Record // wait in the spool, with one that has the id "spooled"
}

// testSpool has events that wait until they are erased.
type testSpool struct{ waiting []eventlog.Record }

func (s *testSpool) Holds(string) bool { return false }

func (s *testSpool) Waits(_ context.Context, _, id string) (bool, error) { return id == "spooled", nil }

func (s *testSpool) Erase(_ context.Context, e eventlog.Erasure, _ eventlog.Retention) (int, error) {
	before := len(s.waiting)
	s.waiting = slices.DeleteFunc(s.waiting, func(r eventlog.Record) bool { return r.Topic == e.Topic && e.Covers(&r) })
	return before - len(s.waiting), nil
}

// viaCatalog is a log in which subscribing makes the topics that publishing would.
type viaCatalog struct {
	eventlog.Log
	topics *topics.Catalog
}

func (l viaCatalog) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	return l.topics.EnsureIn(ctx, l.Log, name, partitions)
}

// sidecar is everything between a real TCP listener and a real log in memory.
type sidecar struct {
	gateway  *Gateway
	addr     string
	log      *gatedLog
	policies *policy.Current
	stop     func() // ends the gateway in order, as Shutdown does
}

func start(t testing.TB, s setup) *sidecar {
	t.Helper()
	if s.policies == "" {
		s.policies = unlimited
	}
	bounds, limits := DefaultBounds(), wire.DefaultLimits()
	if s.bounds != nil {
		bounds = *s.bounds
	}
	if s.limits != nil {
		limits = *s.limits
	}
	store, err := pebblelog.Open(pebblelog.Options{FS: vfs.NewMem(), Dir: "data", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	log := &gatedLog{Log: store}
	policies := policy.NewCurrent(snapshot(t, s.policies))
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	metrics := telemetry.Discard()
	tails := tail.New(tail.DefaultBounds())
	if s.mostTopics == 0 {
		s.mostTopics = 1000
	}
	catalog := topics.New(topics.Config{Entry: log, Log: log, Policies: policies, Most: s.mostTopics, MostEach: s.mostEach})
	w := writer.New(writer.Config{Log: catalog, Notifier: writer.Notifier{Tails: tails}, Bounds: writer.DefaultBounds()})
	publisher := admit.New(admit.Config{Catalog: catalog, Writer: w, Policies: policies, Limits: limits, Metrics: metrics})
	ctx, cancel := context.WithCancel(context.Background())
	groups := group.NewManager(group.Config{
		MaxGroupsEach: s.mostEach,
		Context:       ctx, Log: viaCatalog{log, catalog}, Tails: tails,
		Policy:      func(topic string) *policy.Effective { return policies.Load().Topic(topic) },
		DeadLetters: publisher, Metrics: metrics, Roster: roster.Alone("node"), Logger: logger, Bounds: group.DefaultBounds(), Memory: s.memory,
	})
	g := New(Config{
		Access:    s.access,
		Publisher: publisher, Groups: groups, Log: log, Policies: policies, Metrics: metrics,
		Limits: limits, Bounds: bounds, NodeID: "node", Logger: logger, Memory: s.memory,
		Topics: catalog, Erased: tails.Forget, Spool: &testSpool{s.spooled},
		Lookup: log.Lookup, StoreID: func() string { return "store" },
	})
	ln := s.listener
	if ln == nil {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln = tightListener{tcp}
	}
	guard := httpapi.Guard{AllowedOrigins: s.origins, Addr: ln.Addr()}
	server := httpapi.Server{Handler: guard.Handler(g.Handler()), Logger: logger, DrainTimeout: patience, ConnContext: g.ConnContext}
	serving, stopServing := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Serve(serving, s.access.Listener("listen", ln)); err != nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		soon, done := context.WithTimeout(context.Background(), patience)
		defer done()
		g.Shutdown(soon)
	})
	t.Cleanup(func() {
		log.open()
		stop()
		stopServing()
		running.Wait()
		soon, done := context.WithTimeout(context.Background(), patience)
		defer done()
		if err := groups.Stop(soon); err != nil {
			t.Error(err)
		}
		w.Stop(soon)
		cancel()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return &sidecar{gateway: g, addr: ln.Addr().String(), log: log, policies: policies, stop: stop}
}

// tightBuffer keeps the kernel from holding megabytes for a client that does not read.
const tightBuffer = 64 << 10

// tightListener accepts connections with small write buffers.
type tightListener struct{ net.Listener }

func (l tightListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		err = c.(*net.TCPConn).SetWriteBuffer(tightBuffer)
	}
	return c, err
}

func dialTight(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		err = c.(*net.TCPConn).SetReadBuffer(tightBuffer)
	}
	return c, err
}

func snapshot(t testing.TB, policies string) *policy.Snapshot {
	t.Helper()
	ps, err := policy.ParseJSON([]byte(policies))
	if err != nil {
		t.Fatal(err)
	}
	s, err := policy.NewSnapshot(ps, "test")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// gatedLog is a log whose appends can be held up, or made to fail.
type gatedLog struct {
	eventlog.Log
	mu   sync.Mutex
	gate chan struct{} // not nil: appends wait until it is closed
	fail error
	most int // events of the largest batch
}

func (l *gatedLog) largestBatch() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

func (l *gatedLog) hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

func (l *gatedLog) open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gate != nil {
		close(l.gate)
		l.gate = nil
	}
}

func (l *gatedLog) failWith(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

func (l *gatedLog) now() (gate chan struct{}, fail error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate, l.fail
}

func (l *gatedLog) Append(ctx context.Context, topic string, partition int, batch []*eventlog.Record) []eventlog.Outcome {
	l.mu.Lock()
	l.most = max(l.most, len(batch))
	l.mu.Unlock()
	gate, fail := l.now()
	if gate != nil {
		<-gate
	}
	if fail != nil {
		outs := make([]eventlog.Outcome, len(batch))
		for i := range outs {
			outs[i].Err = fail
		}
		return outs
	}
	return l.Log.Append(ctx, topic, partition, batch)
}

func (l *gatedLog) SaveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	if _, fail := l.now(); fail != nil {
		return fail
	}
	return l.Log.SaveEpochs(ctx, epochs, marks)
}

// publish publishes one event over HTTP, which must be accepted.
func (s *sidecar) publish(t testing.TB, topic, id, key string) {
	t.Helper()
	res, body := s.do(t, "POST", "/v1/topics/"+topic+"/events", `{"n":1}`, "Sluice-Id: "+id, "Sluice-Key: "+key)
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("publish: %s %s", res.Status, body)
	}
}

// do makes a request; headers are "Name: value".
func (s *sidecar) do(t testing.TB, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.addr+path, content)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		} else {
			req.Header[http.CanonicalHeaderKey(name)] = append(req.Header[http.CanonicalHeaderKey(name)], value)
		}
	}
	res, err := transport(t).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(res.Body); err != nil {
		t.Fatal(err)
	}
	return res, strings.TrimSpace(text.String())
}

var transports sync.Map // by test

// transport keeps connections for the length of a test.
func transport(t testing.TB) *http.Transport {
	tr, known := transports.LoadOrStore(t, &http.Transport{})
	if !known {
		t.Cleanup(func() {
			transports.Delete(t)
			tr.(*http.Transport).CloseIdleConnections()
		})
	}
	return tr.(*http.Transport)
}

func defaultLimits() wire.Limits { return wire.DefaultLimits() }

// eventually polls until a condition holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
