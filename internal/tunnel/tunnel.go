// Package tunnel carries connections from the control plane to sidecars over the gRPC connections
// that the sidecars have made to it, so that no port of a sidecar has to be reachable.
//
// Each connection is a bidirectional stream. A sidecar keeps one idle stream open ([Listener]). The
// control plane makes a connection of it ([Server.Dial]) and says so with an empty message, by which
// the sidecar opens the next one, up to MaxConnections. From then on the messages are the bytes of
// the connection: flow control, cancelling and the detection of dead peers are those of HTTP/2.
package tunnel

import (
	"io"
	"net"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	// MaxConnections bounds the connections to one sidecar, with the idle stream.
	MaxConnections = 16
	// messageBytes bounds the bytes of a message.
	messageBytes = 32 << 10

	service = "sluice.v1.Tunnel"
	method  = "/" + service + "/Connect"
)

// connectStream describes the streams.
var connectStream = grpc.StreamDesc{StreamName: "Connect", ServerStreams: true, ClientStreams: true}

// link is either end of a stream.
type link interface {
	Send(*wrapperspb.BytesValue) error
	Recv() (*wrapperspb.BytesValue, error)
}

// conn is one end of a connection. The other end of its pipe is copied from and to the stream.
type conn struct {
	net.Conn
	peer   addr
	closed func() // is called once
	once   sync.Once
}

// pipe makes a connection with a peer, and the end that is to be copied.
func pipe(peer string, closed func()) (*conn, net.Conn) {
	outer, inner := net.Pipe()
	return &conn{Conn: outer, peer: addr(peer), closed: closed}, inner
}

// Close closes the connection. What was written before is still sent.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.closed)
	return err
}

func (c *conn) LocalAddr() net.Addr  { return addr("tunnel") }
func (c *conn) RemoteAddr() net.Addr { return c.peer }

// addr is who is at the other end of a tunnel.
type addr string

func (addr) Network() string  { return "tunnel" }
func (a addr) String() string { return string(a) }

// send sends what is written to a connection, until its end.
func send(from net.Conn, to link) error {
	buf := make([]byte, messageBytes)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if err := to.Send(&wrapperspb.BytesValue{Value: buf[:n]}); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // it is closed
		}
	}
}

// receive gives a connection what comes, until the stream ends. Once the connection is closed, the
// rest is dropped.
func receive(from link, to io.Writer) {
	for {
		m, err := from.Recv()
		if err != nil {
			return
		}
		_, _ = to.Write(m.GetValue())
	}
}
