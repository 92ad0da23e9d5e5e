package ws

import (
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/ingest"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/sendbuffer"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// conn is one WebSocket connection.
type conn struct {
	cfg    *Config
	name   string          // names the connection to people
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	ws     *websocket.Conn
	socket *socket            // under ws
	out    *sendbuffer.Buffer // of socket
	caller *session.Session
	window window
	alive  keepAlive

	over *closing // the reader's: how to close after this op

	mu     sync.Mutex
	ending *wire.Error // ops are refused with it
	subs   map[session.SubscriptionKey]*subscription
}

// use takes a connection over from net/http.
func (c *conn) use(raw net.Conn) {
	c.out = sendbuffer.New(raw, sendbuffer.Config{
		Bytes: c.cfg.Bounds.SendBufferBytes, Memory: c.caller.Share(), Silence: c.cfg.Bounds.SlowClientTimeout, Wake: c.wakeSubscriptions,
	})
	c.socket = &socket{Conn: raw, out: c.out, timeout: c.cfg.Bounds.ReceiveTimeout}
	c.socket.moved()
}

// begin prepares a connection to be served.
func (c *conn) begin(ctx context.Context, name string) {
	c.name = name
	c.ctx, c.cancel = context.WithCancel(ctx)
	c.window.init(c.cfg.Bounds, c.caller.Share())
	readLimit := c.cfg.Limits.FrameBytes
	if !c.caller.Known() {
		readLimit = min(readLimit, unauthenticatedFrameBytes)
	}
	c.ws.SetReadLimit(int64(readLimit))
}

// serve reads until the connection ends, and then releases everything that belongs to it.
func (c *conn) serve() {
	if !c.caller.Known() {
		defer time.AfterFunc(c.cfg.Bounds.AuthTimeout, c.expelUnauthenticated).Stop()
	}
	c.alive = keepAlive{socket: c.socket, after: c.cfg.Bounds.PingAfter, ping: c.ws.Ping, dead: c.mute}
	c.alive.start(c.ctx)
	closing := c.read()
	c.cancel()
	c.alive.stop()
	c.window.close()
	for _, s := range c.removeSubscriptions() {
		s.Close(group.Disconnected)
	}
	c.hangUp(closing)
	c.out.Wait()
	if c.out.Stalled() {
		c.cfg.Logger.Info("a client that did not read was disconnected", "connection", c.name, "timeout", c.cfg.Bounds.SlowClientTimeout)
	}
}

// mute closes a connection whose peer answers no pings.
func (c *conn) mute() {
	c.cfg.Logger.Info("a client that did not answer pings was disconnected", "connection", c.name, "pings", unansweredPings,
		"timeout", c.cfg.Bounds.PingAfter)
	c.hangUp(closing{websocket.StatusPolicyViolation, "two pings in a row were not answered"})
}

// closing says how to close a connection; without a status the peer is already gone.
type closing struct {
	status websocket.StatusCode
	reason string
}

func (c *conn) hangUp(how closing) {
	// An error means that the peer is already gone.
	if how.status == 0 {
		_ = c.ws.CloseNow()
		return
	}
	_ = c.ws.Close(how.status, how.reason)
}

// shutdown ends the connection in order, or at once when ctx ends.
func (c *conn) shutdown(ctx context.Context) {
	stop := context.AfterFunc(ctx, c.out.Abort)
	defer stop()
	c.end(refusal.Stopping())
	for _, s := range c.removeSubscriptions() {
		s.Close(group.Unsubscribed)
		c.revoked(s)
	}
	c.window.empty(ctx)
	c.hangUp(closing{websocket.StatusGoingAway, closingReason})
}

// end refuses ops from now on; false: they were refused already.
func (c *conn) end(why *wire.Error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ending != nil {
		return false
	}
	c.ending = why
	return true
}

// refusing is the error of all ops once the connection ends; nil before.
func (c *conn) refusing() *wire.Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ending
}

// removeSubscriptions empties the list of subscriptions, and returns the removed ones.
func (c *conn) removeSubscriptions() map[session.SubscriptionKey]*subscription {
	c.mu.Lock()
	defer c.mu.Unlock()
	subs := c.subs
	c.subs = nil
	for k := range subs {
		c.caller.Note(c.caller.Identity(), audit.Unsubscribe, k.Topic, k.Group, nil)
	}
	return subs
}

func (c *conn) subscriptions() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.subs)
}

// wakeSubscriptions tells the subscriptions that the send buffer has room again.
func (c *conn) wakeSubscriptions() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.subs {
		s.Wake()
	}
}

// write puts one frame into the send buffer. An error means that the connection has ended; the
// connection's reader learns this too.
func (c *conn) write(frame []byte) {
	c.out.Cork()
	_ = c.ws.Write(context.Background(), websocket.MessageText, frame)
	c.out.Uncork()
}

// reply builds a frame and puts it into the send buffer.
func (c *conn) reply(build func(dst []byte) []byte) {
	s := sendbuffer.NewScratch()
	s.B = build(s.B)
	c.write(s.B)
	s.Free()
}

// note writes the line of an op to the access log, which comes before its reply. An op that names no topic has none, and a PUBLISH that
// is admitted has one for each topic of its results. err is why the op was refused.
func (c *conn) note(who *access.Identity, req *codec.Request, err error) {
	switch {
	case c.cfg.Sessions.Audit == nil || !c.caller.Known():
	case req.Op == wire.OpPublish:
		items := req.Events
		if len(items) == 0 {
			items = ingest.Undecoded(req.Topic)
		}
		c.caller.NotePublished(who, items, nil, err)
	default:
		c.caller.Note(who, strings.ToLower(req.Op), req.Topic, req.Group, err)
	}
}

func (c *conn) replyOK(req *codec.Request) {
	c.note(c.caller.Identity(), req, nil)
	c.answerOK(req)
}

func (c *conn) answerOK(req *codec.Request) {
	c.reply(func(dst []byte) []byte { return codec.AppendOK(dst, req.Corr, req.HasCorr) })
}

// replyError answers with a refusal.
func (c *conn) replyError(req *codec.Request, err error) {
	c.note(c.caller.Identity(), req, err)
	c.answerError(req, err)
}

// answerError is replyError for an op that is noted already. An error that is no refusal is a defect: the log gets the detail, and the
// client does not.
func (c *conn) answerError(req *codec.Request, err error) {
	e := wire.AsError(refusal.Of(err))
	if e.Code == wire.Internal && c.ctx.Err() == nil {
		c.cfg.Logger.Error("op failed", "connection", c.name, "op", req.Op, "error", err)
	}
	c.reply(func(dst []byte) []byte { return codec.AppendErr(dst, e, req.Corr, req.HasCorr) })
}
