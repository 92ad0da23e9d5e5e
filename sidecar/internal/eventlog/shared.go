package eventlog

import (
	"context"
	"time"
)

// Shared is a log that several sidecars use at once. Their messages also go through the store.
type Shared interface {
	Log
	Nodes
	Signals

	// ReadEach reads several partitions of a topic at once, which costs a
	// store elsewhere no more than to read one: for each place the events
	// from its seq on that follow each other without a gap, up to b in all.
	// Where the first of them is missing there are none, though Read may know
	// that it was removed, or is void.
	ReadEach(ctx context.Context, topic string, places []Place, b Bounds) ([][]*Record, error)
}

// Place is a seq of a partition.
type Place struct {
	Partition int
	Seq       uint64
}

// GroupName names a consumer group.
type GroupName struct{ Topic, Group string }

// Node is one life of a sidecar as the others on its store see it. No clock is read from it: a
// watcher measures for how long its Beat has not moved.
type Node struct {
	// ID is of this life alone: a sidecar that starts again, or that finds
	// that it was declared dead, gets another one.
	ID string
	// Name is the sidecar's node id, which stays.
	Name string
	Beat uint64
	// Lease is for how long the others let it be silent.
	Lease time.Duration
	// Groups are those that the node has members of, in any order.
	Groups []GroupName
	// Version is of what the node says of itself: 1 at first, and a higher one with each change of Groups.
	Version uint64
	State   NodeState
}

// NodeState is how far a life has come. A life that has ended stays so.
type NodeState uint8

// The states of a life.
const (
	NodeLive  NodeState = iota
	NodeEnded           // as it said itself, after all that it had to save
	NodeDead            // as others have declared, since it was silent for its lease
)

// NodeChange says that there is something new in a node's document: the node has come or has other groups, and so a
// version that is as high, or its life is over.
type NodeChange struct {
	ID      string
	Version uint64
	State   NodeState
}

// Roll is what has changed about the nodes of a store, as far as it was entered. An entry may come late or twice, so
// it says where to look; only that a life is over is for good.
type Roll struct {
	// Number is how many changes were entered in all.
	Number uint64
	// Changes are the last of them, RollKept at the most, oldest first.
	Changes []NodeChange
}

// RollKept is how many changes a roll keeps.
const RollKept = 256

// Nodes is where the sidecars of a store see each other.
type Nodes interface {
	// SaveNode stores what the node says of itself; a higher Beat replaces a lower one, and never
	// the other way round. Beat 1 is its first. An accepted beat, however late, proves that no
	// sidecar has declared the node dead before. The error wraps ErrNotFound where the life is
	// over.
	SaveNode(ctx context.Context, n Node) error

	// EndNode ends a life that is live, for the node itself; one that is over
	// or not there is no error.
	EndNode(ctx context.Context, id string) error

	// DeclareDead ends a life of another node, unless its beat has moved from
	// the one that is given, or it is over. It reports whether it has done so.
	DeclareDead(ctx context.Context, id string, beat uint64) (bool, error)

	// Enter adds changes to the roll; each is made before. After a success every later look sees
	// them.
	Enter(ctx context.Context, changes ...NodeChange) error

	// Look returns in one query those of the nodes that are there, without their groups, and the roll where its number
	// is another than known; else a roll of that number without changes. It sees at least all that this process has
	// seen before.
	Look(ctx context.Context, ids []string, known uint64) ([]Node, Roll, error)

	// ListNodes returns the nodes with these ids that exist; without ids all live ones, and those that ended lately.
	// They come in any order.
	ListNodes(ctx context.Context, ids ...string) ([]Node, error)
}

// Hint says that a partition has got events, up to seq Head at least. Head 0
// says that it may have, and that the log knows how many.
type Hint struct {
	Topic     string
	Partition int
	Head      uint64
}

// HigherHead is the head that says more of two: 0, which is not known, outdoes
// all, since nobody can tell that it is not higher.
func HigherHead(a, b uint64) uint64 {
	if a == 0 || b == 0 {
		return 0
	}
	return max(a, b)
}

// Signal is what one sidecar tells the others that read the topics it is about.
// Any signal may get lost, come twice or late: it says where to look, never what
// is there.
type Signal struct {
	// Appended may have a Hint without a topic, which is about all topics.
	Appended []Hint
	// Moved are groups whose epochs were taken from owners that may be alive.
	Moved []GroupName
	// Nodes are topics of whose groups other nodes have members now, since one
	// came, went, or changed its mind.
	Nodes []string
	// Erased are topics of which events were erased that others may have in
	// memory.
	Erased []string
}

// NodeSignal is what a node tells that came, went, or changed its mind about groups.
func NodeSignal(groups []GroupName) (s Signal) {
	for _, g := range groups {
		s.Nodes = append(s.Nodes, g.Topic)
	}
	return s
}

// Topics are some topics, in any order; changed is closed once they are others.
type Topics func() (names []string, changed <-chan struct{})

// Signals carries signals between the sidecars of a store.
type Signals interface {
	// Send tells the other sidecars soon. It never blocks, and merges with
	// what has not been sent yet; while the store is away it keeps what is
	// merged, up to a bound.
	Send(s Signal)

	// Follow calls heard with the signals of other sidecars about topics that
	// are wanted, and maybe about more, until ctx ends, and returns nil then.
	// missed are the wanted topics of which some before this one may have been
	// lost, as when one is new. heard must be quick; calls do not overlap.
	Follow(ctx context.Context, wanted Topics, heard func(s Signal, missed []string)) error

	// Ahead returns a hint for each of the given partitions that has events
	// above Head: what a reader asks now and then in case a signal was lost.
	Ahead(ctx context.Context, known []Hint) ([]Hint, error)
}
