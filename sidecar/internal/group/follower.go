package group

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
)

// Follower is a subscription without a group: one connection gets every event
// of the topic, each partition in log order, and nothing is remembered. Its
// methods are safe for concurrent use, but not from its Sink.
type Follower struct {
	cfg    Config
	topic  string
	filter *wire.Filter
	sink   Sink
	pacer  Pacer
	watch  *tail.Watch
	starts []uint64
	worker worker
	alarm  clock.Timer
	gone   func() // tells the Manager, once

	// send is held while deliveries are handed to the sink, so that none
	// follows the return of Pause or Close.
	send    sync.Mutex
	paused  bool
	started bool
	closed  bool

	// The worker's own.
	parts   []*partition
	rotate  int
	merger  *merger            // nil: partitions come page by page
	pending []*eventlog.Record // read, not delivered
}

// Follow subscribes without a group. Deliveries begin after Start. Errors are
// those of Manager.Subscribe. Options that speak of acks do not apply. Whoever
// follows closes: Manager.Stop does not.
//
// With s.Merged, events that are stored come in (ts, id) order across
// partitions, and what starts after an event starts right behind it in its
// partition: a later Follow that starts after the last event that came goes on
// where this one ended, as far as events were stored in (ts, id) order.
//
// s.Starts, the first seq of each partition, counts in place of the options if it
// is not empty.
func (m *Manager) Follow(ctx context.Context, s Subscription) (*Follower, error) {
	if m.isStopped() {
		return nil, errStopped
	}
	tp, err := m.cfg.Log.EnsureTopic(ctx, s.Topic, m.cfg.Policy(s.Topic).Partitions)
	if err != nil {
		return nil, err
	}
	f := &Follower{cfg: m.cfg, topic: s.Topic, filter: s.Options.Filter, sink: s.Sink, pacer: s.Pacer}
	f.worker.work = f.turn
	f.alarm = stoppedTimer(m.cfg.Clock, f.worker.wake)
	f.watch = m.cfg.Tails.Watch(s.Topic, f.worker.wake)
	if f.starts, err = m.startsOf(ctx, s); err != nil {
		f.watch.Close()
		return nil, err
	}
	extents, err := m.cfg.Log.Extents(ctx, s.Topic)
	if err != nil {
		f.watch.Close()
		return nil, err
	}
	m.countFollower(s.Topic, 1)
	f.gone = sync.OnceFunc(func() { m.countFollower(s.Topic, -1) })
	if s.Merged {
		f.merger = newMerger(tp.Partitions)
	}
	for i := range tp.Partitions {
		f.parts = append(f.parts, &partition{index: i, next: f.starts[i], head: extents[i].Head})
	}
	return f, nil
}

// startsOf is where a subscription without a group starts in each partition.
func (m *Manager) startsOf(ctx context.Context, s Subscription) ([]uint64, error) {
	if len(s.Starts) > 0 {
		return s.Starts, nil
	}
	starts, err := startsOf(ctx, m.cfg.Log, s.Topic, s.Options, m.cfg.Policy(s.Topic).Retention)
	if err == nil && s.Merged {
		err = behind(ctx, m.cfg.Log, s.Topic, s.Options, starts)
	}
	return starts, err
}

// Starts is the seq of each partition that the subscription started at.
func (f *Follower) Starts() []uint64 { return slices.Clone(f.starts) }

// Start lets deliveries begin.
func (f *Follower) Start() { f.set(func() { f.started = true }) }

// Wake says that the sink has room again.
func (f *Follower) Wake() { f.worker.wake() }

// Pause stops deliveries: none is sent after it returned.
func (f *Follower) Pause() { f.set(func() { f.paused = true }) }

// Resume lets deliveries go on.
func (f *Follower) Resume() { f.set(func() { f.paused = false }) }

// Close ends the subscription: nothing is delivered after it returned.
func (f *Follower) Close(Leaving) {
	f.set(func() { f.closed = true })
	f.worker.stop()
	f.letGo(len(f.pending))
	f.alarm.Stop()
	f.watch.Close()
	f.gone()
}

func (f *Follower) set(change func()) {
	f.send.Lock()
	change()
	f.send.Unlock()
	f.worker.wake()
}

// turn delivers until the sink is full, the bucket is empty or the end of the
// log is reached.
func (f *Follower) turn() {
	for {
		if len(f.pending) == 0 && f.open() && !f.read() {
			return
		}
		if !f.deliver() {
			return
		}
	}
}

// open reports whether the connection takes deliveries now.
func (f *Follower) open() bool {
	f.send.Lock()
	defer f.send.Unlock()
	return f.started && !f.paused && !f.closed && f.sink.Room()
}

// read reads a page of the next partition that has more into pending, which may
// add nothing. It reports false at the end of the log. A partition that cannot
// be read is read again later.
func (f *Follower) read() bool {
	if f.merger != nil {
		return f.readMerged()
	}
	now := f.cfg.Clock.Now()
	most := turnBytes
	if f.cfg.Memory.Full() {
		most = 1 // an event
	}
	for i := range f.parts {
		at := (f.rotate + 1 + i) % len(f.parts)
		p := f.parts[at]
		if !p.readable(f.watch, now) {
			continue
		}
		f.rotate = at
		recs, ok := f.readPart(p, eventlog.Bounds{Events: f.cfg.Bounds.FetchEvents, Bytes: most}, now)
		if ok {
			f.hold(recs)
			return true
		}
	}
	f.retry(now)
	return false
}

// readPart reads a page of a partition, which may add nothing. One that cannot
// be read is not readable for a while: ok is false.
func (f *Follower) readPart(p *partition, b eventlog.Bounds, now time.Time) (passing []*eventlog.Record, ok bool) {
	pg, err := readPage(f.cfg.Context, f.cfg.Log, f.topic, f.watch.Read(p.index, p.next, b), p.index, p.next, b)
	if err != nil {
		f.cfg.Logger.Warn("subscription cannot read its topic", "topic", f.topic, "partition", p.index, "error", err)
		p.readDue = now.Add(retryAfterFailure)
		return nil, false
	}
	if len(pg.recs) == 0 {
		p.skipTo(pg.next, f.cfg.Clock.Now())
	}
	for _, rec := range pg.recs {
		p.next, p.vain = rec.Seq+1, 0
		if f.filter.Matches(&rec.Event) {
			passing = append(passing, rec)
		}
	}
	return passing, true
}

// hold adds events to what is pending.
func (f *Follower) hold(recs []*eventlog.Record) {
	f.pending = append(f.pending, recs...)
	for _, rec := range recs {
		f.cfg.Memory.Take(rec.Size())
	}
}

// letGo removes the first n of what is pending.
func (f *Follower) letGo(n int) {
	for _, rec := range f.pending[:n] {
		f.cfg.Memory.Give(rec.Size())
	}
	clear(f.pending[:n])
	f.pending = f.pending[n:]
}

// retry sets the alarm for the next partition that could not be read.
func (f *Follower) retry(now time.Time) {
	var due time.Time
	for _, p := range f.parts {
		if p.readDue.After(now) && (due.IsZero() || p.readDue.Before(due)) {
			due = p.readDue
		}
	}
	if !due.IsZero() {
		f.alarm.Reset(due.Sub(now))
	}
}

// deliver hands over what is pending, as far as the bucket lets it. It reports
// whether to go on.
func (f *Follower) deliver() bool {
	f.send.Lock()
	defer f.send.Unlock()
	if !f.started || f.paused || f.closed || !f.sink.Room() {
		return false
	}
	now := f.cfg.Clock.Now()
	ds := make([]Delivery, 0, len(f.pending))
	for _, rec := range f.pending {
		wait, ok := f.pacer.Take(now)
		if !ok {
			f.alarm.Reset(wait)
			break
		}
		ds = append(ds, Delivery{Record: rec})
	}
	if len(ds) > 0 {
		f.sink.Deliver(ds)
	}
	f.letGo(len(ds))
	return len(f.pending) == 0
}
