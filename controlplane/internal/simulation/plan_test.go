package simulation

import (
	"math/rand/v2"
	"time"
)

// plan is a schedule before it runs.
type plan struct {
	seed    uint64
	planes  int
	lasts   time.Duration
	retries bool // drivers send again by themselves
	writers []writerPlan
	faults  []fault
}

// writerPlan is somebody who changes policies.
type writerPlan struct {
	seed    uint64
	plane   int // asked first, and others in turn
	every   time.Duration
	changes int
}

// fault is one thing that goes wrong, from at on, for a while.
type fault struct {
	kind     faultKind
	at, for_ time.Duration
	seed     uint64
	plane    int
	member   int
	percent  int           // of requests
	by       time.Duration // how much later
}

type faultKind string

const (
	loseRequests faultKind = "lose-requests"
	loseAnswers  faultKind = "lose-answers"
	late         faultKind = "late"
	isolate      faultKind = "isolate" // a control plane from all members
	partMember   faultKind = "part-member"
	killMember   faultKind = "kill-member"
	stepdown     faultKind = "stepdown"
	stopPlane    faultKind = "stop-plane"
	killPlane    faultKind = "kill-plane"
)

var kinds = []faultKind{loseRequests, loseAnswers, late, late, isolate, partMember, killMember, stepdown, stopPlane, killPlane}

// dice draws the numbers of a plan.
type dice struct{ *rand.Rand }

func newDice(seed, stream uint64) dice { return dice{rand.New(rand.NewPCG(seed, stream))} }

func (d dice) between(a, b time.Duration) time.Duration {
	return a + time.Duration(d.Int64N(int64(b-a)+1))
}

// chance is true in percent of cases.
func (d dice) chance(percent int) bool { return d.IntN(100) < percent }

// newPlan makes the plan of a seed.
func newPlan(seed uint64) *plan {
	d := newDice(seed, 1)
	p := &plan{seed: seed, planes: 2 + d.IntN(2), lasts: d.between(20*time.Second, time.Minute), retries: d.chance(50)}
	for range 1 + d.IntN(4) {
		every := d.between(10*time.Millisecond, 3*time.Second)
		p.writers = append(p.writers, writerPlan{d.Uint64(), d.IntN(p.planes), every, min(30, int(p.lasts/every))})
	}
	for range 1 + d.IntN(8) {
		f := fault{
			kind: kinds[d.IntN(len(kinds))], at: d.between(0, p.lasts*3/4), for_: d.between(50*time.Millisecond, p.lasts/4), seed: d.Uint64(),
			plane: d.IntN(p.planes), member: d.IntN(members), percent: 1 + d.IntN(100), by: d.between(time.Millisecond, time.Minute),
		}
		if f.kind == late {
			f.percent = 1 + d.IntN(50)
		}
		p.faults = append(p.faults, f)
	}
	if d.chance(30) { // what came late is carried out when its sender has stopped
		f := fault{kind: late, at: d.between(time.Second, p.lasts/2), for_: d.between(time.Second, 10*time.Second), seed: d.Uint64(),
			plane: d.IntN(p.planes), percent: 1 + d.IntN(50), by: d.between(time.Second, time.Minute)}
		stop := fault{kind: stopPlane, at: f.at + f.for_, for_: d.between(0, 10*time.Second), plane: f.plane}
		p.faults = append(p.faults, f, stop)
	}
	return p
}
