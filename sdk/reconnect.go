package sluice

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// link keeps a connection to the sidecar. Publishers and subscriptions have one each, so that a
// slow one does not hold up the others.
type link struct {
	client *Client
	name   string           // for the log
	change ConnectionChange // for the hook
	lost   bool             // the hook was told so
	// serve uses a connection until it ends or ctx does, and calls up once it is set up. An error
	// that is not the connection's own is one of setting it up.
	serve func(ctx context.Context, conn *Conn, up func()) error
	// ended reports, after serve, whether to connect no more; nil: always connect again.
	ended func() bool
}

// run connects and serves, again and again, until ctx ends. A conn that is not nil is the first
// connection, which is served even if ctx has ended, so that its events are given back in order.
func (l *link) run(ctx context.Context, conn *Conn) {
	cfg := &l.client.config
	pauses := pause.Backoff{First: cfg.minPause, Most: cfg.maxPause}
	for conn != nil || ctx.Err() == nil {
		var err error
		if conn == nil {
			conn, err = l.client.connect(ctx)
		}
		if err == nil {
			began := time.Now()
			err = l.hold(ctx, conn)
			conn = nil
			if time.Since(began) > pauses.Reached() {
				pauses.Reset()
			}
		}
		if ctx.Err() != nil {
			break
		}
		l.down(err)
		if l.ended != nil && l.ended() {
			return
		}
		wait := pauses.Step()
		cfg.log.Warn("no connection to the sidecar", "for", l.name, "error", err, "next_attempt_in", wait)
		pause.For(ctx, wait)
	}
}

// down tells the hook that there is no connection.
func (l *link) down(err error) {
	l.lost = true
	told := l.change
	told.Err = err
	l.client.config.changed(told)
}

// up tells the hook that there is one again.
func (l *link) up() {
	if l.lost {
		l.lost = false
		l.client.config.changed(l.change)
	}
}

// hold serves one connection to its end.
func (l *link) hold(ctx context.Context, conn *Conn) error {
	held, release := context.WithCancel(ctx)
	var watch sync.WaitGroup
	goIn(&watch, func() { l.watch(held, conn) })
	err := l.serve(ctx, conn, l.up)
	release()
	if ended := conn.Close(); err == nil {
		err = ended
	}
	watch.Wait()
	return err
}

// watch ends a connection that gives no sign of life. A connection whose reader waits for a
// subscription to take its events is alive. So is one whose subscription has taken events since the
// ping: the answer may be far behind them.
func (l *link) watch(ctx context.Context, conn *Conn) {
	every := l.client.config.heartbeat
	for pause.Unless(ctx, every, conn.Done()) && conn.Err() == nil {
		delivered := conn.delivered.Load()
		asked, cancel := context.WithTimeout(ctx, every)
		err := conn.Ping(asked)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil && !conn.delivering.Load() && conn.delivered.Load() == delivered {
			conn.abort(fmt.Errorf("no sign of life for %v", every))
			return
		}
	}
}

// connect makes one attempt to connect.
func (c *Client) connect(ctx context.Context) (conn *Conn, err error) {
	if connected := c.config.observer.Connected; connected != nil {
		began := time.Now()
		defer func() { connected(time.Since(began), err) }()
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	opts := ConnOptions{Window: connWindow, TLSConfig: c.config.tls, Dialer: c.config.dialer}
	if c.config.token != nil {
		token, err := c.config.token(ctx)
		if err != nil {
			return nil, fmt.Errorf("getting a token: %w", err)
		}
		opts.Token = token
	}
	return DialConn(ctx, c.url, &opts)
}

// reach connects for the first time. Where it may wait, it tries until ctx ends or the sidecar
// refuses for good.
func (c *Client) reach(ctx context.Context, wait bool, then func(*Conn) error) (*Conn, error) {
	pauses := pause.Backoff{First: c.config.minPause, Most: c.config.maxPause}
	for {
		conn, err := c.connect(ctx)
		if err == nil {
			if err = then(conn); err == nil {
				return conn, nil
			}
			_ = conn.Close() // err says what was wrong
		}
		after, again := worthRetrying(err)
		if !again || !wait {
			return nil, err
		}
		if ctx.Err() != nil || !pause.Unless(ctx, max(after, pauses.Step()), c.ctx.Done()) {
			return nil, fmt.Errorf("%w (the last attempt: %w)", ctx.Err(), err)
		}
		if c.ctx.Err() != nil {
			return nil, ErrClosed
		}
	}
}

// defaultRetryAfter is for a refusal that names no time.
const defaultRetryAfter = 50 * time.Millisecond

// worthRetrying tells whether the same request can succeed later, and after which time at the
// earliest: a refusal that only asks for time, or no answer at all.
func worthRetrying(err error) (after time.Duration, ok bool) {
	refusal, refused := asType[*wire.Error](err)
	if !refused {
		return 0, err != nil
	}
	switch refusal.Code {
	case wire.RateLimited, wire.Overloaded, wire.StoreUnavailable:
		if refusal.RetryAfter <= 0 {
			return defaultRetryAfter, true
		}
		return refusal.RetryAfter, true
	}
	return 0, false
}
