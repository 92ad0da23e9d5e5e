package roster

import (
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// TestNobodyIsTakenForDeadWhileValid lets sidecars come, stop, die, sleep and
// lose the store. While a run is valid, nobody takes it for gone; and once
// everything is well, everybody sees everybody who is there, and nobody else.
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
				"start": x.start, "stop": x.stop, "kill": x.kill, "fail": x.fail, "pause": x.pause,
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
	if len(x.all) < 5 {
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
	s.path.set(func() { s.path.err = nil })
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
	pass(3 * lease)
	want := x.names()
	for _, s := range x.all {
		if got := s.sees(); got != want || !s.Valid(time.Now()) {
			x.t.Errorf("%s sees %q, and there are %q", s.cfg.Name, got, want)
		}
	}
}

// names are those who are there.
func (x *crowd) names() string {
	var names []string
	for _, s := range x.all {
		names = append(names, s.cfg.Name)
	}
	return strings.Join(distinct(names), " ")
}
