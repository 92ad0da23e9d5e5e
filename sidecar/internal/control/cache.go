package control

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

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
//	cacheHeader | SHA-256 of the rest | a DeltaDiscoveryResponse
//
// The message has the accepted resources, each with its type and version, and their revision; its
// control_plane.identifier is the instance that wrote the file. The file is replaced atomically, so
// a reader finds the old or the new content.
const (
	cacheHeader   = "sluice control plane cache 1\n"
	maxCacheBytes = 512 << 20
)

// kept is the content of a cache.
type kept struct {
	held     map[string]map[string]*entry
	revision policypb.Revision // zero: an older program wrote it
	instance string            // that wrote it
}

// contentOf makes the message. It shares the bodies, which do not change.
func contentOf(instance string, revision policypb.Revision, held map[string]map[string]*entry) *discoveryv3.DeltaDiscoveryResponse {
	out := &discoveryv3.DeltaDiscoveryResponse{SystemVersionInfo: revision.String(), ControlPlane: &corev3.ControlPlane{Identifier: instance}}
	for typeURL, entries := range held {
		for name, e := range entries {
			out.Resources = append(out.Resources, &discoveryv3.Resource{
				Name: name, Version: e.version, Resource: &anypb.Any{TypeUrl: typeURL, Value: e.body}})
		}
	}
	return out
}

// decodeCache reads a file. Any damage is an error.
func decodeCache(data []byte) (*kept, error) {
	rest, ok := bytes.CutPrefix(data, []byte(cacheHeader))
	if !ok || len(rest) < sha256.Size {
		return nil, errors.New("it is not a cache of this version, or incomplete")
	}
	sum, body := rest[:sha256.Size], rest[sha256.Size:]
	if got := sha256.Sum256(body); !bytes.Equal(sum, got[:]) {
		return nil, errors.New("it is damaged: its checksum is wrong")
	}
	return decodeContent(body)
}

// decodeContent reads the message. The checksum was right, but another version of the program may
// have written it.
func decodeContent(body []byte) (*kept, error) {
	var content discoveryv3.DeltaDiscoveryResponse
	if err := proto.Unmarshal(body, &content); err != nil {
		return nil, err
	}
	out := &kept{instance: content.GetControlPlane().GetIdentifier(), held: map[string]map[string]*entry{policypb.PolicyPackType: {}, peersType: {}}}
	if text := content.GetSystemVersionInfo(); text != "" {
		var err error
		if out.revision, err = policypb.ParseRevision(text); err != nil {
			return nil, err
		}
	}
	read, before := settingsRead{}, &policypb.PolicyPack{}
	for _, r := range content.GetResources() {
		typeURL := r.GetResource().GetTypeUrl()
		if typeURL == policypb.TopicPolicyType || typeURL == policypb.GlobPolicyType {
			if err := single(before, r); err != nil {
				return nil, err
			}
			continue
		}
		e, err := decode(typeURL, xds.Resource{Name: r.GetName(), Version: r.GetVersion(), Body: r.GetResource().GetValue()}, read, sourceCached)
		if err != nil {
			return nil, err
		}
		out.held[typeURL][r.GetName()] = e
	}
	if len(before.GetPolicies()) == 0 {
		return out, nil
	}
	slices.SortFunc(before.Policies, func(a, b *policypb.PolicyPack_Policy) int { return cmp.Compare(a.GetName(), b.GetName()) })
	packed, err := proto.Marshal(before)
	if err != nil {
		return nil, err
	}
	out.held[policypb.PolicyPackType][singles], err = decode(policypb.PolicyPackType, xds.Resource{Name: singles, Body: packed}, read, sourceCached)
	return out, err
}

// singles is the name of the pack with the policies of a cache that an older program, without
// packs, wrote. The control plane has no such pack, and removes it.
const singles = "policies/one-by-one"

// single adds a policy of such a cache to the pack.
func single(pack *policypb.PolicyPack, r *discoveryv3.Resource) error {
	var p policypb.TopicPolicy
	settings := p.GetSettings
	if err := r.GetResource().UnmarshalTo(&p); err != nil {
		var g policypb.GlobPolicy
		if err := r.GetResource().UnmarshalTo(&g); err != nil {
			return fmt.Errorf("%q: %w", r.GetName(), err)
		}
		p.Name, p.Version, settings = g.GetName(), g.GetVersion(), g.GetSettings
	}
	if p.GetAbsent() {
		return nil
	}
	body, err := proto.Marshal(settings())
	if err != nil {
		return fmt.Errorf("%q: %w", r.GetName(), err)
	}
	pack.Policies = append(pack.Policies, &policypb.PolicyPack_Policy{Name: p.GetName(), Version: p.GetVersion(), Settings: uint32(len(pack.GetSettings()))})
	pack.Settings = append(pack.Settings, body)
	return nil
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
	return atomicfile.Write(path, bytes.Join([][]byte{[]byte(cacheHeader), sum[:], body}, nil))
}
