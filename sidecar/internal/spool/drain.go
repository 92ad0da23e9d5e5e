package spool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// defaultPage bounds one page of a drain, and so how long a handover takes.
var defaultPage = eventlog.Bounds{Events: 1000, Bytes: 4 << 20}

// parallelTopics bounds the topics that are drained at once.
const parallelTopics = 4

// drainage is Run's state of the drain under way.
type drainage struct {
	letters DeadLetters
	whole   eventlog.Bounds // of the largest page
	window  window
	began   time.Time // zero: none is
	events  atomic.Int64
	page    atomic.Int64 // nanoseconds that the last page took
}

// start notes the beginning of a drain, unless one is under way.
func (d *drainage) start(now time.Time) {
	if d.began.IsZero() {
		d.began = now
		d.events.Store(0)
	}
}

// Run drains the spool into the log whenever the store answers. Events that the log refuses become
// letters. It returns nil once ctx ends, or a *ForeignError. The caller stops the writer first,
// since dead letters are appended through it, and queued events may wait for a drain.
func (l *Log) Run(ctx context.Context, letters DeadLetters) error {
	l.drain.letters = letters
	defer l.account.stopPacing() // no drain follows that appends could wait for
	err := l.reach(ctx)
	if err != nil && ctx.Err() == nil {
		l.lost(err) // so that the first publishes need not wait for the store
	}
	// Spread, so that the sidecars of a store do not probe at the same time.
	probes := pause.Backoff{First: minProbePause, Most: maxProbePause}
	for ctx.Err() == nil {
		if foreign, is := errors.AsType[*ForeignError](err); is {
			return foreign
		}
		switch spooling := l.account.list(); {
		case l.health.away.Load():
			if !l.cfg.Clock.Sleep(ctx, probes.Step()) {
				return nil
			}
			if err = l.probe(ctx); err == nil {
				probes.Reset()
			}
		case len(spooling) > 0:
			if l.round(ctx, spooling) {
				probes.Reset()
				continue
			}
			if !l.health.away.Load() && !l.cfg.Clock.Sleep(ctx, probes.Step()) {
				return nil
			}
		default:
			l.drained()
			probes.Reset()
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// pingPatience bounds one ping.
const pingPatience = 5 * time.Second

func (l *Log) ping(ctx context.Context) error {
	ctx, cancel := l.cfg.Clock.WithTimeout(ctx, pingPatience)
	defer cancel()
	return l.cfg.Ping(ctx)
}

// probe returns nil if the store is back. If something is spooled, the store has to accept a page,
// since a store may answer pings and still fail appends. The probe does not hold the gate, so no
// append waits for a store that hangs.
func (l *Log) probe(ctx context.Context) error {
	if err := l.reach(ctx); err != nil {
		return err
	}
	if spooling := l.account.list(); len(spooling) > 0 {
		l.drain.window.restart()
		_, bounds := l.drain.window.split(1, l.drain.whole)
		n, err := l.page(ctx, spooling[0], bounds)
		if err != nil && unavailable(err) {
			return err
		}
		if err != nil {
			l.complain(ctx, err) // not the store's fault
		}
		l.drain.start(l.cfg.Clock.Now())
		l.drain.events.Add(int64(n))
	}
	l.found()
	return nil
}

// round gives every spooling topic a turn. It reports whether all succeeded.
func (l *Log) round(ctx context.Context, spooling []*topic) bool {
	l.drain.start(l.cfg.Clock.Now())
	var work errgroup.Group
	parallel, bounds := l.drain.window.split(len(spooling), l.drain.whole)
	work.SetLimit(parallel)
	for _, t := range spooling {
		work.Go(func() error {
			if l.health.away.Load() {
				return nil
			}
			err := l.turn(ctx, t, bounds)
			if err != nil {
				l.complain(ctx, fmt.Errorf("topic %s: %w", t.name, err))
			}
			return err
		})
	}
	return work.Wait() == nil
}

// complain handles the error that stopped a drain.
func (l *Log) complain(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case unavailable(err):
		l.lost(err)
	default:
		l.cfg.Logger.Error("the spool cannot be drained; trying again", "error", err)
	}
}

// drained logs the end of a drain.
func (l *Log) drained() {
	if l.drain.began.IsZero() {
		return
	}
	l.cfg.Logger.Info("the spool is drained",
		"events", l.drain.events.Load(), "took", l.cfg.Clock.Since(l.drain.began).Round(time.Millisecond))
	l.drain.began = time.Time{}
}

// turn drains a page of the topic. If at most a page is left, it acquires the whole gate and drains
// the rest: then the topic is direct again.
func (l *Log) turn(ctx context.Context, t *topic, bounds eventlog.Bounds) error {
	l.account.startPacing(t)
	if !l.account.fits(t, bounds) {
		n, err := l.page(ctx, t, bounds)
		l.drain.events.Add(int64(n))
		if err != nil || n > 0 {
			return err
		}
		// The topic counts events that never got into the spool.
	}
	if err := t.gate.Acquire(ctx, wholeGate); err != nil {
		return err
	}
	defer t.gate.Release(wholeGate)
	for {
		n, err := l.page(ctx, t, bounds)
		l.drain.events.Add(int64(n))
		if err != nil {
			return err
		}
		if n == 0 {
			l.account.end(t)
			return nil
		}
	}
}

// page moves the topic's next page from the spool into the log, and returns the number of its
// events.
func (l *Log) page(ctx context.Context, t *topic, bounds eventlog.Bounds) (int, error) {
	if err := t.drain.Lock(ctx); err != nil {
		return 0, err
	}
	defer t.drain.Unlock()
	began := l.cfg.Clock.Now()
	recs, err := l.cfg.Store.Read(ctx, t.name, queue, 1, bounds)
	if err != nil && !errors.Is(err, eventlog.ErrNotFound) {
		return 0, &spoolError{err}
	}
	if len(recs) == 0 {
		return 0, l.look(ctx, t, nil)
	}
	last, size := recs[len(recs)-1].Seq, sizeOf(recs)
	took, err := l.forwardUnerased(ctx, t, recs, bounds)
	l.drain.window.adjust(took, err == nil && (len(recs) >= bounds.Events || size >= int64(bounds.Bytes)), l.drain.whole)
	if err != nil {
		return 0, err
	}
	if err := l.cfg.Store.Truncate(ctx, t.name, queue, last); err != nil {
		return 0, &spoolError{err}
	}
	l.account.give(t, len(recs), size)
	l.account.pace(t, size)
	l.drain.page.Store(int64(l.cfg.Clock.Since(began)))
	return len(recs), nil
}

// spoolError says that the spool itself failed. It does not wrap its cause, which says nothing
// about the store's health.
type spoolError struct{ cause error }

func (e *spoolError) Error() string { return "the spool has failed: " + e.cause.Error() }

// forwardUnerased appends the events of a page that are not erased to the log, and meanwhile checks
// the page before and the next one. It returns how long the append took.
func (l *Log) forwardUnerased(
	ctx context.Context, t *topic, page []*eventlog.Record, bounds eventlog.Bounds,
) (took time.Duration, err error) {
	var look errgroup.Group
	rest := page
	if l.cfg.Erasures != nil {
		if rest, err = l.withoutErased(ctx, t, page); err != nil {
			return 0, err
		}
		ahead := eventlog.Bounds{Events: min(2*bounds.Events, l.drain.whole.Events), Bytes: min(2*bounds.Bytes, l.drain.whole.Bytes)}
		next, err := l.cfg.Store.Read(ctx, t.name, queue, page[len(page)-1].Seq+1, ahead)
		if err != nil {
			return 0, &spoolError{err}
		}
		look.Go(func() error { return l.look(ctx, t, next) })
	}
	began := l.cfg.Clock.Now()
	err = l.forward(ctx, t, rest)
	took = l.cfg.Clock.Since(began)
	late := look.Wait()
	if err != nil || l.cfg.Erasures == nil {
		return took, err
	}
	t.erasures.unverified = append(t.erasures.unverified, rest...)
	return took, late
}

// forward appends a page to the log, each partition's events in order. It returns nil when every
// one of them is stored, there or as a dead letter.
func (l *Log) forward(ctx context.Context, t *topic, page []*eventlog.Record) error {
	partitions, err := l.ensured(ctx, t)
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var all []dead
	err = eachPartition(page, partitions, func(p int, _ []int, recs []*eventlog.Record) error {
		list, err := l.forwardTo(ctx, t, p, recs)
		mu.Lock()
		defer mu.Unlock()
		all = append(all, list...)
		return err
	})
	if err != nil {
		return err
	}
	if all, err = l.unerased(ctx, t, all); err != nil {
		return err
	}
	return l.deadLetterAll(ctx, t, all)
}

// forwardTo appends events to one partition, and returns the events that the log refuses.
func (l *Log) forwardTo(ctx context.Context, t *topic, partition int, recs []*eventlog.Record) (list []dead, err error) {
	ctx, span := l.cfg.Tracing.Drain(ctx, t.name, partition, recs)
	outs := l.cfg.Log.Append(ctx, t.name, partition, recs)
	span.End(outs)
	l.announce(t, partition, recs, outs)
	heads := map[int]uint64{}
	for i, out := range outs {
		switch {
		case out.Err == nil && out.Duplicate && out.DeliverAt == 0:
			heads[out.Partition] = max(heads[out.Partition], out.Seq)
		case out.Err == nil:
		case final(out.Err):
			list = append(list, dead{rec: recs[i], err: out.Err})
		default:
			if errors.Is(out.Err, eventlog.ErrNotFound) {
				t.partitions.Store(0) // the topic was deleted, perhaps created again
			}
			if err == nil || unavailable(out.Err) {
				err = out.Err
			}
		}
	}
	if l.cfg.Heard != nil {
		for p, head := range heads {
			l.cfg.Heard(t.name, p, head)
		}
	}
	return list, err
}
