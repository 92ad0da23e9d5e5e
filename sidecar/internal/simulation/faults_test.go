package simulation

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/test/mongomodel"
)

// trouble is a fault of requests while it is under way.
type trouble struct {
	fault
	dice dice
}

// strike brings a fault about, and mends it when its time is over.
func (r *run) strike(f fault) {
	time.Sleep(f.At.d())
	r.history.note(func(now moment) {
		if f.Kind != stopSidecar && !r.history.Troubled.came() {
			r.history.Troubled = now
		}
		if f.Kind != outage && f.Kind != stopSidecar {
			r.history.Silences = append(r.history.Silences, now)
		}
	})
	if p := r.set.Primary(); f.Primary && p >= 0 {
		f.Member = p
	}
	var rest sync.WaitGroup
	defer rest.Wait()
	for _, next := range f.Then {
		next.Member = f.Member
		rest.Go(func() { r.strike(next) })
	}
	m := r.machines[max(0, f.Sidecar)%len(r.machines)]
	member := f.Member % r.plan.Members
	switch f.Kind {
	case loseRequests, loseAnswers, late, halve, slowRequests:
		t := &trouble{f, newDice(f.Seed, 4)}
		r.mu.Lock()
		r.troubles[t] = true
		r.mu.Unlock()
		time.Sleep(f.For.d())
		r.mu.Lock()
		delete(r.troubles, t)
		r.mu.Unlock()
	case partSidecar:
		r.part(f.Sidecar, member, true)
		time.Sleep(f.For.d())
		r.part(f.Sidecar, member, false)
	case isolate, outage:
		r.partAll(f, true)
		time.Sleep(f.For.d())
		r.partAll(f, false)
	case partMember:
		r.set.Isolate(member)
		time.Sleep(f.For.d())
		for i := range r.plan.Members {
			if i != member {
				r.set.Join(memberName(i), memberName(member))
			}
		}
	case slowMember:
		r.set.Slow(member, f.By.d())
		time.Sleep(f.For.d())
		r.set.Slow(member, 0)
	case lagMember:
		r.set.Lag(member, f.By.d())
		time.Sleep(f.For.d())
		r.set.Lag(member, 0)
	case stepdown:
		if p := r.set.Primary(); p >= 0 {
			r.set.StepDown(p)
		}
	case killMember:
		r.set.Kill(member)
		time.Sleep(f.For.d())
		r.set.Restart(member)
	case killSidecar, stopSidecar:
		if f.Kind == stopSidecar {
			m.stop()
		} else if p := m.take(); p != nil {
			p.kill()
		}
		time.Sleep(f.For.d())
		r.start(m)
	case pauseSidecar:
		m.pause()
		time.Sleep(f.For.d())
		m.resume()
	case suspendSidecar:
		m.suspend()
		time.Sleep(f.For.d())
		m.resume()
	case shiftClock:
		m.clock.SetWall(f.By.d())
		time.Sleep(f.For.d())
		m.clock.SetWall(0)
	default:
		r.fail("no such fault: %q", f.Kind)
	}
}

func memberName(i int) string { return "m" + string(rune('0'+i)) }

// partAll parts one sidecar or all from all members, or joins them again.
func (r *run) partAll(f fault, cut bool) {
	for s := range r.machines {
		for i := range r.plan.Members {
			if f.Kind == outage || s == f.Sidecar {
				r.part(s, i, cut)
			}
		}
	}
}

// part parts a sidecar from a member, or joins them once no fault parts them any more.
func (r *run) part(sidecar, member int, cut bool) {
	r.mu.Lock()
	if cut {
		r.parted[[2]int{sidecar, member}]++
	} else {
		r.parted[[2]int{sidecar, member}]--
	}
	r.mu.Unlock()
	for _, p := range r.machines[sidecar].connected() {
		r.relink(p)
	}
}

// relink cuts and mends the links of a life as its sidecar is parted now.
func (r *run) relink(p *process) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for at, n := range r.parted {
		switch {
		case sidecarName(at[0]) != p.machine.name:
		case n > 0:
			r.set.Part(p.link, memberName(at[1]))
		default:
			r.set.Join(p.link, memberName(at[1]))
		}
	}
}

// maxAtOnce is more commands than sidecars send in one instant: 300 is the most that was seen.
const maxAtOnce = 10_000

// pace is the delay of a command. The model takes no time to answer: a sidecar that repeats a
// command without a pause keeps the clock from moving, and the run would never end. Once
// there were maxAtOnce, which is reported, each command takes 10 ms. The caller holds mu.
func (r *run) pace(q mongomodel.Request) time.Duration {
	if r.atOnce == maxAtOnce {
		return 10 * time.Millisecond
	}
	if now := time.Now(); !now.Equal(r.instant) {
		r.instant, r.atOnce = now, 0
	}
	if r.atOnce++; r.atOnce == maxAtOnce {
		r.failures = append(r.failures, fmt.Sprintf("%d commands in one instant, the last of them %s in %s from %s", maxAtOnce, q.Command,
			q.Collection, q.From))
	}
	return 0
}

// meet decides what happens to a request.
func (r *run) meet(q mongomodel.Request) (f mongomodel.Fault) {
	name, _, of := strings.Cut(q.From, "/")
	if !of {
		return f
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.killed[q.From] {
		f.LoseRequest = true
		return f
	}
	if r.meter != nil {
		return r.meter.meet(q)
	}
	f.Delay = r.pace(q)
	for t := range r.troubles {
		here := t.Sidecar == everySidecar || sidecarName(t.Sidecar) == name
		meant := (t.Command == "" || t.Command == q.Command) && (t.Collection == "" || t.Collection == q.Collection)
		if !here || !meant || !t.dice.chance(t.Percent) {
			continue
		}
		f.Silent = t.dice.chance(50)
		switch t.Kind {
		case loseRequests:
			f.LoseRequest = true
		case loseAnswers:
			f.LoseAnswer = true
		case late:
			f.Late = t.By.d()
		case slowRequests:
			f.Delay += t.By.d()
		case halve:
			f.Halt, f.LoseAnswer = t.dice.upTo(4), true
		}
	}
	return f
}
