package daprapp

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/pacer"
)

// session is a time during which the application answers.
type session struct {
	app  *App
	ctx  context.Context         // ends with it
	end  context.CancelCauseFunc // with errAway when nothing listens there any more
	busy sync.WaitGroup          // events that the application has
}

// serve delivers until ctx ends, the application is gone or its rights have changed. Then it waits
// for the answers to the events at the application.
func (a *App) serve(ctx context.Context, subs []subscription) (gone bool) {
	s := &session{app: a}
	s.ctx, s.end = context.WithCancelCause(ctx)
	defer s.end(nil)
	members := make([]*member, 0, len(subs))
	allowed := a.allowed(subs)
	for i, sub := range subs {
		if err := allowed[i]; err != nil {
			a.cfg.Logger.Error("a subscription of the application is not served", "topic", sub.Topic, "group", a.cfg.AppID, "error", err)
			continue
		}
		m := &member{session: s, sub: sub, pacer: pacer.New(a.cfg.Policies, sub.Topic, time.Now())}
		if !m.join() {
			break
		}
		members = append(members, m)
	}
	for serving := true; serving; {
		select {
		case <-s.ctx.Done():
			gone, serving = context.Cause(s.ctx) == errAway, false
		case <-a.rights:
			serving = slices.EqualFunc(allowed, a.allowed(subs), func(x, y error) bool { return (x == nil) == (y == nil) })
		}
	}
	for _, m := range members {
		m.Pause()
	}
	s.busy.Wait()
	for _, m := range members {
		m.Close(group.Unsubscribed)
	}
	return gone
}

// allowed returns for each subscription why the application may not have it.
func (a *App) allowed(subs []subscription) []error {
	errs := make([]error, len(subs))
	for i, s := range subs {
		if a.cfg.May != nil {
			errs[i] = a.cfg.May(s.Topic)
		}
	}
	return errs
}

// member is the application's membership in one consumer group.
type member struct {
	*group.Member // set before it is started
	session       *session
	sub           subscription
	pacer         *pacer.Pacer
	running       atomic.Int64 // events that the application has
}

// join subscribes, and tries again until it succeeds; false: the session has ended.
func (m *member) join() bool {
	a, ctx := m.session.app, m.session.ctx
	most := Concurrency
	backoff := pause.Backoff{First: firstPause, Most: mostPause}
	for {
		joined, err := a.cfg.Groups.Subscribe(ctx, group.Subscription{
			Topic: m.sub.Topic, Group: a.cfg.AppID, Options: wire.SubscribeOptions{MaxInflight: &most},
			Sink: m, Pacer: m.pacer, MemberID: a.cfg.AppID + " at " + a.cfg.Address.Host, Address: a.cfg.Address.Host, Memory: a.cfg.Share,
		})
		if err == nil {
			m.Member = joined
			joined.Start()
			return true
		}
		if ctx.Err() == nil {
			a.cfg.Logger.Warn("cannot subscribe for the application", "topic", m.sub.Topic, "group", a.cfg.AppID, "error", err)
		}
		if !pause.For(ctx, backoff.Step()) {
			return false
		}
	}
}

// Room reports whether the application may get more events.
func (m *member) Room() bool { return m.running.Load() < Concurrency }

// Deliver gives events to the application one by one. The group's window and Room bound their
// number, and events of one key come one after the other.
func (m *member) Deliver(ds []group.Delivery) {
	for _, d := range ds {
		m.running.Add(1)
		m.session.busy.Go(func() {
			m.process(d)
			m.running.Add(-1)
			m.Wake()
		})
	}
}
