package control

import (
	"cmp"
	"slices"
)

// Peer is another sidecar of the fleet.
type Peer struct {
	NodeID   string
	Instance string // of its process
	StoreID  string // of its store
	FolderID string // of its data folder
	Address  string // of its replay API, host:port or unix:/path
	// Gone says that it is no longer connected: it may be dead, and have events that no other has.
	Gone bool
}

// Peers returns the other sidecars that the control plane knows, or knew when it was last
// connected, by instance. The slice is shared: read only.
func (c *Control) Peers() []Peer { return *c.peers.Load() }

// PeersKnown reports whether the control plane has ever sent the peers, to this process or the last
// one.
func (c *Control) PeersKnown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peersKnown
}

// KnownSidecars counts the sidecars that the control plane has, or had when it was last connected,
// and this one.
func (c *Control) KnownSidecars() int {
	n := 1
	for _, p := range c.Peers() {
		if !p.Gone {
			n++
		}
	}
	return n
}

// listPeers updates the list of peers from the accepted ones. This process and the sidecar's last process are
// not peers. c.mu is held, or c is not in use yet.
func (c *Control) listPeers() {
	peers := []Peer{}
	for _, e := range c.accepted[peersType] {
		for _, p := range e.peers {
			if p.Instance != c.instance && p.Instance != c.previous {
				peers = append(peers, p)
			}
		}
	}
	life := func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.NodeID, b.NodeID))
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Or(life(a, b), cmp.Compare(a.Address, b.Address)) })
	peers = slices.CompactFunc(peers, func(a, b Peer) bool { return life(a, b) == 0 })
	c.peers.Store(&peers)
}
