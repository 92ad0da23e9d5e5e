package quota_test

import (
	"context"
	"io"
	"sync"
	"time"

	rlqs "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/controlplane/quotatest"
)

// network is the way from sidecars to the control plane, in memory: messages take time, and
// connections break.
type network struct {
	delay func() time.Duration

	mu     sync.Mutex
	server *quotatest.Server // nil: down
	links  map[*link]bool
}

func newNetwork(delay func() time.Duration) *network {
	return &network{delay: delay, links: map[*link]bool{}}
}

// serve puts a control plane there (nil: none), and cuts all connections.
func (n *network) serve(s *quotatest.Server) {
	n.mu.Lock()
	n.server = s
	links := n.links
	n.links = map[*link]bool{}
	n.mu.Unlock()
	for l := range links {
		l.fail()
	}
}

// port is one sidecar's access to the network.
type port struct {
	network *network
	mu      sync.Mutex
	down    bool
	stalled time.Time // nothing arrives before
	now     *link
}

// cut breaks the connection and keeps it so, or lets it be again.
func (p *port) cut(down bool) {
	p.mu.Lock()
	p.down = down
	l := p.now
	p.mu.Unlock()
	if down && l != nil {
		l.fail()
	}
}

// stall holds back everything for a time, without an error.
func (p *port) stall(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stalled = time.Now().Add(d)
}

func (p *port) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	return status.Error(codes.Unimplemented, "streams only")
}

func (p *port) NewStream(ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption) (grpc.ClientStream, error) {
	time.Sleep(p.network.delay())
	p.network.mu.Lock()
	defer p.network.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	server := p.network.server
	if server == nil || p.down {
		return nil, status.Error(codes.Unavailable, "cannot connect")
	}
	l := &link{port: p, up: make(chan parcel, 1<<16), down: make(chan parcel, 1<<16), half: make(chan struct{}), over: make(chan struct{})}
	l.client, l.failClient = context.WithCancel(ctx)
	md, _ := metadata.FromOutgoingContext(ctx)
	l.server, l.failServer = context.WithCancel(metadata.NewIncomingContext(context.WithoutCancel(ctx), md))
	context.AfterFunc(l.client, l.failServer)
	p.network.links[l], p.now = true, l
	go func() {
		l.result = rlqs.RateLimitQuotaService_ServiceDesc.Streams[0].Handler(server, serverEnd{l})
		close(l.over)
	}()
	return clientEnd{l}, nil
}

type parcel struct {
	message proto.Message
	arrives time.Time
}

// link is one stream.
type link struct {
	port                   *port
	up, down               chan parcel
	half                   chan struct{} // the client sends no more
	over                   chan struct{} // the server's handler has returned result
	result                 error
	client, server         context.Context
	failClient, failServer context.CancelFunc
}

func (l *link) fail() { l.failClient(); l.failServer() }

func send(ctx context.Context, to chan<- parcel, m any, delay time.Duration) error {
	select {
	case <-ctx.Done():
		return io.EOF
	case to <- parcel{proto.Clone(m.(proto.Message)), time.Now().Add(delay)}:
		return nil
	}
}

// receive waits for a message; done says that none comes after those that are there.
func (l *link) receive(ctx context.Context, from <-chan parcel, into any, done <-chan struct{}, end func() error) error {
	var p parcel
	select {
	case p = <-from:
	default:
		select {
		case <-ctx.Done():
			return status.Error(codes.Unavailable, "connection lost")
		case p = <-from:
		case <-done:
			select {
			case p = <-from:
			default:
				return end()
			}
		}
	}
	for {
		l.port.mu.Lock()
		at := p.arrives
		if l.port.stalled.After(at) {
			at = l.port.stalled
		}
		l.port.mu.Unlock()
		wait := time.Until(at)
		if wait <= 0 {
			break
		}
		select {
		case <-ctx.Done():
			return status.Error(codes.Unavailable, "connection lost")
		case <-time.After(wait):
		}
	}
	proto.Merge(into.(proto.Message), p.message)
	return nil
}

type clientEnd struct{ *link }

func (e clientEnd) Header() (metadata.MD, error) { return nil, nil }
func (e clientEnd) Trailer() metadata.MD         { return nil }
func (e clientEnd) Context() context.Context     { return e.client }
func (e clientEnd) CloseSend() error             { close(e.half); return nil }
func (e clientEnd) SendMsg(m any) error          { return send(e.client, e.up, m, e.port.network.delay()) }
func (e clientEnd) RecvMsg(m any) error {
	return e.receive(e.client, e.down, m, e.over, func() error {
		if e.result != nil {
			return e.result
		}
		return io.EOF
	})
}

type serverEnd struct{ *link }

func (e serverEnd) SetHeader(metadata.MD) error  { return nil }
func (e serverEnd) SendHeader(metadata.MD) error { return nil }
func (e serverEnd) SetTrailer(metadata.MD)       {}
func (e serverEnd) Context() context.Context     { return e.server }
func (e serverEnd) SendMsg(m any) error          { return send(e.server, e.down, m, e.port.network.delay()) }
func (e serverEnd) RecvMsg(m any) error {
	return e.receive(e.server, e.up, m, e.half, func() error { return io.EOF })
}

// identity is the metadata of a sidecar's call.
func identity(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "sluice-node-id", "n", "sluice-instance-secret", "i")
}
