package access

import (
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// lapsing are server credentials that close a connection once its client's
// certificate is not valid any more. A gRPC client makes all its calls on one
// connection, and would never use its new certificate otherwise.
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
	c := &certifiedConn{Conn: conn, state: &secured.State, access: l.access}
	l.access.mu.Lock()
	l.access.certified[c] = struct{}{}
	l.access.mu.Unlock()
	if l.access.now.Load().client(c.state) == nil { // a change before it was known
		_ = c.Close()
	}
	return c, info, nil
}

func (l lapsing) Clone() credentials.TransportCredentials {
	return lapsing{l.TransportCredentials.Clone(), l.access}
}

// certifiedConn is a connection with a client certificate, until it is closed.
type certifiedConn struct {
	net.Conn
	state  *tls.ConnectionState
	access *Access
}

func (c *certifiedConn) Close() error {
	c.access.mu.Lock()
	delete(c.access.certified, c)
	c.access.mu.Unlock()
	return c.Conn.Close()
}

// closeLapsed closes the connections whose certificates are not valid any more.
// Their readers get an error.
func (a *Access) closeLapsed(r *rules) {
	var lapsed []*certifiedConn
	a.mu.Lock()
	for c := range a.certified {
		if r.client(c.state) == nil {
			lapsed = append(lapsed, c)
		}
	}
	a.mu.Unlock()
	for _, c := range lapsed {
		_ = c.Close() // the other side is gone, or will know
	}
}
