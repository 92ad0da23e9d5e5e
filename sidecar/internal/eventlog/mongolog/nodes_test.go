package mongolog

import (
	"cmp"
	"errors"
	"reflect"
	"slices"
	"testing"

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
	a := eventlog.Node{ID: "run-a", Name: "edge-1", Beat: 1}
	b := eventlog.Node{ID: "run-b", Name: "edge-2", Beat: 1 << 60, Groups: []eventlog.GroupName{{Topic: "orders", Group: "a.$b/c"}, {Topic: "t", Group: "g"}}}
	save(one, a)
	save(two, b)
	list(one, a, b)
	a.Beat, a.Groups = 2, []eventlog.GroupName{{Topic: "orders", Group: "g"}}
	b.Beat, b.Groups = b.Beat+1, nil
	save(one, a)
	save(two, b)
	list(two, a, b)
	save(two, eventlog.Node{ID: "run-a", Name: "late", Beat: 1}) // changes nothing
	list(two, a, b)
	for range 2 { // the second removes nothing
		if err := two.RemoveNode(t.Context(), "run-a"); err != nil {
			t.Errorf("RemoveNode: %v", err)
		}
		list(one, b)
	}
	a.Beat = 3
	if err := one.SaveNode(t.Context(), a); !errors.Is(err, eventlog.ErrNotFound) {
		t.Errorf("SaveNode of a node that was removed: %v; want ErrNotFound", err)
	}
	list(one, b)
}
