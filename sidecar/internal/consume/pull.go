package consume

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/cloudevent"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/limit"
	"github.com/sluice-bus/sluice/sidecar/internal/pacer"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/sendbuffer"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

const (
	// maxPullBody is larger than the opts of any pull.
	maxPullBody = 64 << 10
	// firstLook is the least time that a pull waits for the group to look for events. At the first
	// pull of a sidecar the group has to take partitions first.
	firstLook = time.Second
	// pullLinger is the longest time that an answer with events waits for more. It ends when the
	// group has handed out all events that there are, usually much sooner.
	pullLinger = 20 * time.Millisecond
)

// pullEvents answers a long poll.
func (c *Consumers) pullEvents(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	topic, name := r.PathValue("topic"), r.PathValue("group")
	if err := mayJoin(caller, r); err != nil {
		return err
	}
	content, bad := c.cfg.Bodies.Read(caller.Share(), w, r.Request, maxPullBody)
	if bad != nil {
		return bad
	}
	req, bad := codec.DecodePull(content, c.cfg.Limits)
	if bad != nil {
		return bad
	}
	p, err := c.pulls.enter(r.Context(), caller, topic, name, req.Subscribe)
	if err != nil {
		return err
	}
	defer caller.Share().Leave(budget.Pulls)
	ds, deliveredAt, err := c.collect(caller, r, p, req)
	c.pulls.exit(p) // who has the answer may delete the group
	if err == nil {
		err = caller.MayStill(topic, name)
	}
	if err == nil {
		err = c.writePulled(caller, w, r, p, cloudevent.Form(req.Subscribe.Format), ds, deliveredAt)
	}
	if err != nil {
		p.giveBack(ds)
		if _, writing := err.(writeError); writing {
			return nil
		}
		return err
	}
	if req.Subscribe.AutoAck && len(ds) > 0 {
		c.cfg.Groups.AckLeases(topic, name, leasesOf(ds), func(_, _ []int, _ error) {}) // without the ack they are delivered again
	}
	return nil
}

// collect waits for events, up to the number that the connection's delivery rate allows. deliveredAt is when
// the last of them was delivered.
func (c *Consumers) collect(caller *session.Session, r *httpapi.Request, p *puller, req codec.Pull) (
	ds []group.Delivery, deliveredAt time.Time, err error,
) {
	began := time.Now()
	wait := time.Duration(req.WaitMS) * time.Millisecond
	pace, release := caller.Pacer(p.key.topic)
	defer release()
	tokens, ok := p.awaitTokens(r.Context(), pace, req.Max, wait)
	if !ok {
		return nil, deliveredAt, r.Context().Err()
	}
	q := p.join(tokens.N, caller)
	q.await(r.Context(), p, wait-time.Since(began), max(wait, firstLook)-time.Since(began))
	ds, deliveredAt, ended := p.leave(q)
	tokens.N -= len(ds)
	limit.RefundAll([]limit.Charge{tokens}, time.Now())
	if ended != nil {
		return nil, deliveredAt, ended
	}
	if len(ds) == 0 {
		// An empty answer says that there is nothing.
		if err := refusal.OfRead(p.member.Failing()); err != nil {
			return nil, deliveredAt, err
		}
	}
	return ds, deliveredAt, r.Context().Err()
}

// awaitTokens takes up to n of a connection's tokens; ok is false if none came in time.
func (p *puller) awaitTokens(ctx context.Context, pace *pacer.Pacer, n int, wait time.Duration) (taken limit.Charge, ok bool) {
	taken, after := pace.TakeSome(n, time.Now())
	if taken.N > 0 {
		return taken, true
	}
	p.starve(1)
	defer p.starve(-1)
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for pause.For(ctx, after) {
		if taken, after = pace.TakeSome(n, time.Now()); taken.N > 0 {
			return taken, true
		}
	}
	return taken, false
}

// await returns once the answer is full; once the group has no more events for it, if the answer
// has some or wait is over; or when the client is gone. It waits no longer than atMost.
func (q *pull) await(ctx context.Context, p *puller, wait, atMost time.Duration) {
	over, last := time.NewTimer(wait), time.NewTimer(atMost)
	defer over.Stop()
	defer last.Stop()
	var lingered <-chan time.Time
	timedOut := false
	for {
		p.mu.Lock()
		hasEvents, full, looked, ended := len(q.got) > 0, q.wants == 0, q.looked, q.ended != nil
		p.mu.Unlock()
		if full || ended || looked && (hasEvents || timedOut) {
			return
		}
		if hasEvents && lingered == nil {
			linger := time.NewTimer(pullLinger)
			defer linger.Stop()
			lingered = linger.C
		}
		select {
		case <-q.changed:
		case <-over.C:
			timedOut = true
		case <-last.C:
			return
		case <-lingered:
			return
		case <-ctx.Done():
			return
		}
	}
}

// writeError says that an answer could not be written, so the client cannot be told.
type writeError struct{ error }

// writePulled writes the answer. It returns an error unless the whole answer is on the socket.
func (c *Consumers) writePulled(
	caller *session.Session, w http.ResponseWriter, r *httpapi.Request, p *puller, form codec.Form, ds []group.Delivery, deliveredAt time.Time,
) error {
	s := sendbuffer.NewScratch()
	defer s.Free()
	s.B = codec.AppendPulledStart(s.B)
	var lease []byte
	passed := time.Since(deliveredAt)
	for i := range ds {
		d := &ds[i]
		lease = c.leases.appendLease(lease[:0], p.key.topic, p.key.group, d.Lease)
		left := max(d.AckTimeout-passed, 0).Milliseconds()
		s.B = codec.AppendPulledItem(s.B, form, &d.Record.Event, d.Attempt, left, string(lease))
	}
	s.B = append(codec.AppendEventsEnd(s.B), '\n')
	if err := r.Context().Err(); err != nil {
		return writeError{err}
	}
	out := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(s.B)))
	w.WriteHeader(http.StatusOK)
	err := c.write(caller, w, out, s.B)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return writeError{err}
	}
	_ = out.SetWriteDeadline(time.Time{}) // for the next answer on this connection
	return nil
}
