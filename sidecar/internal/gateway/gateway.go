package gateway

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/consume"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/ingest"
	"github.com/sluice-bus/sluice/sidecar/internal/manage"
	"github.com/sluice-bus/sluice/sidecar/internal/receive"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
	"github.com/sluice-bus/sluice/sidecar/internal/ws"
)

// Config is what a Gateway needs; every field but Access, Spool, Audit, Budget, About and DaprAppID is required.
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
	Bounds   session.Bounds
	NodeID   string
	About    httpapi.About
	Ready    func() bool // publishes are accepted
	// DaprAppID is ingest.Config's AppID.
	DaprAppID string
	Logger    *slog.Logger
	// Audit is the access log; nil is off.
	Audit *audit.Log
	// Budget bounds what clients make the sidecar hold; nil: no bounds.
	Budget *budget.Budget
	// Lookup finds events, including those that are not in the Log yet. StoreID identifies the Log.
	Lookup  deadletter.Lookup
	StoreID func() string
	// ConnectionRefused is session.Sessions'.
	ConnectionRefused func(place budget.Place)
	// Reread is manage.Config's.
	Reread func(ctx context.Context, topic string) error
}

// Gateway serves applications. Its methods are safe for concurrent use.
type Gateway struct {
	cfg     Config
	bodies  *receive.Bodies
	routes  []httpapi.Route // of the app listener
	audited []string        // the patterns of those that write their lines of the access log themselves

	Sessions  *session.Sessions
	Publish   ingest.Config
	Sockets   *ws.Server
	Consumers *consume.Consumers

	stopping, over context.Context // end when Shutdown begins, and when it has ended
	stop, end      context.CancelFunc
}

// New makes a Gateway without connections.
func New(cfg Config) *Gateway {
	g := &Gateway{cfg: cfg}
	g.stopping, g.stop = context.WithCancel(context.Background())
	g.over, g.end = context.WithCancel(context.Background())
	g.Sessions = &session.Sessions{
		Access: cfg.Access, Audit: cfg.Audit, Publisher: cfg.Publisher, Policies: cfg.Policies, Logger: cfg.Logger, Budget: cfg.Budget,
		Silence: cfg.Bounds.SlowClientTimeout, Stopping: g.stopping, ConnectionRefused: cfg.ConnectionRefused,
	}
	g.bodies = &receive.Bodies{
		Timeout: cfg.Bounds.ReceiveTimeout, Silence: cfg.Bounds.SlowClientTimeout,
		Metrics: cfg.Metrics, Stopping: g.stopping,
	}
	g.Publish = ingest.Config{
		Publisher: cfg.Publisher, Bodies: g.bodies, Limits: cfg.Limits, Ready: cfg.Ready, About: cfg.About, AppID: cfg.DaprAppID,
	}
	g.Sockets = ws.New(ws.Config{
		Sessions: g.Sessions, Publisher: cfg.Publisher, Groups: cfg.Groups, Metrics: cfg.Metrics,
		Limits: cfg.Limits, Bounds: cfg.Bounds, NodeID: cfg.NodeID, Logger: cfg.Logger,
	})
	g.Consumers = consume.New(consume.Config{
		Groups: cfg.Groups, Log: cfg.Log, Lookup: cfg.Lookup, Bodies: g.bodies,
		Limits: cfg.Limits, Bounds: cfg.Bounds, NodeID: cfg.NodeID, Logger: cfg.Logger,
	})
	cfg.Access.OnChange(func() {
		g.Sockets.RightsChanged()
		g.Consumers.RightsChanged()
	})
	g.route()
	return g
}

const socketPath = "/ws"

// route makes the routes.
func (g *Gateway) route() {
	publish := ingest.Routes(g.Publish)
	manage := manage.Routes(manage.Config{
		Log: g.cfg.Log, Spool: g.cfg.Spool, Groups: g.cfg.Groups, Topics: g.cfg.Topics, Policies: g.cfg.Policies, Bodies: g.bodies,
		Logger: g.cfg.Logger, NodeID: g.cfg.NodeID, Lookup: g.cfg.Lookup, StoreID: g.cfg.StoreID, Erased: g.cfg.Erased,
		LeavePulls: g.Consumers.LeavePulls, Reread: g.cfg.Reread, Context: g.over,
	})
	g.routes = []httpapi.Route{g.Sockets.Route("GET " + socketPath)}
	for _, route := range slices.Concat(publish, g.Consumers.Routes(), manage) {
		g.routes = append(g.routes, g.Sessions.Serve(route))
	}
	for _, route := range publish {
		g.audited = append(g.audited, route.Pattern)
	}
}

// Handler has the routes of the app listener, behind Config.Access. A WebSocket may authenticate
// after it is open; all other requests have to at once. Handler trusts Origin and Host: the caller
// puts httpapi.Guard in front of it.
func (g *Gateway) Handler() http.Handler {
	routes := httpapi.NewRouter(g.cfg.About.Add(httpapi.Describe(httpapi.Description{
		Title: "Sluice: the app listener of a sidecar", Version: g.cfg.About.Version, Paths: []httpapi.Param{
			httpapi.Text("topic", "a topic"), httpapi.Text("group", "a consumer group"), httpapi.Text("id", "an event's id"),
			httpapi.Text("pubsub", "the name of Dapr's component; any"),
		},
	}, slices.Clone(g.routes))))
	others := g.cfg.Audit.HTTP(g.cfg.Access.From, nil, routes, g.audited...)
	return g.cfg.Access.Authenticate(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == socketPath {
			routes.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	}), socketPath, httpapi.AboutPath, ingest.DaprHealthPath, ingest.DaprOutboundPath)
}

// ForPeople has those of the routes, and of the replay listener's, that the control plane may ask for
// people; topicOf is replay.TopicOf. Only the control plane may reach it.
func (g *Gateway) ForPeople(history []httpapi.Route, topicOf func(*http.Request) string) http.Handler {
	routes := g.cfg.Access.RoutesForPeople(slices.Concat(g.routes, history))
	return g.cfg.Access.ForPeople(g.cfg.Audit.HTTP(g.cfg.Access.From, topicOf, httpapi.NewRouter(routes), g.audited...))
}

// ConnContext makes the requests of one TCP connection share its limits; it is for
// httpapi.Server.ConnContext. Without it each request is a connection of its own.
func (g *Gateway) ConnContext(ctx context.Context, c net.Conn) context.Context {
	return g.Sessions.ConnContext(ctx, c)
}

// Stats counts connections and subscriptions.
type Stats struct {
	Connections   int // WebSockets
	Subscriptions int // of WebSockets, streams and pullers
}

// Stats counts the present connections and subscriptions.
func (g *Gateway) Stats() Stats {
	connections, subscriptions := g.Sockets.Stats()
	return Stats{connections, subscriptions + g.Consumers.Subscriptions()}
}

// Shutdown refuses new connections, publishes and ops. It gives events in flight at subscriptions
// and pulls back to their groups without counting an attempt, sends the replies to pending ops,
// ends every stream, waits a moment for pending bodies, and closes every WebSocket with 1001. It
// cuts off connections that have not finished when ctx ends, and returns once none is left. Call it
// while the groups and the writer still run: pending ops need them.
func (g *Gateway) Shutdown(ctx context.Context) {
	g.stop()
	g.Consumers.EndPulls()
	var leaving sync.WaitGroup
	leaving.Go(func() { g.Sockets.Shutdown(ctx) })
	leaving.Go(func() { g.Consumers.EndStreams(ctx) })
	leaving.Wait()
	g.end()
}
