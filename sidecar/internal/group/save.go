package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// errStopped answers what comes after the sidecar has begun to stop.
var errStopped = fmt.Errorf("shutting down: %w", eventlog.ErrUnavailable)

// save is the progress of one turn on its way to the store, and what is to
// happen once it is there.
type save struct {
	epochs      []eventlog.Epoch
	marks       []eventlog.Mark
	waiters     []func(error) // to be told once it is synced
	members     []*Member     // that have been assigned events
	deadLetters []*entry
	ended       []eventlog.Redrive // that are settled
}

// collect takes all progress that is not saved. The store refuses what is not
// this sidecar's any more, so it does not matter here whether the roster is
// valid.
func (g *Group) collect() save {
	s := save{marks: slices.Collect(maps.Values(g.marks)), waiters: g.waiters, deadLetters: g.burying}
	clear(g.marks)
	g.waiters, g.burying, g.ackDue = nil, nil, time.Time{}
	for _, p := range g.parts {
		if p.dirty {
			p.dirty = false
			s.epochs = append(s.epochs, g.epoch(p, p.own == leaving))
			s.ended = append(s.ended, p.redrive.toEnd(g.topic, g.name, p.index)...)
		}
	}
	if len(s.epochs) > 0 {
		g.beat++
	}
	for _, m := range g.members {
		if len(m.out) > 0 {
			s.members = append(s.members, m)
		}
	}
	g.saving = !s.empty()
	return s
}

// epoch is the document of one partition as of now.
func (g *Group) epoch(p *partition, released bool) eventlog.Epoch {
	return eventlog.Epoch{
		GroupPartition: eventlog.GroupPartition{Topic: g.topic, Group: g.name, Partition: p.index},
		Number:         p.epoch,
		Owner:          p.life,
		Beat:           g.beat,
		Released:       released,
		Progress:       p.progress(g.cfg.Clock.Now()),
	}
}

func (s *save) empty() bool { return len(s.epochs) == 0 && len(s.marks) == 0 }

// store writes it; nothing to write is no write.
func (s save) store(ctx context.Context, log eventlog.Groups) error {
	if s.empty() {
		return nil
	}
	return log.SaveEpochs(ctx, s.epochs, s.marks)
}

// saved takes the outcome. After a failure nothing of this turn has happened:
// deliveries are taken back, and the progress is saved again later.
func (g *Group) saved(s save, err error) {
	g.mu.Lock()
	g.saving = false
	again := !g.saveDue.IsZero()
	g.saveDue = time.Time{}
	moved := false
	if err == nil {
		if !s.empty() {
			g.saves++
		}
		g.unsynced = append(g.unsynced, s.waiters...)
		g.ended = append(g.ended, s.ended...)
		moved = g.released(s)
	} else {
		g.unsave(s, again, err)
	}
	g.mu.Unlock()
	switch {
	case errors.Is(err, eventlog.ErrFenced):
		g.suspect()
		answerAll(s.waiters, errTakenOver)
	case err != nil:
		answerAll(s.waiters, err)
	case len(s.waiters)+len(s.ended) > 0:
		g.syncer.wake()
	}
	if moved {
		g.cfg.tellMoved(g.topic, g.name)
		g.balancer.wake()
	}
}

// released ends the ownership of what was saved as released.
func (g *Group) released(s save) (any bool) {
	for i := range s.epochs {
		e := &s.epochs[i]
		if p := g.parts[e.Partition]; e.Released && p.own == leaving && p.epoch == e.Number && !p.dirty {
			g.disown(p)
			any = true
		}
	}
	return any
}

// unsave undoes a turn whose save has failed.
func (g *Group) unsave(s save, again bool, err error) {
	if !again && !errors.Is(err, context.Canceled) && !errors.Is(err, eventlog.ErrFenced) {
		g.cfg.Logger.Error("consumer group cannot save its progress", "topic", g.topic, "group", g.name, "error", err)
	}
	g.saveDue = g.cfg.Clock.Now().Add(retryAfterFailure)
	g.again, g.paceDue = false, time.Time{} // assign looks again then
	for _, mark := range s.marks {
		if _, newer := g.marks[mark.ID]; !newer {
			g.marks[mark.ID] = mark
		}
	}
	for i := range s.epochs {
		e := &s.epochs[i]
		// It may have been lost meanwhile, or renewed.
		if p := g.parts[e.Partition]; p.own != foreign && p.epoch >= e.Number {
			p.dirty = true
			p.redrive.endAgain()
		}
	}
	for _, m := range s.members {
		m.takeBack()
	}
	for _, e := range s.deadLetters {
		if e.state == burying {
			g.timers.set(e, g.saveDue)
		}
	}
}

// sync makes what has been saved durable and answers those who wait for it. It
// runs beside the turns, so that no delivery waits for it.
func (g *Group) sync() {
	g.mu.Lock()
	waiters, upTo, ended := g.unsynced, g.saves, g.ended
	g.unsynced, g.ended = nil, nil
	g.mu.Unlock()
	if len(waiters)+len(ended) == 0 {
		return
	}
	err := g.cfg.Log.Sync(g.cfg.Context)
	if err == nil {
		g.mu.Lock()
		g.synced = max(g.synced, upTo)
		g.mu.Unlock()
	}
	if len(ended) > 0 {
		err = errors.Join(err, g.end(ended, err))
	}
	answerAll(waiters, err)
}

func answerAll(waiters []func(error), err error) {
	for _, done := range waiters {
		done(err)
	}
}

// takeBack undoes assignments that were not sent.
func (m *Member) takeBack() {
	for _, a := range m.out {
		if a.holds() {
			m.group.giveBack(a.entry)
		}
	}
	m.out = nil
}

// timed answers in time also where the store does not. What the answer is about
// goes on, and may be saved later.
func (g *Group) timed(done func(error)) func(error) {
	if g.cfg.AckTimeout == 0 {
		return done
	}
	var once sync.Once
	timer := g.cfg.Clock.AfterFunc(g.cfg.AckTimeout, func() {
		once.Do(func() { done(fmt.Errorf("save progress: %w: %w", eventlog.ErrUnavailable, eventlog.ErrTimeout)) })
	})
	return func(err error) {
		timer.Stop()
		once.Do(func() { done(err) })
	}
}

// whenDurable arranges for done to be called once all progress so far is
// durable. It is called with mu held and releases it.
func (g *Group) whenDurable(done func(error)) {
	done = g.traced(done)
	switch {
	case g.over:
		g.mu.Unlock()
		done(errStopped)
	case g.unsaved() || g.saving || len(g.waiters) > 0:
		g.waiters = append(g.waiters, g.timed(done))
		g.mu.Unlock()
		g.worker.wake()
	case g.synced < g.saves:
		g.unsynced = append(g.unsynced, g.timed(done))
		g.mu.Unlock()
		g.syncer.wake()
	default:
		g.mu.Unlock()
		done(nil)
	}
}

// unsaved reports whether there is progress that no save has begun to store.
func (g *Group) unsaved() bool {
	return len(g.marks) > 0 || slices.ContainsFunc(g.parts, func(p *partition) bool { return p.dirty })
}
