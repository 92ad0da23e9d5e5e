package access

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// ServerOptions are what a gRPC server on ln needs to let in only those who may
// join: TLS where the file asks for it, and the interceptors. name is that of
// the listener's setting.
func (a *Access) ServerOptions(name string, ln net.Listener) []grpc.ServerOption {
	if a == nil {
		return nil
	}
	options := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(a.UnaryInterceptor()),
		grpc.ChainStreamInterceptor(a.StreamInterceptor()),
	}
	if ln.Addr().Network() == "unix" {
		return options
	}
	if config := a.TLS(); config != nil {
		return append(options, grpc.Creds(lapsing{credentials.NewTLS(config), a}))
	}
	a.warnOfClear(name, ln)
	return options
}

// UnaryInterceptor lets calls in that come from a sidecar or an admin: with a
// token in the metadata "authorization", or a client certificate. The others
// end with Unauthenticated or PermissionDenied.
func (a *Access) UnaryInterceptor() grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if _, err := a.join(ctx); err != nil {
			return nil, err
		}
		return handle(ctx, req)
	}
}

// StreamInterceptor is UnaryInterceptor for streams. A stream whose caller
// loses the right to it ends with the next message in either direction.
func (a *Access) StreamInterceptor() grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if a == nil {
			return handle(srv, stream)
		}
		id, err := a.join(stream.Context())
		if err != nil {
			return err
		}
		return handle(srv, &guardedStream{ServerStream: stream, access: a, id: id})
	}
}

// guardedStream asks before each message whether its caller may still join.
type guardedStream struct {
	grpc.ServerStream
	access *Access
	id     Identity // as it came in
}

func (s *guardedStream) SendMsg(m any) error {
	if err := s.check(); err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

func (s *guardedStream) RecvMsg(m any) error {
	if err := s.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return s.check()
}

func (s *guardedStream) check() error {
	if s.id.rules == s.access.now.Load() {
		return nil
	}
	_, err := s.access.join(s.Context())
	return err
}

// join finds who makes a call, and whether they may join. Errors have a status.
func (a *Access) join(ctx context.Context) (Identity, error) {
	if a == nil {
		return everybody, nil
	}
	var cs *tls.ConnectionState
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok {
			cs = &info.State
		}
		if p.Addr != nil {
			from = p.Addr.String()
		}
	}
	id, err := a.joins(ctx, metadata.ValueFromIncomingContext(ctx, "authorization"), cs, from)
	if err == nil {
		return id, nil
	}
	a.noteRefused(from, err)
	e := wire.AsError(err)
	code := codes.Unauthenticated
	switch e.Code {
	case wire.Forbidden:
		code = codes.PermissionDenied
	case wire.RateLimited:
		code = codes.ResourceExhausted
	}
	return Identity{}, status.Error(code, e.Msg)
}

func (a *Access) joins(ctx context.Context, authorization []string, cs *tls.ConnectionState, from string) (Identity, error) {
	if r := a.now.Load(); r.requireClientCert && r.client(cs) == nil {
		return Identity{}, wire.Errorf(wire.Unauthorized, "a client certificate is required here (xds.require_client_cert), and none that is valid was given")
	}
	id, err := a.identify(ctx, authorization, cs, from)
	if err != nil {
		return Identity{}, err
	}
	return id, id.May(Join, "", "")
}
