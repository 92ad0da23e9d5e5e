package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// errStopped answers what comes after the sidecar has begun to stop.
var errStopped = fmt.Errorf("shutting down: %w", eventlog.ErrUnavailable)

// save is the progress of one turn on its way to the store.
type save struct {
	epochs  []eventlog.Epoch
	parts   []*partition
	marks   []eventlog.Mark
	waiters []func(error)
}

// collect takes all progress that is not saved.
func (g *Group) collect() save {
	s := save{marks: g.marks, waiters: g.waiters}
	g.marks, g.waiters = nil, nil
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

// saved takes the outcome. After a failure nothing of this turn has happened:
// deliveries are taken back, and the progress is saved again later.
func (g *Group) saved(s save, err error) {
	g.mu.Lock()
	g.saving = false
	g.saveDue = time.Time{}
	if err != nil {
		if !errors.Is(err, context.Canceled) {
			g.cfg.Logger.Error("consumer group cannot save its progress", "topic", g.topic, "group", g.name, "error", err)
		}
		g.saveDue = time.Now().Add(retryAfterFailure)
		g.marks = append(s.marks, g.marks...)
		for _, p := range s.parts {
			p.dirty = true
		}
		for _, m := range g.members {
			m.takeBack()
		}
	}
	g.mu.Unlock()
	for _, done := range s.waiters {
		done(err)
	}
}

// takeBack undoes assignments that were not sent.
func (m *Member) takeBack() {
	for _, a := range m.out {
		if a.entry.state == inflight && a.entry.lease == a.lease {
			m.group.giveBack(a.entry)
		}
	}
	m.out = nil
}
