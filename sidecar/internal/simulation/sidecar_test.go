package simulation

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/outbox"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/schedule"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/wakeup"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
	"github.com/sluice-bus/sluice/test/clocktest"
)

// Settings that are flags of the program.
const (
	storeTimeout      = 5 * time.Second
	lease             = 10 * time.Second
	drainTimeout      = 10 * time.Second
	retentionInterval = 5 * time.Second
)

// machine is where a sidecar runs: it has the things that outlive the sidecar's processes.
type machine struct {
	run   *run
	name  string
	fs    *vfs.MemFS // of its spool
	clock *clocktest.Clock
	gate  gate          // shut while its process is stopped
	ended ended         // what its roster keeps
	turn  chan struct{} // holds a token while a process begins or ends in order: the next one waits for the spool

	mu   sync.Mutex
	life *process // nil: none runs
	last *process // that stops in order; nil: none does
	next int      // number of the next one
}

// ended is the lives whose ends the store has not heard of, on the machine's disk.
type ended struct {
	mu  sync.Mutex
	ids []string
}

func (e *ended) Load() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ids
}

func (e *ended) Save(ids []string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ids = slices.Clone(ids)
	return nil
}

// notingNodes notes which sidecars a sidecar declares dead, or tries to.
type notingNodes struct {
	eventlog.Nodes
	history *history
}

func (n notingNodes) DeclareDead(ctx context.Context, id string, beat uint64) (bool, error) {
	n.history.note(func(now moment) { n.history.Declared = append(n.history.Declared, declared{id, now}) })
	return n.Nodes.DeclareDead(ctx, id, beat)
}

// gate holds up every caller of pass while it is shut.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // nil: open
}

func (g *gate) pass() {
	g.mu.Lock()
	shut := g.shut
	g.mu.Unlock()
	if shut != nil {
		<-shut
		g.pass()
	}
}

// set shuts or opens the gate.
func (g *gate) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case shut && g.shut == nil:
		g.shut = make(chan struct{})
	case !shut && g.shut != nil:
		close(g.shut)
		g.shut = nil
	}
}

// pause stops the machine's process, as SIGSTOP does.
func (m *machine) pause() {
	m.clock.Pause()
	m.gate.set(true)
}

// suspend stops the machine, except for its wall clock.
func (m *machine) suspend() {
	const longest = time.Hour
	m.clock.Suspend(longest)
	m.gate.set(true)
}

// resume ends a pause or a suspension.
func (m *machine) resume() {
	m.clock.Resume()
	m.gate.set(false)
}

// process is one life of a sidecar: what package sidecar assembles, without listeners.
type process struct {
	machine *machine
	number  int
	link    string        // what the replica set calls it
	over    atomic.Bool   // nobody hears of it any more
	down    chan struct{} // closed when it begins to end
	record  *lifetime

	log       *mongolog.Log
	queue     *pebblelog.Log
	spool     *spool.Log
	roster    *roster.Roster
	tails     *tail.Tails
	writer    *writer.Writer
	publisher *admit.Publisher
	conn      *admit.Connection
	groups    *group.Manager
	gauges    group.Gauges
	drainer   *outbox.Drainer     // nil: the plan has no outbox
	capture   *capture.Capture    // nil: no collection is captured
	scheduler *schedule.Scheduler // nil: the plan schedules nothing
	waker     *wakeup.Waker
	policies  *policy.Current

	abort                context.CancelFunc // of what groups do
	endHelpers, endStore context.CancelFunc
	helpers, ownership   errgroup.Group
}

func (m *machine) logger() *slog.Logger { return m.run.logger.With("sidecar", m.name) }

// start begins a life, unless one runs.
func (m *machine) start() error {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.life != nil {
		return nil
	}
	p := &process{machine: m, number: m.next, link: fmt.Sprintf("%s/%d", m.name, m.next), policies: m.run.policies, down: make(chan struct{})}
	m.next++
	if err := p.open(); err != nil {
		return fmt.Errorf("%s: %w", p.link, err)
	}
	m.run.history.note(func(now moment) {
		p.record = &lifetime{Sidecar: m.name, Life: p.number, Began: now}
		m.run.history.Lives = append(m.run.history.Lives, p.record)
	})
	m.life = p
	m.run.relink(p)
	p.serve()
	return nil
}

// stop ends the life that runs in order.
func (m *machine) stop() {
	m.turn <- struct{}{}
	defer func() { <-m.turn }()
	m.mu.Lock()
	p := m.life
	m.life, m.last = nil, p
	m.mu.Unlock()
	if p != nil {
		p.stop()
	}
	m.mu.Lock()
	m.last = nil
	m.mu.Unlock()
}

// connected are the processes that have connections to the replica set.
func (m *machine) connected() (all []*process) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range []*process{m.life, m.last} {
		if p != nil {
			all = append(all, p)
		}
	}
	return all
}

// process is the running process; nil: none.
func (m *machine) process() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life
}

// take returns the running process, and takes it off the machine.
func (m *machine) take() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.life
	m.life = nil
	return p
}

// isDown reports whether the life has begun to end.
func (p *process) isDown() bool {
	select {
	case <-p.down:
		return true
	default:
		return false
	}
}

func (p *process) open() (err error) {
	logger, weak, clock := p.machine.logger(), p.machine.run.weak, p.machine.clock.Clock()
	tamper := &tampering{weak.commands, weak.answers, &memory{}}
	if tamper.commands == nil && slices.ContainsFunc(p.machine.run.plan.Publishers, func(b publisherPlan) bool { return b.Refused > 0 }) {
		tamper.commands = refuse
	}
	policyOf := func(topic string) *policy.Effective { return p.policies.Load().Topic(topic) }
	p.log, err = mongolog.Open(mongolog.Options{
		URL: p.machine.run.set.URI() + "&serverMonitoringMode=poll", NodeID: p.machine.name, Timeout: storeTimeout, Clock: clock, Logger: logger,
		LoneAfter:    p.machine.run.plan.LoneAfter,
		Dialer:       gated{p.machine.run.set.Client(p.link).Dialer, &p.machine.gate, tamper},
		WriteConcern: func(topic string) string { return policyOf(topic).Durability.WriteConcern },
	})
	if err != nil {
		return err
	}
	p.queue, err = pebblelog.Open(pebblelog.Options{Dir: "spool", FS: p.machine.fs, NodeID: p.machine.name, Queue: true, Logger: logger})
	if err != nil {
		return errors.Join(err, p.log.Close())
	}
	var appender eventlog.Appender = p.log
	if weak.appender != nil {
		appender = weak.appender(appender)
	}
	var store spool.Store = p.queue
	if weak.store != nil {
		store = weak.store(store)
	}
	var nodes eventlog.Nodes = notingNodes{p.log, p.machine.run.history}
	if weak.nodes != nil {
		nodes = weak.nodes(nodes)
	}
	var groups group.Log = p.log
	if weak.groups != nil {
		groups = weak.groups(groups)
	}
	p.tails = tail.New(tail.DefaultBounds())
	p.roster = roster.New(roster.Config{
		Nodes: nodes, Name: p.machine.name, Lease: lease, Clock: clock, Logger: logger, PendingEnds: lastWords{p},
		Announced: func(groups []eventlog.GroupName) { p.log.Send(eventlog.NodeSignal(groups)) },
	})
	announcer := &wakeup.Announcer{HasPeers: func() bool { return p.roster.View().HasPeers() }, Send: p.log.Send}
	p.roster.Watch(announcer.Looked)
	notifier := writer.Notifier{
		Tails: p.tails, Signal: announcer.Appended,
		MayVanish: func(topic string) bool { return !weak.hasty && policyOf(topic).Durability.MayVanish() },
	}
	p.spool, err = spool.Open(context.Background(), spool.Config{
		Log: appender, Ping: p.log.Ping, StoreID: p.log.StoreID, Store: store, Policies: p.policies, Clock: clock, Logger: logger,
		Announce: notifier.Stored, Heard: notifier.Heard,
	})
	if err != nil {
		return errors.Join(err, p.queue.Close(), p.log.Close())
	}
	p.waker = wakeup.New(wakeup.Config{
		Log: p.log, Tails: p.tails, Unread: p.machine.run.plan.unread(), Clock: clock, Logger: logger, Nodes: p.roster.Wake,
		Moved:      func(groups []eventlog.GroupName) { p.groups.Moved(groups) },
		MaybeMoved: func(topics []string) { p.groups.MaybeMoved(topics) },
	})
	p.writer = writer.New(writer.Config{Log: p.spool, Notifier: notifier, Clock: clock, Bounds: writer.DefaultBounds()})
	p.scheduler = p.newScheduler(notifier)
	var scheduler admit.Scheduler
	if p.scheduler != nil {
		scheduler = p.scheduler
	}
	p.publisher = admit.New(admit.Config{
		Catalog: p.spool, Writer: p.writer, Policies: p.policies, Limits: wire.DefaultLimits(), Metrics: telemetry.Discard(),
		Clock: clock, Logger: logger, Scheduler: scheduler,
	})
	p.conn = p.publisher.NewConnection()
	var ctx context.Context
	ctx, p.abort = context.WithCancel(context.Background())
	p.groups = group.NewManager(group.Config{
		Context: ctx, Log: groups, Tails: p.tails, Policy: policyOf, DeadLetters: p.publisher, Metrics: telemetry.Discard(),
		Roster: p.roster, Clock: clock, Logger: logger, Bounds: group.DefaultBounds(), AckLinger: group.DefaultAckLinger, Reach: true,
		Moved: func(g eventlog.GroupName) { p.log.Send(eventlog.Signal{Moved: []eventlog.GroupName{g}}) },
	})
	if p.drainer, err = p.newDrainer(); err != nil {
		return err
	}
	p.capture, err = p.newCapture()
	return err
}

// serve starts the parts that run until the end.
func (p *process) serve() {
	var helpersCtx, storeCtx context.Context
	helpersCtx, p.endHelpers = context.WithCancel(context.Background())
	storeCtx, p.endStore = context.WithCancel(context.Background())
	p.ownership.Go(func() error { return p.roster.Run(storeCtx) })
	p.ownership.Go(func() error { return p.spool.Run(storeCtx, p.publisher) })
	sweeper := retention.Sweeper{
		Log: p.log, Mine: p.roster.Mine, Policies: p.policies, Clock: p.machine.clock.Clock(), Logger: p.machine.logger(),
		Interval: retentionInterval, Batch: 1000,
	}
	p.helpers.Go(func() error { return sweeper.Run(helpersCtx) })
	p.helpers.Go(func() error { return p.waker.Run(helpersCtx) })
	if !p.machine.run.ungauged {
		p.helpers.Go(func() error { return p.gauges.Run(helpersCtx, p.groups) })
	}
	if p.scheduler != nil {
		p.helpers.Go(func() error { return p.scheduler.Run(helpersCtx) })
	}
	if p.drainer != nil {
		p.helpers.Go(func() error { return p.drainer.Run(helpersCtx) })
	}
	if p.capture != nil {
		p.helpers.Go(func() error { return p.capture.Run(helpersCtx) })
	}
}

// stop ends a life in the program's order.
func (p *process) stop() {
	close(p.down)
	p.endHelpers()
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, p.abort)()
	_ = p.groups.Stop(ctx) // events that cannot be saved come again
	p.writer.Stop(ctx)
	p.abort()
	p.endStore()
	p.release()
}

// release waits for the running parts, and closes all that open has opened.
func (p *process) release() {
	_, _ = p.helpers.Wait(), p.ownership.Wait()
	if err := p.queue.Close(); err != nil {
		p.machine.run.fail("%s: closing its spool: %v", p.link, err)
	}
	_ = p.log.Close() // the store may be away
	p.machine.run.history.note(func(now moment) {
		if !p.record.Ended.came() {
			p.record.Ended = now
		}
		p.record.PendingEnds = p.machine.ended.Load()
	})
}

// kill ends a life at once: nothing that it does from now on has an effect, and its spool is as it
// was at this moment.
func (p *process) kill() {
	p.machine.run.history.note(func(now moment) { p.record.Ended, p.record.Killed = now, true })
	p.over.Store(true)
	p.machine.run.mu.Lock()
	p.machine.run.killed[p.link] = true
	p.machine.run.mu.Unlock()
	close(p.down)
	p.machine.resume()
	p.machine.fs = p.machine.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newDice(p.machine.run.plan.Seed, 5).Rand})
	p.endHelpers()
	p.abort()
	p.endStore()
	p.machine.run.leftovers.Go(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = p.groups.Stop(ctx)
		p.writer.Stop(ctx)
		_ = p.log.Close()
		_, _ = p.helpers.Wait(), p.ownership.Wait()
		_ = p.queue.Close()
	})
}

// lastWords are the machine's record of ended lives. A process that was killed writes nothing there.
type lastWords struct{ *process }

func (p lastWords) Load() []string { return p.machine.ended.Load() }

func (p lastWords) Save(ids []string) error {
	if p.over.Load() {
		return nil
	}
	return p.machine.ended.Save(ids)
}

// gated is a way to the replica set that a stopped process neither sends on nor hears from.
type gated struct {
	options.ContextDialer
	gate   *gate
	tamper *tampering // nil: nobody does
}

func (d gated) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d.gate.pass()
	conn, err := d.ContextDialer.DialContext(ctx, network, address)
	d.gate.pass()
	if err != nil {
		return nil, err
	}
	conn = gatedConn{conn, d.gate}
	if d.tamper != nil && (d.tamper.commands != nil || d.tamper.answers != nil) { // by what the process has heard
		conn = &tamperingConn{Conn: conn, tampering: d.tamper, sent: map[uint32]*command{}}
	}
	return conn, nil
}

type gatedConn struct {
	net.Conn
	gate *gate
}

func (c gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.gate.pass()
	return n, err
}

func (c gatedConn) Write(b []byte) (int, error) {
	c.gate.pass()
	return c.Conn.Write(b)
}
