package gateway

import (
	"context"
	"errors"
	"net/http"
	"os"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/refusal"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// streamEvents sends events as they arrive, as long as the client reads.
func (g *Gateway) streamEvents(caller *session.Session, w http.ResponseWriter, r *http.Request) error {
	s, err := g.openStream(caller, w, r)
	if err != nil || s == nil { // HEAD
		return err
	}
	defer g.closeStream(s)
	patience := g.cfg.Bounds.SlowClientTimeout
	// Clients that lose the connection come back after a second.
	if err = s.write(w, []byte("retry: 1000\n\n"), patience); err == nil {
		err = s.resend(w, r, g)
	}
	if err == nil {
		s.Start()
		err = s.serve(w, r, patience)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && s.over.Err() == nil {
		g.cfg.Logger.Info("a client that did not read was disconnected", "topic", s.topic, "group", s.group, "stream", r.RemoteAddr, "timeout", patience)
	}
	return nil
}

// openStream checks the request and subscribes; nil if the request asks only for the head of the
// answer.
func (g *Gateway) openStream(caller *session.Session, w http.ResponseWriter, r *http.Request) (*stream, error) {
	k, o, last, err := streamOptions(r)
	if err != nil {
		return nil, err
	}
	if err := caller.May(access.Subscribe, k.topic, k.group); err != nil {
		return nil, err
	}
	if r.Method == http.MethodHead {
		streamHead(w)
		return nil, nil
	}
	if k.group != "" {
		if err := httpapi.CheckNavigation(r, "a stream with a group"); err != nil {
			return nil, err
		}
	}
	s := &stream{
		subKey: k, groups: g.cfg.Groups, caller: caller, bound: g.cfg.Bounds.SendBufferBytes, budget: g.cfg.Memory,
		ready: pause.NewWake(), finished: make(chan struct{}), last: last,
		out: http.NewResponseController(w), how: group.Disconnected,
	}
	s.over, s.cancel = context.WithCancel(context.Background())
	if err := s.join(caller.Attribute(r.Context()), g, o); err != nil {
		s.release()
		return nil, err
	}
	if err := g.admitStream(s); err != nil {
		s.end(group.Unsubscribed, time.Time{})
		s.finish()
		return nil, err
	}
	streamHead(w)
	return s, nil
}

// streamOptions reads the topic, the group and the start of a stream. last is the last event that
// the client got, if the client names it.
func streamOptions(r *http.Request) (k subKey, o wire.SubscribeOptions, last string, err error) {
	p, err := httpapi.ParseParams(r.URL.RawQuery)
	if err != nil {
		return k, o, "", err
	}
	k.topic = r.PathValue("topic")
	name, err1 := p.Text("group")
	if name != "" {
		if bad := codec.CheckGroup(name); bad != nil {
			err1 = httpapi.BadParam("group", "%s", bad.Msg)
		}
	}
	from, err2 := p.Choice("from", wire.FromLatest, wire.FromEarliest, wire.FromTS, wire.FromAfterID, wire.FromPositions)
	ts, err3 := p.Whole("ts", 0, 0, wire.MaxTS)
	id, err4 := p.Text("afterId")
	if id != "" {
		if bad := codec.CheckID(id); bad != nil {
			err4 = httpapi.BadParam("afterId", "%s", bad.Msg)
		}
	}
	positions, err5 := p.Text("positions")
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return k, o, "", err
	}
	k.group, o.From, o.AfterID = name, from, id
	if p.Has("ts") {
		o.TS = &ts
	}
	bad := codec.CheckFrom(o.From, o.TS, o.AfterID)
	if o.From == wire.FromPositions {
		o.Positions, bad = codec.ParsePositions([]byte(positions))
	}
	if bad != nil {
		return k, o, "", bad
	}
	last, _, bad = httpapi.SingleHeader(r.Header, "Last-Event-ID")
	if bad == nil && last != "" {
		bad = codec.CheckID(last)
		o.From, o.AfterID = wire.FromAfterID, last
	}
	if bad != nil {
		return k, o, "", wire.Errorf(bad.Code, "header Last-Event-ID: %s", bad.Msg)
	}
	return k, o, last, nil
}

func streamHead(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no") // a proxy must pass events on as they arrive
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
}

// join subscribes with the group, or alone, after the last event that the client got, if it names
// one.
func (s *stream) join(ctx context.Context, g *Gateway, o wire.SubscribeOptions) error {
	asked := group.Subscription{
		Topic: s.topic, Group: s.group, Options: o,
		Sink: s, MemberID: g.cfg.NodeID + "/stream", Merged: true,
	}
	asked.Pacer, s.release = s.caller.Pacer(s.topic)
	if s.group == "" {
		if s.last != "" {
			asked.Starts = g.resume(s.subKey, s.last)
		}
		f, err := g.cfg.Groups.Follow(ctx, asked)
		if err == nil {
			s.feed, s.trail = alone{f}, newTrail(s.subKey, f.Starts())
		}
		return err
	}
	s.trail = newTrail(s.subKey, nil)
	m, err := g.cfg.Groups.Subscribe(ctx, asked)
	s.feed = m
	return err
}

// admitStream registers a stream, unless its rights are gone or the sidecar shuts down.
func (g *Gateway) admitStream(s *stream) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.refusing() {
		return refusal.Stopping()
	}
	if err := s.caller.MayStill(s.topic, s.group); err != nil {
		return err // from now on rightsChanged checks it
	}
	g.streams[s] = struct{}{}
	g.streaming.Add(1)
	return nil
}

func (g *Gateway) closeStream(s *stream) {
	s.finish()
	g.mu.Lock()
	delete(g.streams, s)
	g.keepTrail(s.trail)
	g.mu.Unlock()
	close(s.finished)
	g.streaming.Done()
}

// endStreams ends all streams. A stream that is writing has until ctx ends to finish.
func (g *Gateway) endStreams(ctx context.Context) {
	end := func(by time.Time) {
		g.mu.Lock()
		defer g.mu.Unlock()
		for s := range g.streams {
			s.end(group.Unsubscribed, by)
		}
	}
	end(time.Now().Add(closeLinger))
	cut := context.AfterFunc(ctx, func() { end(time.Now()) })
	defer cut()
	g.streaming.Wait()
}
