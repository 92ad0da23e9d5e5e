package fleet

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
)

const (
	// KeepRefusals is for how long a refused session is shown. A sidecar tries again every few
	// seconds.
	KeepRefusals = time.Minute
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

// TakenError says that another process of the same node id is connected.
type TakenError struct {
	NodeID, Address, ControlPlane string // the other's
	// Again says that this process was refused recently.
	Again bool
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("node id %q is in use: another process with it, whose replay API is at %q, is connected to control plane %s; "+
		"the connection of a machine that is gone ends within 15 s; else give one of the two another --node-id",
		e.NodeID, e.Address, e.ControlPlane)
}

// Await waits up to AwaitEnd for another process's session of a node id to end. The error is a
// *TakenError.
func (r *Registry) Await(ctx context.Context, nodeID, instance string) error {
	for deadline := time.Now().Add(r.await); ; {
		taken := r.Taken(nodeID, instance)
		if taken == nil {
			return nil
		}
		if !time.Now().Before(deadline) || !pause.For(ctx, awaitStep) {
			return taken
		}
	}
}

// Taken checks whether another process of a node id is connected; the error is a *TakenError.
func (r *Registry) Taken(nodeID, instance string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if taken := r.taken(nodeID, instance); taken != nil {
		return taken
	}
	return nil
}

// taken returns the other process of a node id that is connected to any control plane; nil: none.
func (r *Registry) taken(nodeID, instance string) *TakenError {
	if m := r.members[nodeID]; m != nil {
		if m.Instance == instance {
			return nil
		}
		return &TakenError{NodeID: nodeID, Address: m.Address, ControlPlane: r.name}
	}
	for i := range r.others {
		o := &r.others[i]
		if s := o.connected[nodeID]; s != nil && s.Instance != instance {
			return &TakenError{NodeID: nodeID, Address: s.Address, ControlPlane: o.name}
		}
	}
	return nil
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
