package access

import (
	"net"

	"google.golang.org/grpc/credentials"
)

// lapsing are server credentials that close a connection once its client's certificate is not valid
// any more. A gRPC client makes all its calls on one connection, and would never use its new
// certificate otherwise.
type lapsing struct {
	credentials.TransportCredentials
	access *Access
}

func (l lapsing) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := l.TransportCredentials.ServerHandshake(raw)
	secured, ok := info.(credentials.TLSInfo)
	if err != nil || !ok || len(secured.State.VerifiedChains) == 0 {
		return conn, info, err
	}
	check := func() {
		if l.access.now.Load().client(&secured.State) == nil {
			_ = conn.Close() // the reader gets an error, and closes the rest
		}
	}
	c := &certifiedConn{Conn: conn, stop: l.access.onChange(check)}
	check() // for a change before onChange
	return c, info, nil
}

func (l lapsing) Clone() credentials.TransportCredentials {
	return lapsing{l.TransportCredentials.Clone(), l.access}
}

// certifiedConn is a connection whose client certificate is checked until it is closed.
type certifiedConn struct {
	net.Conn
	stop func()
}

func (c *certifiedConn) Close() error {
	c.stop()
	return c.Conn.Close()
}
