package consume

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/cloudevent"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/sendbuffer"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// heartbeat is how often a stream sends a sign of life while it has nothing else to send.
const heartbeat = 15 * time.Second

// stream is one answer that gets events as they arrive (server-sent events).
type stream struct {
	session.SubscriptionKey
	session.Feed
	caller   *session.Session
	groups   *group.Manager
	answer   *answer
	form     codec.Form
	out      *sendbuffer.Buffer
	release  func()        // releases the connection's delivery bucket
	finished chan struct{} // closed once the stream has ended
	last     string        // the last event from an earlier stream; "": none
	gone     bool          // the topic does not have it any more

	mu        sync.Mutex
	trail     *trail
	unwritten []group.Lease // of events that the buffer has dropped
	ended     bool
	how       group.Leaving
}

// answer is the sink of a stream.
type answer struct {
	w     http.ResponseWriter
	conn  *http.ResponseController
	over  context.Context
	close context.CancelFunc

	mu   sync.Mutex
	left bool // the connection may have another answer by now
}

func newAnswer(w http.ResponseWriter) *answer {
	a := &answer{w: w, conn: http.NewResponseController(w)}
	a.over, a.close = context.WithCancel(context.Background())
	return a
}

// Write writes all of p to the socket. A failed answer cannot go on.
func (a *answer) Write(p []byte) (int, error) {
	_, err := a.w.Write(p)
	if err == nil {
		err = a.conn.Flush()
	}
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

func (a *answer) SetWriteDeadline(t time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left {
		return nil
	}
	return a.conn.SetWriteDeadline(t)
}

// Close ends the answer's stream.
func (a *answer) Close() error {
	a.close()
	return nil
}

// leave leaves the connection to its next answer.
func (a *answer) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	_ = a.conn.SetWriteDeadline(time.Time{})
	a.left = true
}

// streamEvents sends events as they arrive, as long as the client reads.
func (c *Consumers) streamEvents(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) error {
	if err := caller.Share().Enter(budget.Streams); err != nil {
		return err
	}
	defer caller.Share().Leave(budget.Streams)
	s, err := c.openStream(caller, w, r)
	if err != nil || s == nil { // HEAD
		return err
	}
	defer func() { // after a panic, too: nothing may write to w any more
		c.streams.close(s)
		if s.out.Stalled() {
			c.cfg.Logger.Info("a client that did not read was disconnected", "topic", s.Topic, "group", s.Group, "stream", r.RemoteAddr,
				"timeout", c.cfg.Bounds.SlowClientTimeout)
		}
	}()
	_, _ = s.out.Write([]byte("retry: 1000\n\n")) // clients that lose the connection come back after a second
	if s.gone {
		_, _ = fmt.Fprintf(s.out, ": event %q is not in the topic any more; others behind it may be missing, too\n\n", s.last)
	}
	if err = c.resend(r.Context(), s); err == nil {
		s.Start()
		s.serve(r.Context())
	}
	return nil
}

// openStream checks the request and subscribes; nil if the request asks only for the head of the
// answer.
func (c *Consumers) openStream(caller *session.Session, w http.ResponseWriter, r *httpapi.Request) (*stream, error) {
	k, o, last, err := streamOptions(r)
	if err != nil {
		return nil, err
	}
	if err := caller.May(access.Subscribe, k.Topic, k.Group); err != nil {
		return nil, err
	}
	if k.Group != "" && caller.Identity().Forwarded {
		return nil, wire.Errorf(wire.Forbidden, "a stream with a group takes the group's events: leave the group out to see all events")
	}
	if r.Method == http.MethodHead {
		writeStreamHead(w)
		return nil, nil
	}
	if k.Group != "" {
		if err := httpapi.CheckNavigation(r.Request, "a stream with a group"); err != nil {
			return nil, err
		}
	}
	s := c.newStream(caller, newAnswer(w), k, last)
	s.form = cloudevent.Form(r.Text("format"))
	if err := c.join(r.Context(), s, o); err != nil {
		s.release()
		return nil, err
	}
	if err := c.streams.admit(s); err != nil {
		s.end(group.Unsubscribed, time.Time{})
		s.finish()
		return nil, err
	}
	writeStreamHead(w)
	return s, nil
}

func (c *Consumers) newStream(caller *session.Session, to *answer, k session.SubscriptionKey, last string) *stream {
	s := &stream{
		SubscriptionKey: k, caller: caller, groups: c.cfg.Groups, answer: to,
		finished: make(chan struct{}), last: last, how: group.Disconnected,
	}
	s.out = sendbuffer.New(to, sendbuffer.Config{
		Bytes: c.cfg.Bounds.SendBufferBytes, Memory: caller.Share(), Silence: c.cfg.Bounds.SlowClientTimeout,
		Wake: func() { s.Wake() },
	})
	return s
}

// join subscribes with the group, or alone, after the last event that the client got, if it names
// one.
func (c *Consumers) join(ctx context.Context, s *stream, o wire.SubscribeOptions) (err error) {
	asked := group.Subscription{
		Topic: s.Topic, Group: s.Group, Options: o,
		Sink: s, MemberID: c.cfg.NodeID + "/stream", Address: s.caller.From, Memory: s.caller.Share(), Merged: true,
	}
	asked.Pacer, s.release = s.caller.Pacer(s.Topic)
	if s.Group == "" && o.From == wire.FromAfterID {
		if asked.Starts, err = c.resumeAfter(ctx, s, o.AfterID); err != nil {
			return err
		}
	}
	var starts []uint64
	s.Feed, _, starts, err = session.Join(s.caller.Attribute(ctx), c.cfg.Groups, asked)
	s.trail = newTrail(s.SubscriptionKey, starts, s.caller.Share())
	return err
}

// resumeAfter is where a stream without a group goes on after an event; nil: as for any subscription.
func (c *Consumers) resumeAfter(ctx context.Context, s *stream, id string) ([]uint64, error) {
	starts, gone, err := c.cfg.Groups.StartsAfter(ctx, s.Topic, id)
	if err != nil {
		return nil, err
	}
	if s.last == "" {
		if gone {
			return nil, nil // which refuses it
		}
		return starts, nil
	}
	s.gone = gone
	if sent := c.streams.resume(s.SubscriptionKey, id); sent != nil {
		return sent, nil
	}
	return starts, nil
}

// streamOptions reads the topic, the group and the start of a stream. last is the last event that
// the client got, if the client names it.
func streamOptions(r *httpapi.Request) (k session.SubscriptionKey, o wire.SubscribeOptions, last string, err error) {
	k.Topic, k.Group = r.PathValue("topic"), r.Text("group")
	o.From, o.AfterID = r.Text("from"), r.Text("afterId")
	if r.Has("ts") {
		o.TS = new(r.Whole("ts"))
	}
	var bad *wire.Error
	if r.Has("positions") {
		o.Positions, bad = codec.ParsePositions([]byte(r.Text("positions")))
	}
	if bad == nil {
		bad = codec.CheckFrom(&o)
	}
	if bad != nil {
		return k, o, "", bad
	}
	last, _, bad = httpapi.SingleHeader(r.Header, "Last-Event-ID")
	if bad == nil && last != "" {
		bad = codec.CheckID(last)
	}
	if bad != nil {
		return k, o, "", wire.Errorf(bad.Code, "header Last-Event-ID: %s", bad.Msg)
	}
	if last == "" { // an EventSource comes back to its URL, with the last event in the header
		last = r.Text("lastEventId")
	}
	if last != "" {
		o.From, o.TS, o.AfterID, o.Positions = wire.FromAfterID, nil, last, nil
	}
	return k, o, last, nil
}

func writeStreamHead(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no") // a proxy must pass events on as they arrive
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
}

// resend writes the events that an earlier stream of the group wrote and the client has not seen,
// if the topic still has them.
func (c *Consumers) resend(ctx context.Context, s *stream) error {
	if s.Group == "" || s.last == "" {
		return nil
	}
	steps := c.streams.unseen(ctx, s.SubscriptionKey, s.last)
	s.note(append([]step{{id: s.last}}, steps...)) // first, as the client may leave before it has read them
	for _, st := range steps {
		rec, err := c.cfg.Lookup(ctx, s.Topic, st.id)
		if errors.Is(err, eventlog.ErrNotFound) || err == nil && (rec.Partition != st.partition || rec.Seq != st.seq) {
			continue
		}
		if err != nil {
			return err
		}
		s.out.AwaitRoom()
		if _, err := s.out.Write(s.appendSent(nil, &rec.Event)); err != nil {
			return err
		}
	}
	return nil
}

// appendSent appends an event in the format of a stream.
func (s *stream) appendSent(b []byte, e *wire.Event) []byte {
	b = append(append(append(b, "id: "...), e.ID...), "\ndata: "...)
	return append(s.form(b, e), "\n\n"...)
}

// Room reports whether the client reads fast enough to get more.
func (s *stream) Room() bool { return s.out.HasRoom() }

// Deliver puts events into the buffer. Those of a group are acked, and join the trail, once they are
// written.
func (s *stream) Deliver(ds []group.Delivery) {
	text := sendbuffer.NewScratch()
	defer text.Free()
	steps := make([]step, len(ds))
	for i := range ds {
		e := &ds[i].Record.Event
		text.B, steps[i] = s.appendSent(text.B, e), stepOf(e)
	}
	if s.Group == "" {
		s.note(steps)
		_, _ = s.out.Write(text.B) // a closed buffer has a client that is gone
		return
	}
	leases := leasesOf(ds)
	written := func() {
		s.note(steps)
		s.groups.AckLeases(s.Topic, s.Group, leases, func(_, _ []int, _ error) {}) // without the ack they are delivered again
	}
	dropped := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.unwritten = append(s.unwritten, leases...)
	}
	s.out.Cork() // so that the flusher takes the text together with its receipt
	defer s.out.Uncork()
	_, _ = s.out.Write(text.B)
	if !s.out.Then(written, dropped) {
		dropped()
	}
}

// note puts steps on the trail.
func (s *stream) note(steps []step) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range steps {
		s.trail.add(st)
	}
}

// serve keeps the stream alive until the client is gone, reads nothing for too long, or the stream
// is ended.
func (s *stream) serve(ctx context.Context) {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-s.answer.over.Done():
			return
		case <-ctx.Done():
			return
		case <-beat.C:
			if s.out.Len() == 0 {
				_, _ = s.out.Write([]byte(":\n\n"))
			}
		}
	}
}

// end ends the stream. A write under way may continue until then.
func (s *stream) end(how group.Leaving, by time.Time) {
	s.mu.Lock()
	if !s.ended {
		s.ended, s.how = true, how
	}
	s.mu.Unlock()
	s.out.Cut(by)
	s.answer.close()
}

// finish ends the subscription; nothing is written after that. An event whose writing has not begun
// counts no attempt. So a client that disconnects again and again does not cause dead letters of
// events that it has not seen.
func (s *stream) finish() {
	s.Pause()
	s.mu.Lock()
	ended := s.ended
	s.mu.Unlock()
	if !ended {
		s.out.Cut(time.Now())
	}
	s.out.Wait()
	s.answer.leave()
	s.mu.Lock()
	how, leases := s.how, s.unwritten
	s.mu.Unlock()
	if len(leases) > 0 {
		s.groups.ReturnLeases(s.Topic, s.Group, leases)
	}
	s.Close(how)
	s.release()
}
