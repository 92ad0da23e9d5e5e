package eventlogtest

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// RunNodes tests the promises of eventlog.Nodes. one and two are of one empty store.
func RunNodes(t *testing.T, one, two eventlog.Nodes) {
	s := &nodesSuite{t, one, two}
	s.lives()
	s.roll()
	s.members()
}

type nodesSuite struct {
	*testing.T
	one, two eventlog.Nodes
}

func (s *nodesSuite) save(by eventlog.Nodes, n eventlog.Node, want error) {
	s.Helper()
	if err := by.SaveNode(s.Context(), n); !errors.Is(err, want) {
		s.Errorf("SaveNode: %v; want %v", err, want)
	}
}

func (s *nodesSuite) wantNodes(got []eventlog.Node, err error, want ...eventlog.Node) {
	s.Helper()
	slices.SortFunc(got, func(a, b eventlog.Node) int { return cmp.Compare(a.ID, b.ID) })
	if err != nil || len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
		s.Errorf("there are %+v, %v; want %+v", got, err, want)
	}
}

func (s *nodesSuite) list(by eventlog.Nodes, want ...eventlog.Node) {
	s.Helper()
	got, err := by.ListNodes(s.Context())
	s.wantNodes(got, err, want...)
}

// lives begin, beat and end.
func (s *nodesSuite) lives() {
	s.list(s.one)
	a := eventlog.Node{ID: "run-a", Name: "edge-1", Beat: 1, Lease: 10 * time.Second, Version: 1}
	b := eventlog.Node{ID: "run-b", Name: "edge-2", Beat: 1, Lease: time.Minute, Version: 1,
		Groups: []eventlog.GroupName{{Topic: "orders", Group: "a.$b/c"}, {Topic: "t", Group: "g"}}}
	s.save(s.one, a, nil)
	s.save(s.two, b, nil)
	s.list(s.one, a, b)
	a.Beat, a.Version, a.Groups = 2, 2, []eventlog.GroupName{{Topic: "orders", Group: "g"}}
	b.Beat, b.Version, b.Groups = 1<<60, 1<<50, nil
	s.save(s.one, a, nil)
	s.save(s.two, b, nil)
	s.list(s.two, a, b)
	s.save(s.two, eventlog.Node{ID: "run-a", Name: "late", Beat: 1}, nil) // changes nothing
	s.list(s.two, a, b)
	got, err := s.two.ListNodes(s.Context(), "run-a", "run-0")
	s.wantNodes(got, err, a)
	got, err = s.two.ListNodes(s.Context(), "run-0")
	s.wantNodes(got, err)
	if dead, err := s.two.DeclareDead(s.Context(), "run-b", b.Beat-1); err != nil || dead {
		s.Errorf("DeclareDead of a node that has moved: %v, %v", dead, err)
	}
	for range 2 { // the second changes nothing
		if err := s.one.EndNode(s.Context(), "run-a"); err != nil {
			s.Errorf("EndNode: %v", err)
		}
		a.State = eventlog.NodeEnded
		s.list(s.one, a, b)
	}
	a.Beat = 3
	s.save(s.one, a, eventlog.ErrNotFound)
	for _, want := range []bool{true, false} {
		if dead, err := s.one.DeclareDead(s.Context(), "run-b", b.Beat); err != nil || dead != want {
			s.Errorf("DeclareDead: %v, %v", dead, err)
		}
	}
	b.State = eventlog.NodeDead
	b.Beat++
	s.save(s.one, b, eventlog.ErrNotFound)
	b.Beat--
	a.Beat = 2
	s.list(s.one, a, b)
}

// members are described with each beat, and found by their group at the nodes that are live.
func (s *nodesSuite) members() {
	g, other := eventlog.GroupName{Topic: "a.b", Group: "$g.é"}, eventlog.GroupName{Topic: "a", Group: "b.$g.é"}
	blocked := "rate"
	m := wire.GroupMember{
		ID: "m", Address: "10.0.0.1:5", Since: 7, Inflight: 3, MaxInflight: 4, OldestUnackedMS: 5, Paused: true, BlockedBy: &blocked,
	}
	n := eventlog.Node{ID: "run-m", Name: "edge-4", Beat: 1, Lease: time.Minute, Version: 1, Groups: []eventlog.GroupName{g, other},
		Members: []eventlog.NodeMembers{{GroupName: g, Members: []wire.GroupMember{m, {ID: "n"}}, More: 2}}}
	want := func(step string, ask eventlog.GroupName, want ...eventlog.GroupNode) {
		s.Helper()
		got, err := s.two.GroupNodes(s.Context(), ask)
		for i := range got {
			if got[i].Described && got[i].Age > time.Minute {
				s.Errorf("%s: described %v ago", step, got[i].Age)
			}
			got[i].Age = 0
		}
		if err != nil || len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			s.Errorf("%s: there are %+v, %v; want %+v", step, got, err, want)
		}
	}
	described := eventlog.GroupNode{ID: "run-m", Name: "edge-4", Described: true, Members: []wire.GroupMember{m, {ID: "n"}}, More: 2}
	for i := range described.Members {
		described.Members[i].NodeID = "edge-4"
	}
	s.save(s.one, n, nil)
	want("a first beat", g, described)
	want("a group that is not described", other, eventlog.GroupNode{ID: "run-m", Name: "edge-4"})
	want("a group without members", eventlog.GroupName{Topic: "a.b", Group: "g"})
	n.Beat, n.Members[0].Members, n.Members[0].More = 2, []wire.GroupMember{m}, 0
	s.save(s.one, n, nil)
	described.Members, described.More = described.Members[:1], 0
	want("a beat", g, described)
	if err := s.one.EndNode(s.Context(), "run-m"); err != nil {
		s.Errorf("EndNode: %v", err)
	}
	want("the end", g)
}

func (s *nodesSuite) enter(by eventlog.Nodes, changes ...eventlog.NodeChange) {
	s.Helper()
	if err := by.Enter(s.Context(), changes...); err != nil {
		s.Errorf("Enter: %v", err)
	}
}

func (s *nodesSuite) look(by eventlog.Nodes, known uint64, want eventlog.Roll, ids ...string) []eventlog.Node {
	s.Helper()
	nodes, got, err := by.Look(s.Context(), ids, known)
	if err != nil || got.Number != want.Number || !slices.Equal(got.Changes, want.Changes) {
		s.Errorf("the roll has %d of %d changes, %v; want %d of %d", len(got.Changes), got.Number, err, len(want.Changes), want.Number)
	}
	return nodes
}

// roll has the entries, also of nodes that are not there.
func (s *nodesSuite) roll() {
	s.wantNodes(s.look(s.one, 0, eventlog.Roll{}), nil)
	n := eventlog.Node{ID: "run-c", Name: "edge-3", Beat: 5, Lease: time.Second, Version: 7,
		Groups: []eventlog.GroupName{{Topic: "t", Group: "g"}}}
	first := n
	first.Beat = 1
	s.save(s.one, first, nil)
	s.save(s.one, n, nil)
	n.Groups = nil
	s.wantNodes(s.look(s.two, 0, eventlog.Roll{}, "run-c", "run-0"), nil, n)
	came, over := eventlog.NodeChange{ID: "run-c", Version: 7}, eventlog.NodeChange{ID: "run-b", Version: 1 << 50, State: eventlog.NodeDead}
	s.enter(s.one, came)
	roll := eventlog.Roll{Number: 1, Changes: []eventlog.NodeChange{came}}
	s.wantNodes(s.look(s.two, 0, roll, "run-c"), nil, n)
	s.enter(s.two, over, came) // which may come twice
	roll = eventlog.Roll{Number: 3, Changes: []eventlog.NodeChange{came, over, came}}
	for _, known := range []uint64{0, 1, 17} {
		s.look(s.one, known, roll)
	}
	s.wantNodes(s.look(s.one, 3, eventlog.Roll{Number: 3}, "run-c"), nil, n)
	for i := range eventlog.RollKept - 1 {
		roll.Changes = append(roll.Changes, eventlog.NodeChange{ID: fmt.Sprint("run-", i), Version: 1, State: eventlog.NodeEnded})
	}
	s.enter(s.one, roll.Changes[3:]...)
	s.look(s.two, 3, eventlog.Roll{Number: eventlog.RollKept + 2, Changes: roll.Changes[2:]})
	got, err := s.one.ListNodes(s.Context())
	if err != nil || len(got) != 3 {
		s.Errorf("with a roll there are %+v, %v", got, err)
	}
}
