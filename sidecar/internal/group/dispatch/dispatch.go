package dispatch

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Config is what a Dispatcher needs.
type Config struct {
	Group     string      // as the policy names it
	Expired   func(n int) // counts events whose own ttl has passed
	Lookahead int         // how many events of a partition are fetched, from the lowest unsettled one on
	MaxBytes  int         // of events in memory
}

// Dispatcher is a group's events on their way to its members. It has the events that were fetched
// and are not settled, each in one of the states of an event, and assigns them to members. The
// group's mutex guards it.
type Dispatcher struct {
	cfg   Config
	Parts []*Partition // all of the topic

	members       []*Member
	Divided       bool   // members have partitions of their own
	NeedsDivision bool   // the division of partitions among them may have changed
	rotation      int    // the member that is assigned the next event
	leases        uint64 // of all deliveries so far
	limits        limits
	Round         Round
	Saving        bool // a save is under way: only what needs none is assigned

	ordered       bool // a member wants key order
	keys          keys
	ids           ids
	ready         []*Event   // and events that have been settled since
	fair          *fairQueue // with fairness the ready events, else nil; new ones come from ready
	Timers        timers
	DeadLetters   []*Event // to be handed to the dead letter topic by the next turn
	DeadLettering int      // events on their way to the dead letter topic
	Bytes         int      // bytes of events
	memory        *budget.Share
}

// New makes a Dispatcher without members and partitions.
func New(cfg Config) Dispatcher { return Dispatcher{cfg: cfg, keys: keys{}, ids: ids{}} }

func (d *Dispatcher) Join(m *Member) {
	m.Opts = d.limits.resolve(m.Requested)
	d.members = append(d.members, m)
	d.NeedsDivision = true
	d.charge()
	d.order()
}

// charge has the events in memory counted for the client that has been a member for the longest time.
// Without members they stay with the last one.
func (d *Dispatcher) charge() {
	if len(d.members) == 0 || d.members[0].memory == d.memory {
		return
	}
	d.memory.Give(d.Bytes)
	d.memory = d.members[0].memory
	d.memory.Take(d.Bytes)
}

// NoMemory reports whether the members' client has used up its memory. The group then holds one event
// at a time.
func (d *Dispatcher) NoMemory() bool { return d.memory.Full() }

// Leave removes a member, and takes back its events in flight; counted says that those that were
// sent count an attempt.
func (d *Dispatcher) Leave(m *Member, counted bool, now time.Time) {
	m.Closed, d.NeedsDivision = true, true
	d.members = slices.DeleteFunc(d.members, func(x *Member) bool { return x == m })
	for _, e := range d.InFlightOf(m) {
		if counted && e.Sent {
			d.Fail(e, tracing.Disconnected, "connection closed", now, 0, m.Opts.MaxAttempts)
		} else {
			d.GiveBack(e)
		}
	}
	d.charge()
	d.order()
}

// InFlightCount is how many events members have in flight.
func (d *Dispatcher) InFlightCount() (n int) {
	for _, m := range d.members {
		n += m.Count
	}
	return n
}

// InFlightAt finds the event with that id that is in flight at a member, or nil.
func (d *Dispatcher) InFlightAt(m *Member, id string) *Event {
	if e := d.ids.inflight(id); e != nil && e.Member == m {
		return e
	}
	return nil
}

// InFlightOf returns a member's events in flight, in log order.
func (d *Dispatcher) InFlightOf(m *Member) []*Event {
	var es []*Event
	for _, e := range d.Timers {
		if e.Member == m {
			es = append(es, e)
		}
	}
	for _, a := range m.Out {
		if a.holds() {
			es = append(es, a.Entry)
		}
	}
	slices.SortFunc(es, inLogOrder)
	return es
}

// order begins or ends keeping the order of keys, as members want it.
func (d *Dispatcher) order() {
	if d.ordered = slices.ContainsFunc(d.members, func(m *Member) bool { return m.Opts.Ordered }); d.ordered {
		return // assign holds back the later events of a key
	}
	for _, q := range d.keys {
		for e := q.head; e != nil; e = e.next {
			if e.State == Waiting {
				d.makeReady(e)
			}
		}
	}
}

func (d *Dispatcher) makeReady(e *Event) {
	e.State = Ready
	d.ready = append(d.ready, e)
}

// addBytes adds the bytes of a fetched event to those held, or subtracts them.
func (d *Dispatcher) addBytes(n int) {
	d.Bytes += n
	d.memory.Take(n)
}

// Settle ends an event for the group.
func (d *Dispatcher) Settle(e *Event) {
	id, key := e.Record.ID, e.Record.Key
	d.addBytes(-e.Record.Size())
	d.detach(e)
	d.ids.remove(e)
	e.Partition.reach.settle(key)
	e.State, e.Record, e.Process = Settled, nil, nil
	e.Partition.Dirty, e.Partition.unused = true, false
	e.Partition.trim()
	if head := d.keys.remove(key, e); head != nil && head.State == Waiting {
		d.makeReady(head)
	}
	d.wakeSameID(id)
}

// SettleID settles the events with an id that are not on their way to the dead letter topic.
func (d *Dispatcher) SettleID(id string) {
	for e := d.ids[id]; e != nil; {
		next := e.sameID
		if e.State != DeadLettering {
			d.Settle(e)
		}
		e = next
	}
}

// detach takes an event away from its member and its timer.
func (d *Dispatcher) detach(e *Event) {
	d.Timers.unset(e)
	e.Process.End(tracing.Revoked, "") // unless it has ended otherwise
	if e.Member != nil {
		e.Member.Count--
		e.Member, e.Sent = nil, false
	}
}

// wakeSameID releases events that waited because the same id was in flight.
func (d *Dispatcher) wakeSameID(id string) {
	for e := d.ids[id]; e != nil; e = e.sameID {
		if e.State == SameID {
			d.makeReady(e)
		}
	}
}

// Saved clears all assigned events to be sent. It is called when a save ends: while one is under way,
// nothing is assigned that needs the next one.
func (d *Dispatcher) Saved() {
	for _, m := range d.members {
		for _, a := range m.Out {
			a.Entry.cleared = true
		}
	}
}

// Send starts the deadlines of the events assigned to a member that are cleared, and returns them. Those
// that the member no longer takes, or whose partition no longer delivers, go back.
func (d *Dispatcher) Send(m *Member, now time.Time) (sent []assignment) {
	if m.Paused || m.Closed {
		d.TakeBack(m)
		return nil
	}
	var rest []assignment // of its own: sent is in the place of m.Out
	sent = m.Out[:0]
	for _, a := range m.Out {
		switch {
		case !a.holds():
		case !a.Entry.cleared:
			rest = append(rest, a)
		case !a.Entry.Partition.Open:
			d.GiveBack(a.Entry)
		default:
			a.Entry.Sent, a.Entry.SentAt = true, now
			d.Timers.Set(a.Entry, now.Add(m.Opts.AckTimeout))
			sent = append(sent, a)
		}
	}
	m.Out = rest
	return sent
}

// TakeBack undoes a member's assignments that were not sent.
func (d *Dispatcher) TakeBack(m *Member) {
	for _, a := range m.Out {
		if a.holds() {
			d.GiveBack(a.Entry)
		}
	}
	m.Out = nil
}

// GiveBack undoes a delivery without counting it.
func (d *Dispatcher) GiveBack(e *Event) {
	d.detach(e)
	e.Attempts--
	e.Partition.Dirty = true
	d.makeReady(e)
	d.wakeSameID(e.Record.ID)
}

// GiveBackAll undoes the deliveries of a partition's events in flight.
func (d *Dispatcher) GiveBackAll(p *Partition) {
	for e := range p.All() {
		if e.State == InFlight {
			d.GiveBack(e)
		}
	}
}

// Fail ends a delivery that did not lead to an ack. The event is delivered again after wait, or
// goes to the dead letter topic after most attempts.
func (d *Dispatcher) Fail(e *Event, how tracing.Outcome, reason string, now time.Time, wait time.Duration, most int) {
	e.unsure, e.named, e.Partition.Dirty = false, true, true
	if e.Attempts >= most {
		how = tracing.DeadLettered
	}
	e.Process.End(how, reason)
	d.detach(e)
	e.reason = reason
	if e.Attempts < most {
		d.retry(e, now, wait)
		return
	}
	d.deadLetter(e)
	d.wakeSameID(e.Record.ID)
}

// Delay takes an event back from its member, to deliver it again after wait at the earliest. The
// delivery counts no attempt.
func (d *Dispatcher) Delay(e *Event, reason string, now time.Time, wait time.Duration) {
	e.Process.End(tracing.Nacked, reason)
	d.detach(e)
	e.Attempts--
	e.unsure, e.named, e.Partition.Dirty, e.reason = false, true, true, reason
	d.retry(e, now, wait)
}

// retry delivers an event that is no longer in flight again after wait.
func (d *Dispatcher) retry(e *Event, now time.Time, wait time.Duration) {
	if wait > 0 {
		e.State = Delayed
		d.Timers.Set(e, now.Add(wait))
	} else {
		d.makeReady(e)
	}
	d.wakeSameID(e.Record.ID)
}

// deadLetter sends an event to the dead letter topic; it is settled once it is durable there.
func (d *Dispatcher) deadLetter(e *Event) {
	e.State = DeadLettering
	d.DeadLettering++
	d.DeadLetters = append(d.DeadLetters, e)
}

// DeadLettered settles an event whose dead letter is durable.
func (d *Dispatcher) DeadLettered(e *Event) {
	d.DeadLettering--
	d.Settle(e)
}

// Paused reports whether the policy pauses the group.
func (d *Dispatcher) Paused() bool { return d.limits.Paused }

// Expire handles the events whose time has come.
func (d *Dispatcher) Expire(now time.Time) {
	for e := d.Timers.expired(now); e != nil; e = d.Timers.expired(now) {
		switch e.State {
		case InFlight:
			d.Fail(e, tracing.Expired, "ack deadline passed", now, 0, e.Member.Opts.MaxAttempts)
		case Delayed:
			d.makeReady(e)
		case DeadLettering:
			d.DeadLetters = append(d.DeadLetters, e)
		}
	}
}

// Drop forgets the fetched events of a partition, and returns those that were on their way to the
// dead letter topic. The callers of their nacks are answered after the progress is saved.
func (d *Dispatcher) Drop(p *Partition) (deadLettering []*Event) {
	p.Generation++
	if len(p.events)+len(p.Redrive.events) == 0 {
		return nil
	}
	for e := range p.All() {
		if e.State == Settled {
			continue
		}
		if e.State == DeadLettering {
			d.DeadLettering--
			p.Dirty = true
			deadLettering = append(deadLettering, e)
		}
		d.addBytes(-e.Record.Size())
		d.detach(e)
		delete(d.keys, e.Record.Key) // all events of a key are in one partition
		d.ids.remove(e)
		e.State = Dropped
		d.wakeSameID(e.Record.ID)
	}
	p.forget()
	p.Redrive.events = nil
	of := func(e *Event) bool { return e.Partition == p }
	d.ready = slices.DeleteFunc(d.ready, of)
	d.DeadLetters = slices.DeleteFunc(d.DeadLetters, of)
	d.Round.blocked = min(d.Round.blocked, len(d.ready))
	if d.fair != nil {
		d.fair.drop(p)
	}
	return deadLettering
}

// room is how many more events the group may have in flight here.
func (d *Dispatcher) room() int {
	if most := d.limits.inflight(); most < math.MaxInt {
		return max(0, most-d.InFlightCount())
	}
	return math.MaxInt
}

// Round is the result of one assign, for the rest of its turn.
type Round struct {
	room        int       // events that the group's limit still lets it have in flight
	starved     bool      // since the group's rate had no token left
	openMembers int       // members that could have been assigned more
	blocked     int       // ready events that cannot be assigned now
	More        bool      // assign stopped at a bound of the turn
	TokenAt     time.Time // when there is a token again; zero: nobody waits for one
}

// Leased finds the event in flight under a lease, or nil.
func (d *Dispatcher) Leased(l Lease) *Event {
	if l.Partition < 0 || l.Partition >= len(d.Parts) {
		return nil
	}
	p := d.Parts[l.Partition]
	for _, e := range p.Redrive.events {
		if e.State == InFlight && e.Lease == l.Number {
			return e.IfSent()
		}
	}
	i, found := slices.BinarySearchFunc(p.events, l.Seq, func(e *Event, seq uint64) int { return cmp.Compare(e.Seq, seq) })
	if !found || p.events[i].State != InFlight || p.events[i].Lease != l.Number {
		return nil
	}
	return p.events[i].IfSent()
}
