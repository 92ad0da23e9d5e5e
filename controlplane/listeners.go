package controlplane

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	rpcpeer "google.golang.org/grpc/peer"
	rpcstatus "google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/internal/listen"
)

const (
	// maxConnections bounds the connections of each listener, where the limit of open files does not.
	maxConnections = 20_000
	// xdsFiles and httpFiles are the shares of the process's open files that the connections of each
	// listener may take, in sixteenths. The rest is for the store.
	xdsFiles  = 8
	httpFiles = 4
	// reserveShare is the part of a listener's connections that no request can hold: they are for
	// health checks, metrics, and for clients that have not authenticated yet.
	reserveShare = 8
)

// bind binds a listener with a bound on its connections. Those that have no request of an
// authenticated client make room for new ones.
func bind(ctx context.Context, name, addr string, share int) (*listen.Evicting, error) {
	ln, err := listen.On(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	most := min(maxConnections, listen.OpenFiles()*share/16)
	return listen.NewEvicting(ln, most, most/reserveShare), nil
}

// holdPlace takes a place of the xDS listener for a stream of a sidecar that has authenticated.
func holdPlace(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
	from, ok := rpcpeer.FromContext(stream.Context())
	if !ok {
		return handle(srv, stream)
	}
	release, ok := listen.Hold(from.LocalAddr)
	if !ok {
		return rpcstatus.Error(codes.ResourceExhausted,
			"the control plane has as many sidecars connected as its limit of open files (ulimit -n) allows")
	}
	defer release()
	return handle(srv, stream)
}
