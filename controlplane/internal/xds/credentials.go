package xds

import (
	"sync"
	"time"

	"github.com/envoyproxy/go-control-plane/pkg/cache/types"
	"github.com/envoyproxy/go-control-plane/pkg/cache/v3"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/policypb"
)

// credentials are the peer credentials of connected sidecars: a resource for each, whose private
// key only the sidecar has. They are renewed before they expire.
type credentials struct {
	issuer *access.PeerIssuer // nil: there are none
	cache  *cache.LinearCache

	mu      sync.Mutex
	holders map[string]*holder // by node id
}

// holder is a sidecar with a credential.
type holder struct {
	stream *stream
	key    []byte
	issued time.Time
}

func newCredentials(issuer *access.PeerIssuer) *credentials {
	return &credentials{issuer: issuer, cache: cache.NewLinearCache(policypb.PeerCredentialType), holders: map[string]*holder{}}
}

// give issues the credential of a sidecar that has connected.
func (c *credentials) give(s *stream, key []byte) error {
	if c.issuer == nil || len(key) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &holder{stream: s, key: key, issued: time.Now()}
	made, err := c.make(s.nodeID, h)
	if err != nil {
		return err
	}
	c.holders[s.nodeID] = h
	return c.cache.UpdateResource(policypb.PeerCredentialName(s.nodeID), made)
}

func (c *credentials) make(nodeID string, h *holder) (types.Resource, error) {
	text, err := c.issuer.Issue(nodeID, h.key)
	if err != nil {
		return nil, err
	}
	return policypb.NewPeerCredential(text, c.issuer.Public()), nil
}

// take removes the credential, unless the sidecar has another stream by now.
func (c *credentials) take(s *stream) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.holders[s.nodeID]; h == nil || h.stream != s {
		return nil
	}
	delete(c.holders, s.nodeID)
	return c.cache.DeleteResource(policypb.PeerCredentialName(s.nodeID))
}

// renew renews the credentials that would expire otherwise.
func (c *credentials) renew(now time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	changed := map[string]types.Resource{}
	for nodeID, h := range c.holders {
		if now.Sub(h.issued) < access.PeerCredentialRenew {
			continue
		}
		made, err := c.make(nodeID, h)
		if err != nil {
			return err
		}
		h.issued = now
		changed[policypb.PeerCredentialName(nodeID)] = made
	}
	return update(c.cache, changed, nil)
}
