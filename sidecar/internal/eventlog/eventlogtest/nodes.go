package eventlogtest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Nodes is an eventlog.Nodes in memory. It keeps all lives.
type Nodes struct {
	mu      sync.Mutex
	nodes   map[string]eventlog.Node
	members map[string]described // by node
	changes []eventlog.NodeChange
}

// described is what a node said of its members, and when.
type described struct {
	members []eventlog.NodeMembers
	at      time.Time
}

// NewNodes makes an empty Nodes.
func NewNodes() *Nodes {
	return &Nodes{nodes: make(map[string]eventlog.Node), members: make(map[string]described)}
}

// Node returns the node with the id, or the zero value if there is none.
func (n *Nodes) Node(id string) eventlog.Node {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.nodes[id]
}

// Restore empties the roll, as if the store was restored from a backup.
func (n *Nodes) Restore() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes = nil
}

// SaveNode implements eventlog.Nodes.
func (n *Nodes) SaveNode(_ context.Context, x eventlog.Node) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	stored, there := n.nodes[x.ID]
	if stored.State != eventlog.NodeLive || !there && x.Beat > 1 {
		return fmt.Errorf("save node %s: %w", x.ID, eventlog.ErrNotFound)
	}
	if x.Beat > stored.Beat {
		n.members[x.ID] = described{x.Members, time.Now()}
		x.Groups, x.Members = slices.Clone(x.Groups), nil
		n.nodes[x.ID] = x
	}
	return nil
}

// EndNode implements eventlog.Nodes.
func (n *Nodes) EndNode(_ context.Context, id string) error {
	n.end(id, eventlog.NodeEnded, func(eventlog.Node) bool { return true })
	return nil
}

// DeclareDead implements eventlog.Nodes.
func (n *Nodes) DeclareDead(_ context.Context, id string, beat uint64) (bool, error) {
	return n.end(id, eventlog.NodeDead, func(x eventlog.Node) bool { return x.Beat == beat }), nil
}

func (n *Nodes) end(id string, state eventlog.NodeState, may func(eventlog.Node) bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	x, there := n.nodes[id]
	if !there || x.State != eventlog.NodeLive || !may(x) {
		return false
	}
	x.State = state
	n.nodes[id] = x
	return true
}

// Enter implements eventlog.Nodes.
func (n *Nodes) Enter(_ context.Context, changes ...eventlog.NodeChange) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes = append(n.changes, changes...)
	return nil
}

// GroupNodes implements eventlog.Nodes.
func (n *Nodes) GroupNodes(_ context.Context, g eventlog.GroupName) (found []eventlog.GroupNode, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for id, x := range n.nodes {
		if x.State != eventlog.NodeLive || !slices.Contains(x.Groups, g) {
			continue
		}
		of := eventlog.GroupNode{ID: id, Name: x.Name, Age: time.Since(n.members[id].at)}
		for _, d := range n.members[id].members {
			if d.GroupName == g {
				of.Described, of.More = true, d.More
				for _, m := range d.Members {
					m.NodeID = x.Name
					of.Members = append(of.Members, m)
				}
			}
		}
		found = append(found, of)
	}
	return found, nil
}

// Look implements eventlog.Nodes.
func (n *Nodes) Look(_ context.Context, ids []string, known uint64) (found []eventlog.Node, roll eventlog.Roll, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, x := range n.those(ids) {
		x.Groups = nil
		found = append(found, x)
	}
	roll.Number = uint64(len(n.changes))
	if roll.Number != known {
		roll.Changes = slices.Clone(n.changes[max(0, len(n.changes)-eventlog.RollKept):])
	}
	return found, roll, nil
}

// ListNodes implements eventlog.Nodes.
func (n *Nodes) ListNodes(_ context.Context, ids ...string) ([]eventlog.Node, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(ids) > 0 {
		return n.those(ids), nil
	}
	return slices.Collect(maps.Values(n.nodes)), nil
}

func (n *Nodes) those(ids []string) (found []eventlog.Node) {
	for _, id := range ids {
		if x, there := n.nodes[id]; there {
			found = append(found, x)
		}
	}
	return found
}
