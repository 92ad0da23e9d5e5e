package group

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Recheck lets the groups of a topic go past what is not in the log any more: an
// event that was erased is neither delivered again nor for the first time once
// it returns nil. What members have of it they have; what is on its way to the
// dead letters gets there.
func (m *Manager) Recheck(ctx context.Context, topic string) (err error) {
	for _, g := range m.all() {
		if g.topic == topic || g.topic+wire.DeadLetterSuffix == topic { // of which it may have redriven ones
			err = errors.Join(err, g.recheck(ctx))
		}
	}
	return err
}

func (g *Group) recheck(ctx context.Context) error {
	g.mu.Lock()
	parts := g.own.parts
	for _, p := range parts {
		p.generation++ // what is being fetched is fetched again
	}
	g.mu.Unlock()
	for _, p := range parts {
		if err := errors.Join(g.recheckPartition(ctx, p), g.recheckRedrives(ctx, p)); err != nil {
			return err
		}
	}
	g.worker.Wake()
	return nil
}

// recheckRedrives looks for the dead letters of what is being redriven.
func (g *Group) recheckRedrives(ctx context.Context, p *partition) error {
	g.mu.Lock()
	var letters []string
	for _, e := range p.redrive.entries {
		if e.forgettable() {
			letters = append(letters, e.letter)
		}
	}
	g.mu.Unlock()
	if len(letters) == 0 {
		return nil
	}
	dead, err := g.deadEvents(ctx, letters)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range slices.Clone(p.redrive.entries) {
		if e.forgettable() && slices.Contains(letters, e.letter) && dead[e.letter] == nil {
			e.process.End(tracing.Revoked, "erased")
			g.dispatch.settle(e)
		}
	}
	return nil
}

// recheckPartition looks for what was fetched of a partition: page by page, and
// by its id for what is on no page, which may be on its way there.
func (g *Group) recheckPartition(ctx context.Context, p *partition) error {
	g.mu.Lock()
	missing := make(map[uint64]*eventlog.Record)
	first, last := uint64(0), uint64(0)
	for _, e := range p.entries {
		if e.forgettable() {
			if missing[e.seq] = e.rec; first == 0 {
				first = e.seq
			}
			last = e.seq
		}
	}
	g.mu.Unlock()
	for first > 0 && first <= last {
		page, err := g.cfg.Log.Read(ctx, g.topic, p.Index, first, eventlog.Bounds{Events: g.cfg.Bounds.FetchEvents, Bytes: g.cfg.Bounds.FetchBytes})
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		for _, rec := range page {
			delete(missing, rec.Seq)
		}
		first = page[len(page)-1].Seq + 1
	}
	for seq, rec := range missing {
		switch _, err := g.cfg.Log.Lookup(ctx, g.topic, rec.ID); {
		case err == nil:
			delete(missing, seq)
		case !errors.Is(err, eventlog.ErrNotFound):
			return err
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range slices.Clone(p.entries) {
		if missing[e.seq] != nil && e.forgettable() {
			e.process.End(tracing.Revoked, "erased")
			g.dispatch.settle(e)
		}
	}
	return nil
}

// forgettable says that the event may still be given to somebody.
func (e *entry) forgettable() bool {
	return e.state != settled && e.state != burying && e.state != dropped
}
