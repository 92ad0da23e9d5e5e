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

// life is one life of this sidecar, from one death, as other sidecars may see it, to the next.
type life struct {
	id      string
	number  int
	beat    uint64 // 0: none was accepted
	version uint64 // the version of the last document that it tried to save
	entered bool   // the roll has it
	told    bool   // other sidecars were told of it
}

// begin starts a life under a new id.
func (r *Roster) begin() {
	number := r.life.number + 1
	r.life = life{id: r.process + strconv.Itoa(number), number: number}
	r.standing.Store(&Standing{ID: r.life.id})
}

// look reads the news of the roll. If a beat is due, or there is a change to save, it also saves
// this sidecar's beat and watches other lives. It returns when to look again.
func (r *Roster) look(ctx context.Context) (again time.Duration) {
	r.mu.Lock()
	whole, awaited := r.unsaved, r.awaited
	r.awaited = nil
	r.mu.Unlock()
	whole = whole || r.failing || !r.cfg.Clock.Now().Before(r.due)
	bounded, cancel := r.cfg.Clock.WithTimeout(ctx, r.cfg.Lease/triesPerLease)
	defer cancel()
	var err error
	if whole {
		err = r.endEarlier(bounded)
		if err == nil {
			err = r.beat(bounded)
		}
	}
	if err == nil {
		err = r.watch(bounded, whole)
	}
	r.note(err, ctx.Err() != nil)
	for _, looked := range awaited {
		looked <- err
	}
	now := r.cfg.Clock.Now()
	switch {
	case err != nil || !r.Valid(now):
		r.due = now.Add(spread(r.cfg.Lease / retriesPerLease))
	case whole:
		beat := r.cfg.Lease / beatsPerLease
		if len(r.served) > 0 {
			beat = min(beat, describeEvery)
		}
		r.due = now.Add(spread(beat))
	}
	for _, s := range r.next { // before that a watched life may be due to be declared dead
		if due := s.due(); err == nil && due.After(now) && due.Before(r.due) {
			r.due = due
		}
	}
	return r.due.Sub(now)
}

// note notes the result of a look. It warns once if none has been complete for half a lease: a try may
// take too long where many sidecars start at once, and the next one is soon.
func (r *Roster) note(err error, ending bool) {
	now := r.cfg.Clock.Now()
	switch behind := now.Sub(r.complete); {
	case err == nil:
		r.complete, r.warned = now, false
	case behind >= r.cfg.Lease/2 && !r.warned && !ending:
		r.warned = true
		r.cfg.Logger.Warn("cannot keep up with the other sidecars of the store; trying again", "for", behind, "error", err)
	}
	r.failing = err != nil
}

// spread is a little less than d, so that sidecars do not all beat at the same time.
func spread(d time.Duration) time.Duration { return d - rand.N(d/spreading+1) }

// spreading sets how much a time varies: by 1/spreading of it.
const spreading = 10

// endEarlier ends the earlier lives of this sidecar that the store may still consider live.
func (r *Roster) endEarlier(ctx context.Context) error {
	if len(r.pendingEnds) == 0 {
		return nil
	}
	var ends []eventlog.NodeChange
	for _, id := range r.pendingEnds {
		if err := r.cfg.Nodes.EndNode(ctx, id); err != nil {
			return err
		}
		ends = append(ends, eventlog.NodeChange{ID: id, State: eventlog.NodeEnded})
	}
	if err := r.cfg.Nodes.Enter(ctx, ends...); err != nil {
		return err
	}
	r.savePendingEnds(nil)
	return nil
}

// savePendingEnds remembers lives whose end the store does not know.
func (r *Roster) savePendingEnds(ids []string) {
	r.pendingEnds = ids
	if r.cfg.PendingEnds == nil {
		return
	}
	if err := r.cfg.PendingEnds.Save(ids); err != nil {
		r.cfg.Logger.Warn("cannot record for the next start that this sidecar has stopped in order; its events in flight count as delivered",
			"error", err)
	}
}

// beat saves this sidecar's document. A life that was declared dead is over.
func (r *Roster) beat(ctx context.Context) error {
	for {
		err := r.save(ctx)
		if !errors.Is(err, eventlog.ErrNotFound) {
			return err
		}
		r.cfg.Logger.Warn("this sidecar was silent for a lease, and others have declared it dead; it continues as a new life",
			"lease", r.cfg.Lease, "life", r.life.id)
		r.begin()
	}
}

// save makes one beat. If the store accepts the beat, no sidecar has declared the life dead before.
// Watchers wait for a lease, counted from the start of the beat or later. A life is valid only once
// it is in the roll, where others find it. Until then it does not beat again, so that other
// sidecars can recognize a life that never gets into the roll.
func (r *Roster) save(ctx context.Context) error {
	if r.life.beat > 0 && !r.life.entered {
		if err := r.cfg.Nodes.Enter(ctx, eventlog.NodeChange{ID: r.life.id, Version: r.life.version}); err != nil {
			return err
		}
		r.life.entered = true
	}
	r.mu.Lock()
	news := r.unsaved || r.life.beat == 0
	r.unsaved = false
	if news {
		r.life.version++
	}
	node := eventlog.Node{ID: r.life.id, Name: r.cfg.Name, Beat: r.life.beat + 1, Lease: r.cfg.Lease, Groups: r.announced(),
		Version: r.life.version}
	more, members := len(r.groups)-len(node.Groups), r.members
	r.mu.Unlock()
	if members != nil && len(node.Groups) > 0 {
		node.Members = members()
	}
	start := r.cfg.Clock.Now()
	err := r.cfg.Nodes.SaveNode(ctx, node)
	switch {
	case err == nil:
		r.life.beat = node.Beat
		if r.life.entered {
			r.renew(start)
		}
	case r.life.beat == 0:
		// The document may be stored, and its life silent for an unknown time.
		r.pendingEnds = append(r.pendingEnds, r.life.id)
		r.begin()
	default:
		r.life.beat++
	}
	if err == nil && news {
		err = r.cfg.Nodes.Enter(ctx, eventlog.NodeChange{ID: node.ID, Version: node.Version})
	}
	switch {
	case err != nil:
		r.mu.Lock()
		r.unsaved = r.unsaved || news
		r.mu.Unlock()
		return err
	case !news:
		return nil
	case more > 0:
		r.cfg.Logger.Warn("this sidecar has members of more groups than it announces", "announced", MaxGroups, "more", more)
	}
	if !r.life.entered {
		r.life.entered = true
		r.renew(start)
	}
	r.cfg.Announced(changed(r.served, node.Groups, !r.life.told))
	r.served, r.life.told = node.Groups, true
	r.mu.Lock()
	for _, g := range node.Groups {
		if _, still := r.groups[g]; still {
			r.groups[g] = true
		}
	}
	r.mu.Unlock()
	return nil
}

// changed returns the groups that only one of the lists has; with all, the groups of both.
func changed(before, now []eventlog.GroupName, all bool) []eventlog.GroupName {
	lists := make(map[eventlog.GroupName]int, len(before)+len(now))
	for _, g := range slices.Concat(before, now) {
		lists[g]++
	}
	maps.DeleteFunc(lists, func(_ eventlog.GroupName, n int) bool { return n == 2 && !all })
	return slices.Collect(maps.Keys(lists))
}

// renew makes the life valid for another lease, less the margin, from the start of an accepted
// beat.
func (r *Roster) renew(start time.Time) {
	if was := r.Standing(); !was.Until.IsZero() && !was.Valid(start) {
		r.cfg.Logger.Warn("this sidecar was silent for a while and delivered nothing meanwhile; no other sidecar has taken over",
			"life", r.life.id)
	}
	r.standing.Store(&Standing{ID: r.life.id, Until: start.Add(r.cfg.Lease - r.cfg.Lease/marginShare)})
}
