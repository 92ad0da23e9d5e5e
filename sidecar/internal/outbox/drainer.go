package outbox

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const (
	// pollMin and pollMax are the first and the longest wait before the next look for documents
	// after one that found nothing to do. pollFollowing is the longest where a change stream
	// reports new documents.
	pollMin       = 50 * time.Millisecond
	pollMax       = time.Second
	pollFollowing = 10 * time.Second
	// operationTimeout bounds one operation on the outbox: without indexes the server may need long
	// for a large one.
	operationTimeout = 30 * time.Second
	// stopGrace is how long a drainer that stops may take for calls under way.
	stopGrace = 5 * time.Second
)

// Drainer publishes the documents of one outbox.
type Drainer struct {
	cfg      Config
	database string
	owner    *ownership
	group    atomic.Pointer[eventlog.GroupName] // as it is announced; nil: it is not announced
	mine     atomic.Uint32                      // this sidecar's shardSet, among the sidecars of the log
	wake     pause.Wake                         // holds one token: a shard was gained, or documents became pending

	following atomic.Bool // a change stream reports new documents
	rests     rests
	paces     paces

	// Set by Run.
	outbox *mongo.Collection
	grace  context.Context // for calls that must be finished; ends stopGrace after Run's

	published, failed atomic.Int64
	pending           atomic.Int64
	state             health
}

// New makes a Drainer. The error is about the settings.
func New(c Config) (*Drainer, error) {
	database, err := c.check()
	if err != nil {
		return nil, err
	}
	c.Logger = c.Logger.With("outbox", database+"."+c.Collection)
	d := &Drainer{cfg: c, database: database, wake: pause.NewWake(), rests: rests{by: map[string]rest{}}, state: health{logger: c.Logger}}
	d.owner = &ownership{
		log: c.LogID, node: c.NodeID, lease: c.Lease, clock: c.Clock, wake: pause.NewWake(), logger: c.Logger,
		idle:  func() bool { return d.mine.Load() == 0 },
		owned: d.announce,
	}
	c.Roster.Watch(d.divide)
	return d, nil
}

// Run drains until ctx ends. Then it finishes the calls under way, for a few seconds at most, and
// leaves its shards to others. It continues while the server is away. It can be called once. The
// error is about the settings, such as an outbox that is drained into another log.
func (d *Drainer) Run(ctx context.Context) error {
	client, err := mongo.Connect(mongowatch.ClientOptions(d.cfg.URL, "sluice-sidecar outbox "+d.cfg.NodeID, stopGrace, d.cfg.Dialer).
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		return fmt.Errorf("outbox: %w", err)
	}
	db := client.Database(d.database)
	d.outbox = db.Collection(d.cfg.Collection)
	d.owner.store = mongoOwner{db.Collection(d.cfg.Collection + "_owner")}
	ctx, refuse := context.WithCancel(ctx)
	defer refuse()
	grace, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	defer context.AfterFunc(ctx, func() { d.cfg.Clock.AfterFunc(stopGrace, cancel) })()
	d.grace = grace

	renewing, stopRenewing := context.WithCancel(d.grace)
	var renewal sync.WaitGroup
	var refused error
	renewal.Go(func() {
		if refused = d.owner.run(renewing, func(err error) { d.state.observe("owner", err) }); refused != nil {
			refuse()
		}
	})
	var follower sync.WaitGroup
	follower.Go(func() { d.follow(ctx) })
	d.pump(ctx)
	follower.Wait()
	stopRenewing()
	renewal.Wait()
	d.leave()
	if err := mongowatch.Disconnect(client, d.cfg.Clock, stopGrace); err != nil {
		d.cfg.Logger.Warn("closing the connections to the outbox failed", "error", err)
	}
	if refused != nil {
		return fmt.Errorf("outbox %s.%s: %w", d.database, d.cfg.Collection, refused)
	}
	return nil
}

// leave lets others continue at once: the other sidecars of the log, or another log if there are
// none.
func (d *Drainer) leave() {
	if g := d.group.Load(); g != nil {
		d.cfg.Roster.Leave(*g)
	}
	if !d.cfg.Roster.IsAlone() {
		return
	}
	if err := d.owner.leave(d.grace); err != nil {
		d.cfg.Logger.Warn("the outbox could not be given up; another log can take it over after a lease", "error", err)
	}
}

// pump sweeps until ctx ends.
func (d *Drainer) pump(ctx context.Context) {
	idle := pause.Backoff{First: pollMin, Most: pollMax}
	away := pause.Backoff{First: pollMin, Most: 5 * pollMax}
	ready := false
	for ctx.Err() == nil {
		var rest time.Duration
		err := error(nil)
		if !ready {
			err = d.createIndex(ctx, maxIndexOnStart)
			ready = err == nil
		}
		var result swept
		if err == nil {
			result, err = d.sweep(ctx)
		}
		if ctx.Err() == nil {
			d.state.observe("documents", err)
		}
		switch {
		case err != nil:
			rest = away.Step()
		case result.marked > 0:
			away.Reset()
			idle.Reset()
			continue
		default:
			away.Reset()
			idle.Most = pollMax
			if d.following.Load() {
				idle.Most = pollFollowing
			}
			rest = idle.Step()
			if at, resting := d.rests.next(); resting {
				rest = min(rest, max(d.cfg.Clock.Until(at), 0))
			}
			// After a sweep that passed over many documents in vain, the pump rests as long as the
			// sweep took.
			d.cfg.Clock.SleepUnless(ctx, result.took, nil)
		}
		d.cfg.Clock.SleepUnless(ctx, rest, d.wake)
	}
}

// Stats are shown in GET /v1/status.
type Stats struct {
	Outbox string `json:"outbox"` // database.collection
	State  string `json:"state"`  // "ok", or a description of the fault
	// Shards is how many of the outbox's Shards are this drainer's.
	Shards int `json:"shards"`
	// Following says that a change stream reports new documents; else the outbox is polled.
	Following bool `json:"following"`
	// Pending documents of these shards were found by the latest look, which did not mark them.
	Pending   int64 `json:"pending"`
	Published int64 `json:"published"` // since the start
	Errors    int64 `json:"errors"`    // since the start
}

// Stats may be called at any time.
func (d *Drainer) Stats() Stats {
	return Stats{
		Outbox: d.database + "." + d.cfg.Collection, State: d.state.String(),
		Shards: bits.OnesCount16(uint16(d.usable())), Following: d.following.Load(), Pending: d.pending.Load(),
		Published: d.published.Load(), Errors: d.failed.Load(),
	}
}
