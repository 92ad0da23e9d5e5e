package policypb

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// These are the keys of the metadata in which a sidecar names itself, for streams of other services
// than xDS.
const (
	StreamNodeID         = "sluice-node-id"
	StreamInstanceSecret = "sluice-instance-secret"
	StreamStoreID        = "sluice-store-id"
)

// These are the keys, in the metadata of a sidecar's node, of the secrets of its process and of its data folder.
const (
	InstanceSecret = "instance_secret"
	FolderSecret   = "folder_secret"
)

// PublicID is by what others know a process or a data folder: a digest of its secret.
//
// A credential for a prefix of node ids does not tell its sidecars apart. What does is a secret that each process makes, and one
// in its data folder, each of 122 random bits. A sidecar shows them to control planes alone, which keep only their digests: in
// lists, in the store, and in what they tell other sidecars. So whoever has a credential of the same prefix, and reads all that,
// cannot present what a living sidecar presents: it neither takes its session, nor reports its use, nor says goodbye for its folder.
func PublicID(secret string) string {
	if secret == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:16])
}

// RegisterStream adds a service of one kind of stream to a gRPC server.
func RegisterStream[In, Out any](
	r grpc.ServiceRegistrar, service string, kind grpc.StreamDesc, serve func(*grpc.GenericServerStream[In, Out]) error,
) {
	kind.Handler = func(_ any, stream grpc.ServerStream) error {
		return serve(&grpc.GenericServerStream[In, Out]{ServerStream: stream})
	}
	r.RegisterService(&grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{kind}}, nil)
}

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
