package access

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// ServerOptions are the options of a gRPC server on ln that allows only clients with the right to
// join: TLS if the file enables it, and the interceptors. name is that of the listener's setting.
func (a *Access) ServerOptions(name string, ln net.Listener) []grpc.ServerOption {
	if a == nil {
		return nil
	}
	return append(a.TransportOptions(name, ln), grpc.ChainUnaryInterceptor(a.guardCall), grpc.ChainStreamInterceptor(a.guardStream))
}

// TransportOptions are the options of a gRPC server on ln: TLS if the file enables it. name is that of the listener's
// setting.
func (a *Access) TransportOptions(name string, ln net.Listener) []grpc.ServerOption {
	if a == nil || ln.Addr().Network() == "unix" {
		return nil
	}
	if config := a.TLS(); config != nil {
		return []grpc.ServerOption{grpc.Creds(lapsing{credentials.NewTLS(config), a})}
	}
	a.warnOfClear(name, ln)
	return nil
}

// IdentifyCall finds the identity of a call, as Identify does that of a request, and returns a context from which
// [Access.From] has it. The error is that of [Access.Token].
func (a *Access) IdentifyCall(ctx context.Context) (context.Context, error) {
	if !a.Authenticates() {
		return ctx, nil
	}
	cs, from := comesFrom(ctx)
	md, _ := metadata.FromIncomingContext(ctx)
	credentials := authorization(http.Header{"Authorization": md["authorization"], "Dapr-Api-Token": md["dapr-api-token"]})
	id, err := a.identify(ctx, credentials, cs, from)
	if err != nil {
		a.noteRefused(from, err)
		return nil, err
	}
	return context.WithValue(ctx, identityKey{}, id), nil
}

// guardCall allows calls of sidecars and admins: with a token in the metadata
// "authorization", or with a client certificate. Other calls end with Unauthenticated or
// PermissionDenied.
func (a *Access) guardCall(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if _, err := a.join(ctx); err != nil {
		return nil, err
	}
	return handle(ctx, req)
}

// guardStream is guardCall for streams. A stream whose caller loses its right ends
// with the next message in either direction.
func (a *Access) guardStream(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	id, err := a.join(stream.Context())
	if err != nil {
		return err
	}
	s := &guardedStream{ServerStream: stream, access: a, id: id}
	s.ctx = context.WithValue(stream.Context(), streamKey{}, s)
	return handle(srv, s)
}

// guardedStream checks before each message whether its caller may still join.
type guardedStream struct {
	grpc.ServerStream
	access *Access
	ctx    context.Context // from which Claim gets the stream

	id    Identity              // of the caller, as it came in
	claim atomic.Pointer[claim] // nil: it claims nothing yet
}

// claim is the sidecar that the caller of a stream says that it is.
type claim struct{ node, store string }

type streamKey struct{}

func (s *guardedStream) Context() context.Context { return s.ctx }

func (s *guardedStream) SendMsg(m any) error {
	if err := s.check(false); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *guardedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.check(false)
}

// check reports whether the caller may still join, as the sidecar that it claims to be; first says
// that it claims so now.
func (s *guardedStream) check(first bool) error {
	changed := s.id.rules != s.access.now.Load() || s.id.expired()
	if !changed && !first {
		return nil
	}
	id := s.id
	if changed {
		var err error
		if id, err = s.access.join(s.ctx); err != nil {
			return err
		}
	}
	said := s.claim.Load()
	if said == nil {
		return nil
	}
	err := id.May(Join, said.node, said.store)
	if err == nil {
		return nil
	}
	_, from := comesFrom(s.ctx)
	return s.access.refused(from, err)
}

// Claim binds a node id, and the id of a store where that is known, to the caller of a stream. It returns the prefix
// that covers the node id, and how many nodes that lets in; "" where the credential is for this node id, or for any.
// The error, with PermissionDenied, says which node ids, or stores, its credential covers. ctx is the stream's.
func (a *Access) Claim(ctx context.Context, node, store string) (prefix string, nodes int, err error) {
	if a == nil {
		return "", 0, nil
	}
	s, ok := ctx.Value(streamKey{}).(*guardedStream)
	if !ok {
		return "", 0, status.Error(codes.Unauthenticated, errNobody().Msg)
	}
	s.claim.Store(&claim{node, store})
	if err := s.check(true); err != nil || s.id.may == nil {
		return "", 0, err
	}
	may := s.id.may
	if slices.Contains(may.nodes, node) {
		return "", 0, nil
	}
	if i := slices.IndexFunc(may.nodes, func(pattern string) bool { return Covers([]string{pattern}, node) }); i >= 0 {
		prefix, nodes = may.nodes[i], may.mostNodes
	}
	return prefix, nodes, nil
}

// join finds the caller's identity and checks that it may join. Errors have a gRPC status.
func (a *Access) join(ctx context.Context) (Identity, error) {
	cs, from := comesFrom(ctx)
	id, err := a.joins(ctx, metadata.ValueFromIncomingContext(ctx, "authorization"), cs, from)
	if err == nil {
		return id, nil
	}
	return Identity{}, a.refused(from, err)
}

// comesFrom returns the caller's TLS connection, if it has one, and its address.
func comesFrom(ctx context.Context) (cs *tls.ConnectionState, from string) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, ""
	}
	if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
		cs = &info.State
	}
	if p.Addr != nil {
		from = p.Addr.String()
	}
	return cs, from
}

// refused logs a refused call, and returns its error as a gRPC status.
func (a *Access) refused(from string, err error) error {
	a.noteRefused(from, err)
	e := wire.AsError(err)
	code := codes.Unauthenticated
	switch e.Code {
	case wire.Forbidden:
		code = codes.PermissionDenied
	case wire.RateLimited:
		code = codes.ResourceExhausted
	}
	return status.Error(code, e.Msg)
}

func (a *Access) joins(ctx context.Context, authorization []string, cs *tls.ConnectionState, from string) (Identity, error) {
	if r := a.now.Load(); r.requireClientCert && r.client(cs) == nil {
		return Identity{}, wire.Errorf(wire.Unauthorized,
			"a client certificate is required here (xds.require_client_cert), and none that is valid was given")
	}
	id, err := a.identify(ctx, authorization, cs, from)
	if err != nil {
		return Identity{}, err
	}
	return id, id.May(Join, "", "")
}
