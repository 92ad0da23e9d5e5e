package group

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-bus/sluice/sdk/wire"
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
		if err := g.recheckPartition(ctx, p); err != nil {
			return err
		}
	}
	g.worker.Wake()
	return nil
}

// recheckPartition looks for what was fetched of a partition, and for the dead
// letters of what is redriven.
func (g *Group) recheckPartition(ctx context.Context, p *partition) error {
	g.mu.Lock()
	var ids, letters []string
	var seqs []uint64
	for e := range p.all() {
		switch {
		case !e.forgettable():
		case e.letter != "":
			letters = append(letters, e.letter)
		default:
			ids, seqs = append(ids, e.rec.ID), append(seqs, e.seq)
		}
	}
	g.mu.Unlock()
	gone := map[uint64]bool{} // by seq, since an id may come again
	if len(ids) > 0 {
		found, err := g.cfg.Log.LookupEach(ctx, g.topic, ids)
		if err != nil {
			return err
		}
		for i, rec := range found {
			gone[seqs[i]] = rec == nil
		}
	}
	dead, err := deadEvents(ctx, g.cfg.Log, g.topic, letters)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range slices.Collect(p.all()) {
		erased := e.letter == "" && gone[e.seq] || slices.Contains(letters, e.letter) && dead[e.letter] == nil
		if erased && e.forgettable() {
			e.process.End(tracing.Revoked, "erased")
			g.dispatch.settle(e)
		}
	}
	return nil
}

// forgettable says that the event may still be given to a member.
func (e *entry) forgettable() bool {
	return e.state != settled && e.state != deadLettering && e.state != dropped
}
