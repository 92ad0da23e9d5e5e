// Package gatewaytest starts a gateway for tests, with everything between a real listener and a real
// log in memory, and has clients for it.
package gatewaytest

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
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
	"github.com/sluice-bus/sluice/test/openapitest"
)

// Patience is how long a test waits for an event that is sure to come.
const Patience = 20 * time.Second

// Unlimited lets tests publish as fast as they like.
const Unlimited = `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},` +
	`"delivery":{"max_inflight":10000,"backoff":{"min":"1ms","max":"1ms"}}}]`

// Setup has a test's wishes for its sidecar; zero values are the defaults.
type Setup struct {
	Policies   string // JSON
	Bounds     *session.Bounds
	Limits     *wire.Limits
	Origins    []string
	Access     *access.Access
	Audit      *audit.Log
	Unready    bool // publishes are not accepted
	Budget     *budget.Budget
	MostTopics int          // 0: 1000
	MostEach   int          // of topics and of groups; 0: any number
	Listener   net.Listener // nil: TCP
	DaprAppID  string

	Spooled []eventlog.Record // wait in the spool, with one that has the id "spooled"
}

// Spool has events that wait until they are erased.
type Spool struct{ Waiting []eventlog.Record }

func (s *Spool) Holds(string) bool { return false }

func (s *Spool) Waits(_ context.Context, _, id string) (bool, error) { return id == "spooled", nil }

func (s *Spool) Erase(_ context.Context, e eventlog.Erasure, _ eventlog.Retention) (int, error) {
	before := len(s.Waiting)
	s.Waiting = slices.DeleteFunc(s.Waiting, func(r eventlog.Record) bool { return r.Topic == e.Topic && e.Covers(&r) })
	return before - len(s.Waiting), nil
}

// viaCatalog is a log in which subscribing makes the topics that publishing would.
type viaCatalog struct {
	eventlog.Log
	topics *topics.Catalog
}

func (l viaCatalog) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	return l.topics.EnsureIn(ctx, l.Log, name, partitions)
}

// Sidecar is everything between a real TCP listener and a real log in memory.
type Sidecar struct {
	Gateway  *gateway.Gateway
	Groups   *group.Manager
	Addr     string
	Log      *Log
	Spool    *Spool
	Policies *policy.Current
	Stop     func() // ends the gateway in order, as Shutdown does
}

// Start starts a sidecar that stops with its test.
func Start(t testing.TB, s Setup) *Sidecar {
	t.Helper()
	if s.Policies == "" {
		s.Policies = Unlimited
	}
	bounds, limits := session.DefaultBounds(), wire.DefaultLimits()
	if s.Bounds != nil {
		bounds = *s.Bounds
	}
	if s.Limits != nil {
		limits = *s.Limits
	}
	store, err := pebblelog.Open(pebblelog.Options{FS: vfs.NewMem(), Dir: "data", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	log := &Log{Log: store}
	policies := policy.NewCurrent(Snapshot(t, s.Policies))
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	metrics := telemetry.Discard()
	tails := tail.New(tail.DefaultBounds())
	if s.MostTopics == 0 {
		s.MostTopics = 1000
	}
	catalog := topics.New(topics.Config{Entry: log, Log: log, Policies: policies, Most: s.MostTopics, MostEach: s.MostEach})
	w := writer.New(writer.Config{Log: catalog, Notifier: writer.Notifier{Tails: tails}, Bounds: writer.DefaultBounds()})
	publisher := admit.New(admit.Config{Catalog: catalog, Writer: w, Policies: policies, Limits: limits, Metrics: metrics})
	ctx, cancel := context.WithCancel(context.Background())
	groups := group.NewManager(group.Config{
		MaxGroupsEach: s.MostEach,
		Context:       ctx, Log: viaCatalog{log, catalog}, Tails: tails,
		Policy:      func(topic string) *policy.Effective { return policies.Load().Topic(topic) },
		DeadLetters: publisher, Metrics: metrics, Roster: roster.Alone("node"), Logger: logger, Bounds: group.DefaultBounds(),
	})
	spool := &Spool{s.Spooled}
	g := gateway.New(gateway.Config{
		Access: s.Access, Audit: s.Audit,
		Publisher: publisher, Groups: groups, Log: log, Policies: policies, Metrics: metrics,
		Limits: limits, Bounds: bounds, NodeID: "node", Logger: logger, Budget: s.Budget,
		Topics: catalog, Erased: tails.Forget, Spool: spool,
		Lookup: log.Lookup, StoreID: func() string { return "store" }, Ready: func() bool { return !s.Unready }, DaprAppID: s.DaprAppID,
		Reread: func(context.Context, string) error { return eventlog.ErrNotFound },
		About: httpapi.About{Program: "sluice-sidecar", Version: "test", NodeID: "node", Known: func(r *http.Request) bool {
			_, err := s.Access.Identify(r)
			return err == nil
		}},
	})
	ln := s.Listener
	if ln == nil {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln = tightListener{tcp}
	}
	guard := httpapi.Guard{AllowedOrigins: s.Origins, Addr: ln.Addr()}
	server := httpapi.Server{Handler: guard.Handler(g.Handler()), Logger: logger, DrainTimeout: Patience, ConnContext: g.ConnContext}
	serving, stopServing := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Serve(serving, s.Access.Listener("listen", ln)); err != nil {
			t.Error(err)
		}
	})
	stop := sync.OnceFunc(func() {
		soon, done := context.WithTimeout(context.Background(), Patience)
		defer done()
		g.Shutdown(soon)
	})
	t.Cleanup(func() {
		log.Open()
		stop()
		stopServing()
		running.Wait()
		soon, done := context.WithTimeout(context.Background(), Patience)
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
	return &Sidecar{Gateway: g, Groups: groups, Addr: ln.Addr().String(), Log: log, Spool: spool, Policies: policies, Stop: stop}
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

func DialTight(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err == nil {
		err = c.(*net.TCPConn).SetReadBuffer(tightBuffer)
	}
	return c, err
}

func Snapshot(t testing.TB, policies string) *policy.Snapshot {
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

// Log is a log whose appends can be held up, or made to fail.
type Log struct {
	eventlog.Log
	mu     sync.Mutex
	gate   chan struct{} // not nil: appends wait until it is closed
	fail   error
	unread error // why reads fail
	most   int   // events of the largest batch
}

// LargestBatch is how many events the largest append had.
func (l *Log) LargestBatch() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

// Hold holds appends and erasures up until Open.
func (l *Log) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

// Open lets appends go on.
func (l *Log) Open() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gate != nil {
		close(l.gate)
		l.gate = nil
	}
}

// FailWith makes appends and saves fail.
func (l *Log) FailWith(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = err
}

// FailReadsWith makes reads of events fail.
func (l *Log) FailReadsWith(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unread = err
}

func (l *Log) Read(ctx context.Context, topic string, partition int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error) {
	l.mu.Lock()
	fail := l.unread
	l.mu.Unlock()
	if fail != nil {
		return nil, fail
	}
	return l.Log.Read(ctx, topic, partition, from, b)
}

func (l *Log) now() (gate chan struct{}, fail error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate, l.fail
}

func (l *Log) Append(ctx context.Context, topic string, partition int, batch []*eventlog.Record) []eventlog.Outcome {
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

func (l *Log) Erase(ctx context.Context, topic string, partition int, seqs []uint64, r eventlog.Retention, now int64) (int, error) {
	if gate, _ := l.now(); gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	return l.Log.Erase(ctx, topic, partition, seqs, r, now)
}

func (l *Log) SaveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	if _, fail := l.now(); fail != nil {
		return fail
	}
	return l.Log.SaveEpochs(ctx, epochs, marks)
}

// Publish publishes one event over HTTP, which must be accepted.
func (s *Sidecar) Publish(t testing.TB, topic, id, key string) {
	t.Helper()
	res, body := s.Do(t, "POST", "/v1/topics/"+topic+"/events", `{"n":1}`, "Sluice-Id: "+id, "Sluice-Key: "+key)
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("publish: %s %s", res.Status, body)
	}
}

// PublishDead puts a dead letter into the log, as no client can.
func (s *Sidecar) PublishDead(t testing.TB, topic, id string, headers ...wire.Header) {
	t.Helper()
	made, err := s.Log.EnsureTopic(t.Context(), topic, 1)
	if err != nil {
		t.Fatal(err)
	}
	rec := &eventlog.Record{Event: wire.Event{ID: id, Headers: headers, Payload: []byte("1")}, AcceptedAt: time.Now().UnixMilli()}
	if out := s.Log.Append(t.Context(), topic, eventlog.PartitionOf("", id, made.Partitions), []*eventlog.Record{rec}); out[0].Err != nil {
		t.Fatal(out[0].Err)
	}
}

// Do makes a request, whose answer has to be one that is described; headers are "Name: value".
func (s *Sidecar) Do(t testing.TB, method, path, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+s.Addr+path, content)
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
	res, err := Transport(t).RoundTrip(req)
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

// Transport keeps connections for the length of a test, and holds the gateway to its description.
func Transport(t testing.TB) http.RoundTripper {
	connections := &http.Transport{}
	tr, known := transports.LoadOrStore(t, &openapitest.Transport{Next: connections})
	if !known {
		t.Cleanup(func() {
			transports.Delete(t)
			connections.CloseIdleConnections()
		})
	}
	return tr.(http.RoundTripper)
}

// Eventually polls until a condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(Patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
