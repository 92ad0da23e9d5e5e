// Package controlplane is one control plane: New assembles its parts from a Config, Run owns
// everything that they start and stops it in order.
package controlplane

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/console"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/forward"
	"github.com/sluice-bus/sluice/controlplane/internal/health"
	"github.com/sluice-bus/sluice/controlplane/internal/quota"
	"github.com/sluice-bus/sluice/controlplane/internal/rest"
	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/controlplane/internal/store/boltstore"
	"github.com/sluice-bus/sluice/controlplane/internal/store/mongostore"
	"github.com/sluice-bus/sluice/controlplane/internal/topics"
	"github.com/sluice-bus/sluice/controlplane/internal/usage"
	"github.com/sluice-bus/sluice/controlplane/internal/xds"
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/private"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/internal/tunnel"
)

// ControlPlane is one control plane, between New and the return of Run.
type ControlPlane struct {
	cfg  Config
	name string // unique, even among control planes with the same Config.Name

	xdsListener, httpListener *listen.Evicting
	gate                      *gate // of xdsListener

	store    store.Backend
	shared   *mongostore.Store // the store, if other control planes may use it; nil: it is embedded
	access   *access.Access    // nil: everybody may do everything
	budget   *budget.Budget    // of the clients of the REST API
	catalog  *catalog.Catalog
	registry *fleet.Registry
	xds      *xds.Server
	quota    *quota.Server
	usage    *usage.Book
	tunnels  *tunnel.Server
	forward  *forward.Forwarder
	health   *health.Tracker
	metrics  *metrics

	roster sync.Mutex // held while the stored sidecars are read, and while one is removed

	storeState storeState

	uncovered atomic.Int64 // sessions refused, since their credential is not for their node id
	stopping  atomic.Bool
	urls      atomic.Pointer[map[string]*url.URL] // of other control planes, by name
}

// New opens the store, loads the policies, and opens the listeners. Nothing runs until Run is
// called, which also closes the control plane. Wrong settings are a *ConfigError.
func New(ctx context.Context, cfg Config) (_ *ControlPlane, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := &ControlPlane{cfg: cfg, name: cfg.Name + "/" + uuid.NewString()}
	defer func() {
		if err != nil {
			c.release()
		}
	}()
	if cfg.AuthConfig != "" {
		if c.access, err = access.Open(cfg.AuthConfig, access.ControlPlane, cfg.Logger); err != nil {
			return nil, &ConfigError{Err: fmt.Errorf("auth-config: %w", err)}
		}
	}
	c.budget = budget.New(budget.Bounds{
		Memory: cfg.MaxBufferedBytes, Places: budget.ControlPlanePlaces(), Identities: c.access.Authenticates(),
	})
	for _, l := range cfg.listeners() {
		if err := c.access.CheckListener(l.name, l.addr, cfg.Insecure); err != nil {
			return nil, &ConfigError{Err: err}
		}
	}
	seed, err := readSeed(cfg.Policies)
	if err != nil {
		return nil, &ConfigError{Err: fmt.Errorf("policies: %w", err)}
	}
	if err := c.openStore(); err != nil {
		return nil, err
	}
	if err := c.openCatalog(ctx, seed); err != nil {
		return nil, err
	}
	c.registry = fleet.NewRegistry(fleet.Config{ControlPlane: c.name})
	if err := c.readRoster(ctx); err != nil {
		return nil, err
	}
	issuer, err := c.openIssuer(ctx)
	if err != nil {
		return nil, err
	}
	c.xds = xds.New(xds.Config{
		States: c.catalog, Registry: c.registry, Issuer: issuer, Admit: c.admit, Drained: c.drained, RESTURL: c.restURL, Logger: cfg.Logger,
	})
	c.usage = usage.New(c.store, c.name, cfg.Logger)
	c.quota, c.health = c.newQuota(), health.NewTracker(c.registry)
	c.tunnels = tunnel.NewServer(c.admitSession)
	c.urls.Store(&map[string]*url.URL{})
	planes, err := c.planes()
	if err != nil {
		return nil, err
	}
	c.forward = forward.New(c.tunnels, c.registry.HasStore, planes)
	if c.metrics, err = c.newMetrics(); err != nil {
		return nil, err
	}
	if c.xdsListener, err = bind(ctx, "xds-listen", cfg.XDSListen, xdsFiles); err != nil {
		return nil, err
	}
	if c.httpListener, err = bind(ctx, "http-listen", cfg.HTTPListen, httpFiles); err != nil {
		return nil, err
	}
	c.httpListener.Heads = c.budget.Unauthenticated()
	c.gate = newGate(c.xdsListener)
	return c, nil
}

// readSeed reads the first policies of a new store; "" is none.
func readSeed(path string) ([]policy.Policy, error) {
	if path == "" {
		return nil, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	policies, err := policy.ParseYAML(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return policies, nil
}

func (c *ControlPlane) openStore() (err error) {
	if !setting.IsMongoDB(c.cfg.Store) {
		embedded, err := boltstore.Open(c.cfg.DataDir)
		if err != nil {
			return err
		}
		c.store = embedded
		private.Tighten(c.cfg.Logger, embedded.Private()...)
		return nil
	}
	shared, err := mongostore.Open(mongostore.Options{
		URL: c.cfg.Store, Name: "sluice-controlplane " + c.cfg.Name, Timeout: c.cfg.StoreTimeout,
	})
	switch {
	case errors.Is(err, store.ErrUnavailable):
		return err // starting again may help
	case err != nil:
		return &ConfigError{Err: fmt.Errorf("store: %w", err)}
	}
	if mongowatch.InClear(c.cfg.Store) {
		c.cfg.Logger.Warn("policies and the store's password are sent unencrypted: --store has no tls=true; this is for "+
			"networks that encrypt by themselves",
			"store", secrets.Without(c.cfg.Store))
	}
	c.store, c.shared = shared, shared
	return nil
}

// peersSecret is the store's name of the secret that signs sidecars' credentials. All control
// planes of the store use the same secret.
const peersSecret = "peers"

func (c *ControlPlane) openIssuer(ctx context.Context) (*access.PeerIssuer, error) {
	fresh := make([]byte, access.PeerSeedBytes)
	if _, err := rand.Read(fresh); err != nil {
		return nil, err
	}
	seed, err := c.store.Secret(ctx, peersSecret, fresh)
	if err != nil {
		return nil, err
	}
	return access.NewPeerIssuer(seed)
}

func (c *ControlPlane) openCatalog(ctx context.Context, seed []policy.Policy) (err error) {
	if c.catalog, err = catalog.Open(ctx, catalog.Config{Store: c.store, Logger: c.cfg.Logger}); err != nil {
		return err
	}
	if c.cfg.Policies == "" {
		return nil
	}
	seeded, err := c.catalog.Seed(ctx, seed)
	if err != nil {
		return fmt.Errorf("policies: %w", err)
	}
	if !seeded {
		c.cfg.Logger.Info("the store has policies already; the file of --policies is ignored", "file", c.cfg.Policies)
	}
	return nil
}

// Addresses returns the listeners' bound addresses.
func (c *ControlPlane) Addresses() (xds, http string) {
	return listen.Address(c.xdsListener), listen.Address(c.httpListener)
}

// Run serves until ctx ends, then stops in order: it refuses new requests, answers pending ones,
// ends streams, and closes the store. It calls ready once it serves. The error says why it could
// not serve, or what did not stop.
func (c *ControlPlane) Run(ctx context.Context, ready func() error) error {
	defer c.release()
	// The parts outlive ctx: Run ends them below, in order.
	lasting := context.WithoutCancel(ctx)
	serversCtx, endServers := context.WithCancel(lasting)
	partsCtx, endParts := context.WithCancel(lasting)
	defer endServers()
	defer endParts()

	var parts errgroup.Group
	for _, run := range []func(context.Context) error{
		c.catalog.Run, c.xds.Run, c.quota.Run, c.usage.Run, c.health.Run, c.access.Run,
		c.rereadFiles, c.shareKnowledge, c.keepRoster, c.watchGate,
	} {
		parts.Go(func() error { return run(partsCtx) })
	}

	options := append(xds.ServerOptions(), c.access.ServerOptions("xds-listen", c.xdsListener)...)
	rpc := grpc.NewServer(append(options, grpc.ChainStreamInterceptor(holdPlace))...)
	c.xds.Register(rpc)
	c.quota.Register(rpc)
	c.tunnels.Register(rpc)
	topics.New(topics.Config{Sink: c.registry, Admit: c.admitSession, Logger: c.cfg.Logger}).Register(rpc)
	(&health.Server{Sink: counted{c.registry, c.usage}, Admit: c.admitSession, Logger: c.cfg.Logger}).Register(rpc)
	servers, failed := errgroup.WithContext(lasting)
	servers.Go(func() error { return rpc.Serve(c.gate) })
	web := &httpapi.Server{Handler: c.handler(serversCtx.Done()), Logger: c.cfg.Logger, DrainTimeout: c.cfg.DrainTimeout}
	servers.Go(func() error { return web.Serve(serversCtx, c.access.Listener("http-listen", c.httpListener)) })
	servers.Go(ready)

	select {
	case <-ctx.Done():
	case <-failed.Done():
	}
	c.cfg.Logger.Info("stopping", "deadline", c.cfg.DrainTimeout)
	c.stopping.Store(true)
	endServers() // HTTP requests under way finish
	endParts()   // the streams of sidecars end; they connect to another control plane, or go on alone
	rpc.Stop()
	c.forward.Close()
	return errors.Join(servers.Wait(), parts.Wait())
}

// rereadFiles reads files at each SIGHUP that are otherwise read when they change.
func (c *ControlPlane) rereadFiles(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.cfg.Hangups:
			c.access.Reread()
		}
	}
}

// handler serves the HTTP listener, until stopping is closed.
func (c *ControlPlane) handler(stopping <-chan struct{}) http.Handler {
	xds, http := c.Addresses()
	return c.traced(rest.New(rest.Config{
		Name: c.name,
		About: rest.About{
			Program: "sluice-controlplane", Version: c.cfg.Version, NodeID: c.cfg.Name, Listeners: map[string]string{"xds": xds, "http": http},
		},
		Catalog: c.catalog, Registry: c.registry, Health: c.health, Usage: c.usage, Access: identities{c.access}, Budget: c.budget,
		Console: console.Handler(), Metrics: c.metrics.handler(), Debug: profiles(), Status: c.status, Ready: c.ready, Forward: c.forward,
		Forget: c.forget, Stopping: stopping, Addr: c.httpListener.Addr(), AllowedOrigins: c.cfg.AllowedOrigins,
		TraceURL: c.cfg.TraceURL, Logger: c.cfg.Logger,
	}))
}

// identities maps the identities of package access to those of the REST API.
type identities struct{ access *access.Access }

func (i identities) Identify(r *http.Request) (rest.Identity, error) {
	id, err := i.access.Identify(r)
	return rest.Identity{
		Name: id.Name, Role: string(id.Role), Verified: id.Verified, Policies: id.Policies(), Topics: id.Topics(),
		Edit: func(policy string) error { return id.May(access.Edit, policy, "") },
		While: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return i.access.WhilePerson(ctx, id)
		},
	}, err
}

func (i identities) Challenge(w http.ResponseWriter, r *http.Request, err error) {
	i.access.Challenge(w, r, err)
}

// release closes everything that New opened.
func (c *ControlPlane) release() {
	for _, ln := range []*listen.Evicting{c.xdsListener, c.httpListener} {
		if ln != nil {
			ln.Close() // closing twice is harmless
		}
	}
	if c.store != nil {
		if err := c.store.Close(); err != nil {
			c.cfg.Logger.Error("closing the policy store", "error", err)
		}
	}
	if c.metrics != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.metrics.close(ctx); err != nil {
			c.cfg.Logger.Warn("closing the metrics", "error", err)
		}
	}
}
