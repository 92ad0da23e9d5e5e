package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/schedule"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
	"github.com/sluice-bus/sluice/test/testkit"
)

// addLater has publishers of some plans schedule events for later and cancel some of them, while
// inserts and updates of events come late, get lost, or take their time.
func (p *plan) addLater(m mix) {
	d := newDice(p.Seed, 13)
	if !d.chance(m.later) {
		return
	}
	for i := range p.Publishers {
		b := &p.Publishers[i]
		if j := slices.IndexFunc(p.Topics, func(t topicPlan) bool { return t.Name == b.Topic }); p.Topics[j].WriteConcern != "" {
			continue // a change of primary may undo a release; the event is then released again
		}
		b.Later, b.Ahead, b.Cancels = 20+d.IntN(80), d.between(1000, 60_000), d.IntN(60)
	}
	for range d.IntN(4) {
		f := fault{
			Kind: []faultKind{late, late, loseAnswers, loseRequests, slowRequests}[d.IntN(5)], At: d.between(0, p.Lasts*3/4),
			For:  d.between(500, p.Lasts/2),
			Seed: d.Uint64(), Sidecar: d.IntN(p.Sidecars+1) - 1, Percent: 10 + d.IntN(60), Command: []string{"insert", "update"}[d.IntN(2)],
			Collection: "events",
		}
		switch f.Kind {
		case late:
			f.By = d.between(1000, 60_000)
		case slowRequests:
			f.By = d.between(100, 3000)
		}
		if slices.Contains(m.kinds, f.Kind) {
			p.Faults = append(p.Faults, f)
		}
	}
}

// laterPlan is a plan that schedules events, with faults of sidecars, of the store and of clocks.
func laterPlan(seed uint64) *plan {
	m := usualMix()
	m.later, m.outbox, m.sweeps = 100, 0, 10
	return newPlan(seed, m)
}

// schedules reports whether anybody schedules events.
func (p *plan) schedules() bool {
	return slices.ContainsFunc(p.Publishers, func(b publisherPlan) bool { return b.Later > 0 })
}

// newScheduler makes what package sidecar does for scheduled events; nil: the plan has none.
func (p *process) newScheduler(notifier writer.Notifier) *schedule.Scheduler {
	if !p.machine.run.plan.schedules() {
		return nil
	}
	var log eventlog.Scheduler = p.log
	if weak := p.machine.run.weak.scheduler; weak != nil {
		log = weak(log)
	}
	return schedule.New(schedule.Config{
		Log: log, Mine: func(slot int) bool { return p.roster.Mine(schedule.Task(slot)) },
		Released: notifier.Heard, CountEvery: 15 * time.Second, Most: 1_000_000, MostBytes: func(string) int64 { return 0 },
		Clock: p.machine.clock.Clock(), Logger: p.machine.logger(),
	})
}

// cancel is one call that takes a scheduled event back.
type cancel struct {
	Topic, ID, Sidecar string
	Began, Ended       moment
	NotFound           bool // the answer: it is not scheduled
}

func (c *cancel) ok() bool { return c.Ended.came() && !c.NotFound }

// takeBack cancels a scheduled event, mostly once its publish is answered, and publishes something
// else under its id now and then.
func (p *publisher) takeBack(it item, answered <-chan struct{}) {
	d := newDice(p.plan.Seed, hash(it.id, 14))
	if d.chance(80) {
		<-answered
	}
	if !p.run.sleep(d.between(0, p.plan.Ahead/2).d()) {
		return
	}
	for tries := 0; ; tries++ {
		if p.cancel(it, p.run.machines[p.plan.Sidecars[d.IntN(len(p.plan.Sidecars))]]) {
			break
		}
		if p.run.late() {
			p.run.unmet("%s could not cancel %s in %d tries", p.name, it.id, tries)
			return
		}
		time.Sleep(p.run.tryAgain())
	}
	if d.chance(30) {
		it.content = fmt.Sprintf(`{"of":%q,"instead":true}`, it.id)
		if it.due = 0; d.chance(50) {
			it.due = time.Now().Add(d.between(0, p.plan.Ahead).d()).UnixMilli()
		}
		items := []item{it}
		p.finish(items, p.start(items))
	}
}

// cancel makes one call, and reports whether it was answered for good.
func (p *publisher) cancel(it item, m *machine) (answered bool) {
	life := m.process()
	if life == nil {
		return false
	}
	m.gate.pass()
	if waits, err := life.spool.Waits(context.Background(), p.plan.Topic, it.id); err != nil || waits {
		return false // as the gateway says
	}
	h := p.run.history
	c := &cancel{Topic: p.plan.Topic, ID: it.id, Sidecar: m.name}
	h.note(func(now moment) {
		c.Began = now
		h.Cancels = append(h.Cancels, c)
	})
	var log eventlog.Scheduler = life.log
	if weak := p.run.weak.scheduler; weak != nil {
		log = weak(log)
	}
	err := log.Cancel(context.Background(), c.Topic, c.ID)
	h.note(func(now moment) {
		if c.NotFound = errors.Is(err, eventlog.ErrNotFound); (err == nil || c.NotFound) && !life.over.Load() {
			c.Ended, answered = now, true
		}
	})
	return answered
}

// waiting reports whether an event is scheduled still.
func (r *run) waiting() bool {
	if !r.plan.schedules() {
		return false
	}
	p := r.machines[0].process()
	if p == nil {
		return true
	}
	counts, err := p.log.CountSlots(context.Background(), nil)
	for _, n := range counts {
		if n.Events > 0 {
			return true
		}
	}
	return err != nil
}

// mayBeCancelled reports whether somebody has asked for an id to be cancelled, and was not told
// that it is not scheduled.
func (v *view) mayBeCancelled(topic, id string) bool {
	return slices.ContainsFunc(v.Cancels, func(c *cancel) bool { return c.Topic == topic && c.ID == id && (c.ok() || !c.Ended.came()) })
}

// isOver reports whether nothing of a publish was under way any more at a moment: it was answered,
// or its sidecar had ended.
func (v *view) isOver(p *publish, at moment) bool {
	if p.Ended.came() {
		return p.Ended.Order < at.Order
	}
	return slices.ContainsFunc(v.Lives, func(l *lifetime) bool {
		return l.Sidecar == p.Sidecar && l.Life == p.Life && l.Ended.came() && l.Ended.Order < at.Order
	})
}

// mayBeSpooled reports whether the spool of a sidecar other than the given one may have the event.
func (v *view) mayBeSpooled(p *publish, than string) bool {
	return p.Sidecar != than && (p.Spooled || !p.Ended.came() && !v.topics[p.Topic].Rejects)
}

// checkScheduled: a scheduled event comes into the log no earlier than at the earliest time that a
// publish of it asked for. A cancelled event comes only if it is published again.
func checkScheduled(v *view, broken func(string, ...any)) {
	seen := map[place]time.Duration{} // first
	see := func(at part, seq uint64, when time.Duration) {
		k := place{at, seq}
		if first, was := seen[k]; !was || when < first {
			seen[k] = when
		}
	}
	for _, r := range v.Reads {
		see(part{r.Topic, r.Partition}, r.Seq, r.At.At)
	}
	for _, d := range v.Deliveries {
		see(part{d.Topic, d.Partition}, d.Seq, d.Came.At)
	}
	for id, tries := range v.tries {
		s := v.find(id[0], id[1])
		if s == nil {
			continue
		}
		first := tries[0].DeliverAt
		for _, p := range tries {
			first = min(first, p.DeliverAt)
		}
		due := time.UnixMilli(first).Sub(v.start) // 0 is long ago
		if s.TS < first {
			broken("%s/%s is in the log with the time %d, and was to come at %d", id[0], id[1], s.TS, first)
		}
		if when, was := seen[place{part{s.Topic, s.Partition}, s.Seq}]; was && when < due-v.ahead {
			broken("%s/%s came at %v, and was to come at %v", id[0], id[1], when, due)
		}
	}
	for _, c := range v.Cancels {
		tries := v.tries[[2]string{c.Topic, c.ID}]
		under := slices.DeleteFunc(slices.Clone(tries), func(p *publish) bool { return v.isOver(p, c.Began) && !v.mayBeSpooled(p, c.Sidecar) })
		switch s := v.find(c.Topic, c.ID); {
		case !c.ok():
		case len(under) == 0 && s != nil:
			broken("%s/%s is in the log, although it was cancelled at %v, when nobody was publishing it any more", c.Topic, c.ID, c.Ended.At)
		case len(under) > 0 && under[0].Began.Order > c.Ended.Order && under[0].Code == "conflict" &&
			!slices.ContainsFunc(under, func(p *publish) bool { return p.Content != under[0].Content }):
			broken("%s/%s was refused as a conflict at %v, although it was cancelled at %v", c.Topic, c.ID, under[0].Ended.At, c.Ended.At)
		}
	}
}

// laterWeaknesses are ways to build scheduled events wrong.
var laterWeaknesses = []weakness{
	{name: "scheduled-early", obvious: true, is: "an event is released before it is due",
		scheduler: func(l eventlog.Scheduler) eventlog.Scheduler {
			return weakScheduler{Scheduler: l, early: 5000}
		}},
	{name: "scheduled-lost", obvious: true, is: "an event that is released is gone before it is in the log",
		scheduler: func(l eventlog.Scheduler) eventlog.Scheduler {
			return weakScheduler{Scheduler: l, lost: true}
		}},
	{name: "cancelled-in-vain", obvious: true, is: "a cancel is answered OK and does nothing",
		scheduler: func(l eventlog.Scheduler) eventlog.Scheduler {
			return weakScheduler{Scheduler: l, vain: true}
		}},
	{name: "cancelled-untraced", is: "nothing is left of a cancelled event, so that an insert of it that comes late stores it",
		commands: func(c *command) {
			if c.name != "update" || c.collection != "events" {
				return
			}
			for _, update := range c.docs {
				filter, _ := get(update, "q").(bson.D)
				change, _ := get(update, "u").(bson.D)
				if fields, _ := get(change, "$set").(bson.D); get(filter, "partition") == int32(document.Unplaced) {
					set(fields, "expireAt", time.Unix(0, 0))
				}
			}
		}},
}

// weakScheduler keeps scheduled events in another way.
type weakScheduler struct {
	eventlog.Scheduler
	early      int64 // by so many ms
	lost, vain bool
}

func (w weakScheduler) Due(ctx context.Context, slots []int, after *eventlog.Scheduled, now int64, limit int) ([]eventlog.Scheduled, int64,
	error) {
	return w.Scheduler.Due(ctx, slots, after, now+w.early, limit)
}

func (w weakScheduler) Release(ctx context.Context, topic string, due []eventlog.Scheduled, now int64) []eventlog.Outcome {
	if w.lost && len(due) > 1 {
		_ = w.Scheduler.Cancel(ctx, topic, due[0].ID)
	}
	return w.Scheduler.Release(ctx, topic, due, now)
}

func (w weakScheduler) Cancel(ctx context.Context, topic, id string) error {
	if w.vain {
		return nil
	}
	return w.Scheduler.Cancel(ctx, topic, id)
}

// TestLaterSchedules schedules events and cancels them while sidecars are killed, the store is
// away, calls come late and clocks are set. No event comes early, twice or not at all, and no
// cancelled one comes.
func TestLaterSchedules(t *testing.T) {
	testkit.Rounds(t, func(t *testing.T, seed uint64) {
		var scheduled, cancelled atomic.Int64
		began := time.Now()
		each(t, *manyFlag/5, func(t *testing.T, i int) bool {
			if enoughSince(began, enoughLater, i) {
				return true
			}
			p := laterPlan(seed<<16 + uint64(i))
			res := runPlan(t, p)
			for _, b := range res.history.Publishes {
				if b.ok() && b.DeliverAt > 0 {
					scheduled.Add(1)
				}
			}
			for _, c := range res.history.Cancels {
				if c.ok() {
					cancelled.Add(1)
				}
			}
			report(t, p, res)
			return t.Failed()
		})
		t.Logf("%d events were scheduled, and %d of them cancelled, in %v", scheduled.Load(), cancelled.Load(),
			time.Since(began).Round(time.Millisecond))
		if scheduled.Load() == 0 || cancelled.Load() == 0 {
			t.Error("the test has not tested anything")
		}
	})
}

const enoughLater = 4 * time.Second

// TestLateness: while all is well, scheduled events come to a member of a group within 100 ms of
// their time, at 500 a second on a replica set that takes its time, whichever of two sidecars they
// were published through.
func TestLateness(t *testing.T) {
	p := flow(500, 1, []int{0, 1}, []int{0, 1})
	for i := range p.Publishers {
		p.Publishers[i].Later, p.Publishers[i].Ahead = 100, 4000
	}
	res := runPlan(t, p)
	report(t, p, res)
	due := map[string]time.Duration{}
	for _, b := range res.history.Publishes {
		due[b.ID] = time.UnixMilli(b.DeliverAt).Sub(res.history.start)
		if b.Ended.At > due[b.ID] { // it is due before its answer
			delete(due, b.ID)
		}
	}
	var all []time.Duration
	for _, d := range res.history.Deliveries {
		if at, ok := due[d.ID]; ok {
			all = append(all, d.Came.At-at)
		}
	}
	if len(all) < 1000 {
		t.Fatalf("%d events were scheduled for later than their answers", len(all))
	}
	slices.Sort(all)
	p99 := all[len(all)*99/100]
	t.Logf("%d scheduled events: p50 %v, p99 %v, at most %v after their time", len(all), all[len(all)/2], p99, all[len(all)-1])
	if p99 > 100*time.Millisecond {
		t.Errorf("the p99 is %v after the time", p99)
	}
}

// TestLaterWeaknesses checks that the schedules find mistakes that are built in on purpose.
func TestLaterWeaknesses(t *testing.T) {
	for _, w := range laterWeaknesses {
		t.Run(w.name, func(t *testing.T) {
			most := uint64(mustFind)
			if !w.obvious {
				most = few
			}
			for seed := range most {
				p := laterPlan(w.seed + seed)
				p.Weakness = w.name
				if res := runPlan(t, p); len(res.violations) > 0 {
					t.Logf("found with schedule %d: %v", seed, res.violations[0])
					return
				}
			}
			if !w.obvious {
				t.Skipf("not found with %d schedules", most)
			}
			t.Errorf("%d schedules do not find that %s", most, w.is)
		})
	}
}
