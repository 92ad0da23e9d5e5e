// Package health tells the control plane how this sidecar is, every few seconds and on one stream: first
// everything, then what has changed.
package health

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/internal/logging"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policypb"
)

// Config is what a Reporter needs; every field but Recent and Refused is required.
type Config struct {
	Conn           grpc.ClientConnInterface // to the control plane
	NodeID         string
	InstanceSecret string
	// Look is the state now, but for its log. It returns within the time of a report.
	Look func(ctx context.Context) health.State
	// Refused counts the refused events since the start, nil: none are reported.
	Refused func() map[health.Refusal]int64
	Recent  *logging.Recent // nil: no lines of the log are reported
	Logger  *slog.Logger
}

// Reporter reports the state of the sidecar.
type Reporter struct {
	cfg     Config
	refused map[health.Refusal]int64 // that were reported, on all streams
}

// New makes a Reporter.
func New(cfg Config) *Reporter { return &Reporter{cfg: cfg} }

// Run reports until ctx ends.
func (r *Reporter) Run(ctx context.Context) error {
	for {
		err := r.serve(ctx)
		if code := status.Code(err); ctx.Err() == nil && code != codes.Unavailable { // the log has lost connections already
			r.cfg.Logger.Warn("the control plane takes no reports of health", "error", err, "again_in", health.Every)
		}
		if !pause.For(ctx, health.Every) {
			return nil
		}
	}
}

// serve reports on one stream, until that ends.
func (r *Reporter) serve(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	named := metadata.AppendToOutgoingContext(ctx, policypb.StreamNodeID, r.cfg.NodeID, policypb.StreamInstanceSecret, r.cfg.InstanceSecret)
	stream, err := r.cfg.Conn.NewStream(named, &health.Stream, health.Method)
	if err != nil {
		return err
	}
	to := &grpc.GenericClientStream[wrapperspb.BytesValue, emptypb.Empty]{ClientStream: stream}
	sent, logged := &health.State{}, 0
	for {
		var next *health.State
		if next, logged, err = r.report(ctx, to, sent, logged); err != nil {
			_, err = to.CloseAndRecv() // which says why the stream ended
			return err
		}
		sent = next
		if !pause.Unless(ctx, health.Every, stream.Context().Done()) {
			return ctx.Err()
		}
	}
}

// report sends what has changed since the last report, after which logged lines of the log had been written.
func (r *Reporter) report(ctx context.Context, to grpc.ClientStreamingClient[wrapperspb.BytesValue, emptypb.Empty], sent *health.State,
	logged int) (*health.State, int, error) {
	looking, cancel := context.WithTimeout(ctx, health.Every)
	defer cancel()
	next := r.cfg.Look(looking)
	lines, written := r.cfg.Recent.Lines()
	for _, line := range lines {
		next.Log = append(next.Log, health.Cut(line))
	}
	report := sent.Diff(&next, written-logged)
	report.At = time.Now().UnixMilli()
	var refused map[health.Refusal]int64
	if r.cfg.Refused != nil {
		refused = r.cfg.Refused()
		report.Refused = health.RefusedSince(r.refused, refused)
	}
	text, err := json.Marshal(report)
	if err != nil {
		return nil, 0, err
	}
	if err := to.Send(wrapperspb.Bytes(text)); err != nil {
		return nil, 0, err
	}
	r.refused = refused
	return &next, written, nil
}
