package gateway

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
)

// Bounds of the resources of one WebSocket connection, and of all of HTTP.
type Bounds struct {
	// SendBufferBytes is how much may wait for the client to read it. One turn's deliveries, and
	// the replies to requests that were read already, may exceed it.
	SendBufferBytes int
	// UnansweredEvents is how many unanswered events of publishes, and other ops that wait for the
	// log, a connection may have; UnansweredBytes is the size of their frames. One op is always
	// admitted.
	UnansweredEvents int
	UnansweredBytes  int
	// ReceiveTimeout is how long a message, or the body of a request, may take to arrive once it
	// has begun.
	ReceiveTimeout time.Duration
	// SlowClientTimeout is how long a client may read nothing while data waits for it. The gateway
	// disconnects the client after that time, and at the latest after twice that time.
	SlowClientTimeout time.Duration
	// Subscriptions is how many a connection may have.
	Subscriptions int
	// AuthTimeout is how long a connection may take to authenticate, if it has to.
	AuthTimeout time.Duration

	// Pulls is how many requests may pull at a time, Pullers how many members may stand for pulls
	// (one for each group and set of opts), and PullerIdle how long an unused one without events in
	// flight stays.
	Pulls      int
	Pullers    int
	PullerIdle time.Duration
}

// DefaultBounds let the worst client use about ten megabytes per connection.
func DefaultBounds() Bounds {
	return Bounds{
		SendBufferBytes:   1 << 20,
		UnansweredEvents:  4096,
		UnansweredBytes:   8 << 20,
		ReceiveTimeout:    time.Minute,
		SlowClientTimeout: 5 * time.Minute,
		Subscriptions:     1000,
		AuthTimeout:       10 * time.Second,
		Pulls:             4096,
		Pullers:           1000,
		PullerIdle:        time.Minute,
	}
}

// Log is what a Gateway needs of the event log.
type Log interface {
	eventlog.Reader
	eventlog.Deleter
	eventlog.Redrives
	eventlog.Scheduler
	EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error)
}

// Spool has events that are not in the Log yet.
type Spool interface {
	// Holds reports whether the spool has events of a topic, and Waits whether it has a given
	// event.
	Holds(topic string) bool
	Waits(ctx context.Context, topic, id string) (bool, error)
	// Erase erases events here, and makes other sidecars erase theirs, and returns how many were
	// here.
	Erase(ctx context.Context, e eventlog.Erasure, r eventlog.Retention) (int, error)
}

// Config is what a Gateway needs; every field but Access, Spool, Audit and Memory is required.
type Config struct {
	// Access says who may do what; nil lets everybody do everything.
	Access    *access.Access
	Publisher *admit.Publisher
	Groups    *group.Manager
	Log       Log
	Topics    *topics.Catalog
	// Erased drops the events of a topic from memory after some were erased, here and at other
	// sidecars. It does not affect Groups.
	Erased   func(topic string)
	Spool    Spool // nil: events go directly into the Log
	Policies *policy.Current
	Metrics  *telemetry.Metrics
	Limits   wire.Limits
	Bounds   Bounds
	NodeID   string
	Logger   *slog.Logger
	// Audit is the access log; nil is off.
	Audit *audit.Log
	// Memory bounds the requests of all connections until they are answered, and the data for them
	// until it is written; nil: no bound.
	Memory *budget.Budget
	// Lookup finds events, including those that are not in the Log yet. StoreID identifies the Log.
	Lookup  group.Lookup
	StoreID func() string
}

// Gateway serves applications. Its methods are safe for concurrent use.
type Gateway struct {
	cfg    Config
	ctx    context.Context // the context of all connections' work; ends with Shutdown
	cancel context.CancelFunc
	busy   sync.WaitGroup // connections

	stopping context.Context // ends when Shutdown begins, under mu
	stop     context.CancelFunc

	leases leaser
	pulls  pullers

	latest *semaphore.Weighted // answers with latest events under way
	plans  *semaphore.Weighted // topics being counted

	streaming sync.WaitGroup // streams

	mu      sync.Mutex
	number  uint64 // the number of the last connection
	conns   map[*conn]struct{}
	streams map[*stream]struct{}
	trails  []*trail // of streams that ended, the oldest first
}

// New makes a Gateway without connections.
func New(cfg Config) *Gateway {
	g := &Gateway{cfg: cfg, conns: make(map[*conn]struct{}), streams: make(map[*stream]struct{}), latest: semaphore.NewWeighted(maxLatest), plans: semaphore.NewWeighted(maxPlans)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.stopping, g.stop = context.WithCancel(context.Background())
	g.leases, g.pulls.cfg = newLeaser(cfg.NodeID), &g.cfg
	cfg.Access.OnChange(g.rightsChanged)
	return g
}

// Handler has the routes of the app listener, behind Config.Access. A WebSocket may authenticate
// after it is open; all other requests have to at once. Handler trusts Origin and Host: the caller
// puts httpapi.Guard in front of it.
func (g *Gateway) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+socketPath, g.serveSocket)
	publishes := map[string]handler{
		"POST /v1/topics/{topic}/events": g.publishHTTP,
		"POST " + daprPublishPath:        g.publishDapr,
		"POST " + daprBulkPath:           g.publishDaprBulk,
		"POST " + daprBulkPathAlpha:      g.publishDaprBulk,
	}
	for route, h := range publishes {
		mux.HandleFunc(route, g.handle(h))
	}
	for route, h := range map[string]handler{
		"GET /v1/topics/{topic}/events/{id}":            answer(g.showEvent),
		"GET /v1/topics":                                answer(g.listTopics),
		"PUT /v1/topics/{topic}":                        g.untilShutdown(g.makeTopic),
		"DELETE /v1/topics/{topic}":                     g.untilShutdown(answer(g.deleteTopic)),
		"DELETE /v1/topics/{topic}/events":              g.untilShutdown(g.deleteEvents),
		"DELETE /v1/topics/{topic}/groups/{group}":      answer(g.deleteGroup),
		"GET /v1/topics/{topic}/groups":                 answer(g.listGroups),
		"GET /v1/topics/{topic}/groups/{group}":         answer(g.showGroup),
		"PUT /v1/topics/{topic}/groups/{group}/cursor":  g.untilShutdown(answer(g.moveGroup)),
		"POST /v1/topics/{topic}/groups/{group}/pull":   g.untilShutdown(g.pullEvents),
		"POST /v1/topics/{topic}/groups/{group}/ack":    g.untilShutdown(g.settleLeases(wire.OpAck)),
		"POST /v1/topics/{topic}/groups/{group}/nack":   g.untilShutdown(g.settleLeases(wire.OpNack)),
		"POST /v1/topics/{topic}/groups/{group}/modack": g.untilShutdown(g.settleLeases(wire.OpModAck)),
		"GET /v1/topics/{topic}/stream":                 g.untilShutdown(g.streamEvents),
		"GET /v1/topics/{topic}/scheduled":              answer(g.listScheduled),
		"DELETE /v1/topics/{topic}/scheduled/{id}":      g.untilShutdown(g.cancelScheduled),
		"GET /v1/topics/{topic}/latest":                 g.untilShutdown(g.readLatest),
		"GET /v1/topics/{topic}/schema":                 g.showSchema,
		"GET /v1/topics/{topic}/retention":              g.untilShutdown(answer(g.planRetention)),
		"GET /v1/topics/{topic}/dlq":                    answer(g.listDeadLetters),
		"POST /v1/topics/{topic}/dlq/redrive":           g.untilShutdown(g.changeDead(g.planRedrive)),
		"POST /v1/topics/{topic}/dlq/discard":           g.untilShutdown(g.changeDead(g.planDiscard)),
	} {
		mux.HandleFunc(route, g.handle(named(route, h)))
	}
	routes := httpapi.Routes(mux)
	audited := g.cfg.Audit.HTTP(g.cfg.Access.From, routes, slices.Collect(maps.Keys(publishes))...)
	return g.cfg.Access.Authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == socketPath {
			routes.ServeHTTP(w, r)
			return
		}
		audited.ServeHTTP(w, r)
	}), socketPath)
}

const socketPath = "/ws"

type connectionKey struct{}

// ConnContext makes the requests of one TCP connection share its rate limits; it is for
// httpapi.Server.ConnContext. Without it each request is a connection of its own.
func (g *Gateway) ConnContext(ctx context.Context, _ net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, g.newHTTPConn())
}

func (g *Gateway) newHTTPConn() *httpConn { return &httpConn{publish: g.cfg.Publisher.NewConnection()} }

// httpConn has the limits that the requests of one TCP connection share.
type httpConn struct {
	publish *admit.Connection
	pacers  pacers // of deliveries
}

// httpConn returns the limits of the request's connection.
func (g *Gateway) httpConn(r *http.Request) *httpConn {
	if c, ok := r.Context().Value(connectionKey{}).(*httpConn); ok {
		return c
	}
	return g.newHTTPConn()
}

// Stats counts connections and subscriptions.
type Stats struct {
	Connections   int // WebSockets
	Subscriptions int // of WebSockets, streams and pullers
}

// Stats counts the present connections and subscriptions.
func (g *Gateway) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	st := Stats{Connections: len(g.conns), Subscriptions: len(g.streams) + g.pulls.count()}
	for c := range g.conns {
		st.Subscriptions += c.subscriptions()
	}
	return st
}

// admitSocket registers a connection and starts to serve it; false while the sidecar shuts down.
func (g *Gateway) admitSocket(build func(name string) *conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusing() {
		return false
	}
	g.number++
	c := build(g.cfg.NodeID + "/" + strconv.FormatUint(g.number, 10))
	g.conns[c] = struct{}{}
	g.cfg.Metrics.ConnectionOpened()
	g.busy.Go(func() {
		c.serve()
		g.cfg.Metrics.ConnectionClosed()
		g.mu.Lock()
		delete(g.conns, c)
		g.mu.Unlock()
	})
	return true
}

// refusing reports whether the sidecar shuts down.
func (g *Gateway) refusing() bool { return g.stopping.Err() != nil }

// Shutdown refuses new connections, publishes and ops. It gives events in flight at subscriptions
// and pulls back to their groups without counting an attempt, sends the replies to pending ops,
// ends every stream, waits a moment for pending bodies, and closes every WebSocket with 1001. It
// cuts off connections that have not finished when ctx ends, and returns once none is left. Call it
// while the groups and the writer still run: pending ops need them.
func (g *Gateway) Shutdown(ctx context.Context) {
	g.mu.Lock()
	g.stop()
	conns := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	g.pulls.end(refusal.Stopping())
	var leaving sync.WaitGroup
	for _, c := range conns {
		leaving.Go(func() { c.shutdown(ctx) })
	}
	g.endStreams(ctx)
	leaving.Wait()
	g.cancel()
	g.busy.Wait()
}
