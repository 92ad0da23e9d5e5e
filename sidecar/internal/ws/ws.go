// Package ws serves applications over WebSockets with frames of JSON.
//
// One goroutine reads for as long as the connection lasts. It handles ops in the order of their
// arrival and never waits for the outcome of one: the goroutine that completes an op puts its reply
// into the send buffer. A second goroutine empties it into the socket, and exists only while there
// is something in it.
//
//	socket ──▶ read ──▶ window ──▶ publish, ack, subscribe, …
//	             ▲         ▲                 │ replies, events
//	        buffer full?   └─ answered ──────┤
//	             │                           ▼
//	socket ◀── flush ◀───────────────  send buffer ──▶ Room? Wake
//
// Both directions are bounded. While the send buffer holds more than its bound, subscriptions are
// told that there is no room and nothing is read from the socket. While more than a window of ops
// is unanswered, no further op is begun: an op counts as answered once its reply is in the send
// buffer. So the sidecar does not read from a client that does not read, and a client that
// publishes faster than the log is slowed by its own socket.
package ws

import (
	"bufio"
	"bytes"
	"context"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// Config is what a Server needs; every field is required.
type Config struct {
	Sessions  *session.Sessions
	Publisher *admit.Publisher
	Groups    *group.Manager
	Metrics   *telemetry.Metrics
	Limits    wire.Limits
	Bounds    session.Bounds
	NodeID    string
	Logger    *slog.Logger
}

// Server has the WebSockets. It is safe for concurrent use.
type Server struct {
	cfg    Config
	ctx    context.Context // the context of all connections' work; ends with Shutdown
	cancel context.CancelFunc
	busy   sync.WaitGroup // connections

	mu     sync.Mutex
	number uint64 // the number of the last connection
	conns  map[*conn]struct{}
}

// compressFrom is the size of the smallest message that is compressed.
const compressFrom = 2 << 10

// New makes a Server without connections.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg, conns: make(map[*conn]struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Stats counts the present connections and their subscriptions.
func (s *Server) Stats() (connections, subscriptions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		subscriptions += c.subscriptions()
	}
	return len(s.conns), subscriptions
}

// Route is the route that turns requests into WebSockets.
func (s *Server) Route(pattern string) httpapi.Route {
	return httpapi.Route{
		Pattern: pattern, Summary: "a WebSocket",
		Answers: []httpapi.Answer{{Status: http.StatusSwitchingProtocols, Doc: "frames follow"}},
		Errors:  []wire.Code{wire.StoreUnavailable},
		Serve: func(w http.ResponseWriter, r *httpapi.Request, bad error) {
			if bad != nil {
				httpapi.WriteError(w, r.Request, bad, s.cfg.Logger)
				return
			}
			s.serve(w, r.Request)
		},
	}
}

// serve turns a request into a WebSocket. The connection then has a goroutine of its own, so
// that net/http can free the memory of the request: an idle connection needs less.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if s.cfg.Sessions.Stopping.Err() != nil {
		httpapi.WriteError(w, r, refusal.Stopping(), s.cfg.Logger)
		return
	}
	caller, err := s.arrival(r)
	if err != nil {
		s.cfg.Sessions.Access.Challenge(w, r, err)
		return
	}
	if caller.Known() {
		if err := caller.Keep(); err != nil {
			httpapi.WriteError(w, r, err, s.cfg.Logger)
			return
		}
	}
	c := &conn{cfg: &s.cfg, caller: caller}
	up := &upgrade{ResponseWriter: w, conn: c}
	c.ws, err = websocket.Accept(up, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // httpapi.Guard has checked Origin
		// Where the client asks for it; without context takeover a connection keeps no window between messages.
		CompressionMode: websocket.CompressionNoContextTakeover, CompressionThreshold: compressFrom,
	})
	if err != nil {
		if c.socket == nil {
			httpapi.WriteError(w, r, up.why(), s.cfg.Logger)
		}
		return
	}
	if !s.admit(c) {
		_ = c.ws.Close(websocket.StatusGoingAway, closingReason)
		c.out.Wait()
	}
}

// arrival returns the session of a request, whose client may have yet to authenticate with AUTH. The
// error is that of a wrong token in the request.
func (s *Server) arrival(r *http.Request) (*session.Session, error) {
	caller := s.cfg.Sessions.Unknown(r)
	id, err := s.cfg.Sessions.Access.Identify(r)
	switch {
	case err == nil:
		caller.Become(&id)
	case len(r.Header["Authorization"]) > 0:
		return nil, err
	}
	return caller, nil
}

// admit registers a connection and starts to serve it; false while the sidecar stops.
func (s *Server) admit(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.caller.Stopping() {
		return false
	}
	s.number++
	c.begin(s.ctx, s.cfg.NodeID+"/"+strconv.FormatUint(s.number, 10))
	s.conns[c] = struct{}{}
	s.cfg.Metrics.ConnectionOpened()
	s.busy.Go(func() {
		c.serve()
		s.cfg.Metrics.ConnectionClosed()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	})
	return true
}

// RightsChanged ends the connections whose token was removed, or whose token no longer allows their
// subscriptions. The rights of the other connections are checked with each op.
func (s *Server) RightsChanged() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cfg.Sessions.Stopping.Err() != nil {
		return
	}
	for c := range s.conns {
		if !c.caller.Known() {
			continue // expelUnauthenticated ends such a connection
		}
		if err := c.mayKeep(); err != nil {
			s.busy.Go(func() { c.expel(wire.AsError(err), reasonRevoked) })
		}
	}
}

// Shutdown refuses ops, once Sessions.Stopping has ended. It gives events in flight back to their
// groups without counting an attempt, sends the replies to pending ops, and closes every connection
// with 1001. It cuts off connections that have not finished when ctx ends, and returns once none is
// left.
func (s *Server) Shutdown(ctx context.Context) {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	s.mu.Unlock()
	var leaving sync.WaitGroup
	for _, c := range conns {
		leaving.Go(func() { c.shutdown(ctx) })
	}
	leaving.Wait()
	s.cancel()
	s.busy.Wait()
}

// closingReason goes with the close code 1001.
const closingReason = "the sidecar is shutting down"

// upgrade is a ResponseWriter that puts a send buffer between the WebSocket library and the
// connection. It does not send the library's own refusals, which are plain text, to the client.
type upgrade struct {
	http.ResponseWriter
	conn   *conn
	status int
	text   bytes.Buffer // of a refusal
}

// controlFrame is the size of a whole control frame. So the library writes a control frame with one
// call, and a data frame with two.
const controlFrame = 256

// Hijack takes the connection over; the library calls it.
func (u *upgrade) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	raw, brw, err := http.NewResponseController(u.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	listen.Begin(raw.LocalAddr()) // for good: frames are no heads of requests
	u.conn.use(raw)
	return u.conn.socket, bufio.NewReadWriter(brw.Reader, bufio.NewWriterSize(u.conn.socket, controlFrame)), nil
}

// WriteHeader passes on only the switch of protocols.
func (u *upgrade) WriteHeader(status int) {
	u.status = status
	if status == http.StatusSwitchingProtocols {
		u.ResponseWriter.WriteHeader(status)
	}
}

func (u *upgrade) Write(p []byte) (int, error) { return u.text.Write(p) }

// why is the reason for which the library refused the upgrade.
func (u *upgrade) why() *wire.Error {
	if u.status >= http.StatusInternalServerError {
		return wire.AsError(nil)
	}
	return wire.Errorf(wire.BadRequest, "this is the WebSocket endpoint: %s", bytes.TrimSpace(u.text.Bytes()))
}
