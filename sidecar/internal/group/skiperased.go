package group

import (
	"context"
	"errors"
	"slices"

	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Recheck makes the groups of a topic skip events that are no longer in the log: once it returns
// nil, erased events are not delivered any more. It does not take events back from members, nor
// from their way to the dead letter topic.
func (m *Manager) Recheck(ctx context.Context, topic string) (err error) {
	for _, g := range m.all() {
		if g.id.Topic == topic || g.redrives() { // its redriven dead letters may be of the topic
			err = errors.Join(err, g.recheck(ctx))
		}
	}
	return err
}

// redrives reports whether the group has fetched redriven dead letters.
func (g *Group) redrives() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.parts {
		for e := range p.All() {
			if e.Letter != "" {
				return true
			}
		}
	}
	return false
}

func (g *Group) recheck(ctx context.Context) error {
	g.mu.Lock()
	parts := g.parts
	for _, p := range parts {
		p.Generation++ // reads under way are repeated
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

// recheckPartition looks the fetched events of a partition up in the log, and the dead letters of
// the redriven ones.
func (g *Group) recheckPartition(ctx context.Context, p *partition) error {
	g.mu.Lock()
	var ids, letters []string
	var seqs []uint64
	for e := range p.All() {
		switch {
		case !e.Assignable():
		case e.Letter != "":
			letters = append(letters, e.Letter)
		default:
			ids, seqs = append(ids, e.Record.ID), append(seqs, e.Seq)
		}
	}
	g.mu.Unlock()
	gone := map[uint64]bool{} // by seq, since an id may occur again
	if len(ids) > 0 {
		found, err := g.cfg.Log.LookupEach(ctx, g.id.Topic, ids)
		if err != nil {
			return err
		}
		for i, rec := range found {
			gone[seqs[i]] = rec == nil
		}
	}
	dead, err := deadletter.Events(ctx, g.cfg.Log, g.id.Topic, letters)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range slices.Collect(p.All()) {
		erased := e.Letter == "" && gone[e.Seq] || slices.Contains(letters, e.Letter) && dead[e.Letter] == nil
		if erased && e.Assignable() {
			e.Process.End(tracing.Revoked, "erased")
			g.dispatch.Settle(e)
		}
	}
	return nil
}
