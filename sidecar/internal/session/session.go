// Package session says who a caller is, what it may do, within which limits, and notes what it did.
// A caller is the sender of an HTTP request, or a WebSocket connection.
package session

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
)

// Sessions makes the sessions of one listener.
type Sessions struct {
	Access    *access.Access // nil: everybody may do everything
	Audit     *audit.Log     // nil: off
	Publisher *admit.Publisher
	Policies  *policy.Current
	Logger    *slog.Logger
	Budget    *budget.Budget  // nil: no bounds
	Silence   time.Duration   // how long a client may take to read a long answer
	Stopping  context.Context // ends when the sidecar begins to stop
	// ConnectionRefused, if it is set, is told of connections for which an identity, or the listener, had no place any more.
	ConnectionRefused func(place budget.Place)
}

// Session is one caller. It is safe for concurrent use.
type Session struct {
	*Connection
	From string // the client's address

	of    *Sessions
	who   atomic.Pointer[access.Identity] // nil until it is known
	share atomic.Pointer[budget.Share]
}

// Of returns the session of a request that Access.Authenticate has passed.
func (x *Sessions) Of(r *http.Request) *Session { return x.OfCall(r.Context(), r.RemoteAddr) }

// OfCall returns the session of a request, or a call, from an address; Access has put the identity into its context.
func (x *Sessions) OfCall(ctx context.Context, from string) *Session {
	s := x.unknown(ctx, from)
	who := x.Access.From(ctx)
	s.Become(&who)
	return s
}

// Unknown returns a session whose caller has yet to say who it is.
func (x *Sessions) Unknown(r *http.Request) *Session { return x.unknown(r.Context(), r.RemoteAddr) }

func (x *Sessions) unknown(ctx context.Context, from string) *Session {
	c, ok := ctx.Value(connectionKey{}).(*Connection)
	if !ok {
		c = x.newConnection()
	}
	s := &Session{Connection: c, From: from, of: x}
	s.share.Store(x.Budget.Unauthenticated())
	return s
}

type connectionKey struct{}

// ConnContext makes the requests of one TCP connection share its limits; it is for
// httpapi.Server.ConnContext. Without it each request is a connection of its own.
func (x *Sessions) ConnContext(ctx context.Context, conn net.Conn) context.Context {
	return x.OnConnection(ctx, conn.LocalAddr(), budget.Connections)
}

// OnConnection is ConnContext for the connection with a local address, of any listener.
func (x *Sessions) OnConnection(ctx context.Context, local net.Addr, place budget.Place) context.Context {
	c := x.newConnection()
	c.local, c.place = local, place
	return context.WithValue(ctx, connectionKey{}, c)
}

func (x *Sessions) newConnection() *Connection {
	return &Connection{Publishes: x.Publisher.NewConnection(), policies: x.Policies}
}

// Become sets who the caller is, and reports whether that was not known before.
func (s *Session) Become(who *access.Identity) (first bool) {
	s.share.Store(s.of.Budget.Of(who.Name))
	return s.who.Swap(who) == nil
}

// Share is what the caller may use of the memory and of the places.
func (s *Session) Share() *budget.Share { return s.share.Load() }

// Hold begins to count what a request holds, for the caller.
func (s *Session) Hold() *budget.Held { return &budget.Held{Share: s.Share()} }

// Known reports whether it is known who the caller is.
func (s *Session) Known() bool { return s.who.Load() != nil }

// Identity is the caller's identity as it authenticated; the zero Identity if it is not known.
func (s *Session) Identity() *access.Identity {
	if who := s.who.Load(); who != nil {
		return who
	}
	return new(access.Identity)
}

// Renew returns the caller's identity with the rights in force now.
func (s *Session) Renew() (*access.Identity, error) {
	who := s.who.Load()
	if who == nil {
		return nil, wire.Errorf(wire.Unauthorized, "this connection is not authenticated: send AUTH with a token first")
	}
	return s.of.Access.Renew(who)
}

// May returns an error unless the caller had the right when it authenticated.
func (s *Session) May(do access.Action, topic, group string) error {
	return s.Identity().May(do, topic, group)
}

// MayStill returns an error unless the caller may subscribe, with the rights in force now.
func (s *Session) MayStill(topic, group string) error {
	now, err := s.Renew()
	if err != nil {
		return err
	}
	return now.May(access.Subscribe, topic, group)
}

// While returns a context for a long change, which ends once the caller loses the right: its cause then is a *wire.Error.
// The caller must call the returned function in the end.
func (s *Session) While(ctx context.Context, do access.Action, topic, group string) (context.Context, context.CancelFunc) {
	return s.of.Access.While(ctx, do, topic, group)
}

// SeesContent reports whether lists show the caller the keys, headers and payloads of events.
func (s *Session) SeesContent() bool { return s.Identity().SeesContent() }

// MayRead returns an error unless the caller may subscribe to a topic or replay it.
func (s *Session) MayRead(topic string) error {
	err := s.May(access.Subscribe, topic, "")
	if err != nil && s.May(access.Replay, topic, "") == nil {
		return nil
	}
	return err
}

// Attribute makes topics and groups that are created with the context count for the caller, if it
// was authenticated.
func (s *Session) Attribute(ctx context.Context) context.Context {
	if who := s.who.Load(); who != nil && who.Verified {
		return eventlog.MadeBy(ctx, who.Name)
	}
	return ctx
}

// Note writes to the access log. who is the caller, as it was when the access began.
func (s *Session) Note(who *access.Identity, action, topic, group string, err error) {
	if s.of.Audit != nil {
		s.of.Audit.Note(action, topic, *who, s.From, refusal.Of(err), slog.String("group", group))
	}
}

// NotePublished writes the outcome of a publish to the access log. who is the caller, as it was
// when the publish began.
func (s *Session) NotePublished(who *access.Identity, items []wire.PublishItem, results []wire.ResultItem, err error) {
	if s.of.Audit != nil {
		s.of.Audit.Published(items, results, *who, s.From, err)
	}
}

// Stopping reports whether the sidecar has begun to stop.
func (s *Session) Stopping() bool { return s.of.Stopping.Err() != nil }
