package sluice

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/settings"
	"github.com/sluice-bus/sluice/sdk/option"
)

// An Option sets something of a [Client].
type Option func(*config)

type config struct {
	token              func(context.Context) (string, error) // nil: none is sent
	replayURL          string
	log                *slog.Logger
	minPause, maxPause time.Duration // between two attempts to connect
	heartbeat          time.Duration
	untilReached       bool
	publisher          []option.Publish
	propagator         propagator
	changed            func(ConnectionChange)
	observer           Observer
	tls                *tls.Config
	dialer             func(ctx context.Context, network, address string) (net.Conn, error)
	settings.Checked
}

// need records an option's value that is nil and must not be.
func (c *config) need(given bool, what string) {
	if !given && c.Bad == nil {
		c.Bad = fmt.Errorf("%w: the %s", ErrNil, what)
	}
}

// A ConnectionChange is the loss or the return of one of a client's connections: each subscription
// has one, and each publisher.
type ConnectionChange struct {
	Topic, Group string // of the subscription; "" of publishers
	// Err is why there is no connection, after its end and after each attempt to replace it that
	// failed; an [*Error] where the sidecar refused. It is nil once there is one again, and
	// subscribed.
	Err error
}

// propagator carries a trace's context in an event's headers.
type propagator struct {
	inject  func(ctx context.Context, headers map[string]string)
	extract func(ctx context.Context, headers map[string]string) context.Context
}

const (
	defaultMinPause  = 50 * time.Millisecond
	defaultMaxPause  = 5 * time.Second
	defaultHeartbeat = 15 * time.Second
	dialTimeout      = 10 * time.Second // of one attempt
)

func newConfig(opts []Option) config {
	c := config{
		log: slog.Default(), changed: func(ConnectionChange) {},
		minPause: defaultMinPause, maxPause: defaultMaxPause, heartbeat: defaultHeartbeat,
	}
	for _, set := range opts {
		if set != nil {
			set(&c)
		}
	}
	return c
}

// WithToken authenticates every connection with a token.
func WithToken(token string) Option {
	return WithTokenFunc(func(context.Context) (string, error) { return token, nil })
}

// WithTokenFunc asks for the token whenever a connection is made or an HTTP request is sent, for
// tokens that expire. It may be called by several goroutines at once.
func WithTokenFunc(token func(context.Context) (string, error)) Option {
	return func(c *config) {
		c.token = token
		c.need(token != nil, "function of WithTokenFunc")
	}
}

// WithReplayURL says where the sidecar's replay API is. Without it the client expects that API at
// port 8083 of the dialled host.
func WithReplayURL(url string) Option { return func(c *config) { c.replayURL = url } }

// WithLogger sets the logger of lost and new connections and of retries. Without it the logger is
// slog.Default().
func WithLogger(log *slog.Logger) Option {
	return func(c *config) {
		c.log = log
		c.need(log != nil, "logger of WithLogger")
	}
}

// WithTLSConfig says how connections to https://host:port are secured: which certificates are
// trusted, and which is the application's own. It must not be changed afterwards.
func WithTLSConfig(t *tls.Config) Option {
	return func(c *config) {
		c.tls = t
		c.need(t != nil, "configuration of WithTLSConfig")
	}
}

// WithDialer makes all connections with dial, through a proxy for example: to the address of a host
// on the network tcp, or to the path of a socket on unix.
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(c *config) {
		c.dialer = dial
		c.need(dial != nil, "function of WithDialer")
	}
}

// WithBackoff bounds the pause between two attempts to connect, which doubles from shortest (50 ms)
// to longest (5 s), with jitter.
func WithBackoff(shortest, longest time.Duration) Option {
	return func(c *config) {
		c.Need(shortest > 0 && longest >= shortest,
			"WithBackoff(%v, %v): the shortest pause is above 0, and the longest no shorter", shortest, longest)
		c.minPause, c.maxPause = shortest, longest
	}
}

// WithWait lets [Dial] wait for a sidecar that is not there yet, until its context ends. Without it
// Dial fails at once.
func WithWait() Option { return func(c *config) { c.untilReached = true } }

// WithHeartbeat sets how often the client pings a connection (15 s), and how long the answer may
// take. The client replaces a connection that does not answer.
func WithHeartbeat(every time.Duration) Option {
	return func(c *config) {
		c.Need(every > 0, "WithHeartbeat(%v): above 0", every)
		c.heartbeat = every
	}
}

// WithPublisher sets options of the publisher behind [Client.Publish] and [Client.PublishBatch].
func WithPublisher(opts ...option.Publish) Option { return func(c *config) { c.publisher = opts } }

// WithConnectionHook calls f when a connection is lost, when an attempt to replace it failed, and
// when it is there again. The first connection is no change: [Dial] and [Client.Subscribe] report
// it. Calls about one connection come one after the other, and delay its next attempt.
func WithConnectionHook(f func(ConnectionChange)) Option {
	return func(c *config) {
		c.changed = f
		c.need(f != nil, "function of WithConnectionHook")
	}
}

// WithPropagator carries the context of a trace through Sluice. inject is called for each publish
// with the context of the call, to add headers (traceparent, tracestate, baggage; headers that the
// event has stay as they are); extract is called for each delivery with the event's headers, and
// returns the context for the handler. Either may be nil. With OpenTelemetry:
//
//	p := otel.GetTextMapPropagator()
//	sluice.WithPropagator(
//		func(ctx context.Context, h map[string]string) { p.Inject(ctx, propagation.MapCarrier(h)) },
//		func(ctx context.Context, h map[string]string) context.Context {
//			return p.Extract(ctx, propagation.MapCarrier(h))
//		})
func WithPropagator(
	inject func(ctx context.Context, headers map[string]string),
	extract func(ctx context.Context, headers map[string]string) context.Context,
) Option {
	return func(c *config) { c.propagator = propagator{inject, extract} }
}
