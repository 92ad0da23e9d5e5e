package roster

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// run is the time between two deaths of this sidecar as the others may see it.
type run struct {
	id     string
	number int
	beat   uint64
	first  time.Time // when its first beat was started; zero: none was
	acked  time.Time // when the last acknowledged beat was started; zero: none is
}

// lease is when the lease under way began: others may take the run for dead
// once a whole lease has passed since.
func (x *run) lease() time.Time {
	if x.acked.IsZero() {
		return x.first
	}
	return x.acked
}

// over reports whether others may have taken the run for dead before now.
func (x *run) over(now time.Time, lease time.Duration) bool {
	return !x.first.IsZero() && now.Sub(x.lease()) >= lease
}

// begin starts a run under a new id.
func (r *Roster) begin() {
	number := r.run.number + 1
	r.run = run{id: r.process + strconv.Itoa(number), number: number}
	r.standing.Store(&Standing{ID: r.run.id})
}

// sighting is what is known of another node.
type sighting struct {
	node  eventlog.Node
	moved time.Time // when its beat was last seen to have moved
	dead  bool      // for good: the node itself knows as soon as it beats again
}

// look saves the own beat, sees who is there, and returns when to do so again.
func (r *Roster) look(ctx context.Context) (again time.Duration) {
	bounded, cancel := r.cfg.Clock.WithTimeout(ctx, r.cfg.Lease/triesPerLease)
	defer cancel()
	err := r.beat(bounded)
	if err == nil {
		err = r.list(bounded)
	}
	if err != nil && !r.failing && ctx.Err() == nil {
		r.cfg.Logger.Warn("cannot keep up with the other sidecars of the store; trying again", "error", err)
	}
	r.failing = err != nil
	again = r.cfg.Lease / beatsPerLease
	if err != nil {
		again = r.cfg.Lease / retriesPerLease
	}
	again -= time.Duration(rand.Int64N(int64(again)/beatsPerLease + 1))
	for _, s := range r.seen { // who may turn out to be dead before that
		if left := r.cfg.Clock.Until(s.moved.Add(r.cfg.Lease)); err == nil && !s.dead && left > 0 {
			again = min(again, left)
		}
	}
	return again
}

// beat saves the own document. A run that was not heard of in time is over.
func (r *Roster) beat(ctx context.Context) error {
	for {
		if r.run.over(r.cfg.Clock.Now(), r.cfg.Lease) {
			if !r.run.acked.IsZero() {
				r.former = r.run.id
				r.cfg.Logger.Warn("this sidecar was not heard of for a whole lease, and goes on as another", "lease", r.cfg.Lease)
			}
			r.begin()
		}
		inTime, err := r.save(ctx)
		switch {
		case errors.Is(err, eventlog.ErrNotFound): // others have removed it, since it was dead to them
			r.begin()
			continue
		case err != nil:
			return err
		}
		if inTime {
			break
		}
	}
	if r.former != "" {
		// Only now: what the two are to have must not seem deserted.
		_ = r.cfg.Nodes.RemoveNode(ctx, r.former) // or others find it dead
		r.former = ""
	}
	return nil
}

// save is one beat; inTime says that nobody can have taken the run for dead
// before it arrived.
func (r *Roster) save(ctx context.Context) (inTime bool, err error) {
	r.mu.Lock()
	news := r.unsaved || r.run.acked.IsZero()
	r.unsaved = false
	node := eventlog.Node{ID: r.run.id, Name: r.cfg.Name, Beat: r.run.beat + 1, Groups: r.announced()}
	more := len(r.groups) - len(node.Groups)
	r.mu.Unlock()
	start := r.cfg.Clock.Now()
	if r.run.first.IsZero() {
		r.run.first = start
	}
	r.run.beat++
	if err := r.cfg.Nodes.SaveNode(ctx, node); err != nil {
		r.mu.Lock()
		r.unsaved = r.unsaved || news
		r.mu.Unlock()
		return false, err
	}
	if r.run.over(r.cfg.Clock.Now(), r.cfg.Lease) {
		return false, nil
	}
	r.run.acked = start
	r.standing.Store(&Standing{ID: r.run.id, Until: start.Add(r.cfg.Lease - r.cfg.Lease/marginShare)})
	if news {
		if more > 0 {
			r.cfg.Logger.Warn("this sidecar has members of more groups than it announces", "announced", MaxGroups, "more", more)
		}
		r.cfg.Announced()
	}
	return true, nil
}

// list sees which other nodes are there.
func (r *Roster) list(ctx context.Context) error {
	start := r.cfg.Clock.Now()
	nodes, err := r.cfg.Nodes.ListNodes(ctx)
	if err != nil {
		return err
	}
	end := r.cfg.Clock.Now()
	// Who has not looked for a while does not know for how long others have
	// been silent: perhaps the store was away from everybody.
	blind := !r.last.IsZero() && start.Sub(r.last) > r.cfg.Lease/2
	r.last = end
	seen := make(map[string]*sighting, len(nodes))
	for _, n := range nodes {
		if r.Ours(n.ID) {
			continue
		}
		s := r.seen[n.ID]
		switch {
		case s == nil:
			s = &sighting{moved: end}
		case s.dead:
		case s.node.Beat != n.Beat || blind:
			s.moved = end
		case start.Sub(s.moved) >= r.cfg.Lease:
			s.dead = true
		}
		s.node = n
		if start.Sub(s.moved) >= forgottenAfter*r.cfg.Lease {
			if err := r.cfg.Nodes.RemoveNode(ctx, n.ID); err != nil {
				r.cfg.Logger.Warn("cannot remove a dead sidecar from the store's list", "node", n.Name, "error", err)
			}
			continue
		}
		seen[n.ID] = s
	}
	r.seen = seen
	r.view.Store(r.View().next(r.run.id, r.cfg.Name, seen, start))
	return nil
}
