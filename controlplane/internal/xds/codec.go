package xds

import (
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	protobuf "google.golang.org/protobuf/proto"
)

// codec encodes messages as gRPC's own codec does, without copying the resources of a response: a
// thousand sidecars that connect at once are sent the same bytes of all policies.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements [encoding.CodecV2]. Its result shares the resources' bytes.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(*discovery.DeltaDiscoveryResponse)
	if !ok || len(r.GetResources()) == 0 {
		return c.CodecV2.Marshal(v)
	}
	rest := &discovery.DeltaDiscoveryResponse{
		SystemVersionInfo: r.GetSystemVersionInfo(), TypeUrl: r.GetTypeUrl(), Nonce: r.GetNonce(),
		RemovedResources: r.GetRemovedResources(), RemovedResourceNames: r.GetRemovedResourceNames(), ControlPlane: r.GetControlPlane(),
	}
	head, err := protobuf.Marshal(rest)
	if err != nil {
		return nil, err
	}
	out := mem.BufferSlice{mem.SliceBuffer(head)}
	for _, resource := range r.GetResources() {
		value := resource.GetResource().GetValue()
		bare := &discovery.Resource{Name: resource.GetName(), Version: resource.GetVersion(), Aliases: resource.GetAliases(),
			Ttl: resource.GetTtl(), CacheControl: resource.GetCacheControl(), Metadata: resource.GetMetadata()}
		head, err := protobuf.Marshal(bare)
		if err != nil {
			return nil, err
		}
		url := resource.GetResource().GetTypeUrl()
		size := protowire.SizeTag(1) + protowire.SizeBytes(len(url)) + protowire.SizeTag(2) + protowire.SizeBytes(len(value))
		whole := len(head) + protowire.SizeTag(2) + protowire.SizeBytes(size)
		b := protowire.AppendTag(make([]byte, 0, whole-len(value)+16), 2, protowire.BytesType) // DeltaDiscoveryResponse.resources
		b = append(protowire.AppendVarint(b, uint64(whole)), head...)
		b = protowire.AppendTag(b, 2, protowire.BytesType) // Resource.resource
		b = protowire.AppendVarint(b, uint64(size))
		b = protowire.AppendString(protowire.AppendTag(b, 1, protowire.BytesType), url) // Any.type_url
		b = protowire.AppendTag(b, 2, protowire.BytesType)                              // Any.value
		b = protowire.AppendVarint(b, uint64(len(value)))
		out = append(out, mem.SliceBuffer(b), mem.SliceBuffer(value))
	}
	return out, nil
}
