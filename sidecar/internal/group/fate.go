package group

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// The values of wire.EventFate.WaitsFor.
const (
	WaitsForTurn       = "turn"        // events before it
	WaitsForMember     = "member"      // a member that may be sent it
	WaitsForKey        = "key_order"   // earlier events of its key
	WaitsForSameID     = "same_id"     // another event with its id that is in flight
	WaitsForRetry      = "backoff"     // its next delivery is due later
	WaitsForDeadLetter = "dead_letter" // its dead letter to be durable
	WaitsForOwner      = "owner"       // another sidecar has it, and only that sidecar knows more
)

// Lookup finds an event, as eventlog.Reader does.
type Lookup func(ctx context.Context, topic, id string) (*eventlog.Record, error)

// Fates returns the fate of a stored event in each group of its topic that sees accepts. For
// partitions of other sidecars it uses their last saved progress.
func (m *Manager) Fates(ctx context.Context, rec *eventlog.Record, sees func(group string) bool, lookup Lookup) ([]wire.EventFate, error) {
	names, err := m.Groups(ctx, rec.Topic)
	if err != nil {
		return nil, err
	}
	fates := []wire.EventFate{} // [] rather than null
	for _, name := range names {
		if !sees(name) {
			continue
		}
		f, err := m.fate(ctx, rec, name, lookup)
		if err != nil {
			return nil, err
		}
		fates = append(fates, f)
	}
	return fates, nil
}

func (m *Manager) fate(ctx context.Context, rec *eventlog.Record, name string, lookup Lookup) (wire.EventFate, error) {
	g, err := m.known(ctx, rec.Topic, name)
	if err != nil {
		return wire.EventFate{}, err
	}
	defer m.release(g)
	elsewhere, err := g.latest(ctx)
	if err != nil {
		return wire.EventFate{}, err
	}
	var last eventlog.Epoch // none: no sidecar ever had the partition
	if rec.Partition < len(elsewhere) {
		last = elsewhere[rec.Partition]
	}
	f, since := g.fate(rec, &last, m.owner(&last), m.cfg.Clock.Now())
	if f.State != wire.FateSettled {
		return f, nil
	}
	if f.DeadLetter, err = deadLetterOf(ctx, rec, name, since, lookup); err != nil {
		return f, err
	}
	if f.DeadLetter != nil {
		f.State, f.Attempts = wire.FateDead, f.DeadLetter.Attempts
		return f, nil
	}
	marked, err := m.cfg.Log.Marked(ctx, rec.Topic, name, []string{rec.ID}, m.cfg.Clock.Now().UnixMilli())
	if err != nil {
		return f, err
	}
	if marked[0] {
		f.State = wire.FateAcked
	}
	return f, nil
}

// fate is the event's fate as this sidecar knows it. In a partition that this sidecar does not own,
// it comes from the last epoch, with that epoch's owner.
func (g *Group) fate(rec *eventlog.Record, last *eventlog.Epoch, owner string, now time.Time) (f wire.EventFate, since int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := stored(last)
	f = wire.EventFate{Group: g.name, Owner: owner}
	here := rec.Partition < len(g.own.parts) && g.own.parts[rec.Partition].own != foreign
	if here {
		f.Owner, p = g.cfg.Roster.View().Name, g.own.parts[rec.Partition]
	}
	f.Cursor = p.cursor()
	i := slices.IndexFunc(p.entries, func(e *entry) bool { return e.seq == rec.Seq })
	again := slices.IndexFunc(p.redrive.entries, func(e *entry) bool { return e.seq == rec.Seq && e.state != settled })
	switch {
	case again >= 0:
		p.redrive.entries[again].tell(&f, now)
	case i >= 0:
		p.entries[i].tell(&f, now)
	case rec.Seq < p.Next || slices.ContainsFunc(p.skip, holds(rec.Seq)):
		f.State = wire.FateSettled
	default:
		f.State, f.WaitsFor = wire.FateWaiting, WaitsForTurn
		for _, r := range p.carried {
			if holds(rec.Seq)(r.SeqRange) {
				f.Attempts = r.Attempts
			}
		}
		switch {
		case f.Owner != "" && !here:
			f.WaitsFor = WaitsForOwner
		case here && len(g.dispatch.members) == 0:
			f.WaitsFor = WaitsForMember
		}
	}
	return f, p.since
}

func holds(seq uint64) func(eventlog.SeqRange) bool {
	return func(r eventlog.SeqRange) bool { return r.First <= seq && seq <= r.Last }
}

// waitsFor has the WaitsFor of each state of an event.
var waitsFor = map[state]string{
	waiting: WaitsForKey, doubled: WaitsForSameID, ready: WaitsForMember, delayed: WaitsForRetry, deadLettering: WaitsForDeadLetter,
}

// tell adds the entry's state.
func (e *entry) tell(f *wire.EventFate, now time.Time) {
	if e.state == settled {
		f.State = wire.FateSettled
		return
	}
	f.State, f.Attempts, f.WaitsFor = wire.FateWaiting, e.attempts, waitsFor[e.state]
	if e.state == inflight {
		f.State, f.Member = wire.FateInflight, e.member.id
	}
	if e.state == delayed || e.sent {
		f.DueMS = new(max(0, e.due.Sub(now).Milliseconds()))
	}
}

// deathsLooked is the number of redrives up to which deadLetterOf looks for a dead letter.
const deathsLooked = 4

// deadLetterOf finds the dead letter that an event became for the group; nil if there is none. Its
// id follows from the event's.
func deadLetterOf(ctx context.Context, rec *eventlog.Record, group string, since int64, lookup Lookup) (*wire.EventDeadLetter, error) {
	d := deadLetter(&entry{rec: rec}, group, since, time.Time{})
	id := d.ID
	got, err := lookup(ctx, d.Topic, id)
	for died := 0; errors.Is(err, eventlog.ErrNotFound) && died < deathsLooked; died++ {
		id = eventlog.NextLetter(id)
		got, err = lookup(ctx, d.Topic, id)
	}
	if errors.Is(err, eventlog.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	reason, _ := got.Headers.Get(wire.HeaderDeadReason)
	text, _ := got.Headers.Get(wire.HeaderDeadAttempts)
	attempts, _ := strconv.Atoi(text) // a dead letter that a client made would have none
	return &wire.EventDeadLetter{
		Topic: got.Topic, ID: got.ID, TS: got.TS, Partition: got.Partition, Seq: got.Seq, Reason: reason, Attempts: attempts,
	}, nil
}
