package control

import (
	"cmp"
	"slices"
)

// Peer is another sidecar of the fleet.
type Peer struct {
	NodeID   string
	Instance string // of one life of its process
	StoreID  string // which store it is on
	Address  string // of its replay API, host:port or unix:/path
	// Gone says that the control plane no longer has it: it may be dead, and the only one with some
	// events.
	Gone bool
}

// Peers are the other sidecars that the control plane knows, or knew when it
// was last heard of, by instance. The slice is shared: read only.
func (c *Control) Peers() []Peer { return *c.peers.Load() }

// PeersKnown tells whether the control plane has ever said who the peers are, in
// this life or in the last one.
func (c *Control) PeersKnown() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.peersKnown
}

// KnownSidecars counts the sidecars that the control plane has, or had when it
// was last heard of, and this one.
func (c *Control) KnownSidecars() int {
	n := 1
	for _, p := range c.Peers() {
		if !p.Gone {
			n++
		}
	}
	return n
}

// listPeers makes the list of what is held. This sidecar is not its own peer,
// nor is its last life: that is over. c.mu is held, or c not in use yet.
func (c *Control) listPeers() {
	peers := []Peer{}
	for _, e := range c.held[peersType] {
		for _, p := range e.peers {
			if p.Instance != c.cfg.Instance && p.Instance != c.previous {
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
