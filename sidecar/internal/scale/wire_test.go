package scale

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// What a wire looks for: the names of the types of resources, as they are in each message, and the id of the sidecar's own
// store, which is said among the peers.
const (
	packsKind = iota
	peersKind
	selfKind
	kinds
)

// wire counts what comes and goes over a sidecar's connections, of all its lives. Nothing is
// encrypted or compressed, so the name of a type is seen once for each response of that type and
// once for each resource in it.
type wire struct {
	looksFor      [kinds]string
	read, written atomic.Int64
	names         [kinds]atomic.Int64
}

func newWire(storeID string) *wire {
	return &wire{looksFor: [kinds]string{"sluice.v1.PolicyPack", "v3.ClusterLoadAssignment", storeID}}
}

// seen is what a wire has counted.
type seen struct {
	read, written int64
	names         [kinds]int64
}

func (w *wire) seen() seen {
	s := seen{read: w.read.Load(), written: w.written.Load()}
	for i := range s.names {
		s.names[i] = w.names[i].Load()
	}
	return s
}

func (s seen) minus(t seen) seen {
	s.read, s.written = s.read-t.read, s.written-t.written
	for i := range s.names {
		s.names[i] -= t.names[i]
	}
	return s
}

// counting makes connections in clear text that a wire counts.
type counting struct {
	credentials.TransportCredentials
	wire *wire
}

func (w *wire) credentials() credentials.TransportCredentials {
	return counting{insecure.NewCredentials(), w}
}

func (c counting) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil {
		return nil, nil, err
	}
	return &counted{Conn: conn, wire: c.wire}, info, nil
}

func (c counting) Clone() credentials.TransportCredentials {
	return counting{c.TransportCredentials.Clone(), c.wire}
}

// counted is one connection. It is read by one goroutine.
type counted struct {
	net.Conn
	wire *wire
	tail []byte // the last bytes read, as many as part of a name can have
}

// longestName is a store's id.
const longestName = len("00000000-0000-0000-0000-000000000000")

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.wire.read.Add(int64(n))
	got := p[:n]
	joint := append(c.tail, got[:min(n, longestName)]...)
	for i, text := range c.wire.looksFor {
		name := []byte(text)
		found := bytes.Count(got, name)
		// Names that begin in an earlier read and end in this one.
		from := max(0, len(c.tail)-len(name)+1)
		to := min(len(joint), len(c.tail)+len(name)-1)
		found += bytes.Count(joint[from:to], name)
		c.wire.names[i].Add(int64(found))
	}
	if n >= longestName {
		joint = append(joint[:0], got[n-longestName:]...)
	}
	c.tail = append(c.tail[:0], joint[max(0, len(joint)-longestName):]...)
	return n, err
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.wire.written.Add(int64(n))
	return n, err
}

// pieces is a connection that delivers a text in pieces of one size.
type pieces struct {
	net.Conn
	text []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	n := copy(b, p.text[:min(p.size, len(p.text))])
	p.text = p.text[n:]
	return n, nil
}

func TestNamesAreCountedHoweverTheyCome(t *testing.T) {
	const self = "0197d3f0-53a1-7c7b-b6a5-d6de4a0a1c11"
	text := []byte("x " + self + " sluice.v1.PolicyPack sluice.v1.PolicyPackv3.ClusterLoadAssignment sluice.v1.Policy y")
	for size := 1; size <= len(text); size++ {
		w := newWire(self)
		c := &counted{Conn: &pieces{text: text, size: size}, wire: w}
		for buffer := make([]byte, len(text)); w.read.Load() < int64(len(text)); {
			if _, err := c.Read(buffer); err != nil {
				t.Fatal(err)
			}
		}
		if got := w.seen().names; got != [kinds]int64{packsKind: 2, peersKind: 1, selfKind: 1} {
			t.Errorf("in pieces of %d: counted %v", size, got)
		}
	}
}
