package group

import (
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/worker"
)

// Group is one consumer group on one topic, with the partitions of it that this sidecar owns and
// the members that are connected here.
type Group struct {
	topic, name  string
	cfg          Config
	worker       worker.Worker // of turns
	syncer       worker.Worker // of sync
	balancer     worker.Worker // of balance
	turnTimer    clock.Timer   // wakes the worker
	balanceTimer clock.Timer   // wakes the balancer

	users int // calls of the Manager that hold the group; guarded by Manager.mu

	// moving is held while epochs are taken.
	moving sync.Mutex

	mu         sync.Mutex
	stopped    bool        // no member joins and nothing is assigned any more
	over       bool        // all partitions are released, too
	lapsed     bool        // the roster was not valid when the last turn began
	validUntil time.Time   // the end of its validity when it was last valid
	joining    int         // members that are joining
	joined     int         // members since the start
	fetchAt    int         // the partition that was read last
	watch      *tail.Watch // while there are members

	scarce     bool      // the last look for something to fetch found no memory
	redriveDue time.Time // when to ask for redrives again after a failure

	own      ownership
	dispatch dispatch
	saver    saver
}

func newGroup(topic, name string, cfg Config) *Group {
	g := &Group{
		topic: topic, name: name, cfg: cfg,
		own: ownership{group: eventlog.GroupName{Topic: topic, Group: name}, roster: cfg.Roster},
		dispatch: dispatch{
			group: name, metrics: cfg.Metrics.Group(topic, name), memory: cfg.Memory, bounds: cfg.Bounds,
			keys: make(keys), ids: make(ids),
		},
		saver: saver{clock: cfg.Clock, timeout: cfg.AckTimeout, marks: make(map[string]eventlog.Mark)},
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

// members are the members of a group that are connected here.
type members []*Member

// ordered reports whether one of them wants key order.
func (ms members) ordered() bool {
	return slices.ContainsFunc(ms, func(m *Member) bool { return m.opts.Ordered })
}

// exactlyOnce reports whether one of them asked for exactly once.
func (ms members) exactlyOnce() bool {
	return slices.ContainsFunc(ms, func(m *Member) bool { return m.opts.ExactlyOnce })
}

// want reports whether the filter of one of them lets the event pass.
func (ms members) want(rec *eventlog.Record) bool {
	return slices.ContainsFunc(ms, func(m *Member) bool { return m.opts.Filter.Matches(&rec.Event) })
}

func (ms members) inflight() (n int) {
	for _, m := range ms {
		n += m.count
	}
	return n
}
