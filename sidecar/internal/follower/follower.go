// Package follower implements subscriptions without a group: each gets every event of a topic, each
// partition in log order, and no progress is saved.
package follower

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/reader"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/worker"
)

// Sink is the connection's side of a subscription.
type Sink interface {
	// Room reports whether the connection takes more events now. After a false the connection calls
	// Wake when it has room again. It must be quick and not call back.
	Room() bool
	// Deliver hands over events in order. It must not block, call back or keep the slice.
	Deliver(recs []*eventlog.Record)
}

// Pacer is the connection's delivery bucket. Take takes one token, or takes none and returns a wait
// above 0 until the next try.
type Pacer interface {
	Take(now time.Time) (wait time.Duration, ok bool)
}

// Config is what a Follower needs; every field but Memory and Merged is required.
type Config struct {
	// Context ends when stopping may not wait any longer.
	Context context.Context
	Log     eventlog.Reader
	Tails   *tail.Tails
	Topic   string
	// Starts returns the first seq of each partition. It is called once the topic is watched.
	Starts func(ctx context.Context) ([]uint64, error)
	Filter *wire.Filter
	Sink   Sink
	Pacer  Pacer
	// Merged delivers stored events in (ts, id) order across partitions.
	Merged bool
	// FetchEvents and TurnBytes bound one read from the log, and the deliveries of one call.
	FetchEvents, TurnBytes int
	Memory                 *budget.Share
	Clock                  clock.Clock
	Logger                 *slog.Logger
	Gone                   func() // called once when it has closed
}

// Follower is one subscription. Its methods are safe for concurrent use, but not from its Sink.
type Follower struct {
	cfg    Config
	watch  *tail.Watch
	starts []uint64
	worker worker.Worker
	alarm  clock.Timer

	// send is held while events are handed to the sink, so that none follows after Pause or Close
	// has returned.
	send    sync.Mutex
	paused  bool
	started bool
	closed  bool

	// Only the worker uses these.
	parts   []*reader.Place
	rotate  int
	pending []*eventlog.Record // read, not delivered
	// heads are the events of each partition that are read and not merged; the lowest in (ts, id)
	// order is next. So stored events come in that order as far as each partition is in it, and a
	// client that resumes behind an event that it has seen misses none of the events stored by
	// then. nil: the follower delivers partitions page by page.
	heads [][]*eventlog.Record
}

// Follow subscribes. Events come after Start. The caller must close it.
func Follow(ctx context.Context, cfg Config) (*Follower, error) {
	f := &Follower{cfg: cfg}
	f.cfg.Gone = sync.OnceFunc(cfg.Gone)
	f.worker.Work = f.turn
	f.alarm = cfg.Clock.AfterFunc(time.Hour, f.worker.Wake)
	f.alarm.Stop()
	f.watch = cfg.Tails.Watch(cfg.Topic, f.worker.Wake)
	var err error
	var extents []eventlog.Extent
	if f.starts, err = cfg.Starts(ctx); err == nil {
		extents, err = cfg.Log.Extents(ctx, cfg.Topic)
	}
	if err != nil {
		f.watch.Close()
		return nil, err
	}
	if cfg.Merged {
		f.heads = make([][]*eventlog.Record, len(extents))
	}
	for i, x := range extents {
		f.parts = append(f.parts, &reader.Place{Index: i, Next: f.starts[i], Head: x.Head})
	}
	return f, nil
}

// Starts is the seq of each partition that the subscription started at.
func (f *Follower) Starts() []uint64 { return slices.Clone(f.starts) }

// Start begins deliveries.
func (f *Follower) Start() { f.set(func() { f.started = true }) }

// Wake says that the sink has room again.
func (f *Follower) Wake() { f.worker.Wake() }

// Pause stops deliveries: none is sent after it has returned.
func (f *Follower) Pause() { f.set(func() { f.paused = true }) }

// Resume continues deliveries.
func (f *Follower) Resume() { f.set(func() { f.paused = false }) }

// Close ends the subscription: nothing is delivered after it has returned.
func (f *Follower) Close() {
	f.set(func() { f.closed = true })
	f.worker.Stop()
	for _, recs := range f.heads {
		f.pending = append(f.pending, recs...)
	}
	f.letGo(len(f.pending))
	f.alarm.Stop()
	f.watch.Close()
	f.cfg.Gone()
}

func (f *Follower) set(change func()) {
	f.send.Lock()
	change()
	f.send.Unlock()
	f.worker.Wake()
}

// turn delivers until the sink is full, the bucket is empty or the end of the log is reached.
func (f *Follower) turn() {
	for {
		f.send.Lock()
		open := f.open()
		f.send.Unlock()
		if atEnd := len(f.pending) == 0 && open && !f.read(); atEnd || !f.deliver() {
			return
		}
	}
}

// open reports whether the connection takes deliveries now; send is held.
func (f *Follower) open() bool {
	return f.started && !f.paused && !f.closed && f.cfg.Sink.Room()
}

// read reads a page of the next partition that has more into pending, which may add nothing. It
// reports false at the end of the log. A partition that cannot be read is read again later.
func (f *Follower) read() bool {
	if f.heads != nil {
		return f.readMerged()
	}
	now := f.cfg.Clock.Now()
	most := f.turnBytes()
	for i := range f.parts {
		at := (f.rotate + 1 + i) % len(f.parts)
		p := f.parts[at]
		if !p.Readable(f.watch, now) {
			continue
		}
		f.rotate = at
		if recs, ok := f.readPart(p, eventlog.Bounds{Events: f.cfg.FetchEvents, Bytes: most}, now); ok {
			f.pending = append(f.pending, recs...)
			return true
		}
	}
	f.retry(now)
	return false
}

// turnBytes bounds the next read from the log: an event, while the memory is used up.
func (f *Follower) turnBytes() int {
	if f.cfg.Memory.Full() {
		return 1
	}
	return f.cfg.TurnBytes
}

// readPart reads a page of a partition, which may add nothing. ok is false if the partition cannot
// be read, and then it is not readable for a while.
func (f *Follower) readPart(p *reader.Place, b eventlog.Bounds, now time.Time) (passing []*eventlog.Record, ok bool) {
	pg, err := reader.Read(f.cfg.Context, f.cfg.Log, f.cfg.Topic, f.watch.Read(p.Index, p.Next, b), p.Index, p.Next, b)
	if err != nil {
		f.cfg.Logger.Warn("a subscription cannot read its topic", "topic", f.cfg.Topic, "partition", p.Index, "error", err)
		p.Failed(now)
		return nil, false
	}
	if len(pg.Records) == 0 && p.Empty(pg.Next, f.cfg.Clock.Now()) {
		p.Next = pg.Next
	}
	for _, rec := range pg.Records {
		p.Passed(rec.Seq)
		if f.cfg.Filter.Matches(&rec.Event) {
			f.cfg.Memory.Take(rec.Size())
			passing = append(passing, rec)
		}
	}
	return passing, true
}

// readMerged is read for a follower that merges. Nothing is merged while a partition that has more
// could not be read.
func (f *Follower) readMerged() bool {
	again, ready := f.fillHeads(f.cfg.Clock.Now())
	if again || !ready {
		return again
	}
	for size := 0; size < f.cfg.TurnBytes; {
		i := f.lowest()
		if i < 0 {
			break
		}
		rec := f.heads[i][0]
		f.heads[i][0] = nil // the array stays
		f.heads[i] = f.heads[i][1:]
		f.pending = append(f.pending, rec)
		size += rec.Size()
		if len(f.heads[i]) == 0 && f.parts[i].Readable(f.watch, f.cfg.Clock.Now()) {
			break // its next event may come before those of others
		}
	}
	return len(f.pending) > 0
}

// lowest is the partition whose first event is the lowest in (ts, id) order; -1: there is none.
func (f *Follower) lowest() int {
	best := -1
	var low eventlog.Point
	for i, recs := range f.heads {
		if len(recs) == 0 {
			continue
		}
		if at := (eventlog.Point{TS: recs[0].TS, ID: recs[0].ID}); best < 0 || at.Compare(low) < 0 {
			best, low = i, at
		}
	}
	return best
}

// fillHeads reads a page of every partition that has more and has no event left in heads. again: a
// page added nothing, and another may; ready: no partition is missing.
func (f *Follower) fillHeads(now time.Time) (again, ready bool) {
	ready = true
	for i, p := range f.parts {
		if len(f.heads[i]) > 0 {
			continue
		}
		if !p.Readable(f.watch, now) {
			ready = ready && p.RetryAt(now).IsZero()
			continue
		}
		b := eventlog.Bounds{Events: f.cfg.FetchEvents, Bytes: max(f.turnBytes()/len(f.parts), 1)}
		recs, ok := f.readPart(p, b, now)
		f.heads[i] = recs
		again = again || ok && len(recs) == 0
		ready = ready && ok
	}
	if !ready {
		f.retry(now)
	}
	return again, ready
}

// letGo removes the first n pending events.
func (f *Follower) letGo(n int) {
	for _, rec := range f.pending[:n] {
		f.cfg.Memory.Give(rec.Size())
	}
	clear(f.pending[:n])
	f.pending = f.pending[n:]
}

// retry sets the alarm for the next partition that could not be read.
func (f *Follower) retry(now time.Time) {
	var first time.Time
	for _, p := range f.parts {
		if retryAt := p.RetryAt(now); !retryAt.IsZero() && (first.IsZero() || retryAt.Before(first)) {
			first = retryAt
		}
	}
	if !first.IsZero() {
		f.alarm.Reset(first.Sub(now))
	}
}

// deliver hands over the pending events for which the bucket has tokens. It reports whether to
// continue.
func (f *Follower) deliver() bool {
	f.send.Lock()
	defer f.send.Unlock()
	if !f.open() {
		return false
	}
	now := f.cfg.Clock.Now()
	n := 0
	for ; n < len(f.pending); n++ {
		wait, ok := f.cfg.Pacer.Take(now)
		if !ok {
			f.alarm.Reset(wait)
			break
		}
	}
	if n > 0 {
		f.cfg.Sink.Deliver(f.pending[:n])
	}
	f.letGo(n)
	return len(f.pending) == 0
}
