package federation

import (
	"cmp"
	"context"
	"io"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
)

// Peer is another sidecar as the control plane, or --peers, lists it. Only the address is always
// known.
type Peer struct {
	NodeID   string
	Instance string // of one life of its process
	StoreID  string
	FolderID string // of its data folder
	Address  string // of its replay API, host:port or unix:/path
	// Gone says that the control plane no longer has it.
	Gone bool
}

// member is a way to ask one sidecar: this one, or a peer. Its methods are safe for concurrent use.
type member interface {
	// hello asks for its identity.
	hello(ctx context.Context) (replay.Peer, error)
	// open asks for a part and returns once it begins to answer. Its text is one event per line,
	// and io.EOF is the proper end. A spool is frozen by then; empty says that it has no event of
	// the topic. ctx applies to the text too.
	open(ctx context.Context, a ask) (text io.ReadCloser, empty bool, err error)
	// times returns for each id the ts at which the part holds it, or with replay.AnyPart the
	// store, else the spool; nil if it does not hold the id, or not with that key.
	times(ctx context.Context, part, topic string, key *string, ids []string) ([]*int64, error)
}

// ask is a request for one part.
type ask struct {
	part  string
	topic string
	scan  eventlog.ScanQuery
	limit int // of a store's part: how many events are enough for now; 0: all
	// The answer must name store, or node: another sidecar at that address, or the same one on
	// another store, has other events.
	store, node string
}

// sidecar is one sidecar of the fleet, and how it answered.
type sidecar struct {
	member
	listed Peer
	said   replay.Peer
	err    error // why it did not answer
	self   bool
}

func (s *sidecar) nodeID() string  { return cmp.Or(s.said.NodeID, s.listed.NodeID) }
func (s *sidecar) storeID() string { return cmp.Or(s.said.StoreID, s.listed.StoreID) }

// name is the sidecar as people know it.
func (s *sidecar) name() string {
	switch node := s.nodeID(); {
	case s.self:
		return node + " (the sidecar that was asked)"
	case node == "":
		return s.listed.Address
	default:
		return node + " (" + s.listed.Address + ")"
	}
}

// short is the name without the address.
func (s *sidecar) short() string { return cmp.Or(s.nodeID(), s.listed.Address) }
