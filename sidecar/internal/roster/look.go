package roster

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// life is this sidecar from one death, as the others may see it, to the next.
type life struct {
	id     string
	number int
	beat   uint64 // 0: none was accepted
}

// begin starts a life under a new id.
func (r *Roster) begin() {
	number := r.life.number + 1
	r.life = life{id: r.process + strconv.Itoa(number), number: number}
	r.standing.Store(&Standing{ID: r.life.id})
}

// sighting is what is known of another node.
type sighting struct {
	node  eventlog.Node
	moved time.Time // when its beat was last seen to have moved
}

// over reports whether the life has ended, for good.
func (s *sighting) over() bool { return s.node.State != eventlog.NodeLive }

// due is when the node may be declared dead, unless it moves.
func (s *sighting) due() time.Time { return s.moved.Add(s.node.Lease) }

// look saves the own beat, sees who is there, and returns when to do so again.
func (r *Roster) look(ctx context.Context) (again time.Duration) {
	bounded, cancel := r.cfg.Clock.WithTimeout(ctx, r.cfg.Lease/triesPerLease)
	defer cancel()
	err := r.endEarlier(bounded)
	if err == nil {
		err = r.beat(bounded)
	}
	if err == nil {
		err = r.list(bounded)
	}
	if err != nil && !r.failing && ctx.Err() == nil {
		r.cfg.Logger.Warn("cannot keep up with the other sidecars of the store; trying again", "error", err)
	}
	r.failing = err != nil
	again = r.cfg.Lease / beatsPerLease
	if err != nil || !r.Valid(r.cfg.Clock.Now()) {
		again = r.cfg.Lease / retriesPerLease
	}
	again -= time.Duration(rand.Int64N(int64(again)/beatsPerLease + 1))
	for _, s := range r.seen { // who may turn out to be dead before that
		if left := r.cfg.Clock.Until(s.due()); err == nil && !s.over() && left > 0 {
			again = min(again, left)
		}
	}
	return again
}

// endEarlier ends the lives before this one that the store may take for live.
func (r *Roster) endEarlier(ctx context.Context) error {
	for _, id := range r.pendingEnds {
		if err := r.cfg.Nodes.EndNode(ctx, id); err != nil {
			return err
		}
	}
	if len(r.pendingEnds) > 0 {
		r.savePendingEnds(nil)
	}
	return nil
}

// savePendingEnds remembers lives whose end the store does not know.
func (r *Roster) savePendingEnds(ids []string) {
	r.pendingEnds = ids
	if r.cfg.PendingEnds == nil {
		return
	}
	if err := r.cfg.PendingEnds.Save(ids); err != nil {
		r.cfg.Logger.Warn("cannot keep for the next start that this sidecar has stopped in order; what it had counts as delivered", "error", err)
	}
}

// beat saves the own document. A life that was declared dead is over.
func (r *Roster) beat(ctx context.Context) error {
	for {
		err := r.save(ctx)
		if !errors.Is(err, eventlog.ErrNotFound) {
			return err
		}
		r.cfg.Logger.Warn("this sidecar was silent for a lease, and others have declared it dead; it goes on as another",
			"lease", r.cfg.Lease, "life", r.life.id)
		r.begin()
	}
}

// save is one beat. That it is accepted proves that nobody has declared the
// life dead before; from its start on, somebody who sees it would wait for a
// lease.
func (r *Roster) save(ctx context.Context) error {
	r.mu.Lock()
	news := r.unsaved || r.life.beat == 0
	r.unsaved = false
	first := r.life.beat == 0
	node := eventlog.Node{ID: r.life.id, Name: r.cfg.Name, Beat: r.life.beat + 1, Lease: r.cfg.Lease, Groups: r.announced()}
	more := len(r.groups) - len(node.Groups)
	r.mu.Unlock()
	start := r.cfg.Clock.Now()
	if err := r.cfg.Nodes.SaveNode(ctx, node); err != nil {
		r.mu.Lock()
		r.unsaved = r.unsaved || news
		r.mu.Unlock()
		if r.life.beat == 0 {
			// It may be there, and silent since nobody knows when.
			r.pendingEnds = append(r.pendingEnds, r.life.id)
			r.begin()
		} else {
			r.life.beat++
		}
		return err
	}
	r.life.beat = node.Beat
	if was := r.Standing(); !was.Until.IsZero() && !was.Valid(start) {
		r.cfg.Logger.Warn("this sidecar was not heard of for a while, in which it delivered nothing; nobody has taken over", "life", r.life.id)
	}
	r.standing.Store(&Standing{ID: r.life.id, Until: start.Add(r.cfg.Lease - r.cfg.Lease/marginShare)})
	if news {
		if more > 0 {
			r.cfg.Logger.Warn("this sidecar has members of more groups than it announces", "announced", MaxGroups, "more", more)
		}
		r.cfg.Announced(changed(r.served, node.Groups, first))
		r.served = node.Groups
	}
	return nil
}

// changed are the groups of which one list has what the other has not; with all, those of both.
func changed(before, now []eventlog.GroupName, all bool) []eventlog.GroupName {
	lists := make(map[eventlog.GroupName]int, len(before)+len(now))
	for _, g := range slices.Concat(before, now) {
		lists[g]++
	}
	maps.DeleteFunc(lists, func(_ eventlog.GroupName, n int) bool { return n == 2 && !all })
	return slices.Collect(maps.Keys(lists))
}

// list sees which other nodes are there, and declares dead who was silent for
// its lease.
func (r *Roster) list(ctx context.Context) error {
	start := r.cfg.Clock.Now()
	nodes, err := r.cfg.Nodes.ListNodes(ctx)
	if err != nil {
		return err
	}
	end := r.cfg.Clock.Now()
	gap := start.Sub(r.last)
	if r.last.IsZero() {
		gap = 0
	}
	r.last = end
	seen := make(map[string]*sighting, len(nodes))
	for _, n := range nodes {
		if r.Ours(n.ID) {
			continue
		}
		if n.Lease <= 0 {
			n.Lease = r.cfg.Lease
		}
		s := r.seen[n.ID]
		// Who has not looked for a while does not know for how long others
		// have been silent: perhaps the store was away from everybody.
		if s == nil || s.node.Beat != n.Beat || gap > n.Lease/2 {
			s = &sighting{moved: end}
		}
		s.node = n
		seen[n.ID] = s
		if s.over() || start.Before(s.due()) {
			continue
		}
		dead, err := r.cfg.Nodes.DeclareDead(ctx, n.ID, n.Beat)
		switch {
		case err != nil:
			return err
		case dead:
			r.cfg.Logger.Info("another sidecar was silent for its lease, and is declared dead", "node", n.Name, "life", n.ID, "lease", n.Lease)
			s.node.State = eventlog.NodeDead
		default:
			s.moved = end // or it is over: the next look tells
		}
	}
	r.seen = seen
	before, after := r.View(), r.View().next(r.life.id, r.cfg.Name, seen, start)
	if after.Name != r.cfg.Name && after.Name != before.Name {
		r.cfg.Logger.Warn("another process uses this sidecar's node id; the two are told apart by a number", "node", r.cfg.Name, "as", after.Name)
	}
	r.view.Store(after)
	return nil
}
