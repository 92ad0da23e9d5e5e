package sluice

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/internal/endpoint"
	"github.com/sluice-bus/sluice/sdk/option"
)

// connWindow is the window of a client's connections; the publisher's own bounds are lower.
const connWindow = 1024

// A Client talks to one sidecar, and keeps doing so when the connection breaks or the sidecar
// restarts. Its methods may be called by several goroutines at once. [Client.Close] or
// [Client.Drain] ends it.
type Client struct {
	url    string
	config config
	http   *admin.HTTP
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	main   *Publisher

	mu     sync.Mutex
	closed bool
	pubs   map[*Publisher]struct{}
	subs   map[*Subscription]struct{}
}

// Dial connects to the application listener of a sidecar: http://host:port, https://host:port or
// unix:/path. The context bounds the dialling alone. A sidecar that is not there is an error at
// once, unless [WithWait] is given; from then on the client reconnects by itself.
func Dial(ctx context.Context, address string, opts ...Option) (*Client, error) {
	c := &Client{
		url: address, config: newConfig(opts),
		pubs: map[*Publisher]struct{}{}, subs: map[*Subscription]struct{}{},
	}
	if _, err := endpoint.Parse(address); err != nil {
		return nil, err
	}
	if bad := cmp.Or(c.config.Bad, newPublishConfig(c.config.publisher).Bad); bad != nil {
		return nil, bad
	}
	c.http = &admin.HTTP{
		AppURL: address, ReplayURL: c.config.replayURL, TokenFunc: c.config.token,
		TLSConfig: c.config.tls, Dialer: c.config.dialer,
	}
	if c.http.ReplayURL == "" {
		c.http.ReplayURL = besideReplay(address)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	conn, err := c.reach(ctx, c.config.untilReached, func(*Conn) error { return nil })
	if err != nil {
		c.cancel()
		return nil, err
	}
	c.main = c.newPublisher(c.config.publisher, conn)
	return c, nil
}

// besideReplay is the default address of a sidecar's replay API, given the address of its
// application listener; "" if that is a socket.
func besideReplay(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: net.JoinHostPort(u.Hostname(), "8083")}).String()
}

// HTTP returns a client of the same sidecar's HTTP APIs, about topics and groups for example. Its
// fields must not be changed.
func (c *Client) HTTP() *admin.HTTP { return c.http }

// Publish publishes one event and returns once it is durable. [Publisher] describes its handling of
// refusals and lost connections. When ctx ends first, the error wraps ctx's and, where there was
// one, the last refusal; the event may have been accepted. [option.Delay], [option.DeliverAt] and
// [option.TTL] say when the event is put into the log, and until when groups get it.
func (c *Client) Publish(ctx context.Context, e *Event, opts ...option.Event) (Receipt, error) {
	return c.main.publish(ctx, e, opts)
}

// PublishBatch publishes events and returns once each of them is durable or refused: one result for
// each, in order. Events of one key are logged in the order of the batch; each succeeds or fails on
// its own. The error is nil if all are accepted, and else one of the failures. The options apply to
// each event.
func (c *Client) PublishBatch(ctx context.Context, events []Event, opts ...option.Event) ([]Result, error) {
	return c.main.publishBatch(ctx, events, opts)
}

// Publisher is the publisher behind [Client.Publish] and [Client.PublishBatch], with the options of
// [WithPublisher]. It ends when the client is closed; do not close it yourself.
func (c *Client) Publisher() *Publisher { return c.main }

// A Result is the outcome of one event of a batch: Err, or else Receipt.
type Result struct {
	Receipt Receipt
	Err     error
}

// Close ends the client: subscriptions stop at once (see [Subscription.Stop]), publishes that were
// not answered fail with [ErrClosed]. It waits for handlers that run, so it must not be called by
// one.
func (c *Client) Close() error {
	c.mu.Lock()
	already := c.closed
	c.closed = true
	c.mu.Unlock()
	if already {
		return nil
	}
	c.cancel()
	for _, s := range c.subscriptions() {
		s.Stop()
		<-s.Closed()
	}
	for _, p := range c.publishers() {
		p.Close()
	}
	c.http.CloseIdle()
	return nil
}

// Drain ends the client in order: subscriptions handle and settle the delivered events (see
// [Subscription.Drain]), publishes are answered, and then the client is closed. When ctx ends
// first, Drain ends the rest as Close does, and returns ctx's error.
func (c *Client) Drain(ctx context.Context) error {
	subs := c.subscriptions()
	for _, s := range subs {
		s.Drain()
	}
	var err error
	for _, s := range subs {
		select {
		case <-s.Closed():
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	for _, p := range c.publishers() {
		err = errors.Join(err, p.Flush(ctx))
	}
	if closed := c.Close(); err == nil {
		err = closed
	}
	return err
}

func (c *Client) subscriptions() []*Subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.subs))
}

func (c *Client) publishers() []*Publisher {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.pubs))
}

// traced returns the headers with those of the trace that ctx is part of.
func (c *Client) traced(ctx context.Context, headers Headers) Headers {
	if c.config.propagator.inject == nil {
		return headers
	}
	add := map[string]string{}
	c.config.propagator.inject(ctx, add)
	for name, value := range add {
		name = strings.ToLower(name)
		if _, ok := headers.Get(name); !ok && value != "" {
			headers = headers.With(name, value)
		}
	}
	return headers
}

// tracing returns the context of the trace that the headers name.
func (c *Client) tracing(ctx context.Context, headers Headers) context.Context {
	if c.config.propagator.extract == nil {
		return ctx
	}
	carrier := make(map[string]string, len(headers))
	for _, h := range headers {
		carrier[h.Name] = h.Value
	}
	return c.config.propagator.extract(ctx, carrier)
}

// farAway is later than anything that a timer waits for.
const farAway = time.Hour
