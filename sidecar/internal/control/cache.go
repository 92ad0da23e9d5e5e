package control

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/sluice-bus/sluice/internal/atomicfile"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/sidecar/internal/xds"
)

// The cache is one file:
//
//	cacheKind and cacheFormat, a line | SHA-256 of the rest | a DeltaDiscoveryResponse
//
// The message has the accepted resources, each with its type and version, and their revision; its
// control_plane.identifier is the instance that wrote the file, and its nonce counts how often it was
// written. The file is replaced atomically, so a reader finds the old or the new content. There are
// two copies: where one is damaged, missing or older, the policies are still known.
const (
	cacheKind     = "sluice control plane cache "
	cacheFormat   = "1"
	maxCacheBytes = 512 << 20
)

// kept is the content of a cache.
type kept struct {
	accepted map[string]map[string]*entry
	revision policypb.Revision
	instance string // that wrote it
	writes   uint64 // how often the cache was written
}

// contentOf makes the message. It shares the bodies, which do not change.
func contentOf(instance string, revision policypb.Revision, accepted map[string]map[string]*entry) *discoveryv3.DeltaDiscoveryResponse {
	out := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: revision.String(), ControlPlane: &corev3.ControlPlane{Identifier: instance}}
	for typeURL, entries := range accepted {
		for name, e := range entries {
			out.Resources = append(out.Resources, &discoveryv3.Resource{
				Name: name, Version: e.version, Resource: &anypb.Any{TypeUrl: typeURL, Value: e.body}})
		}
	}
	return out
}

// decodeCache reads a file. Any damage is an error.
func decodeCache(data []byte) (*kept, error) {
	line, rest, whole := bytes.Cut(data, []byte("\n"))
	format, is := bytes.CutPrefix(line, []byte(cacheKind))
	switch {
	case !is || !whole:
		return nil, errors.New("it is not a cache of policies")
	case string(format) != cacheFormat:
		return nil, fmt.Errorf("it has format %.20q, and this program reads and writes format %q", format, cacheFormat)
	case len(rest) < sha256.Size:
		return nil, errors.New("it is incomplete")
	}
	sum, body := rest[:sha256.Size], rest[sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(sum, got[:]) {
		return nil, errors.New("it is damaged: its checksum is wrong")
	}
	return decodeContent(body)
}

// decodeContent reads the message, and checks it as if the control plane had sent it.
func decodeContent(body []byte) (*kept, error) {
	var content discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(body, &content); err != nil {
		return nil, err
	}
	out := &kept{instance: content.GetControlPlane().GetIdentifier(),
		accepted: map[string]map[string]*entry{policypb.PolicyPackType: {}, peersType: {}}}
	var err error
	if out.revision, err = policypb.ParseRevision(content.GetSystemVersionInfo()); err != nil {
		return nil, err
	}
	read := settingsRead{}
	if text := content.GetNonce(); text != "" {
		if out.writes, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, err
		}
	}
	for _, r := range content.GetResources() {
		typeURL := r.GetResource().GetTypeUrl()
		e, err := decode(typeURL, xds.Resource{Name: r.GetName(), Version: r.GetVersion(), Body: r.GetResource().GetValue()}, read, sourceCached)
		if err != nil {
			return nil, err
		}
		out.accepted[typeURL][r.GetName()] = e
	}
	return out, nil
}

func readCache(path string) (*kept, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxCacheBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxCacheBytes {
		return nil, fmt.Errorf("it has more than %d bytes", maxCacheBytes)
	}
	return decodeCache(data)
}

// writeCache replaces the file so that a kill at any moment leaves the old one or the new one.
func writeCache(path string, content *discoveryv3.DeltaDiscoveryResponse) error {
	body, err := proto.Marshal(content)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(body)
	return atomicfile.Write(path, bytes.Join([][]byte{[]byte(cacheKind + cacheFormat + "\n"), sum[:], body}, nil))
}
