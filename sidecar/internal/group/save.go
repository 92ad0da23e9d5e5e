package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// errStopped answers what comes after the sidecar has begun to stop.
var errStopped = fmt.Errorf("shutting down: %w", eventlog.ErrUnavailable)

// save is the progress of one turn on its way to the store, and what is to
// happen once it is there.
type save struct {
	epochs  []eventlog.Epoch
	parts   []*partition
	marks   []eventlog.Mark
	waiters []func(error)
	members []*Member // that have been assigned events
	graves  []*entry
}

// collect takes all progress that is not saved.
func (g *Group) collect() save {
	s := save{marks: slices.Collect(maps.Values(g.marks)), waiters: g.waiters, graves: g.burying}
	clear(g.marks)
	g.waiters, g.burying = nil, nil
	for _, p := range g.parts {
		if p.dirty {
			p.dirty = false
			s.parts = append(s.parts, p)
			s.epochs = append(s.epochs, g.epoch(p, false))
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
	g.saving = len(s.epochs) > 0 || len(s.marks) > 0
	return s
}

// epoch is the document of one partition as of now.
func (g *Group) epoch(p *partition, released bool) eventlog.Epoch {
	return eventlog.Epoch{
		GroupPartition: eventlog.GroupPartition{Topic: g.topic, Group: g.name, Partition: p.index},
		Number:         p.epoch,
		Owner:          g.cfg.NodeID,
		Beat:           g.beat,
		Released:       released,
		Progress:       p.progress(),
	}
}

// store writes it; nothing to write is no write.
func (s save) store(ctx context.Context, log eventlog.Groups) error {
	if len(s.epochs) == 0 && len(s.marks) == 0 {
		return nil
	}
	return log.SaveEpochs(ctx, s.epochs, s.marks)
}

// answer tells those who wait for it.
func (s save) answer(err error) {
	for _, done := range s.waiters {
		done(err)
	}
}

// saved takes the outcome. After a failure nothing of this turn has happened:
// deliveries are taken back, and the progress is saved again later.
func (g *Group) saved(s save, err error) {
	g.mu.Lock()
	g.saving = false
	again := !g.saveDue.IsZero()
	g.saveDue = time.Time{}
	if err != nil {
		if !again && !errors.Is(err, context.Canceled) {
			g.cfg.Logger.Error("consumer group cannot save its progress", "topic", g.topic, "group", g.name, "error", err)
		}
		g.saveDue = time.Now().Add(retryAfterFailure)
		g.again, g.paceDue = false, time.Time{} // assign looks again then
		for _, mark := range s.marks {
			if _, newer := g.marks[mark.ID]; !newer {
				g.marks[mark.ID] = mark
			}
		}
		for _, p := range s.parts {
			p.dirty = true
		}
		for _, m := range s.members {
			m.takeBack()
		}
	}
	g.mu.Unlock()
	s.answer(err)
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

// whenSaved arranges for done to be called once all progress so far is
// durable. It is called with mu held and releases it.
func (g *Group) whenSaved(done func(error)) {
	switch {
	case !g.owned:
		g.mu.Unlock()
		done(errStopped)
	case !g.unsaved() && !g.saving && len(g.waiters) == 0:
		g.mu.Unlock()
		done(nil)
	default:
		g.waiters = append(g.waiters, done)
		g.mu.Unlock()
		g.worker.wake()
	}
}

// unsaved reports whether there is progress that no save has begun to store.
func (g *Group) unsaved() bool {
	return len(g.marks) > 0 || slices.ContainsFunc(g.parts, func(p *partition) bool { return p.dirty })
}
