package simulation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
	"github.com/sluice-bus/sluice/test/testkit"
)

// redriverPlan is an operator who redrives dead letters of a group until all is calm.
type redriverPlan struct {
	Seed     uint64 `json:"seed"`
	Group    int    `json:"group"` // in the plan's groups
	Sidecars []int  `json:"sidecars"`
	Start    ms     `json:"start"`
	Every    ms     `json:"every"`
	Discards int    `json:"discards,omitempty"` // percent of calls
}

// redrive is one call that redrives dead letters, or discards them.
type redrive struct {
	Topic, Group string
	Letters, IDs []string // of the dead letters and of their events
	Discards     bool
	Began, Ended moment // Ended: answered OK
}

// redrivenPlan has groups of one topic whose events die often, and are redriven while everything
// goes on.
func redrivenPlan(seed uint64) *plan {
	d := newDice(seed, 11)
	p := &plan{Seed: seed, Sidecars: 2 + d.IntN(2), Members: 3, Lasts: d.between(20_000, 40_000)}
	p.Topics = []topicPlan{{Name: "t0", Partitions: d.upTo(2)}}
	for range d.upTo(2) {
		p.Publishers = append(p.Publishers, publisherPlan{
			Seed: d.Uint64(), Topic: "t0", Sidecars: []int{d.IntN(p.Sidecars), d.IntN(p.Sidecars)}, Every: 400, Calls: 30, Batch: 3, Keys: 3,
		})
	}
	for i := range 2 {
		p.Groups = append(p.Groups, groupPlan{Topic: "t0", Name: fmt.Sprintf("g%d", i), AckTimeout: d.between(3_000, 8_000), Attempts: 2,
			Poison: 20 + d.IntN(30)})
		for range d.upTo(2) {
			p.Consumers = append(p.Consumers, consumerPlan{
				Seed: d.Uint64(), Group: i, Sidecar: d.IntN(p.Sidecars), Joins: d.between(0, 2000), Window: 1 + d.IntN(20), Takes: d.between(1, 400),
				Nacks: d.IntN(20), Silent: d.IntN(5),
			})
		}
		p.Redrivers = append(p.Redrivers, redriverPlan{
			Seed: d.Uint64(), Group: i, Sidecars: []int{d.IntN(p.Sidecars), d.IntN(p.Sidecars)}, Start: d.between(3000, 8000),
			Every: d.between(500, 4000), Discards: d.IntN(20),
		})
	}
	m := mix{kinds: []faultKind{loseRequests, loseAnswers, late, slowRequests, partSidecar, isolate, stepdown, killMember, killSidecar,
		killSidecar, stopSidecar, pauseSidecar}, lasts: p.Lasts}
	for range d.IntN(7) {
		p.Faults = append(p.Faults, d.fault(p, m))
	}
	return p
}

// redrives redrives a group's dead letters, a part of them at a time.
func (r *run) redrives(b redriverPlan) {
	d, g := newDice(b.Seed, 12), r.plan.Groups[b.Group]
	for wait := b.Start; r.sleep(wait.d()) && !r.isCalm(); wait = d.between(0, 2*b.Every) {
		m := r.machines[b.Sidecars[d.IntN(len(b.Sidecars))]]
		life := m.process()
		if life == nil {
			continue
		}
		m.gate.pass()
		_ = r.redriveSome(life, g, d, d.chance(b.Discards)) // a later call tries again
	}
}

// redriveSome redrives or discards letters as the gateway does.
func (r *run) redriveSome(life *process, g groupPlan, d dice, discards bool) error {
	ctx, dead := context.Background(), g.Topic+wire.DeadLetterSuffix
	var letters []eventlog.Dead
	over := map[string]bool{}
	for page, err := range eventlog.Pages(ctx, life.log, dead, eventlog.ScanQuery{}, eventlog.Bounds{Events: 100}) {
		if err != nil {
			return err
		}
		for _, rec := range page {
			if letter, ok := eventlog.ReadDead(rec); ok && letter.Group == g.Name {
				letters = append(letters, letter)
				over[eventlog.LetterBefore(rec.ID)] = true
			}
		}
	}
	letters = slices.DeleteFunc(letters, func(l eventlog.Dead) bool { return over[l.Letter.ID] || d.chance(30) })
	var all []eventlog.Redrive
	for i := range letters {
		all = append(all, letters[i].Redrive())
	}
	if !discards && len(all) > 0 {
		has, err := life.log.HasRedrives(ctx, g.Topic, all)
		if err != nil {
			return err
		}
		for i := len(all) - 1; i >= 0; i-- {
			if has[i] {
				all, letters = slices.Delete(all, i, i+1), slices.Delete(letters, i, i+1)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b eventlog.Redrive) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Partition, b.Partition))
	})
	call := &redrive{Topic: g.Topic, Group: g.Name, Discards: discards}
	for _, l := range letters {
		call.Letters, call.IDs = append(call.Letters, l.Letter.ID), append(call.IDs, l.Event.ID)
	}
	r.history.note(func(now moment) {
		call.Began = now
		r.history.Redrives = append(r.history.Redrives, call)
	})
	var err error
	if discards {
		if _, err = life.log.Remove(ctx, dead, call.Letters, retention.Rules(r.policies.Load().Topic(dead)), time.Now().UnixMilli()); err == nil {
			err = life.log.EndRedrives(ctx, g.Topic, all)
		}
	} else if err = life.log.AddRedrives(ctx, g.Topic, all); err == nil {
		life.groups.Redriven(g.Topic, g.Name)
	}
	if err == nil {
		r.history.note(func(now moment) {
			if !life.over.Load() {
				call.Ended = now
			}
		})
	}
	return err
}

// redriving reports whether a redriven dead letter is not settled yet.
func (r *run) redriving() bool {
	p := r.machines[0].process()
	if p == nil {
		return true
	}
	for _, g := range r.plan.Groups {
		for i := range r.history.topics[g.Topic].Partitions {
			if left, err := p.log.ListRedrives(context.Background(), g.Topic, g.Name, i, 1); err != nil || len(left) > 0 {
				return true
			}
		}
	}
	return false
}

// processRedriven treats a redriven event as a repaired member does; now and then it fails again.
func (c *connection) processRedriven(d *delivery, lease group.Lease) {
	dice := newDice(c.plan.Seed, hash(d.ID+" again", d.Attempt))
	takes := time.Duration(dice.Int64N(int64(c.plan.Takes.d()) + 1))
	switch {
	case c.run.isCalm():
		c.after(takes, func() { c.ack(d, lease) })
	case dice.chance(c.plan.Silent):
	case dice.chance(30):
		c.after(takes, func() { c.nack(d, lease, new(time.Duration)) })
	default:
		c.after(takes, func() { c.ack(d, lease) })
	}
}

// checkRedriven: a redriven event comes to the group that failed it and to no other, until one ack
// of it is answered OK. Events of a key that were redriven together come in their order. An acked
// event is not in the list of dead letters any more, and nothing is there twice.
func checkRedriven(v *view, broken func(string, ...any)) {
	calls, first := map[[3]string][]*redrive{}, map[[3]string]moment{}
	for _, call := range v.Redrives {
		for _, id := range call.IDs {
			k := [3]string{call.Topic, call.Group, id}
			calls[k] = append(calls[k], call)
		}
	}
	acked := map[[3]string]moment{}
	for _, d := range v.Redelivered {
		k := [3]string{d.Topic, d.Group, d.ID}
		if !slices.ContainsFunc(calls[k], func(c *redrive) bool { return !c.Discards && c.Began.Order < d.Came.Order }) {
			broken("%s/%s came to group %s as redriven, and nobody had redriven it there", d.Topic, d.ID, d.Group)
		}
		if a := acked[k]; a.came() && a.Order < d.Came.Order {
			broken("%s/%s came to group %s as redriven at %v, after an ack of that was answered OK at %v", d.Topic, d.ID, d.Group, d.Came.At, a.At)
		}
		if a := d.acked(); a.came() {
			if acked[k].came() {
				broken("%s/%s of group %s was redriven and acked twice, and both were answered OK", d.Topic, d.ID, d.Group)
			}
			acked[k] = a
		}
		if !first[k].came() {
			first[k] = d.Came
			for _, before := range v.Redelivered {
				b := [3]string{before.Topic, before.Group, before.ID}
				sameKey := before.Group == d.Group && before.Key == d.Key && before.Partition == d.Partition
				sameCall := len(calls[k]) == 1 && len(calls[b]) == 1 && calls[k][0] == calls[b][0] && calls[k][0].Ended.came()
				if sameKey && sameCall && before.Seq > d.Seq && before.Came.Order < d.Came.Order {
					broken("%s/%s came to group %s as redriven after %s, a later event of its key that was redriven with it", d.Topic, d.ID, d.Group,
						before.ID)
				}
			}
		}
	}
	listed := map[string]bool{}
	for k, letters := range v.dead {
		for _, l := range letters {
			if l.Gone {
				continue
			}
			listed[l.ID] = true
			if a := acked[k]; a.came() {
				broken("%s/%s is a dead letter of group %s although it was redriven and an ack was answered OK", k[0], k[2], k[1])
			}
		}
	}
	for k, cs := range calls {
		asked, discarded, came := false, false, first[k].came()
		for _, d := range v.Redelivered {
			asked = asked || [3]string{d.Topic, d.Group, d.ID} == k &&
				slices.ContainsFunc(d.Settles, func(s *settle) bool { return s.Kind == "ack" && !s.Stale })
		}
		for _, c := range cs {
			discarded = discarded || c.Discards
		}
		if !asked && !discarded && len(v.dead[k]) == 0 {
			broken("%s/%s was redriven for group %s, and nobody acked it, and it is no dead letter any more", k[0], k[2], k[1])
		}
		for _, c := range cs {
			at := slices.Index(c.IDs, k[2])
			switch {
			case c.Discards && c.Ended.came() && listed[c.Letters[at]]:
				broken("%s/%s was discarded and is in the list of group %s", k[0], k[2], k[1])
			case !c.Discards && c.Ended.came() && !came && !discarded:
				broken("%s/%s was redriven for group %s, and never came there", k[0], k[2], k[1])
			}
		}
	}
}

// redriveWeaknesses are ways to build redrives wrong.
var redriveWeaknesses = []weakness{
	{name: "redriven-to-all", obvious: true, is: "what is redriven for one group comes to another", groups: func(l group.Log) group.Log {
		return weakRedrives{Log: l, list: func(ctx context.Context, topic, _ string, partition, limit int) ([]eventlog.Redrive, error) {
			rs, err := l.ListRedrives(ctx, topic, "g0", partition, limit)
			for i := range rs {
				rs[i].Group = "g1"
			}
			return rs, err
		}}
	}},
	{name: "redriven-for-ever", obvious: true, is: "what is redriven stays so after it was settled", groups: func(l group.Log) group.Log {
		return weakRedrives{Log: l, end: func(context.Context, string, []eventlog.Redrive) error { return nil }}
	}},
	{name: "redriven-unsaved", seed: 20, is: "how far a group is with what is redriven is not saved", groups: func(l group.Log) group.Log {
		return weakGroups{Log: l, save: func(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
			epochs = slices.Clone(epochs)
			for i := range epochs {
				epochs[i].Progress.Redrives = nil
			}
			return l.SaveEpochs(ctx, epochs, marks)
		}}
	}},
	{name: "redriven-forgotten", obvious: true, is: "what is redriven is taken away before it is settled",
		groups: func(l group.Log) group.Log {
			return weakRedrives{Log: l, list: func(ctx context.Context, topic, name string, partition, limit int) ([]eventlog.Redrive, error) {
				rs, err := l.ListRedrives(ctx, topic, name, partition, limit)
				if err == nil && len(rs) > 0 {
					err = l.EndRedrives(ctx, topic, rs[len(rs)-1:])
					rs = rs[:len(rs)-1]
				}
				return rs, err
			}}
		}},
	{name: "redriven-upside-down", obvious: true, is: "what is redriven comes in another order than that of the log",
		groups: func(l group.Log) group.Log {
			return weakRedrives{Log: l, list: func(ctx context.Context, topic, name string, partition, limit int) ([]eventlog.Redrive, error) {
				rs, err := l.ListRedrives(ctx, topic, name, partition, limit)
				slices.Reverse(rs)
				if len(rs) > 1 {
					rs = rs[:1] // the others at the next look
				}
				return rs, err
			}}
		}},
}

// weakRedrives keeps redrives in another way.
type weakRedrives struct {
	group.Log
	list func(ctx context.Context, topic, group string, partition, limit int) ([]eventlog.Redrive, error)
	end  func(ctx context.Context, topic string, rs []eventlog.Redrive) error
}

func (w weakRedrives) ListRedrives(ctx context.Context, topic, group string, partition, limit int) ([]eventlog.Redrive, error) {
	if w.list == nil {
		return w.Log.ListRedrives(ctx, topic, group, partition, limit)
	}
	return w.list(ctx, topic, group, partition, limit)
}

func (w weakRedrives) EndRedrives(ctx context.Context, topic string, rs []eventlog.Redrive) error {
	if w.end == nil {
		return w.Log.EndRedrives(ctx, topic, rs)
	}
	return w.end(ctx, topic, rs)
}

// TestRedrivenSchedules redrives and discards dead letters while sidecars are killed and calls
// lost, and checks that the promises are kept.
func TestRedrivenSchedules(t *testing.T) {
	testkit.Rounds(t, func(t *testing.T, seed uint64) {
		var redelivered, calls atomic.Int64
		began := time.Now()
		each(t, redrivenSchedules, func(t *testing.T, i int) bool {
			if enoughSince(began, enoughRedriven, i) {
				return true
			}
			p := redrivenPlan(seed<<16 + uint64(i))
			res := runPlan(t, p)
			redelivered.Add(int64(len(res.history.Redelivered)))
			calls.Add(int64(len(res.history.Redrives)))
			report(t, p, res)
			return t.Failed()
		})
		t.Logf("%d calls redrove or discarded, and %d redriven events came, in %v", calls.Load(), redelivered.Load(),
			time.Since(began).Round(time.Millisecond))
		if redelivered.Load() == 0 {
			t.Error("nothing was redriven: the test has not tested anything")
		}
	})
}

// TestRedriveWeaknesses checks that the schedules find mistakes that are built in on purpose.
func TestRedriveWeaknesses(t *testing.T) {
	for _, w := range redriveWeaknesses {
		t.Run(w.name, func(t *testing.T) {
			most := uint64(mustFind)
			if !w.obvious {
				most = few
			}
			for seed := range most {
				p := redrivenPlan(w.seed + seed)
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

const (
	redrivenSchedules = 60
	enoughRedriven    = 4 * time.Second
)
