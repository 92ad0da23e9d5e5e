// Package xds is the client's side of the incremental xDS protocol: one
// aggregated stream to a management server, over which it asks for resources
// by name, or for all of a type, and hears of each change. It sees to it that a
// response acts as a whole or not at all, that the server learns which, and
// that a new stream goes on where the last one ended. It must not know what the
// resources say, or how the connection is made.
//
// # What a stream carries
//
// The first request of each type has the names that are wanted and the versions
// of what is there, so that only differences come back. Each later change of
// what is wanted is a request, and so is the answer to each response: a nonce
// to acknowledge it, and an error with the nonce to refuse it.
//
// The server takes what it has sent for known, refused or not. The client therefore requests the
// resources of a refused response again, name by name, once it has accepted a later response of its
// type. By then the server has moved on, and the valid part of the refused response is not lost.
// The one resource that cannot be asked for by name, that of a wildcard type with the name "*",
// takes another stream, which begins with all that is missing.
//
// A server answers a request with all that it has for it, however much that is.
// Where that is more than a message may have, the next stream asks for fewer
// names at a time, so that what is wanted comes in parts.
package xds

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/internal/pause"
)

// Values of a [Config] that are zero.
const (
	DefaultMinBackoff      = 100 * time.Millisecond
	DefaultMaxBackoff      = 5 * time.Second
	DefaultMaxNames        = 100_000
	DefaultMaxMessageBytes = 64 << 20
	DefaultMaxRequestBytes = 3 << 20
)

// ErrLater says of an update that it may be taken later as it is.
var ErrLater = errors.New("not now")

const (
	// askLater is how much later it is asked for.
	askLater = 5 * time.Second
	// coalesce is how long after a change of what is wanted was sent the next
	// one is held back, so that many in quick succession make few requests.
	coalesce = 5 * time.Millisecond
	// firstAnswer is how long a new stream may take to answer at all.
	firstAnswer = 15 * time.Second
	// firstPart is how many names are asked for at a time once a response was too
	// large, and partShrinks how many times fewer they are if one is again.
	firstPart   = 256
	partShrinks = 8
	// maxName bounds a resource's name.
	maxName = 1 << 10
)

// Type is a type of resources.
type Type struct {
	URL string
	// Wildcard asks for all resources of the type; else only those that
	// [Client.Subscribe] names are wanted.
	Wildcard bool
	// Together has what came in refused responses asked for again in one request,
	// since some of it may be wrong without the rest; else one by one.
	Together bool
	// Versions is what is there already, by name. Without Wildcard the names are
	// subscribed to.
	Versions map[string]string
}

// Resource is one resource as it came.
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
	// Whole says that all resources of the type are wanted, and that with this
	// update all that the server has are here.
	Whole bool
}

// Config is what a Client needs. Conn, Node, Types, Apply and Logger are
// required.
type Config struct {
	Conn grpc.ClientConnInterface
	// Node says who is asking, again for each stream and [Client.Introduce].
	Node func() *corev3.Node
	// Types are asked for in their order; the server looks at the requests in
	// that order too.
	Types []Type
	// Apply puts an update into effect as a whole, or returns why it has not;
	// the server is told either way. One that wraps ErrLater has all asked for
	// again after a while. It is called by one goroutine, and the stream is not
	// read meanwhile.
	Apply func(context.Context, Update) error
	// Keep has what was applied survive the end of the process: a response is
	// acknowledged only once a Keep that began after its Apply has returned true.
	// An error refuses it, though it stays in effect; false says that there is too
	// little to keep yet: it is called again after the next response. nil: nothing
	// is kept.
	Keep   func(context.Context) (bool, error)
	Logger *slog.Logger

	// MinBackoff and MaxBackoff bound the wait before another stream is tried.
	MinBackoff, MaxBackoff time.Duration
	// MaxNames bounds the resources of each type.
	MaxNames int
	// MaxMessageBytes bounds a response. One that is larger ends the stream.
	MaxMessageBytes int
	// MaxRequestBytes is about the size above which a request for names is
	// split. The versions of a type that is wanted whole are never split.
	MaxRequestBytes int
}

// Client holds one stream open. Its methods are safe for concurrent use.
type Client struct {
	cfg   Config
	wake  pause.Wake // something is to be sent
	state watched
	// unnamed says that the next request has to say who is asking.
	unnamed atomic.Bool

	mu    sync.Mutex
	kinds []*kind // in the order of Config.Types
	// again is why another stream is needed; "": none is.
	reopen string
	// part is how many names a request may have; 0: MaxRequestBytes alone counts.
	part int
}

// New makes a client that does nothing before [Client.Run].
func New(cfg Config) (*Client, error) {
	setDefault(&cfg.MinBackoff, DefaultMinBackoff)
	setDefault(&cfg.MaxBackoff, DefaultMaxBackoff)
	setDefault(&cfg.MaxNames, DefaultMaxNames)
	setDefault(&cfg.MaxMessageBytes, DefaultMaxMessageBytes)
	setDefault(&cfg.MaxRequestBytes, DefaultMaxRequestBytes)
	c := &Client{cfg: cfg, wake: pause.NewWake()}
	c.state.set(State{Since: time.Now()})
	for _, t := range cfg.Types {
		if len(t.Versions) > cfg.MaxNames {
			return nil, fmt.Errorf("%s: %d resources to begin with, at most %d are allowed", t.URL, len(t.Versions), cfg.MaxNames)
		}
		c.kinds = append(c.kinds, newKind(t))
	}
	return c, nil
}

func setDefault[T int | time.Duration](v *T, value T) {
	if *v == 0 {
		*v = value
	}
}

// Run keeps a stream open until ctx ends, and returns nil then. It is called
// once.
func (c *Client) Run(ctx context.Context) error {
	wait := pause.Backoff{First: c.cfg.MinBackoff, Most: c.cfg.MaxBackoff}
	defer func() { c.state.set(State{Since: time.Now(), Err: errEnded}) }()
	for told := false; ; {
		err := c.stream(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.divide(status.Code(err) == codes.ResourceExhausted)
		before := c.state.get()
		if before.Connected && time.Since(before.Since) >= c.cfg.MaxBackoff { // else it may be of no use at all
			wait.Reset()
		}
		if errors.Is(err, errReopen) {
			c.cfg.Logger.Info("asking the control plane again", "reason", err)
			err = nil // it is there
		} else if before.Connected || !told {
			c.cfg.Logger.Warn("no connection to the control plane; trying again, and silent until there is one", "error", err)
			told = true
		}
		c.state.lost(err)
		if !pause.For(ctx, wait.Step()) {
			return nil
		}
	}
}

// Connected tells whether there is a stream that the server has answered on.
// It costs next to nothing.
func (c *Client) Connected() bool { return c.state.connected.Load() }

// State tells how the client stands with its server.
func (c *Client) State() State { return c.state.get() }

// Watch returns the state and a channel that is closed once it is another.
func (c *Client) Watch() (State, <-chan struct{}) { return c.state.watch() }

// Subscribe requests resources by name, without names that are requested already. If the type has
// no room for all of them, or a name cannot be one, it asks for none.
func (c *Client) Subscribe(typeURL string, names ...string) error {
	for _, name := range names {
		if name == "" || name == wildcard || len(name) > maxName || !utf8.ValidString(name) {
			return fmt.Errorf("%q is not the name of a resource", name)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kind(typeURL)
	if k == nil || k.wildcard {
		return fmt.Errorf("resources of type %q are not asked for by name", typeURL)
	}
	if n := len(k.wanted) + k.unwanted(names); n > c.cfg.MaxNames {
		return fmt.Errorf("%s: %d names, at most %d are allowed", typeURL, n, c.cfg.MaxNames)
	}
	if k.subscribe(names) {
		c.stir()
	}
	return nil
}

// Reopen replaces the stream by another one, which names the current node and asks
// for nothing again. The reason is for the log.
func (c *Client) Reopen(reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reopen = reason
	c.stir()
}

// Introduce has the server told who is asking, as that is by then, on the stream
// that is open.
func (c *Client) Introduce() {
	c.unnamed.Store(true)
	c.stir()
}

// Say opens a stream of its own for one request, in the name of node, and
// returns once the server has ended it.
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

// divide has fewer names asked for at a time after a response that was too
// large, and as many as ever after a stream that ended for another reason.
func (c *Client) divide(tooLarge bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !tooLarge:
		c.part = 0
	case c.part == 0:
		c.part = firstPart
	default:
		c.part = max(1, c.part/partShrinks)
	}
}

// bounds are those of one request. c.mu is held.
func (c *Client) bounds() bounds { return bounds{bytes: c.cfg.MaxRequestBytes, names: c.part} }

// stir has the stream look at what is to be sent.
func (c *Client) stir() {
	c.wake.Set()
}

// kind returns what is known of a type, or nil. c.mu is held.
func (c *Client) kind(typeURL string) *kind {
	for _, k := range c.kinds {
		if k.url == typeURL {
			return k
		}
	}
	return nil
}
