// Package daprgrpc serves Dapr's API over gRPC to applications that were written for it: they publish, and subscribe by
// streams. What Dapr has beside pub/sub is answered as unimplemented.
package daprgrpc

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/internal/listen"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/ingest"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Bounds of a connection.
const (
	// maxStreams is how many calls a connection may have at a time.
	maxStreams = 1000
	// messageSlack is the part of a message beside the events of a batch.
	messageSlack = 1 << 20
)

// Config is what a Server needs; every field but AppID and Options is required.
type Config struct {
	Sessions     *session.Sessions
	Publish      ingest.Config
	Groups       *group.Manager
	Policies     *policy.Current
	AppID        string // of the application; without it there are no subscriptions
	NodeID       string
	Version      string
	DrainTimeout time.Duration
	// ReceiveTimeout is how long a message may take to arrive.
	ReceiveTimeout time.Duration
	Options        []grpc.ServerOption // of the transport
	Propagation    *tracing.Propagation
	Logger         *slog.Logger
}

// Server serves the API; nil: it is not served.
type Server struct {
	daprpb.UnimplementedDaprServer
	cfg  Config
	grpc *grpc.Server

	stopping, over context.Context // end when Shutdown begins, and when clients get no more time
	stop, end      context.CancelFunc
	streams        streams
}

// New makes a Server.
func New(cfg Config) *Server {
	s := &Server{cfg: cfg}
	s.stopping, s.stop = context.WithCancel(context.Background())
	s.over, s.end = context.WithCancel(context.Background())
	s.grpc = grpc.NewServer(append(cfg.Options,
		grpc.MaxHeaderListSize(listen.MaxHeadBytes), grpc.MaxRecvMsgSize(s.maxMessage()), grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StatsHandler(connections{s}), grpc.ChainStreamInterceptor(s.identify),
		grpc.UnknownServiceHandler(unknown),
		// A client that is gone without a word is noticed, and one may ask as often whether the sidecar is there.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 30 * time.Second, Timeout: time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)...)
	s.grpc.RegisterService(description(), s)
	return s
}

// maxMessage is the size of the largest message.
func (s *Server) maxMessage() int { return s.cfg.Publish.Limits.BatchBytes + messageSlack }

// Serve serves a listener until ctx ends, and then until calls under way are answered.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	if s == nil {
		return nil
	}
	stopped := make(chan struct{})
	defer context.AfterFunc(ctx, func() {
		defer close(stopped)
		late := time.AfterFunc(s.cfg.DrainTimeout, s.grpc.Stop)
		s.grpc.GracefulStop()
		late.Stop()
	})()
	err := s.grpc.Serve(ln)
	if ctx.Err() != nil {
		<-stopped
		return nil
	}
	return err
}

// Shutdown ends streams: no more events are given, and clients answer for those that they have until ctx ends. Then it
// cuts connections off, since a client may not even read.
func (s *Server) Shutdown(ctx context.Context) {
	if s == nil {
		return
	}
	s.stop()
	defer context.AfterFunc(ctx, func() {
		s.end()
		s.grpc.Stop()
	})()
	s.streams.wait()
	s.end()
}

// connections makes the calls of one connection share its limits.
type connections struct{ *Server }

func (c connections) TagConn(ctx context.Context, info *stats.ConnTagInfo) context.Context {
	return c.cfg.Sessions.OnConnection(ctx, info.LocalAddr, budget.DaprConnections)
}
func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (connections) HandleConn(context.Context, stats.ConnStats)                     {}
func (connections) HandleRPC(context.Context, stats.RPCStats)                       {}

// unknown answers what Dapr has and Sluice has not.
func unknown(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return status.Errorf(codes.Unimplemented,
		"%s is not here: this is Sluice, which has of Dapr's API what publishes and subscribes, and GetMetadata", method)
}

// caller is the session of a call.
func (s *Server) caller(ctx context.Context) *session.Session {
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	return s.cfg.Sessions.OfCall(ctx, from)
}

// PublishEvent implements daprpb.DaprServer.
func (s *Server) PublishEvent(ctx context.Context, in *daprpb.PublishEventRequest) (*emptypb.Empty, error) {
	results, err := s.publish(ctx, &ingest.DaprCall{
		Topic: in.GetTopic(), Metadata: in.GetMetadata(),
		Entries: []ingest.DaprCallEntry{{Data: in.GetData(), ContentType: in.GetDataContentType()}},
	})
	if err == nil && results[0].Err != nil {
		err = results[0].Err
	}
	if err != nil {
		return nil, s.refuse(err)
	}
	return &emptypb.Empty{}, nil
}

// BulkPublishEvent implements daprpb.DaprServer. It names the events that were refused.
func (s *Server) BulkPublishEvent(ctx context.Context, in *daprpb.BulkPublishRequest) (*daprpb.BulkPublishResponse, error) {
	call := &ingest.DaprCall{Topic: in.GetTopic(), Metadata: in.GetMetadata()}
	seen := map[string]bool{}
	for i, en := range in.GetEntries() {
		if en.GetEntryId() == "" || seen[en.GetEntryId()] {
			err := wire.Errorf(wire.BadRequest, "entry_id of entry %d is missing, or is that of another entry: %q",
				i, refusal.Shorten(en.GetEntryId()))
			noteRefused(ctx, in.GetTopic(), err)
			return nil, s.refuse(err)
		}
		seen[en.GetEntryId()] = true
		call.Entries = append(call.Entries, ingest.DaprCallEntry{
			Data: en.GetEvent(), ContentType: en.GetContentType(), Metadata: en.GetMetadata(),
		})
	}
	results, err := s.publish(ctx, call)
	if err != nil {
		return nil, s.refuse(err)
	}
	out := &daprpb.BulkPublishResponse{}
	for i := range results {
		if e := results[i].Err; e != nil {
			out.FailedEntries = append(out.FailedEntries, &daprpb.BulkPublishResponseFailedEntry{EntryId: in.Entries[i].EntryId, Error: e.Msg})
		}
	}
	return out, nil
}

// BulkPublishEventAlpha1 is BulkPublishEvent under the name that earlier SDKs call.
func (s *Server) BulkPublishEventAlpha1(ctx context.Context, in *daprpb.BulkPublishRequest) (*daprpb.BulkPublishResponse, error) {
	return s.BulkPublishEvent(ctx, in)
}

// publish publishes what came as a message.
func (s *Server) publish(ctx context.Context, call *ingest.DaprCall) ([]wire.ResultItem, error) {
	if s.cfg.Sessions.Stopping.Err() != nil {
		noteRefused(ctx, call.Topic, refusal.Stopping())
		return nil, refusal.Stopping()
	}
	call.Trace = s.traceOf(ctx)
	return s.cfg.Publish.PublishCall(ctx, callOf(ctx).caller, call)
}

// noteRefused writes the line of a publish that was refused before it was one.
func noteRefused(ctx context.Context, topic string, err error) {
	caller := callOf(ctx).caller
	caller.NotePublished(caller.Identity(), ingest.Undecoded(topic), nil, err)
}

// traceOf is the trace context of a call.
func (s *Server) traceOf(ctx context.Context) http.Header {
	trace := http.Header{}
	md, _ := metadata.FromIncomingContext(ctx)
	for name, values := range md {
		trace[http.CanonicalHeaderKey(name)] = values
	}
	s.cfg.Propagation.Translate(trace)
	for name := range trace {
		if !slices.Contains(traceHeaders, name) {
			delete(trace, name) // metadata says nothing else of an event
		}
	}
	return trace
}

var traceHeaders = []string{"Traceparent", "Tracestate", "Baggage"}

// GetMetadata implements daprpb.DaprServer.
func (s *Server) GetMetadata(context.Context, *daprpb.GetMetadataRequest) (*daprpb.GetMetadataResponse, error) {
	return &daprpb.GetMetadataResponse{
		Id: cmp.Or(s.cfg.AppID, s.cfg.NodeID), RuntimeVersion: s.cfg.Version,
		RegisteredComponents: []*daprpb.RegisteredComponents{{Name: "pubsub", Type: "pubsub.sluice", Version: "v1"}},
	}, nil
}

// refuse is an error as a status, if it is none already; the log has what is internal.
func (s *Server) refuse(err error) error {
	if _, is := status.FromError(err); is {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return status.FromContextError(err).Err()
	}
	e := wire.AsError(refusal.Of(err))
	if e.Code == wire.Internal {
		s.cfg.Logger.Error("a call of Dapr's API failed", "error", err)
	}
	return statusOf(e)
}
