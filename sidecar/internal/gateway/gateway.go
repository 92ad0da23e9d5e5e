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
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/ingest"
	"github.com/sluice-bus/sluice/sidecar/internal/manage"
	"github.com/sluice-bus/sluice/sidecar/internal/receive"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
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

// Config is what a Gateway needs; every field but Access, Spool, Audit and Memory is required.
type Config struct {
	// Access says who may do what; nil lets everybody do everything.
	Access    *access.Access
	Publisher *admit.Publisher
	Groups    *group.Manager
	Log       manage.Log
	Topics    *topics.Catalog
	// Erased drops the events of a topic from memory after some were erased, here and at other
	// sidecars. It does not affect Groups.
	Erased   func(topic string)
	Spool    manage.Spool // nil: events go directly into the Log
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
	Lookup  deadletter.Lookup
	StoreID func() string
	// Reread is manage.Config's.
	Reread func(ctx context.Context, topic string) error
}

// Gateway serves applications. Its methods are safe for concurrent use.
type Gateway struct {
	cfg    Config
	ctx    context.Context // the context of all connections' work; ends with Shutdown
	cancel context.CancelFunc
	busy   sync.WaitGroup // connections

	stopping context.Context // ends when Shutdown begins, under mu
	stop     context.CancelFunc

	sessions *session.Sessions
	bodies   *receive.Bodies

	leases leaser
	pulls  pullers
	latest *semaphore.Weighted // answers with latest events under way

	streaming sync.WaitGroup // streams

	mu      sync.Mutex
	number  uint64 // the number of the last connection
	conns   map[*conn]struct{}
	streams map[*stream]struct{}
	trails  []*trail // of streams that ended, the oldest first
}

// New makes a Gateway without connections.
func New(cfg Config) *Gateway {
	g := &Gateway{cfg: cfg, conns: make(map[*conn]struct{}), streams: make(map[*stream]struct{}), latest: semaphore.NewWeighted(maxLatest)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	g.stopping, g.stop = context.WithCancel(context.Background())
	g.sessions = &session.Sessions{
		Access: cfg.Access, Audit: cfg.Audit, Publisher: cfg.Publisher, Policies: cfg.Policies, Logger: cfg.Logger, Stopping: g.stopping,
	}
	g.bodies = &receive.Bodies{
		Timeout: cfg.Bounds.ReceiveTimeout, Silence: cfg.Bounds.SlowClientTimeout,
		Memory: cfg.Memory, Metrics: cfg.Metrics, Stopping: g.stopping,
	}
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
	var publishes []string
	add := func(routes []session.Route) {
		for _, route := range routes {
			mux.HandleFunc(route.Pattern, g.sessions.Serve(route))
		}
	}
	published := ingest.Routes(ingest.Config{Publisher: g.cfg.Publisher, Bodies: g.bodies, Limits: g.cfg.Limits})
	for _, route := range published {
		publishes = append(publishes, route.Pattern)
	}
	add(published)
	add(g.consumeRoutes())
	add(manage.Routes(manage.Config{
		Log: g.cfg.Log, Spool: g.cfg.Spool, Groups: g.cfg.Groups, Topics: g.cfg.Topics, Policies: g.cfg.Policies, Bodies: g.bodies,
		Logger: g.cfg.Logger, NodeID: g.cfg.NodeID, Lookup: g.cfg.Lookup, StoreID: g.cfg.StoreID, Erased: g.cfg.Erased,
		LeavePulls: g.pulls.leave, Reread: g.cfg.Reread, Context: g.ctx,
	}))
	routes := httpapi.Routes(mux)
	audited := g.cfg.Audit.HTTP(g.cfg.Access.From, routes, publishes...)
	return g.cfg.Access.Authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == socketPath {
			routes.ServeHTTP(w, r)
			return
		}
		audited.ServeHTTP(w, r)
	}), socketPath)
}

const socketPath = "/ws"

func (g *Gateway) consumeRoutes() []session.Route {
	return []session.Route{
		{Pattern: "POST /v1/topics/{topic}/groups/{group}/pull", Handler: g.pullEvents},
		{Pattern: "POST /v1/topics/{topic}/groups/{group}/ack", Handler: g.settleLeases(wire.OpAck)},
		{Pattern: "POST /v1/topics/{topic}/groups/{group}/nack", Handler: g.settleLeases(wire.OpNack)},
		{Pattern: "POST /v1/topics/{topic}/groups/{group}/modack", Handler: g.settleLeases(wire.OpModAck)},
		{Pattern: "GET /v1/topics/{topic}/stream", Handler: g.streamEvents},
		{Pattern: "GET /v1/topics/{topic}/latest", Handler: g.readLatest},
	}
}

// mayJoin reports whether the caller may subscribe to the topic in the path, with the group in the
// path.
func mayJoin(caller *session.Session, r *http.Request) error {
	return caller.May(access.Subscribe, r.PathValue("topic"), r.PathValue("group"))
}

// ConnContext makes the requests of one TCP connection share its limits; it is for
// httpapi.Server.ConnContext. Without it each request is a connection of its own.
func (g *Gateway) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return g.sessions.ConnContext(ctx, c)
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
