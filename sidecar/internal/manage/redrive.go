package manage

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group/deadletter"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

const (
	// redriveRate is how many dead letters per second are redriven unless the request sets a rate,
	// and maxRedriveRate is the highest rate.
	redriveRate    = 100
	maxRedriveRate = 100_000
	// maxDeadIDs is how many dead letters a request may name; maxDeadBody is larger than a body with
	// so many.
	maxDeadIDs  = 10_000
	maxDeadBody = 4 << 20
)

// deadSelection is the body of a redrive or a discard.
type deadSelection struct {
	IDs    []string `json:"dlq_ids,omitempty"`
	Group  *string  `json:"group,omitempty"`
	Reason *string  `json:"reason,omitempty"`
	Before *int64   `json:"before,omitempty"` // in milliseconds
	Rate   *float64 `json:"rate,omitempty"`   // dead letters a second
}

func readDeadSelection(content []byte) (s deadSelection, bad *wire.Error) {
	if s, bad = httpapi.ReadObject[deadSelection](content); bad != nil {
		return s, bad
	}
	switch {
	case (s.IDs == nil) == (s.Group == nil):
		return s, wire.Errorf(wire.BadRequest, "give dlq_ids or group, one of them: "+
			"the body must be a JSON object with dlq_ids, or with group and maybe reason and before")
	case s.Reason != nil && *s.Reason == "":
		return s, wire.Errorf(wire.BadRequest, "reason is empty; leave it out to select every reason")
	case s.IDs != nil && (s.Reason != nil || s.Before != nil):
		return s, wire.Errorf(wire.BadRequest, "reason and before go with group, and not with dlq_ids")
	case s.IDs != nil && (len(s.IDs) == 0 || len(s.IDs) > maxDeadIDs):
		return s, wire.Errorf(wire.BadRequest, "dlq_ids has %d ids; 1 to %d are allowed", len(s.IDs), maxDeadIDs)
	case s.Before != nil && *s.Before <= 0:
		return s, wire.Errorf(wire.BadRequest, "before is %d; allowed are times in milliseconds since the epoch, from 1 on", *s.Before)
	case s.Rate != nil && !(*s.Rate > 0 && *s.Rate <= maxRedriveRate):
		return s, wire.Errorf(wire.BadRequest, "rate is %v; above 0 and up to %d a second are allowed", *s.Rate, maxRedriveRate)
	}
	if s.Group != nil {
		return s, codec.CheckGroup(*s.Group)
	}
	for i, id := range s.IDs {
		if eventlog.StableLetterID(id) != id || !strings.HasPrefix(id, eventlog.DeadLetterID) {
			return s, wire.Errorf(wire.BadRequest, "dlq_ids[%d] is %q, which is no dlq_id: only dlq_ids of the list of dead letters are allowed",
				i, refusal.Shorten(id))
		}
	}
	return s, nil
}

// change is a change of many dead letters, in steps.
type change struct {
	right access.Action // that it needs, to its end
	of    int
	rate  float64 // per second; 0: as fast as possible
	step  func(ctx context.Context, from, to int) error
}

// planner plans the change of the selected dead letters.
type planner func(*session.Session, *httpapi.Request, deadLetters, deadSelection) (change, error)

// changeDead changes the selected dead letters. After the first line of progress, errors are lines
// too.
func (m *handlers) changeDead(plan planner) session.Handler {
	return func(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
		content, bad := m.Bodies.Read(caller.Share(), w, r.Request, maxDeadBody)
		if bad != nil {
			return bad
		}
		s, bad := readDeadSelection(content)
		if bad != nil {
			return bad
		}
		q := deadOf(caller, r)
		defer q.held.Free()
		if s.Group != nil {
			q.group = *s.Group
			if s.Reason != nil {
				q.reason = *s.Reason
			}
			if s.Before != nil {
				q.before = *s.Before
			}
		}
		if s.IDs != nil {
			q.ids = map[string]bool{}
			for _, id := range s.IDs {
				q.ids[id] = true
			}
		}
		c, err := plan(caller, r, q, s)
		if err == nil {
			ctx, end := caller.While(r.Context(), c.right, q.topic, q.group)
			defer end()
			c.run(ctx, m.Context, newProgress(w, c.of))
		}
		return err
	}
}

// run makes the change until its request, the right to it or the gateway ends.
func (c *change) run(ctx, gateway context.Context, lines *progress) {
	batch := deadPage.Events
	if c.rate > 0 {
		batch = min(max(int(c.rate*progressEvery.Seconds()), 1), deadPage.Events)
	}
	began := time.Now()
	for done := 0; done < c.of; {
		lines.at(done)
		to := min(done+batch, c.of)
		if err := c.step(ctx, done, to); err != nil {
			lines.end(cmp.Or(context.Cause(ctx), err))
			return
		}
		done = to
		if c.rate > 0 && done < c.of {
			due := began.Add(time.Duration(float64(done) / c.rate * float64(time.Second)))
			if !pause.Unless(ctx, time.Until(due), gateway.Done()) {
				lines.end(context.Cause(ctx))
				return
			}
			if gateway.Err() != nil {
				lines.end(refusal.Stopping())
				return
			}
		}
	}
	lines.end(nil)
}

// redriveOf is the redrive of a dead letter, without its event's text.
func redriveOf(d *eventlog.Dead) eventlog.Redrive {
	x := d.Redrive()
	x.Topic, x.Group, x.Letter = strings.Clone(x.Topic), strings.Clone(x.Group), strings.Clone(x.Letter)
	return x
}

// planRedrive selects the dead letters to redrive, in log order, without those that are redriven
// already.
func (m *handlers) planRedrive(caller *session.Session, r *httpapi.Request, q deadLetters, s deadSelection) (c change, err error) {
	if err := caller.May(access.Subscribe, q.topic, q.group); err != nil {
		return c, err
	}
	sees := q.sees
	q.sees = func(string) bool { return true } // dead letters that are named are refused, not left out
	_, over, err := m.count(r.Context(), q)
	if err != nil {
		return c, err
	}
	var rs []eventlog.Redrive
	err = m.eachDead(r.Context(), q, func(dead []eventlog.Dead) (bool, error) {
		redriven, err := m.redriven(r.Context(), q.topic, dead)
		if err == nil {
			err = q.held.TryTake(len(dead) * bytesOfID)
		}
		if err != nil {
			return false, err
		}
		for i := range dead {
			d := &dead[i]
			switch {
			case over[d.Letter.ID] || redriven[i]:
			case !sees(d.Group):
				return false, caller.May(access.Subscribe, q.topic, d.Group)
			case d.Group == "":
				return false, wire.Errorf(wire.BadRequest, "dead letter %s is of no group: its event never came into its topic; "+
					"read its reason, and publish it again", d.ID)
			default:
				rs = append(rs, redriveOf(d))
			}
		}
		return true, nil
	})
	slices.SortFunc(rs, func(a, b eventlog.Redrive) int {
		return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Partition, b.Partition))
	})
	c = change{right: access.Subscribe, of: len(rs), rate: redriveRate}
	if s.Rate != nil {
		c.rate = *s.Rate
	}
	c.step = func(ctx context.Context, from, to int) error {
		if err := m.Log.AddRedrives(ctx, q.topic, rs[from:to]); err != nil {
			return err
		}
		groups := map[string]bool{}
		for _, x := range rs[from:to] {
			if !groups[x.Group] {
				groups[x.Group] = true
				m.Groups.Redriven(q.topic, x.Group)
			}
		}
		return nil
	}
	return c, err
}

// planDiscard selects the dead letters to remove, redriven or not.
func (m *handlers) planDiscard(caller *session.Session, r *httpapi.Request, q deadLetters, s deadSelection) (c change, err error) {
	if err := caller.May(access.Admin, q.topic, ""); err != nil {
		return c, err
	}
	q.sees = func(string) bool { return true }
	c.right = access.Admin
	if s.Rate != nil {
		c.rate = *s.Rate
	}
	var letters []string
	var rs []eventlog.Redrive
	err = m.eachDead(r.Context(), q, func(dead []eventlog.Dead) (bool, error) {
		if err := q.held.TryTake(len(dead) * bytesOfID); err != nil {
			return false, err
		}
		for i := range dead {
			x := redriveOf(&dead[i])
			letters, rs = append(letters, x.Letter), append(rs, x)
		}
		return true, nil
	})
	c.of = len(letters)
	c.step = func(ctx context.Context, from, to int) error {
		err := deadletter.Remove(ctx, m.Log, q.topic, letters[from:to], m.retained, time.Now())
		if err == nil {
			err = m.Log.EndRedrives(ctx, q.topic, rs[from:to])
		}
		return err
	}
	return c, err
}

// retained is what a topic's policy keeps.
func (m *handlers) retained(topic string) eventlog.Retention {
	return retention.Rules(m.Policies.Load().Topic(topic))
}
