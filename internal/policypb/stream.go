package policypb

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// These are the keys of the metadata in which a sidecar names itself, for streams of other services
// than xDS.
const (
	StreamNodeID   = "sluice-node-id"
	StreamInstance = "sluice-instance"
	StreamStoreID  = "sluice-store-id"
)

// maxIdentity bounds a value of a stream's metadata, in bytes.
const maxIdentity = 256

// StreamValues returns the values of a stream's metadata at these keys, each of 1 to 256 bytes. The
// error has a gRPC status.
func StreamValues(ctx context.Context, keys ...string) ([]string, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	values := make([]string, len(keys))
	for i, key := range keys {
		if v := md.Get(key); len(v) > 0 {
			values[i] = v[0]
		}
		if values[i] == "" || len(values[i]) > maxIdentity {
			return nil, status.Errorf(codes.InvalidArgument, "metadata %s has to be of 1 to %d bytes", key, maxIdentity)
		}
	}
	return values, nil
}
