package eventlog

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Shared is a log that several sidecars use at once. Their messages also go through the store.
type Shared interface {
	Log
	Nodes
	Signals

	// ReadEach reads several partitions of a topic in one request to a remote store: for each place
	// the events from its seq on, up to the first gap, and up to b in all. There are none for a
	// place whose own seq is missing, even if Read would know that its event was removed or that
	// the seq is void.
	ReadEach(ctx context.Context, topic string, places []Place, b Bounds) ([][]*Record, error)
}

// Place is a seq of a partition.
type Place struct {
	Partition int
	Seq       uint64
}

// GroupName names a consumer group.
type GroupName struct{ Topic, Group string }

// Node is one life of a sidecar as the other sidecars on its store see it. Nobody compares its
// clock with another's: a watcher measures how long its Beat has not changed.
type Node struct {
	// ID identifies this life. A sidecar that starts again, or that finds that it was declared
	// dead, gets another ID.
	ID string
	// Name is the sidecar's node id, which never changes.
	Name string
	Beat uint64
	// Lease is how long its Beat may stay unchanged.
	Lease time.Duration
	// Groups are the groups that have members on this node, in any order.
	Groups []GroupName
	// Members describes the members of groups as they are at this Beat; MaxMembers at the most.
	Members []NodeMembers
	// Version starts at 1 and rises with each change of Groups.
	Version uint64
	State   NodeState
}

// MaxMembers is the largest number of members that a node describes, so that its document stays far
// below a store's limit.
const MaxMembers = 1000

// NodeMembers are the members that a node has of one group.
type NodeMembers struct {
	GroupName
	Members []wire.GroupMember
	More    int // members that there was no room for
}

// GroupNode is a node with members of a group.
type GroupNode struct {
	ID, Name string
	// Described says that the node has described the members of the group, and Age how long ago, by
	// the store's clock.
	Described bool
	Age       time.Duration
	Members   []wire.GroupMember
	More      int
}

// NodeState is the state of a life. A life that is over never becomes live again.
type NodeState uint8

// The states of a life.
const (
	NodeLive  NodeState = iota
	NodeEnded           // it said so itself, after it had saved its progress
	NodeDead            // another node declared it dead, since its beat did not change for its lease
)

// NodeChange says that a node's document has changed: the node is new or has other groups, so its
// document has that version or a higher one, or its life is over.
type NodeChange struct {
	ID      string
	Version uint64
	State   NodeState
}

// Roll is the list of changes that were entered about the nodes of a store. An entry may come late
// or twice, so a reader looks at the node's document; only the end of a life is final.
type Roll struct {
	// Number counts all changes ever entered.
	Number uint64
	// Changes are the last RollKept changes at most, oldest first.
	Changes []NodeChange
}

// RollKept is how many changes a roll keeps.
const RollKept = 256

// Nodes is the register of the sidecars of a store.
type Nodes interface {
	// SaveNode stores a node. A higher Beat replaces a lower one, never the reverse. The first Beat
	// is 1. An accepted beat, however late, proves that no sidecar has declared the node dead. The
	// error wraps ErrNotFound if the life is over.
	SaveNode(ctx context.Context, n Node) error

	// EndNode ends a live life. The node itself calls it. A life that is over or does not exist is
	// no error.
	EndNode(ctx context.Context, id string) error

	// DeclareDead ends the life of another node, unless its beat differs from the given one, or the
	// life is over. It reports whether it has ended the life.
	DeclareDead(ctx context.Context, id string, beat uint64) (bool, error)

	// Enter adds changes to the roll. The caller makes each change first. After a success every
	// later look sees them.
	Enter(ctx context.Context, changes ...NodeChange) error

	// GroupNodes returns the live nodes that have members of the group, with the members as the
	// nodes described them last, in one query.
	GroupNodes(ctx context.Context, g GroupName) ([]GroupNode, error)

	// Look returns the existing nodes with these ids, without their groups, and the roll, in one
	// query. If the roll's number is known, the roll comes without changes. Look never returns an
	// older state than this process has seen before.
	Look(ctx context.Context, ids []string, known uint64) ([]Node, Roll, error)

	// ListNodes returns the existing nodes with these ids, or without ids all live nodes and nodes
	// that ended lately, in any order and without their members.
	ListNodes(ctx context.Context, ids ...string) ([]Node, error)
}

// Hint says that a partition has new events, up to seq Head at least. Head 0 says that it may have
// new events, and that a reader has to ask the log.
type Hint struct {
	Topic     string
	Partition int
	Head      uint64
}

// HigherHead is the higher of two heads. 0 is not known and counts as the highest, since it may be.
func HigherHead(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// Signal is a message from one sidecar to the others that read its topics. It may get lost, or come
// twice or late. So it tells the receivers to look at the store, and never what the store has.
type Signal struct {
	// Appended may have a Hint without a topic, which stands for all topics.
	Appended []Hint
	// Moved are groups whose epochs the sender took from owners that may be alive.
	Moved []GroupName
	// Nodes are topics whose groups have members on other nodes than before, since a node came,
	// went or changed its groups.
	Nodes []string
	// Erased are topics with erased events, which receivers may have in memory.
	Erased []string
}

// NodeSignal is the signal of a node that came, went or changed its groups.
func NodeSignal(groups []GroupName) (s Signal) {
	for _, g := range groups {
		s.Nodes = append(s.Nodes, g.Topic)
	}
	return s
}

// Topics returns topics, in any order; changed is closed once they change.
type Topics func() (names []string, changed <-chan struct{})

// Signals carries signals between the sidecars of a store.
type Signals interface {
	// Send sends a signal to the other sidecars soon. It never blocks, and merges the signal with
	// those not sent yet. While the store is away it keeps the merged signal, up to a bound.
	Send(s Signal)

	// Follow calls heard with the signals of other sidecars about the wanted topics, and possibly
	// other topics, until ctx ends. Then it returns nil. missed are the wanted topics whose earlier
	// signals may have been lost, for example since the topic is newly wanted. heard must be quick;
	// calls do not overlap.
	Follow(ctx context.Context, wanted Topics, heard func(s Signal, missed []string)) error

	// Ahead returns a hint for each of the given partitions that has events above Head. Readers ask
	// from time to time, in case a signal was lost.
	Ahead(ctx context.Context, known []Hint) ([]Hint, error)
}
