package roster

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// View holds the live sidecars at one time, as one sidecar saw them.
type View struct {
	// Version rises whenever anything differs from the view before: this sidecar's life, the live
	// sidecars, or their groups.
	Version uint64
	ID      string // of this sidecar's life
	Name    string // of this sidecar, as alias made it

	alone, known bool

	over  map[string]end    // the other lives that ended lately, or that were not found, by id
	names map[string]string // of the other live sidecars, by id
	all   []string          // names of all live sidecars
	by    map[eventlog.GroupName][]string
	text  []eventlog.Node // the live nodes in order, to compare views
}

// following makes the view after v; others does not change any more.
func (v *View) following(id, name string, o others) *View {
	aliases := alias(id, name, o.live)
	x := &View{
		Version: v.Version, ID: id, Name: aliases[id], known: true,
		over: maps.Clone(o.over), names: make(map[string]string, len(o.live)), all: []string{aliases[id]},
	}
	for _, id := range slices.Sorted(maps.Keys(o.live)) {
		x.names[id] = aliases[id]
		x.all = append(x.all, aliases[id])
		x.text = append(x.text, o.live[id])
	}
	x.all = distinct(x.all)
	same := func(a, b eventlog.Node) bool { return a.ID == b.ID && slices.Equal(a.Groups, b.Groups) } // nodes save them in order
	if v.ID == x.ID && v.known && slices.EqualFunc(v.text, x.text, same) {
		x.by = v.by
		return x
	}
	x.Version++
	x.by = make(map[eventlog.GroupName][]string)
	for _, n := range x.text {
		for _, g := range n.Groups {
			x.by[g] = append(x.by[g], x.names[n.ID])
		}
	}
	for g, names := range x.by {
		x.by[g] = distinct(names)
	}
	return x
}

// alias names the lives, including this sidecar's, so that no two sidecars have the same name: if
// several have the same configured name, as on a host that runs several, all but the oldest get a
// number. All sidecars that see the same lives give the same names.
func alias(id, name string, live map[string]eventlog.Node) map[string]string {
	aliases := map[string]string{id: name}
	for id, n := range live {
		aliases[id] = n.Name
	}
	taken := make(map[string][]string) // the processes of a name, the oldest first
	for _, id := range slices.Sorted(maps.Keys(aliases)) {
		given := aliases[id]
		at := slices.Index(taken[given], processOf(id))
		if at < 0 {
			at = len(taken[given])
			taken[given] = append(taken[given], processOf(id))
		}
		if at > 0 {
			aliases[id] = given + "#" + strconv.Itoa(at+1)
		}
	}
	return aliases
}

func distinct(names []string) []string {
	slices.Sort(names)
	return slices.Compact(names)
}

// Known reports whether this sidecar has seen the other sidecars yet.
func (v *View) Known() bool { return v.alone || v.known }

// HasPeers reports whether another sidecar is alive.
func (v *View) HasPeers() bool { return len(v.all) > 1 }

// Others names the other sidecars that have members of the group.
func (v *View) Others(g eventlog.GroupName) []string { return v.by[g] }

// Alive is the name of the sidecar whose life has this id, while it is alive.
func (v *View) Alive(id string) (name string, ok bool) {
	if id == v.ID {
		return v.Name, true
	}
	name, ok = v.names[id]
	return name, ok
}

// Gone reports whether the life with this id, of which the caller heard before the time heard, has
// ended and will never act again: it is over, or the store no longer had it after that time. A view
// does not know a life that is neither alive nor gone: see Roster.Ask. A view also does not judge
// the lives of this process: see Roster.Ours.
func (v *View) Gone(id string, heard time.Time) bool {
	if v.alone {
		return true
	}
	end, over := v.over[id]
	return over && (end.state != eventlog.NodeLive || end.at.After(heard))
}

// Ended reports whether the life with this id has ended in order.
func (v *View) Ended(id string) bool { return v.over[id].state == eventlog.NodeEnded }
