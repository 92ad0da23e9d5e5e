// Package health has the health of the fleet: the reports of sidecars, and the incidents and rates that are made of
// them. It does not know how they are shown.
package health

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/internal/policypb"
)

// Sink receives what sidecars report. States are never changed. It is safe for concurrent use.
type Sink interface {
	SetHealth(node, instance string, state *health.State, sent time.Time)
	// Refuse adds events that a sidecar has refused since its last report.
	Refuse(events []health.Refused)
}

// Server is the service to which sidecars report. Every field is required.
type Server struct {
	Sink Sink
	// Admit returns whether the caller of the stream with this context is the process that has a node id;
	// the error has a gRPC status.
	Admit  func(ctx context.Context, nodeID, instance string) error
	Logger *slog.Logger
}

// Register adds the service to a gRPC server.
func (s *Server) Register(r grpc.ServiceRegistrar) {
	policypb.RegisterStream(r, health.Service, health.Stream, s.report)
}

// report serves one sidecar.
func (s *Server) report(from *grpc.GenericServerStream[wrapperspb.BytesValue, emptypb.Empty]) error {
	id, err := policypb.StreamValues(from.Context(), policypb.StreamNodeID, policypb.StreamInstanceSecret)
	if err != nil {
		return err
	}
	node, instance := id[0], policypb.PublicID(id[1])
	if err := s.Admit(from.Context(), node, instance); err != nil {
		return err
	}
	for state := (&health.State{}); ; {
		message, err := from.Recv()
		if err != nil {
			return err
		}
		if n := len(message.GetValue()); n > health.MaxReportBytes {
			return s.refuse(node, status.Errorf(codes.InvalidArgument, "a report has %d bytes, at most %d are allowed", n, health.MaxReportBytes))
		}
		r, err := health.Parse(message.GetValue())
		if err != nil {
			return s.refuse(node, status.Error(codes.InvalidArgument, err.Error()))
		}
		state = state.Apply(r)
		s.Sink.SetHealth(node, instance, state, time.UnixMilli(r.At))
		s.Sink.Refuse(r.Refused)
	}
}

func (s *Server) refuse(node string, err error) error {
	s.Logger.Warn("a sidecar's report of its health is refused", "node", node, "error", err)
	return err
}
