package daprgrpc

import (
	"context"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

const (
	// streamWindow is how much of a call's message is received before its caller is known and has room for it.
	streamWindow = 64 << 10
	// roomWithin is how long a call waits for room for its message.
	roomWithin = time.Second
	roomStep   = 5 * time.Millisecond
)

// description is that of the API, with calls of one message as streams: their handlers begin before the message has come, so that
// the caller is known, and has room for it, before it is received. A client sees no difference.
func description() *grpc.ServiceDesc {
	desc := daprpb.Dapr_ServiceDesc
	for _, m := range desc.Methods {
		desc.Streams = append(desc.Streams[:len(desc.Streams):len(desc.Streams)], grpc.StreamDesc{
			StreamName: m.MethodName, ClientStreams: true,
			Handler: func(srv any, stream grpc.ServerStream) error {
				s := srv.(*Server)
				out, err := m.Handler(s, stream.Context(), func(in any) error { return s.receive(stream, in.(proto.Message)) }, nil)
				if err != nil {
					return s.refuse(err)
				}
				return stream.SendMsg(out)
			},
		})
	}
	desc.Methods = nil
	return &desc
}

// call is a call whose caller is known.
type call struct {
	grpc.ServerStream
	ctx    context.Context
	caller *session.Session
	held   budget.Held // its message
}

func (c *call) Context() context.Context { return c.ctx }

type callKey struct{}

func callOf(ctx context.Context) *call { return ctx.Value(callKey{}).(*call) }

// identify finds out whose call it is before anything of its message is received.
func (s *Server) identify(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	ctx, err := s.cfg.Sessions.Access.IdentifyCall(stream.Context())
	if err != nil {
		return s.refuse(err)
	}
	c := &call{ServerStream: stream, caller: s.caller(ctx)}
	if err := c.caller.Keep(); err != nil {
		return s.refuse(err)
	}
	c.held.Share = c.caller.Share()
	c.ctx = context.WithValue(ctx, callKey{}, c)
	defer c.held.Free()
	return handle(srv, c)
}

// receive receives the first message of a call. Its size is not known before it is there, so it counts as the largest until then.
func (s *Server) receive(stream grpc.ServerStream, in proto.Message) error {
	c := callOf(stream.Context())
	most := min(s.maxMessage(), s.cfg.Sessions.Budget.Most()/budget.SharesOfAll/2)
	if err := c.takeRoom(most); err != nil {
		return err
	}
	received := make(chan error, 1)
	go func() { received <- stream.RecvMsg(in) }() // which ends with the stream at the latest
	late := time.NewTimer(s.cfg.ReceiveTimeout)
	defer late.Stop()
	select {
	case err := <-received:
		if err == io.EOF {
			return wire.Errorf(wire.BadRequest, "the call has no message")
		} else if err != nil {
			return err
		}
	case <-late.C:
		return wire.Errorf(wire.BadRequest, "the message did not arrive completely within %v of the call's beginning", s.cfg.ReceiveTimeout)
	case <-s.stopping.Done():
		return refusal.Stopping()
	}
	more := proto.Size(in) - most
	if more > 0 {
		return c.held.TryTake(more)
	}
	c.held.Give(-more)
	return nil
}

// takeRoom waits a moment for room for a message: others are received soon.
func (c *call) takeRoom(n int) error {
	for deadline := time.Now().Add(roomWithin); ; {
		err := c.held.TryTake(n)
		if err == nil || !time.Now().Before(deadline) || !pause.For(c.ctx, roomStep) {
			return err
		}
	}
}
