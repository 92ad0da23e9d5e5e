package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

const patience = 8 * time.Second // for an answer

// publisher publishes what its plan says, and goes on trying until each event is answered for.
type publisher struct {
	run   *run
	name  string
	plan  publisherPlan
	dice  dice
	place atomic.Int64 // in plan.Sidecars: the sidecar that is asked next
	sent  []item
	calls sync.WaitGroup
}

// item is an event as a publisher wants it.
type item struct {
	id, key, content string
	due              int64 // in milliseconds since the epoch; 0: it is not scheduled
}

func (p *publisher) work() {
	if !p.run.sleep(p.plan.Start.d()) {
		return
	}
	slots, began := make(chan struct{}, max(1, p.plan.Pipeline)), time.Now()
	for n := range p.plan.Calls {
		if p.plan.Lasts > 0 && time.Since(began) > p.plan.Lasts.d() {
			break
		}
		if !p.run.sleep(time.Duration(p.dice.Int64N(int64(2*p.plan.Every.d()) + 1))) {
			break
		}
		items, cancelled := p.next(n)
		slots <- struct{}{}
		first := p.start(items) // here, so that calls are sent in order
		answered := make(chan struct{})
		p.calls.Go(func() {
			p.finish(items, first)
			close(answered)
			<-slots
		})
		for _, it := range cancelled {
			p.calls.Go(func() { p.takeBack(it, answered) })
		}
	}
	p.calls.Wait()
}

// next makes the events of a call, and says which of them are to be cancelled.
func (p *publisher) next(n int) (items, cancelled []item) {
	repeats, clashes := p.dice.chance(p.plan.Repeats), p.dice.chance(p.plan.Clashes)
	for i := range p.dice.upTo(p.plan.Batch) {
		it := item{id: fmt.Sprintf("%s-%d-%d", p.name, n, i)}
		if p.plan.Refused > 0 && p.dice.chance(p.plan.Refused) { // plans without them are what they were
			it.id += refusedSuffix
		}
		it.content = fmt.Sprintf(`{"of":%q}`, it.id)
		if p.plan.Keys > 0 {
			it.key = fmt.Sprintf("k%d", p.dice.IntN(p.plan.Keys))
		}
		if p.plan.Tombstones > 0 && p.dice.chance(p.plan.Tombstones) {
			it.content = "null"
		}
		switch earlier := len(p.sent); {
		case earlier > 0 && repeats:
			it = p.sent[p.dice.IntN(earlier)]
		case earlier > 0 && clashes:
			it = p.sent[p.dice.IntN(earlier)]
			it.content = fmt.Sprintf(`{"of":%q,"call":%d}`, it.id, n)
		case p.dice.chance(p.plan.Unnamed):
			it.id = ""
		default:
			if p.plan.Later > 0 && p.dice.chance(p.plan.Later) {
				it.due = time.Now().Add(p.dice.between(0, p.plan.Ahead).d()).UnixMilli()
				if p.dice.chance(p.plan.Cancels) {
					cancelled = append(cancelled, it)
				}
			}
			p.sent = append(p.sent, it)
		}
		items = append(items, it)
	}
	return items, cancelled
}

// answer is what comes of one call: the items that it did not settle.
type answer chan []item

// start sends a call through the next sidecar; nil: none answers.
func (p *publisher) start(items []item) answer {
	m := p.run.machines[p.plan.Sidecars[int(p.place.Load())%len(p.plan.Sidecars)]]
	life := m.process()
	if life == nil {
		return nil
	}
	h := p.run.history
	tries := make([]*publish, len(items))
	request := make([]wire.PublishItem, len(items))
	for i, it := range items {
		tries[i] = &publish{Publisher: p.name, Sidecar: m.name, Life: life.number, Topic: p.plan.Topic, ID: it.id, Key: it.key,
			Content: it.content, DeliverAt: it.due}
		request[i] = wire.PublishItem{Event: wire.Event{Topic: p.plan.Topic, ID: it.id, Key: it.key, Payload: []byte(it.content)}}
		if it.due != 0 {
			request[i].Later.DeliverAt = &it.due
		}
	}
	h.note(func(now moment) {
		for _, t := range tries {
			t.Began = now
		}
		h.Publishes = append(h.Publishes, tries...)
	})
	a := make(answer, 1)
	p.run.during(func() {
		m.gate.pass()
		err := life.publisher.Publish(context.Background(), life.conn, request, func(results []wire.ResultItem) {
			p.answered(life, items, tries, results, a)
		})
		if err != nil {
			p.answered(life, items, tries, slices.Repeat([]wire.ResultItem{{Err: err}}, len(items)), a)
		}
	})
	return a
}

// answered takes the results of a call, unless the sidecar is dead by now.
func (p *publisher) answered(life *process, items []item, tries []*publish, results []wire.ResultItem, a answer) {
	var left []item
	p.run.history.note(func(now moment) {
		for i, r := range results {
			if life.over.Load() {
				left = append(left, items[i])
				continue
			}
			t := tries[i]
			t.Ended = now
			if r.Err != nil {
				t.Code = string(r.Err.Code)
				if final := r.Err.Code == wire.Conflict || strings.HasSuffix(t.ID, refusedSuffix) && r.Err.Code == wire.BadRequest; !final {
					left = append(left, items[i])
				}
				continue
			}
			t.ID, t.Partition, t.Seq = r.Receipt.ID, r.Receipt.Partition, r.Receipt.Seq
			t.Duplicate, t.Spooled = r.Receipt.Duplicate, r.Receipt.Spooled
		}
	})
	a <- left
}

// finish waits for the answer, and publishes the items that it does not settle again, through this
// sidecar or another, until none is left.
func (p *publisher) finish(items []item, a answer) {
	for tries := 0; ; tries++ {
		if a != nil {
			timer := time.NewTimer(patience)
			select {
			case items = <-a:
			case <-timer.C:
			}
			timer.Stop()
		}
		if len(items) == 0 {
			return
		}
		if p.run.plan.unmet(p.plan.Topic) { // and so will be each try
			return
		}
		if p.run.late() {
			p.run.unmet("%s could not publish %v in %d tries", p.name, items, tries)
			return
		}
		time.Sleep(p.run.tryAgain())
		p.place.Add(1)
		a = p.start(items)
	}
}

// consumer is a member of a group, and comes again when its connection has ended.
type consumer struct {
	run   *run
	name  string
	plan  consumerPlan
	group groupPlan
	told  bool
}

// connection is one subscription of a consumer.
type connection struct {
	*consumer
	life   *process
	member *group.Member
	ended  atomic.Bool

	mu   sync.Mutex
	open []*delivery
}

func (c *consumer) work() {
	if !c.run.sleep(c.plan.Joins.d()) {
		return
	}
	leaves := make(<-chan time.Time)
	if c.plan.Leaves > 0 {
		timer := time.NewTimer(c.plan.Leaves.d() - c.plan.Joins.d())
		defer timer.Stop()
		leaves = timer.C
	}
	machine := c.run.machines[c.plan.Sidecar]
	for {
		if conn := c.connect(machine); conn != nil {
			select {
			case <-conn.life.down:
				conn.end(nil)
			case <-leaves:
				conn.leave(c.plan.Breaks)
				return
			case <-c.run.over:
				conn.leave(false)
				return
			}
		}
		select {
		case <-time.After(c.run.tryAgain()):
		case <-leaves:
			return
		case <-c.run.over:
			return
		}
	}
}

// connect subscribes; nil: the sidecar refuses, or is not there.
func (c *consumer) connect(m *machine) *connection {
	life := m.process()
	if life == nil {
		return nil
	}
	conn := &connection{consumer: c, life: life}
	timeout, ordered := int64(c.group.AckTimeout), !c.group.Unordered
	s := group.Subscription{
		Topic: c.group.Topic, Group: c.group.Name, Sink: conn, Pacer: unpaced{}, MemberID: c.name,
		Options: wire.SubscribeOptions{
			From: wire.FromEarliest, MaxInflight: &c.plan.Window, AckTimeoutMS: &timeout, MaxAttempts: &c.group.Attempts,
			Ordered: &ordered, Rebalance: c.told,
		},
	}
	m.gate.pass()
	member, err := life.groups.Subscribe(context.Background(), s)
	if err != nil {
		if !errors.Is(err, eventlog.ErrUnavailable) && !life.over.Load() && !life.isDown() {
			c.run.unmet("%s could not subscribe: %v", c.name, err)
		}
		return nil
	}
	conn.member = member
	m.gate.pass()
	member.Start()
	return conn
}

// leave ends the subscription from the consumer's side.
func (c *connection) leave(breaks bool) {
	how := group.Unsubscribed
	if breaks {
		how = group.Disconnected
	}
	c.end(&how)
}

// end notes the end of the connection for its open deliveries. A sidecar that stops in order gives
// them back.
func (c *connection) end(how *group.Leaving) {
	if how != nil {
		c.life.machine.gate.pass()
		c.member.Close(*how)
	}
	c.ended.Store(true)
	c.run.history.note(func(now moment) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, d := range c.open {
			switch {
			case how != nil && *how == group.Disconnected || c.life.over.Load():
				d.Lost = now
			case !d.Returned.came():
				d.Returned = now
			}
		}
		c.open = nil
	})
}

// Room implements group.Sink.
func (c *connection) Room() bool { return true }

// Assigned implements group.Rebalancer.
func (c *connection) Assigned([]int) {}

// Revoked implements group.Rebalancer.
func (c *connection) Revoked(partitions []int) {
	c.run.history.note(func(now moment) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, d := range c.open {
			if slices.Contains(partitions, d.Partition) && !d.Returned.came() {
				d.Returned = now
			}
		}
	})
}

// Deliver implements group.Sink.
func (c *connection) Deliver(ds []group.Delivery) {
	if c.life.over.Load() {
		return
	}
	for _, d := range ds {
		got := &delivery{
			Consumer: c.name, Sidecar: c.life.machine.name, Life: c.life.number, Topic: c.group.Topic, Group: c.group.Name,
			Partition: d.Record.Partition, Seq: d.Record.Seq, ID: d.Record.ID, Key: d.Record.Key, Attempt: d.Attempt,
		}
		redriven := false
		c.run.history.note(func(now moment) {
			got.Came, got.Deadline = now, now.At+d.AckTimeout
			if _, redriven = d.Record.Headers.Get(wire.HeaderRedriven); redriven {
				c.run.history.Redelivered = append(c.run.history.Redelivered, got)
			} else {
				c.run.history.Deliveries = append(c.run.history.Deliveries, got)
			}
			c.mu.Lock()
			c.open = append(c.open, got)
			c.mu.Unlock()
		})
		c.run.during(func() {
			if redriven {
				c.processRedriven(got, d.Lease)
			} else {
				c.process(got, d.Lease)
			}
		})
	}
}

// process treats a delivery as the plan says for its event and attempt.
func (c *connection) process(d *delivery, lease group.Lease) {
	dice := newDice(c.plan.Seed, hash(d.ID, d.Attempt))
	takes := time.Duration(dice.Int64N(int64(c.plan.Takes.d()) + 1))
	poison := newDice(c.run.plan.Seed, hash(c.group.Name+"/"+d.ID, 0)).chance(c.group.Poison)
	calm := c.run.isCalm()
	switch {
	case poison:
		c.after(takes, func() { c.nack(d, lease, nil) })
	case calm:
		c.after(min(takes, 50*time.Millisecond), func() { c.ack(d, lease) })
	case dice.chance(c.plan.Silent):
	case dice.chance(c.plan.Nacks):
		delay := time.Duration(dice.IntN(2)) * time.Second
		c.after(takes, func() { c.nack(d, lease, &delay) })
	case dice.chance(c.plan.Late):
		c.after(c.group.AckTimeout.d()+takes, func() { c.ack(d, lease) })
	case dice.chance(c.plan.Extends):
		if c.after(takes, func() { c.extend(d, lease) }) {
			c.after(c.group.AckTimeout.d(), func() { c.ack(d, lease) })
		}
	default:
		c.after(takes, func() { c.ack(d, lease) })
	}
}

// after calls do after d, unless the connection has ended.
func (c *connection) after(d time.Duration, do func()) bool {
	if !c.run.sleep(d) {
		return false
	}
	c.life.machine.gate.pass()
	if c.ended.Load() || c.life.over.Load() {
		return false
	}
	do()
	return true
}

// settling notes that the consumer settles a delivery.
func (c *connection) settling(d *delivery, kind string) *settle {
	s := &settle{Kind: kind}
	c.run.history.note(func(now moment) {
		s.Began = now
		d.Settles = append(d.Settles, s)
	})
	return s
}

// settled notes the answer, unless the sidecar is dead by now.
func (c *connection) settled(s *settle, stale, failed bool) {
	c.run.history.note(func(now moment) {
		if !c.life.over.Load() {
			s.Ended, s.Stale, s.Failed = now, stale, failed
		}
	})
}

func (c *connection) ack(d *delivery, lease group.Lease) {
	s := c.settling(d, "ack")
	var answers sync.WaitGroup
	answers.Add(1)
	var stale, failed bool
	c.life.groups.AckLeases(c.group.Topic, c.group.Name, []group.Lease{lease}, func(absent, lost []int, err error) {
		stale, failed = len(absent) > 0, err != nil || len(lost) > 0 // of a lost one the store may have the ack
		answers.Done()
	})
	answers.Wait()
	c.settled(s, stale, failed)
}

func (c *connection) nack(d *delivery, lease group.Lease, delay *time.Duration) {
	s := c.settling(d, "nack")
	how := wire.Nack{Reason: "no good"}
	if delay != nil {
		how.DelayMS = new(delay.Milliseconds())
	}
	c.life.groups.NackLeases(c.group.Topic, c.group.Name, []group.Lease{lease}, how, func(absent, lost []int, err error) {
		c.settled(s, len(absent) > 0, err != nil || len(lost) > 0)
	})
}

func (c *connection) extend(d *delivery, lease group.Lease) {
	s := c.settling(d, "extend")
	by := 2 * c.group.AckTimeout.d()
	stale := len(c.life.groups.ExtendLeases(c.group.Topic, c.group.Name, []group.Lease{lease}, by)) > 0
	c.settled(s, stale, false)
	if !stale {
		c.run.history.note(func(now moment) { d.Deadline = now.At + by })
	}
}

// unpaced is a connection without a limit.
type unpaced struct{}

func (unpaced) Take(time.Time) (time.Duration, bool) { return 0, true }

// read follows all partitions of a topic through one sidecar after the other.
func (r *run) read(name, topic string, partitions int, dice dice) {
	next := slices.Repeat([]uint64{1}, partitions)
	m := r.machines[dice.IntN(len(r.machines))]
	for r.sleep(2 * r.tryAgain()) {
		life := m.process()
		if life == nil {
			continue
		}
		for p := range next {
			m.gate.pass()
			recs, err := life.log.Read(context.Background(), topic, p, next[p], eventlog.Bounds{Events: 100})
			if err != nil {
				break
			}
			r.history.note(func(now moment) {
				for _, rec := range recs {
					r.history.Reads = append(r.history.Reads, read{name, topic, p, rec.Seq, rec.ID, now})
					next[p] = rec.Seq + 1
				}
			})
		}
	}
}
