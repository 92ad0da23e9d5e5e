package group

import (
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/group/ownership"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/worker"
)

// Group is one consumer group on one topic, with the partitions of it that this sidecar owns and
// the members that are connected here.
type Group struct {
	id           eventlog.GroupName
	cfg          Config
	count        *groupCount
	unanswered   *unanswered
	metrics      func() *telemetry.Group // once the group exists: what does not has no metrics
	worker       worker.Worker           // of turns
	storing      sync.WaitGroup          // the save beside turns, one at most
	syncer       worker.Worker           // of sync
	balancer     worker.Worker           // of balance
	turnTimer    clock.Timer             // wakes the worker
	balanceTimer clock.Timer             // wakes the balancer

	refs int // calls of the Manager that hold the group; guarded by Manager.mu

	// moving is held while epochs are taken.
	moving sync.Mutex

	mu         sync.Mutex
	stopped    bool         // no member joins and nothing is assigned any more
	released   bool         // all partitions are released, too
	lapsed     bool         // the roster was not valid when the last turn began
	validUntil time.Time    // the end of its validity when it was last valid
	parts      []*partition // of the topic; nil before they are known
	members    []*Member    // in the order of dispatch's
	joining    int          // members that are joining
	joined     int          // members since the start
	fetchAt    int          // the partition that was read last
	watch      *tail.Watch  // while there are members

	deadLetterTopic string // Subscription's, of the last member

	noMemory   bool      // the last look for something to fetch found no memory
	redrivesAt time.Time // when to ask for redrives again after a failure

	own      ownership.Table
	dispatch dispatch.Dispatcher
	saver    saver
}

// partition is one partition of the group's topic: who has it, and its events and progress here.
type partition struct {
	own *ownership.Partition
	*dispatch.Partition
	losses int   // how often another sidecar has taken it over
	unread error // why its last read failed
}

// Member is one subscription to a group. Its methods may be called from any goroutine, but not from
// its Sink.
type Member struct {
	group *Group
	sink  Sink
	// rebalancer is the sink, if the subscription asked for its partitions.
	rebalancer Rebalancer
	puller     Puller // the sink, if it is one
	address    string

	// send is held while deliveries are handed to the sink, so that none follows after Pause or
	// Close has returned. It is taken before group.mu.
	send sync.Mutex

	// Guarded by group.mu.
	since    time.Time // when it joined
	window   *dispatch.Member
	notified bool // of partitions, or that it has none
}
