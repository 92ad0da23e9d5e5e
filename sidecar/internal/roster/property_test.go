package roster

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// TestNobodyIsTakenForDeadWhileValid lets sidecars start, stop, die (several together, and with
// their watchers), sleep and lose the store, and loses or delays their entries in the roll. While a
// run is valid, no sidecar takes it for gone. Once all faults are over, every sidecar sees exactly
// the live ones, each that was valid and died is declared dead, and a look is one query.
func TestNobodyIsTakenForDeadWhileValid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(struct{ rapid.TB }{t}, func(t *rapid.T) {
			x := &crowd{t: t, store: newFakeNodes(), heard: make(map[string]time.Time)}
			defer func() {
				for _, s := range x.all {
					x.mend(s)
					s.kill()
				}
			}()
			x.start(t)
			x.start(t)
			t.Repeat(map[string]func(*rapid.T){
				"start": x.start, "start2": x.start, "stop": x.stop, "kill": x.kill, "killMany": x.killMany, "fail": x.fail, "pause": x.pause,
				"entries": x.entries, "ask": x.ask,
				"mend": func(t *rapid.T) { x.mend(x.one(t)) },
				"time": x.time, "time2": x.time, "time3": x.time,
				"": x.check,
			})
			x.settle()
		})
	})
}

type crowd struct {
	t     *rapid.T
	store *fakeNodes
	all   []*sidecar
	made  int
	heard map[string]time.Time // since when a run is known to have been valid
}

func (x *crowd) one(t *rapid.T) *sidecar { return rapid.SampledFrom(x.all).Draw(t, "sidecar") }

func (x *crowd) start(*rapid.T) {
	if len(x.all) < 12 {
		x.made++
		x.all = append(x.all, x.store.start("s"+strconv.Itoa(x.made)))
	}
}

func (x *crowd) drop(s *sidecar) {
	for i := range x.all {
		if x.all[i] == s {
			x.all = append(x.all[:i:i], x.all[i+1:]...)
			return
		}
	}
}

func (x *crowd) stop(t *rapid.T) {
	if s := x.one(t); len(x.all) > 1 {
		x.mend(s)
		x.drop(s)
		s.stop()
	}
}

func (x *crowd) kill(t *rapid.T) {
	if s := x.one(t); len(x.all) > 1 {
		x.drop(s)
		s.path.set(func() { s.path.err = errStore })
		s.path.open()
		s.kill()
	}
}

// killMany kills several at once, all of one part of the ring at times.
func (x *crowd) killMany(t *rapid.T) {
	n := rapid.IntRange(1, len(x.all)).Draw(t, "so many")
	if rapid.Bool().Draw(t, "in order") {
		slices.SortFunc(x.all, func(a, b *sidecar) int {
			return cmp.Compare(weight(a.Standing().ID, ""), weight(b.Standing().ID, ""))
		})
	}
	for range min(n, len(x.all)-1) {
		s := x.all[0]
		x.drop(s)
		s.path.set(func() { s.path.err = errStore })
		s.path.open()
		s.kill()
	}
}

// entries are lost from here on, or come once more after a while.
func (x *crowd) entries(t *rapid.T) {
	s := x.one(t)
	s.path.set(func() {
		s.path.lostEntries = rapid.Bool().Draw(t, "lost")
		s.path.lateEntries = time.Duration(rapid.IntRange(0, 30).Draw(t, "late by")) * time.Second
	})
}

// ask asks for a life that was there at some time.
func (x *crowd) ask(t *rapid.T) {
	if len(x.heard) > 0 {
		x.one(t).Ask(rapid.SampledFrom(slices.Sorted(maps.Keys(x.heard))).Draw(t, "life"))
	}
}

func (x *crowd) fail(t *rapid.T) {
	s := x.one(t)
	s.path.set(func() { s.path.err = errStore })
}

func (x *crowd) pause(t *rapid.T) {
	s, late := x.one(t), rapid.Bool().Draw(t, "late")
	s.path.set(func() {
		switch gate := make(chan struct{}); {
		case s.path.before != nil || s.path.after != nil:
		case late:
			s.path.before = gate
		default:
			s.path.after = gate
		}
	})
}

func (x *crowd) mend(s *sidecar) {
	s.path.set(func() { s.path.err, s.path.lostEntries, s.path.lateEntries = nil, false, 0 })
	s.path.open()
}

// open lets the calls go on that wait.
func (p *fakePath) open() {
	p.set(func() {
		for _, gate := range []*chan struct{}{&p.before, &p.after} {
			if *gate != nil {
				close(*gate)
				*gate = nil
			}
		}
	})
}

func (x *crowd) time(t *rapid.T) {
	for range rapid.IntRange(1, 60).Draw(t, "quarter seconds") {
		time.Sleep(250 * time.Millisecond)
		x.check(t)
	}
}

// check looks for a valid run that others have given up.
func (x *crowd) check(t *rapid.T) {
	synctest.Wait()
	for _, s := range x.all {
		st := s.Standing()
		if !st.Valid(time.Now()) {
			continue
		}
		if _, ok := x.heard[st.ID]; !ok {
			x.heard[st.ID] = time.Now()
		}
		if state := x.store.Node(st.ID).State; state != eventlog.NodeLive {
			t.Errorf("%s is %d, which is valid for %v", s.cfg.Name, state, time.Until(st.Until))
		}
		for _, o := range x.all {
			if o != s && o.View().Gone(st.ID, x.heard[st.ID]) {
				t.Errorf("%s takes %s for gone, which is valid for %v", o.cfg.Name, s.cfg.Name, time.Until(st.Until))
			}
		}
	}
}

// settle mends everything.
func (x *crowd) settle() {
	for _, s := range x.all {
		x.mend(s)
	}
	dead := len(x.store.live()) - len(x.all)
	pass(3*lease + time.Duration(dead/watched)*(lease+2*lease/beatsPerLease))
	want := x.names()
	for _, s := range x.all {
		if got := s.sees(); got != want || !s.Valid(time.Now()) {
			x.t.Errorf("%s sees %q, and there are %q", s.cfg.Name, got, want)
		}
		delete(x.heard, s.Standing().ID)
	}
	for id := range x.heard {
		if x.store.Node(id).State == eventlog.NodeLive {
			x.t.Errorf("%s was not declared dead", id)
		}
	}
	saves, looks, lists, entries := x.store.saves.Load(), x.store.looks.Load(), x.store.lists.Load(), x.store.entries.Load()
	pass(lease)
	if n := x.store.looks.Load() - looks; n != x.store.saves.Load()-saves || x.store.lists.Load() != lists ||
		x.store.entries.Load() != entries {
		x.t.Errorf("when it is quiet: %d saves, %d looks, %d lists, %d entries", x.store.saves.Load()-saves, n,
			x.store.lists.Load()-lists, x.store.entries.Load()-entries)
	}
}

// names are the live sidecars.
func (x *crowd) names() string {
	var names []string
	for _, s := range x.all {
		names = append(names, s.cfg.Name)
	}
	return strings.Join(distinct(names), " ")
}
