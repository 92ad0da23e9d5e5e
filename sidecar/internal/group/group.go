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
	topic, name  string
	cfg          Config
	metrics      *telemetry.Group
	worker       worker.Worker // of turns
	syncer       worker.Worker // of sync
	balancer     worker.Worker // of balance
	turnTimer    clock.Timer   // wakes the worker
	balanceTimer clock.Timer   // wakes the balancer

	users int // calls of the Manager that hold the group; guarded by Manager.mu

	// moving is held while epochs are taken.
	moving sync.Mutex

	mu         sync.Mutex
	stopped    bool         // no member joins and nothing is assigned any more
	over       bool         // all partitions are released, too
	lapsed     bool         // the roster was not valid when the last turn began
	validUntil time.Time    // the end of its validity when it was last valid
	parts      []*partition // of the topic; nil before they are known
	members    []*Member    // in the order of dispatch's
	joining    int          // members that are joining
	joined     int          // members since the start
	fetchAt    int          // the partition that was read last
	watch      *tail.Watch  // while there are members

	scarce     bool      // the last look for something to fetch found no memory
	redriveDue time.Time // when to ask for redrives again after a failure

	own      ownership.Table
	dispatch dispatch.Dispatcher
	saver    saver
}

func newGroup(topic, name string, cfg Config) *Group {
	metrics := cfg.Metrics.Group(topic, name)
	g := &Group{
		topic: topic, name: name, cfg: cfg,
		own:     ownership.Table{Group: eventlog.GroupName{Topic: topic, Group: name}, Roster: cfg.Roster},
		metrics: metrics,
		dispatch: dispatch.New(dispatch.Config{
			Group: name, Metrics: metrics, Memory: cfg.Memory, Lookahead: cfg.Bounds.Lookahead, MaxBytes: cfg.Bounds.HeldBytes,
		}),
		saver: saver{clock: cfg.Clock, timeout: cfg.AckTimeout, marks: map[string]eventlog.Mark{}, nacks: map[*dispatch.Event]*pendingNack{}},
	}
	g.worker.Work = g.turn
	g.syncer.Work = g.sync
	g.balancer.Work = g.balance
	g.turnTimer = stoppedTimer(cfg.Clock, g.worker.Wake)
	g.balanceTimer = stoppedTimer(cfg.Clock, g.balancer.Wake)
	return g
}

// stoppedTimer makes a timer that calls f once it is reset.
func stoppedTimer(c clock.Clock, f func()) clock.Timer {
	t := c.AfterFunc(time.Hour, f)
	t.Stop()
	return t
}
