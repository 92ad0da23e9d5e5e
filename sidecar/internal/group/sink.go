package group

import (
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/follower"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Sink is the connection's side of a subscription.
type Sink interface {
	// Room reports whether the connection takes more deliveries now. After a false the connection
	// calls Wake when it has room again. It must be quick and not call back.
	Room() bool
	// Deliver hands over deliveries in order. It must not block or call back; turnBytes bounds the
	// deliveries of one turn.
	Deliver(ds []Delivery)
}

// Pacer is the connection's delivery bucket.
type Pacer = follower.Pacer

// Puller is a Sink whose client asks for events. A turn assigns no more events than it wants.
type Puller interface {
	Sink
	// Wants is how many deliveries the client asks for now, and the number of the last time that it
	// asked; the connection calls Wake after that. It must be quick and not call back.
	Wants() (n int, asked uint64)
	// Looked says that the group has delivered all that it could for the requests up to that
	// number. It must be quick and not call back.
	Looked(asked uint64)
	// Blocked says why the client wants nothing: one of the reasons of wire.GroupMember. It must be
	// quick and not call back, like Address, the address of the client that asked last.
	Blocked() string
	Address() string
}

// What a Puller may give as the reason that it is blocked.
const (
	BlockedRate       = dispatch.BlockedRate
	BlockedNotPulling = dispatch.BlockedNotPulling
)

// Rebalancer is a Sink that learns which partitions its member has for itself, if the subscription
// asked for it. The calls must not block or call back; no event of a partition comes before its
// Assigned, or after its Revoked.
type Rebalancer interface {
	// Assigned adds partitions. The first call may add none.
	Assigned(partitions []int)
	// Revoked removes partitions; their events in flight go to other members.
	Revoked(partitions []int)
}

// Delivery is one event for a member. Attempt and AckTimeout are 0 without a group.
type Delivery struct {
	Record     *eventlog.Record
	Attempt    int
	AckTimeout time.Duration
	Lease      Lease
	Process    *tracing.Process // its span, for tracing.Deliver alone; the group ends it
}

// Lease names one delivery of a group by this process.
type Lease = dispatch.Lease

// Subscription is a client's request to subscribe.
type Subscription struct {
	Topic, Group string
	// DeadLetterTopic is where the group's dead letters go, as its last member has said; "": to the topic's own.
	DeadLetterTopic string
	Options         wire.SubscribeOptions
	Sink            Sink
	Pacer           Pacer
	// MemberID names the member in the API and the console, and Address is its client's.
	MemberID, Address string
	// Memory counts the events that are read for the subscription; nil: no bound. Once it is used up,
	// a group that holds events fetches no more.
	Memory *budget.Share
	// Merged and Starts are for Follow: see there.
	Merged bool
	Starts []uint64
}

// Leaving says how a member goes.
type Leaving int

const (
	// Unsubscribed gives events back without counting an attempt.
	Unsubscribed Leaving = iota
	// Disconnected counts the attempt of every event that was sent.
	Disconnected
)
