package fleet

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// KeepRefusals is for how long a refused session is shown. A sidecar tries again every few
	// seconds.
	KeepRefusals = time.Minute
	// keepPlace is how long the place of a sidecar is kept for it after its connection has ended without a
	// goodbye: it is alive perhaps, and tries again every 5 s at least.
	keepPlace = 6 * time.Second
	// AwaitEnd is how long a session waits for the end of another one of its node id before it is
	// refused: the knowledge of a restarted sidecar's last life is up to a second old at other
	// control planes.
	AwaitEnd = 2 * time.Second
	// awaitStep is the interval of the checks whether it has ended.
	awaitStep = 20 * time.Millisecond
)

// refusals are those of a node id, with the process that was refused last.
type refusals struct {
	Refusals
	instance string
}

// TakenError says that another process of the same node id is connected, or was a moment ago.
type TakenError struct {
	NodeID, Address, ControlPlane string // the other's
	// Left says that its connection has ended: its place is kept for keepPlace.
	Left bool
	// Again says that this process was refused recently.
	Again bool
}

func (e *TakenError) Error() string {
	if e.Left {
		return fmt.Sprintf("the place of node id %q is kept until %v after its connection has ended, for a process with the same data folder",
			e.NodeID, keepPlace)
	}
	return fmt.Sprintf("node id %q is in use: another process with it, whose replay API is at %q, is connected to control plane %s; "+
		"the connection of a machine that is gone ends within 15 s; else give one of the two another --node-id",
		e.NodeID, e.Address, e.ControlPlane)
}

// Await waits up to AwaitEnd until no other process has a sidecar's node id. The error is a *TakenError.
func (r *Registry) Await(ctx context.Context, n Node) error {
	return r.awaits(ctx, func() error { return r.Taken(n) })
}

// AwaitSession waits up to AwaitEnd until a process has the session of a node id at this control plane.
func (r *Registry) AwaitSession(ctx context.Context, nodeID, instance string) error {
	return r.awaits(ctx, func() error {
		if r.Has(nodeID, instance) {
			return nil
		}
		return fmt.Errorf("this process has no stream of policies as node %q here", nodeID)
	})
}

func (r *Registry) awaits(ctx context.Context, check func() error) error {
	for deadline := time.Now().Add(r.await); ; {
		err := check()
		if err == nil || !time.Now().Before(deadline) || !pause.For(ctx, awaitStep) {
			return err
		}
	}
}

// Has reports whether a process has the session of a node id here, or had it a moment ago.
func (r *Registry) Has(nodeID, instance string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if m := r.members[nodeID]; m != nil {
		return m.Instance == instance
	}
	m := r.left[nodeID]
	return m != nil && m.Instance == instance && !m.drained && r.now().Sub(m.gone) < keepPlace
}

// Taken checks whether another process has a sidecar's node id; the error is a *TakenError.
func (r *Registry) Taken(n Node) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if taken := r.taken(n); taken != nil {
		return taken
	}
	return nil
}

// taken returns the other process of a node id that is connected to any control plane, or was a moment ago; nil: none.
func (r *Registry) taken(n Node) *TakenError {
	if m := r.members[n.ID]; m != nil {
		if m.Instance == n.Instance {
			return nil
		}
		return &TakenError{NodeID: n.ID, Address: m.Address, ControlPlane: r.name}
	}
	for i := range r.others {
		o := &r.others[i]
		if s := o.connected[n.ID]; s != nil && s.Instance != n.Instance {
			return &TakenError{NodeID: n.ID, Address: s.Address, ControlPlane: o.name}
		}
	}
	return r.kept(n)
}

// kept returns the other process of a node id whose place is kept for it; nil: none. After a start that is each
// one in the store's roster: all lost their connection then.
func (r *Registry) kept(n Node) *TakenError {
	now := r.now()
	keeps := func(instance, folderID string, gone time.Time) bool {
		return instance != n.Instance && folderID != n.FolderID && now.Sub(gone).Abs() < keepPlace
	}
	if m := r.left[n.ID]; m != nil && !m.drained && keeps(m.Instance, m.FolderID, m.gone) {
		return &TakenError{NodeID: n.ID, Address: m.Address, ControlPlane: r.name, Left: true}
	}
	for i := range r.others {
		o := &r.others[i]
		if s := o.left[n.ID]; s != nil && keeps(s.Instance, s.FolderID, s.LastSeen) {
			return &TakenError{NodeID: n.ID, Address: s.Address, ControlPlane: o.name, Left: true}
		}
	}
	for _, key := range r.roster.keys[n.ID] {
		if e := r.roster.stored[key]; keeps(e.Instance, e.FolderID, r.start) {
			return &TakenError{NodeID: n.ID, Address: e.Address, ControlPlane: r.name, Left: true}
		}
	}
	return nil
}

// Prefix bounds the node ids that a prefix of a credential lets in; the zero Prefix does not.
type Prefix struct {
	Pattern string // that covers a node id: a prefix followed by *
	Nodes   int    // the most at a time: connected to any control plane, or missing
}

// fits checks whether one more node id is within the bound of its prefix.
func (r *Registry) fits(nodeID string, within Prefix) error {
	prefix, bounded := strings.CutSuffix(within.Pattern, "*")
	if !bounded || len(r.roster.keys[nodeID]) > 0 || r.members[nodeID] != nil {
		return nil
	}
	ids := map[string]bool{}
	count := func(id string) {
		if strings.HasPrefix(id, prefix) {
			ids[id] = true
		}
	}
	for id := range r.members {
		count(id)
	}
	for i := range r.others {
		for id := range r.others[i].connected {
			count(id)
		}
	}
	for id := range r.roster.keys {
		count(id)
	}
	if len(ids) < within.Nodes || ids[nodeID] {
		return nil
	}
	return fmt.Errorf("node %q is one more than the %d that its credential lets in for %s: raise nodes in the entry of --auth-config, "+
		"or forget nodes that are missing", nodeID, within.Nodes, within.Pattern)
}

// refuse records a refused session, and reports whether its process was refused recently.
func (r *Registry) refuse(n Node) (again bool) {
	now := r.now()
	maps.DeleteFunc(r.refusals, func(_ string, was refusals) bool { return now.Sub(was.Last) > KeepRefusals })
	r.refused++
	was, known := r.refusals[n.ID]
	if !known && len(r.refusals) >= MaxDisconnected {
		return true
	}
	r.refusals[n.ID] = refusals{Refusals{Count: was.Count + 1, Last: now.UTC().Truncate(time.Millisecond), Address: n.Address}, n.Instance}
	return known && was.instance == n.Instance
}

// Refused counts the sessions refused because their node id was in use.
func (r *Registry) Refused() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// refusalsOf returns the recent refusals of a node id at all control planes; nil: none.
func (r *Registry) refusalsOf(nodeID string) *Refusals {
	var all *Refusals
	add := func(one Refusals) {
		if r.now().Sub(one.Last) > KeepRefusals {
			return
		}
		if all == nil {
			all = new(Refusals)
		}
		all.Count += one.Count
		if one.Last.After(all.Last) {
			all.Last, all.Address = one.Last, one.Address
		}
	}
	if own, found := r.refusals[nodeID]; found {
		add(own.Refusals)
	}
	for _, o := range r.others {
		if theirs, found := o.refusals[nodeID]; found {
			add(theirs)
		}
	}
	return all
}
