package sluice

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/endpoint"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// ErrClosed is matched by the errors of requests on a connection that ended; [Conn.Err] has the
// reason.
var ErrClosed = errors.New("sluice: the connection is closed")

// ConnOptions are the options of one connection. The zero value has the defaults.
type ConnOptions struct {
	// Token is sent with AUTH before anything else; "" sends none.
	Token string
	// Window is how many publishes may wait for their answers; the next one waits for one of them.
	// 0 means 1024. A batch counts as one.
	Window int
	// TLSConfig is for https; nil trusts what the system trusts.
	TLSConfig *tls.Config
	// Dialer makes the connection; nil means net.Dialer.DialContext.
	Dialer func(ctx context.Context, network, address string) (net.Conn, error)
}

const defaultWindow = 1024

// A Conn is one WebSocket connection to a sidecar. Its methods may be called by several goroutines
// at once.
//
// Requests are pipelined: each is queued, and answered as it completes. Publishes of one goroutine
// reach the sidecar in the order of their calls. Callbacks (answers and deliveries) run one after
// the other on the connection's one reading goroutine: while a callback runs, nothing else is read.
// A callback may call the methods whose names end in Async, except those that publish. It must not
// wait for an answer or for room, since these come only after it returns.
type Conn struct {
	ws     *websocket.Conn
	cork   *corkedConn
	window int

	work sync.WaitGroup // read and write
	done chan struct{}  // closed when reading ended and all requests are answered

	outstanding atomic.Int64 // requests whose callback has not returned
	delivering  atomic.Bool  // a subscription's callback runs
	delivered   atomic.Int64 // callbacks of subscriptions that have returned

	mu        sync.Mutex
	room      sync.Cond // of goroutines that wait to publish
	waiting   int       // how many those are
	filled    sync.Cond // of the writer
	queue     frames
	acks      *acks // the last frame of the queue, if that is an ACK
	calls     callTable
	publishes int                // in calls
	idle      chan struct{}      // closed when outstanding is 0; nil: nobody waits for it
	cause     error              // why requests are refused; nil while open
	items     []wire.PublishItem // reused to encode batches
	subs      map[subKey]*ConnSubscription
}

// DialConn connects to the application listener of a sidecar: http://host:port, https://host:port
// or unix:/path. The context bounds the dialling alone. A nil opts means the defaults.
func DialConn(ctx context.Context, url string, opts *ConnOptions) (*Conn, error) {
	if opts == nil {
		opts = new(ConnOptions)
	}
	at, err := endpoint.Parse(url)
	if err != nil {
		return nil, err
	}
	at = at.With(opts.TLSConfig, opts.Dialer)
	c := &Conn{
		window: cmp.Or(max(opts.Window, 0), defaultWindow), done: make(chan struct{}), subs: map[subKey]*ConnSubscription{},
	}
	c.room.L, c.filled.L = &c.mu, &c.mu

	// Of the connections that the transport makes, the last is the one in use.
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		raw, err := at.Dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c.cork = newCorkedConn(raw)
		return c.cork, nil
	}}
	if at.TLS != nil {
		transport.TLSClientConfig = at.TLS.Clone()
		transport.TLSClientConfig.NextProtos = []string{"http/1.1"} // WebSocket is not spoken over another
	}
	ws, resp, err := websocket.Dial(ctx, at.Base+"/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		transport.CloseIdleConnections()
		return nil, dialError(url, resp, err)
	}
	ws.SetReadLimit(-1) // the sidecar bounds its messages, and is trusted
	c.ws = ws
	goIn(&c.work, c.write)
	goIn(&c.work, c.read)
	if opts.Token != "" {
		if err := c.auth(ctx, opts.Token); err != nil {
			c.abort(err)
			c.work.Wait()
			return nil, err
		}
	}
	return c, nil
}

// dialError returns the sidecar's refusal where there is one, and else the library's error.
func dialError(url string, resp *http.Response, err error) error {
	if resp == nil || resp.StatusCode < 400 {
		return fmt.Errorf("connecting to %s: %w", url, endpoint.UnwrapURLError(err))
	}
	return endpoint.ReadError(resp)
}

func (c *Conn) auth(ctx context.Context, token string) error {
	_, err := c.wait(ctx, func(dst []byte, corr string) []byte { return codec.AppendAuth(dst, corr, token) })
	return err
}

// Ping asks the sidecar for a sign of life.
func (c *Conn) Ping(ctx context.Context) error {
	_, err := c.wait(ctx, codec.AppendPing)
	return err
}

// Flush waits until every request is answered and every callback has returned. Further requests
// keep it waiting. It returns the context's error, or Err where the connection ended.
func (c *Conn) Flush(ctx context.Context) error {
	for c.outstanding.Load() > 0 {
		c.mu.Lock()
		if c.idle == nil {
			c.idle = make(chan struct{})
		}
		idle := c.idle
		c.mu.Unlock()
		if c.outstanding.Load() == 0 {
			break // it became 0 before idle was made
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.Err()
}

// Done is closed when the connection has ended and no callback runs any more.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err is nil while the connection is open, and then says why it ended: it matches ErrClosed.
func (c *Conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// closeTimeout is how long Close tries to send what is queued.
const closeTimeout = 5 * time.Second

// Close sends the queued frames, closes the WebSocket in order and waits for the connection's
// goroutines. It waits a few seconds at most if the sidecar does not answer. Requests without an
// answer fail with ErrClosed; use [Conn.Flush] before it to wait for answers. It must not be called
// by a callback. The error is why the connection had ended before, or nil.
func (c *Conn) Close() error {
	c.mu.Lock()
	before := c.cause
	if before == nil {
		c.cause = ErrClosed
		_ = c.cork.SetWriteDeadline(time.Now().Add(closeTimeout))
	}
	c.room.Broadcast()
	c.filled.Broadcast()
	c.mu.Unlock()
	c.work.Wait()
	return before
}

// abort ends the connection at once because of cause.
func (c *Conn) abort(cause error) {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = fmt.Errorf("%w: %w", ErrClosed, cause)
	}
	c.room.Broadcast()
	c.filled.Broadcast()
	c.mu.Unlock()
	_ = c.cork.Close() // the library notices; its own close would wait for its locks
}
