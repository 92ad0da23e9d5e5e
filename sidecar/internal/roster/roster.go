// Package roster knows which sidecars are alive on a store and which consumer groups they have
// members of, and for how long this sidecar itself counts as alive.
//
// Every sidecar saves a document of its own with a beat that rises. It watches the beats of a few
// other lives on its own monotonic clock: no clock is ever compared with another machine's. It
// watches the next live ones in the order of a hash, so that every life has the same number of
// watchers. If all watchers of a life die together with it, other sidecars watch it once the
// watchers have been declared dead. A sidecar learns of all other lives from the roll, which lists
// each change of a document: see watch.go.
//
//	our beat:   start ─── accepted             │ start + Lease − margin │ start + Lease
//	we are            valid (Standing.Until) ──▶ not valid, until the next beat is accepted
//	others:             see it move ── at least Lease without another move ──▶ may declare it dead
//
// A beat takes effect after it was started, and another sidecar sees it no earlier than that. So no
// sidecar declares a life dead before Lease has passed since the start of its last accepted beat,
// and by then it has stopped for a margin's time. The write that declares a life dead names the
// beat, and the store accepts a beat only while the life is live. So one of the two writes comes
// first. If a beat is accepted late, as after an election, no sidecar has declared the life dead,
// and the life continues. If a beat is refused, the life is over, and the sidecar continues as
// another life.
package roster

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const (
	// DefaultLease is how long a silent sidecar counts as alive.
	DefaultLease = 10 * time.Second
	// marginShare sets the margin, lease/marginShare: a sidecar stops this long before others may
	// declare it dead, since clocks run unevenly, and a delivery may begin just before the sidecar
	// reads the clock.
	marginShare = 5
	// beatsPerLease is how often per lease a sidecar looks around if it hears no signals.
	beatsPerLease = 4
	// describeEvery is the longest time between two beats of a sidecar with members, since these are
	// described with each beat.
	describeEvery = 5 * time.Second
	// retriesPerLease is how often per lease it tries to save its beat after a failure.
	retriesPerLease = 20
	// triesPerLease bounds one try, to lease/triesPerLease.
	triesPerLease = 3
	// gapsPerLease bounds how often per lease it looks around if it hears many signals.
	gapsPerLease = 500
	// watched is how many other lives a sidecar watches.
	watched = 5
	// MaxGroups is the largest number of groups that a node announces, so that its document stays
	// far below a store's limit. Other sidecars do not know that it has members of further groups:
	// for such a group, a sidecar that has a partition keeps it.
	MaxGroups = 10_000
)

// Config configures a Roster.
type Config struct {
	Nodes  eventlog.Nodes
	Name   string        // the sidecar's node id
	Lease  time.Duration // 0: DefaultLease
	Logger *slog.Logger
	// Announced, if set, is called after a change that other sidecars should look at, with the
	// groups concerned: groups that this sidecar joined or left; all groups that it serves or
	// served, if its life began or ended; and the groups of another life whose change this sidecar
	// entered in the roll. It must not block.
	Announced func([]eventlog.GroupName)
	// PendingEnds, if set, keeps for the next process the lives that have ended in order while the
	// store was away.
	PendingEnds PendingEnds
	Clock       clock.Clock
}

// PendingEnds keeps the ids of lives on this machine.
type PendingEnds interface {
	Load() []string
	Save(ids []string) error
}

// Roster watches the sidecars of a store. Its methods are safe for concurrent use.
type Roster struct {
	cfg     Config
	process string // begins the ids of all lives of this process
	woken   pause.Wake

	standing atomic.Pointer[Standing]
	view     atomic.Pointer[View]

	mu       sync.Mutex
	groups   map[eventlog.GroupName]bool // with members here; true: this sidecar's document in the store names it
	unsaved  bool                        // groups differ from the saved and entered ones
	asked    map[string]struct{}
	watchers []func()
	members  func() []eventlog.NodeMembers // nil: nobody describes members
	awaited  []chan<- error                // each wants the result of a look that has not begun

	// Run's own.
	failing     bool      // the last look around was incomplete
	complete    time.Time // when one was complete for the last time; at first, when Run began
	warned      bool      // that none has been complete since
	due         time.Time // when the next beat is due at the latest
	life        life
	served      []eventlog.GroupName // the groups last announced
	pendingEnds []string             // lives that are over and may still be live in the store
	others      others
	next        map[string]*observation // the watched lives
	last        time.Time               // the last look at them; zero: never
	lacking     map[string]lack         // changes that the roll may lack
}

// Standing is this sidecar's place among the others.
type Standing struct {
	ID      string    // of the life
	Until   time.Time // when it has to stop unless it is renewed
	forever bool
}

// Valid reports whether no sidecar can have declared the life dead at now. Both clocks have to
// confirm it: the monotonic clock stops while a machine is suspended, and the wall clock may be set
// back.
func (s *Standing) Valid(now time.Time) bool {
	return s.forever || now.Before(s.Until) && now.Round(0).Before(s.Until.Round(0))
}

// New makes a Roster that is not valid before Run has saved its first beat.
func New(cfg Config) *Roster {
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Announced == nil {
		cfg.Announced = func([]eventlog.GroupName) {}
	}
	r := &Roster{
		cfg:     cfg,
		process: cfg.Name + "/" + uuid.Must(uuid.NewV7()).String() + "/", // ids sort after those of earlier processes
		woken:   pause.NewWake(),
		groups:  make(map[eventlog.GroupName]bool),
		asked:   make(map[string]struct{}),
		others:  others{over: make(map[string]end)},
		lacking: make(map[string]lack),
	}
	if cfg.PendingEnds != nil {
		r.pendingEnds = cfg.PendingEnds.Load()
	}
	r.view.Store(&View{Name: cfg.Name})
	r.begin()
	return r
}

// processOf is the part of an id that all lives of one process have in common.
func processOf(id string) string { return id[:strings.LastIndexByte(id, '/')+1] }

// Alone is the roster of a store that only one sidecar uses: always valid, and every earlier user
// of the store is gone.
func Alone(name string) *Roster {
	r := &Roster{cfg: Config{Name: name}}
	r.standing.Store(&Standing{ID: name, forever: true})
	r.view.Store(&View{ID: name, Name: name, alone: true})
	return r
}

// IsAlone reports whether no other sidecar can use the store.
func (r *Roster) IsAlone() bool { return r.cfg.Nodes == nil }

// Standing is this sidecar's present place; the caller must not change it.
func (r *Roster) Standing() *Standing { return r.standing.Load() }

// Valid reports whether no sidecar can have declared this one dead at now.
func (r *Roster) Valid(now time.Time) bool { return r.Standing().Valid(now) }

// ValidUntil is when this sidecar has to stop unless its beat is renewed; far in the future for
// Alone.
func (r *Roster) ValidUntil() time.Time {
	if s := r.Standing(); !s.forever {
		return s.Until
	}
	return r.cfg.Clock.Now().Add(time.Hour)
}

// View is the newest view; the caller must not change it.
func (r *Roster) View() *View { return r.view.Load() }

// Mine reports whether this sidecar does a task that one sidecar of a store does, such as a task
// for one topic. For short times two sidecars may do it, or none.
func (r *Roster) Mine(what string) bool {
	v := r.View()
	return r.Valid(r.cfg.Clock.Now()) && (v.alone || Owner(v.all, what) == v.Name)
}

// Ours reports whether an id is of this process: of its present life or of an earlier one.
func (r *Roster) Ours(id string) bool {
	if r.IsAlone() {
		return id == r.cfg.Name
	}
	return strings.HasPrefix(id, r.process)
}

// Join announces that this sidecar has members of the group.
func (r *Roster) Join(g eventlog.GroupName) { r.announce(g, true) }

// Leave announces that this sidecar has no members of the group any more.
func (r *Roster) Leave(g eventlog.GroupName) { r.announce(g, false) }

func (r *Roster) announce(g eventlog.GroupName, members bool) {
	if r.IsAlone() {
		return
	}
	r.mu.Lock()
	_, had := r.groups[g]
	switch {
	case !members:
		delete(r.groups, g)
	case !had:
		r.groups[g] = false
	}
	r.unsaved = r.unsaved || had != members
	r.mu.Unlock()
	if had != members {
		r.Wake()
	}
}

// Announces reports whether the store has it, and will have it until the group is left, that this sidecar
// has members of the group.
func (r *Roster) Announces(g eventlog.GroupName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.IsAlone() || r.groups[g]
}

// Ask soon checks whether the life with this id, which no view knows, is still in the store. It
// never blocks.
func (r *Roster) Ask(id string) {
	if !r.IsAlone() {
		r.ask(id)
		r.Wake()
	}
}

func (r *Roster) ask(ids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		r.asked[id] = struct{}{}
	}
}

// Lease is how long other sidecars let this one be silent.
func (r *Roster) Lease() time.Duration { return r.cfg.Lease }

// Wake makes the roster look around soon, since something may have changed. It never blocks.
func (r *Roster) Wake() {
	r.woken.Set()
}

// Refresh waits for a look that begins after the call, so that the view has everything saved before
// it. An error means that this sidecar could not look.
func (r *Roster) Refresh(ctx context.Context) error {
	if r.IsAlone() {
		return nil
	}
	looked := make(chan error, 1)
	r.mu.Lock()
	r.awaited = append(r.awaited, looked)
	r.mu.Unlock()
	r.Wake()
	select {
	case err := <-looked:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Watch calls f after every look around, with or without a change. f must not block. Watch is
// called before Run.
func (r *Roster) Watch(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers = append(r.watchers, f)
}

// Describe makes each beat describe this sidecar's members to the others, at least every
// describeEvery while there are some. members must be quick. Describe is called before Run.
func (r *Roster) Describe(members func() []eventlog.NodeMembers) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = members
}

// Elsewhere are the other live sidecars that have members of the group, with the members as they
// described them last.
func (r *Roster) Elsewhere(ctx context.Context, g eventlog.GroupName) ([]eventlog.GroupNode, error) {
	if r.IsAlone() {
		return nil, nil
	}
	nodes, err := r.cfg.Nodes.GroupNodes(ctx, g)
	view := r.View()
	nodes = slices.DeleteFunc(nodes, func(n eventlog.GroupNode) bool { return r.Ours(n.ID) })
	for i := range nodes {
		n := &nodes[i]
		if name, known := view.Alive(n.ID); known {
			n.Name = name // unlike those of others with the same name
		}
		for j := range n.Members {
			n.Members[j].NodeID = n.Name
		}
	}
	slices.SortFunc(nodes, func(a, b eventlog.GroupNode) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return nodes, err
}

// tell calls the watchers.
func (r *Roster) tell() {
	r.mu.Lock()
	watchers := r.watchers
	r.mu.Unlock()
	for _, f := range watchers {
		f()
	}
}

// Run looks around until ctx ends, and then ends this sidecar's life: ctx must not end before the
// groups have released what they own.
func (r *Roster) Run(ctx context.Context) error {
	if r.IsAlone() {
		<-ctx.Done()
		return nil
	}
	r.complete = r.cfg.Clock.Now()
	gap := r.cfg.Lease / gapsPerLease
	for again := time.Duration(0); r.cfg.Clock.SleepUnless(ctx, again, r.woken); {
		again = r.look(ctx) - gap
		r.tell()
		if !r.cfg.Clock.Sleep(ctx, gap) {
			break
		}
	}
	return r.sayGoodbye(context.WithoutCancel(ctx))
}

// goodbyeTimeout bounds the time in which a stop announces the end of a life, however long the
// lease is.
const goodbyeTimeout = 5 * time.Second

// goodbyePause is between two tries.
const goodbyePause = 100 * time.Millisecond

// sayGoodbye ends this sidecar's life, and tries for some time if the store is slow. If it does not
// succeed, the next process here does it first.
func (r *Roster) sayGoodbye(ctx context.Context) error {
	ctx, cancel := r.cfg.Clock.WithTimeout(ctx, min(r.cfg.Lease/marginShare, goodbyeTimeout))
	defer cancel()
	r.standing.Store(&Standing{ID: r.life.id})
	if r.life.beat > 0 {
		r.pendingEnds = append(r.pendingEnds, r.life.id)
	}
	for len(r.pendingEnds) > 0 {
		err := r.endEarlier(ctx)
		if err == nil {
			r.cfg.Announced(r.served)
			break
		}
		if !r.cfg.Clock.Sleep(ctx, goodbyePause) {
			r.cfg.Logger.Warn("cannot tell the store that this sidecar has stopped; the next start will", "error", err)
			r.savePendingEnds(r.pendingEnds)
			break
		}
	}
	return nil
}

// announced are the groups for this sidecar's next document.
func (r *Roster) announced() []eventlog.GroupName {
	names := slices.SortedFunc(maps.Keys(r.groups), func(a, b eventlog.GroupName) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group))
	})
	some := min(len(names), MaxGroups)
	for _, g := range names[some:] {
		r.groups[g] = false
	}
	return names[:some]
}
