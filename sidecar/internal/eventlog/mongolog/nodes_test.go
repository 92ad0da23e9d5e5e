package mongolog

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

func TestNodes(t *testing.T) {
	open := sharedStore(t, func(*engine) {})
	one, two := open(), open()
	list := func(l *Log, want ...eventlog.Node) {
		t.Helper()
		got, err := l.ListNodes(t.Context())
		slices.SortFunc(got, func(a, b eventlog.Node) int { return cmp.Compare(a.ID, b.ID) })
		if err != nil || len(got) != len(want) || len(got) > 0 && !reflect.DeepEqual(got, want) {
			t.Errorf("ListNodes = %+v, %v; want %+v", got, err, want)
		}
	}
	save := func(l *Log, n eventlog.Node) {
		t.Helper()
		if err := l.SaveNode(t.Context(), n); err != nil {
			t.Errorf("SaveNode: %v", err)
		}
	}
	list(one)
	a := eventlog.Node{ID: "run-a", Name: "edge-1", Beat: 1, Lease: 10 * time.Second}
	b := eventlog.Node{ID: "run-b", Name: "edge-2", Beat: 1, Lease: time.Minute, Groups: []eventlog.GroupName{{Topic: "orders", Group: "a.$b/c"}, {Topic: "t", Group: "g"}}}
	save(one, a)
	save(two, b)
	list(one, a, b)
	a.Beat, a.Groups = 2, []eventlog.GroupName{{Topic: "orders", Group: "g"}}
	b.Beat, b.Groups = 1<<60, nil
	save(one, a)
	save(two, b)
	list(two, a, b)
	save(two, eventlog.Node{ID: "run-a", Name: "late", Beat: 1}) // changes nothing
	list(two, a, b)
	if dead, err := two.DeclareDead(t.Context(), "run-b", b.Beat-1); err != nil || dead {
		t.Errorf("DeclareDead of a node that has moved: %v, %v", dead, err)
	}
	for range 2 { // the second changes nothing
		if err := one.EndNode(t.Context(), "run-a"); err != nil {
			t.Errorf("EndNode: %v", err)
		}
		a.State = eventlog.NodeEnded
		list(one, a, b)
	}
	a.Beat = 3
	if err := one.SaveNode(t.Context(), a); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("SaveNode of a node that has ended: %v; want ErrNotFound", err)
	}
	for _, want := range []bool{true, false} {
		if dead, err := one.DeclareDead(t.Context(), "run-b", b.Beat); err != nil || dead != want {
			t.Errorf("DeclareDead: %v, %v", dead, err)
		}
	}
	b.State = eventlog.NodeDead
	b.Beat++
	if err := one.SaveNode(t.Context(), b); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("SaveNode of a node that was declared dead: %v; want ErrNotFound", err)
	}
	b.Beat--
	a.Beat = 2
	list(one, a, b)
}
