package roster

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// A look without news is one query: the documents of the watched lives, and the roll if it has
// changed.
//
//	a life begins, has other groups, or is over
//	     │ its document is written      │ the roll has it            │ the others have heard
//	     ├──────────────────────────────┼────────────────────────────┤ (a signal makes it soon)
//	     └ its watchers see it there    ┴ all see it in the roll, and read the document
//
// A sidecar that writes a document enters the change in the roll. If it dies in between, the
// watchers of the life see the document and enter the change. A life that died before it was in the
// roll owns nothing, and has beaten once. A sidecar that finds such a life in a list watches it
// too. An entry may come late or twice, since it only says where to look, and a life that is over
// does not change any more.

// others holds the other lives, as far as this sidecar knows them.
type others struct {
	number  uint64 // of the roll, up to which it was read
	listed  bool
	changed bool // since the last view
	live    map[string]eventlog.Node
	fresh   map[string]struct{} // the live ones that may not be in the roll
	over    map[string]end
}

// end is the end of a life, which is remembered for overRemembered.
type end struct {
	state eventlog.NodeState // live: its document was not found
	at    time.Time          // when this sidecar learned it; if not found, when it asked
}

// overRemembered is how long ends are remembered. After that, the roster asks the store for a life
// that still owns something.
const overRemembered = 10 * time.Minute

// observation is the last observed state of a watched node.
type observation struct {
	beat  uint64
	lease time.Duration
	moved time.Time // when its beat was last seen to move, or when the watch began
}

// due is when the node may be declared dead, unless its beat moves.
func (s *observation) due() time.Time { return s.moved.Add(s.lease) }

// lack is a change that is in a document and was not in the roll.
type lack struct {
	change eventlog.NodeChange
	again  bool                 // nor at the next look
	groups []eventlog.GroupName // the groups known before
}

// watch reads the news, and whether the beats of the watched lives have moved. It declares a life
// dead that was silent for its lease.
func (r *Roster) watch(ctx context.Context, whole bool) error {
	start := r.cfg.Clock.Now()
	var ids []string
	if whole {
		ids = slices.Collect(maps.Keys(r.next))
	}
	r.mu.Lock()
	asked := slices.Collect(maps.Keys(r.asked))
	clear(r.asked)
	r.mu.Unlock()
	nodes, roll, err := r.cfg.Nodes.Look(ctx, append(ids, asked...), r.others.number)
	if err == nil {
		err = r.learn(ctx, append(ids, asked...), nodes, roll, start)
	}
	if err != nil {
		r.ask(asked...)
		return err
	}
	if whole {
		err = r.declareDead(ctx, nodes, start)
		if err == nil {
			err = r.enterLacking(ctx)
		}
	}
	r.show()
	return err
}

// learn processes the result of a look: the nodes with these ids that the store has, and the roll.
func (r *Roster) learn(ctx context.Context, ids []string, nodes []eventlog.Node, roll eventlog.Roll, start time.Time) error {
	o := &r.others
	if behind := roll.Number - o.number; !o.listed || behind > uint64(len(roll.Changes)) {
		if err := r.list(ctx, start); err != nil {
			return err
		}
		o.number, roll.Changes = roll.Number, nil
	} else {
		roll.Changes = roll.Changes[len(roll.Changes)-int(behind):]
	}
	unread := make(map[string]struct{})
	for _, c := range roll.Changes {
		if l, lacked := r.lacking[c.ID]; lacked &&
			(c.State != eventlog.NodeLive || l.change.State == eventlog.NodeLive && c.Version >= l.change.Version) {
			delete(r.lacking, c.ID)
		}
		switch {
		case r.Ours(c.ID):
		case c.State != eventlog.NodeLive:
			delete(unread, c.ID)
			o.ended(c.ID, end{c.State, start})
		case o.lacks(c.ID, c.Version):
			unread[c.ID] = struct{}{}
		}
	}
	found := make(map[string]eventlog.Node, len(nodes))
	for _, n := range nodes {
		found[n.ID] = n
	}
	for _, id := range ids {
		n, there := found[id]
		change := eventlog.NodeChange{ID: id, Version: n.Version, State: n.State}
		switch {
		case r.Ours(id):
		case !there:
			o.ended(id, end{eventlog.NodeLive, start})
		case n.State != eventlog.NodeLive:
			if l := r.lack(change); o.ended(id, end{n.State, start}) {
				r.lacking[id] = l
			}
		case o.lacks(id, n.Version):
			unread[id] = struct{}{}
			r.lacking[id] = r.lack(change)
		}
		if _, fresh := o.fresh[id]; fresh && (n.Beat > 1 || n.State != eventlog.NodeLive) {
			delete(o.fresh, id)
			o.changed = true
		}
	}
	if len(unread) > 0 {
		nodes, err := r.cfg.Nodes.ListNodes(ctx, slices.Collect(maps.Keys(unread))...)
		if err != nil {
			return err
		}
		for _, n := range nodes {
			o.seen(n, start)
		}
	}
	o.number = roll.Number
	return nil
}

// list reads all nodes. Lives that were live and are missing ended long ago.
func (r *Roster) list(ctx context.Context, start time.Time) error {
	nodes, err := r.cfg.Nodes.ListNodes(ctx)
	if err != nil {
		return err
	}
	o := &r.others
	before := o.live
	o.live, o.listed, o.changed = make(map[string]eventlog.Node, len(nodes)), true, true
	o.fresh = make(map[string]struct{})
	for _, n := range nodes {
		delete(before, n.ID)
		if r.Ours(n.ID) {
			continue
		}
		o.seen(n, start)
		if n.Beat == 1 {
			o.fresh[n.ID] = struct{}{}
		}
	}
	for id := range before {
		o.ended(id, end{eventlog.NodeLive, start})
	}
	return nil
}

// lacks reports whether this sidecar has to read the document of a live node to know this version
// of it. A life that is over stays over.
func (o *others) lacks(id string, version uint64) bool {
	n, live := o.live[id]
	return o.over[id].state == eventlog.NodeLive && (!live || n.Version < version)
}

// seen processes a document.
func (o *others) seen(n eventlog.Node, at time.Time) {
	switch {
	case n.State != eventlog.NodeLive:
		o.ended(n.ID, end{n.State, at})
	case o.lacks(n.ID, n.Version):
		o.live[n.ID], o.changed = n, true
		delete(o.over, n.ID)
	}
}

// ended records that a life is over; it reports whether that is new.
func (o *others) ended(id string, e end) bool {
	if o.over[id].state != eventlog.NodeLive {
		return false
	}
	delete(o.live, id)
	o.over[id], o.changed = e, true
	return true
}

// lack records a change that the roll may lack. A watcher of the life may be about to enter it. If
// this sidecar asked for the life, the life owns something, so it was in the roll before.
func (r *Roster) lack(c eventlog.NodeChange) lack {
	if l := r.lacking[c.ID]; l.change == c {
		return l
	}
	_, watched := r.next[c.ID]
	return lack{change: c, again: !watched, groups: r.others.live[c.ID].Groups}
}

// enterLacking enters changes that the roll has lacked at two looks.
func (r *Roster) enterLacking(ctx context.Context) error {
	var changes []eventlog.NodeChange
	var about []eventlog.GroupName
	for id, l := range r.lacking {
		if l.again {
			changes = append(changes, l.change)
			about = changed(about, slices.Concat(l.groups, r.others.live[id].Groups), true)
		}
		l.again = true
		r.lacking[id] = l
	}
	if len(changes) == 0 {
		return nil
	}
	if err := r.cfg.Nodes.Enter(ctx, changes...); err != nil {
		return err
	}
	for _, c := range changes {
		delete(r.lacking, c.ID)
	}
	r.cfg.Announced(about)
	return nil
}

// declareDead declares each watched life dead that was silent for its lease.
func (r *Roster) declareDead(ctx context.Context, nodes []eventlog.Node, start time.Time) error {
	now := r.cfg.Clock.Now()
	gap := start.Sub(r.last)
	if r.last.IsZero() {
		gap = 0
	}
	r.last = now
	for _, n := range nodes {
		s := r.next[n.ID]
		if s == nil || n.State != eventlog.NodeLive {
			continue
		}
		// A sidecar that has not looked for some time does not know how long others have been
		// silent: perhaps no sidecar reached the store.
		if s.beat != n.Beat || gap > s.lease/2 {
			s.beat, s.moved = n.Beat, now
		}
		if start.Before(s.due()) {
			continue
		}
		dead, err := r.cfg.Nodes.DeclareDead(ctx, n.ID, n.Beat)
		switch {
		case err != nil:
			return err
		case !dead:
			s.moved = now // else it is over: the next look shows that
			continue
		}
		r.cfg.Logger.Info("another sidecar was silent for its lease, and is declared dead", "node", n.Name, "life", n.ID, "lease", s.lease)
		n.State = eventlog.NodeDead
		l := r.lack(eventlog.NodeChange{ID: n.ID, Version: n.Version, State: n.State})
		l.again = true
		r.lacking[n.ID] = l
		r.others.seen(n, start)
	}
	return nil
}

// show makes a view of the known lives, and chooses the lives to watch.
func (r *Roster) show() {
	o, before := &r.others, r.View()
	if !o.changed && before.ID == r.life.id {
		return
	}
	o.changed = false
	now := r.cfg.Clock.Now()
	maps.DeleteFunc(o.over, func(_ string, e end) bool { return now.Sub(e.at) > overRemembered })
	after := before.following(r.life.id, r.cfg.Name, *o)
	if after.Name != r.cfg.Name && after.Name != before.Name {
		r.cfg.Logger.Warn("another process uses this sidecar's node id; a number distinguishes the two", "node", r.cfg.Name, "as", after.Name)
	}
	r.view.Store(after)
	next := make(map[string]*observation, watched)
	for _, id := range append(nextAfter(r.life.id, slices.Collect(maps.Keys(o.live))), slices.Collect(maps.Keys(o.fresh))...) {
		n, live := o.live[id]
		if s := r.next[id]; s != nil && live {
			next[id] = s
		} else if live {
			next[id] = &observation{beat: n.Beat, lease: cmp.Or(n.Lease, r.cfg.Lease), moved: now}
		}
	}
	r.next = next
}

// nextAfter returns the first few of the lives after a given one, on the ring of their hashes.
func nextAfter(life string, ids []string) []string {
	from := weight(life, "")
	slices.SortFunc(ids, func(a, b string) int {
		return cmp.Or(cmp.Compare(weight(a, "")-from, weight(b, "")-from), cmp.Compare(a, b))
	})
	return ids[:min(len(ids), watched)]
}
