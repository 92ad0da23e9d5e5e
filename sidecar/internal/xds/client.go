// Package xds is a client of the incremental xDS protocol: one aggregated stream to a management
// server, over which it requests resources by name, or all of a type, and receives each change. It
// applies a response completely or not at all, tells the server which, and continues on a new
// stream where the last one ended.
//
// # What a stream carries
//
// The first request of each type has the wanted names and the versions that the client has, so that
// the server sends only differences. Each response is answered: with its nonce to acknowledge it,
// and with an error too to refuse it.
//
// The server treats sent resources as known, refused or not. The client therefore requests the
// resources of a refused response again, name by name, once it has accepted a later response of its
// type. By then the server has moved on, and the valid part of the refused response is not lost.
// The one resource that cannot be requested by name, that of a wildcard type with the name "*",
// needs another stream, which begins with all missing resources.
package xds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/internal/pause"
)

// Defaults of a [Config].
const (
	DefaultMinBackoff      = 100 * time.Millisecond
	DefaultMaxBackoff      = 5 * time.Second
	DefaultMaxNames        = 100_000
	DefaultMaxMessageBytes = 64 << 20
)

// ErrLater says that the same update may be accepted later.
var ErrLater = errors.New("not now")

const (
	// askLater is when an update that failed with ErrLater is requested again.
	askLater = 5 * time.Second
	// firstAnswer is how long the server may take for its first answer on a stream.
	firstAnswer = 15 * time.Second
	// maxName bounds a resource's name.
	maxName = 1 << 10
)

// Type is a type of resources.
type Type struct {
	URL string
	// Names are the wanted resources; none: all of the type.
	Names []string
	// Together requests the resources of refused responses again in one request, since some may be
	// invalid without the others; else one by one.
	Together bool
	// Versions are the versions of the resources that the client has already, by name.
	Versions map[string]string
}

// Resource is one resource as the server sent it.
type Resource struct {
	Name    string
	Version string
	Body    []byte // of the message of the type
}

// Update is one response. Every name is in it once.
type Update struct {
	Type      string
	Version   string // of the server's data, its system_version_info
	Resources []Resource
	Removed   []string
	// Whole says that all resources of the type are wanted, and that the client has all of the
	// server's with this update.
	Whole bool
}

// Config is what a Client needs. Conn, Node, Types, Apply and Logger are required.
type Config struct {
	Conn grpc.ClientConnInterface
	// Node describes this client, for each stream and each [Client.Introduce].
	Node func() *corev3.Node
	// Types are requested in this order; the server handles the requests in that order too.
	Types []Type
	// Apply puts an update in force completely, or returns why it has not; the server gets the
	// error. After an error that wraps ErrLater all is requested again later. One goroutine calls
	// it, which does not read the stream meanwhile.
	Apply func(context.Context, Update) error
	// Keep stores the applied updates: a response is acknowledged only once a Keep that began after
	// its Apply has returned true. An error refuses the response, though it stays in force; false
	// says that there is too little to store yet: Keep is called again after the next response.
	// nil: nothing is stored.
	Keep   func(context.Context) (bool, error)
	Logger *slog.Logger

	// MinBackoff and MaxBackoff bound the wait before the next stream.
	MinBackoff, MaxBackoff time.Duration
	// MaxNames bounds the resources of each type.
	MaxNames int
	// MaxMessageBytes bounds a response. A larger one ends the stream.
	MaxMessageBytes int
}

// Client holds one stream open. Its methods are safe for concurrent use.
type Client struct {
	cfg   Config
	wake  pause.Wake // something is to be sent
	state watched
	// unnamed says that the next request has to contain the node.
	unnamed atomic.Bool

	mu    sync.Mutex
	kinds []*kind // in the order of Config.Types
	// reopen is why another stream is needed; "": none is.
	reopen string
}

// New makes a client that does nothing before [Client.Run].
func New(cfg Config) (*Client, error) {
	cfg.MinBackoff = cmp.Or(cfg.MinBackoff, DefaultMinBackoff)
	cfg.MaxBackoff = cmp.Or(cfg.MaxBackoff, DefaultMaxBackoff)
	cfg.MaxNames = cmp.Or(cfg.MaxNames, DefaultMaxNames)
	cfg.MaxMessageBytes = cmp.Or(cfg.MaxMessageBytes, DefaultMaxMessageBytes)
	c := &Client{cfg: cfg, wake: pause.NewWake()}
	c.state.set(false, nil)
	for _, t := range cfg.Types {
		if len(t.Versions) > cfg.MaxNames {
			return nil, fmt.Errorf("%s: %d resources at the start; at most %d are allowed", t.URL, len(t.Versions), cfg.MaxNames)
		}
		c.kinds = append(c.kinds, newKind(t))
	}
	return c, nil
}

// Run keeps a stream open until ctx ends, and returns nil then. It is called once.
func (c *Client) Run(ctx context.Context) error {
	wait := pause.Backoff{First: c.cfg.MinBackoff, Most: c.cfg.MaxBackoff}
	defer c.state.set(false, errEnded)
	for told := false; ; {
		err := c.stream(ctx)
		if ctx.Err() != nil {
			return nil
		}
		before := c.State()
		if before.Connected && time.Since(before.Since) >= c.cfg.MaxBackoff { // a shorter stream may not have worked at all
			wait.Reset()
		}
		if errors.Is(err, errReopen) {
			c.cfg.Logger.Info("asking the control plane again", "reason", err)
			err = nil // it is there
		} else if before.Connected || !told {
			c.cfg.Logger.Warn("no connection to the control plane; trying again, and silent until there is one", "error", err)
			told = true
		}
		c.state.set(false, err)
		if !pause.For(ctx, wait.Step()) {
			return nil
		}
	}
}

// Connected reports whether there is a stream that the server has answered on. It costs almost
// nothing.
func (c *Client) Connected() bool { return c.state.connected.Load() }

// State returns the state of the connection to the server.
func (c *Client) State() State {
	s, _ := c.state.watch()
	return s
}

// Watch returns the state and a channel that is closed once it changes.
func (c *Client) Watch() (State, <-chan struct{}) { return c.state.watch() }

// Reopen replaces the stream by another one, which sends the current node and requests nothing
// again. The reason is for the log.
func (c *Client) Reopen(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reopen = reason
	c.wake.Set()
}

// Introduce sends the current node again, on the open stream.
func (c *Client) Introduce() {
	c.unnamed.Store(true)
	c.wake.Set()
}

// Say sends one request with that node on a stream of its own, and returns once the server has
// ended the stream.
func (c *Client) Say(ctx context.Context, typeURL string, node *corev3.Node) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rpc, err := discoveryv3.NewAggregatedDiscoveryServiceClient(c.cfg.Conn).DeltaAggregatedResources(ctx)
	if err != nil {
		return err
	}
	if err := rpc.Send(&discoveryv3.DeltaDiscoveryRequest{Node: node, TypeUrl: typeURL}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := rpc.CloseSend(); err != nil {
		return err
	}
	_, err = rpc.Recv()
	if errors.Is(err, io.EOF) || status.Code(err) == codes.Aborted {
		return nil
	}
	return err
}

// kind returns the state of a type, or nil. c.mu is held.
func (c *Client) kind(typeURL string) *kind {
	i := slices.IndexFunc(c.kinds, func(k *kind) bool { return k.URL == typeURL })
	if i < 0 {
		return nil
	}
	return c.kinds[i]
}
