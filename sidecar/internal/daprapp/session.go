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

// session is the time for which the application is there.
type session struct {
	app  *App
	away chan struct{} // closed when nothing listens any more
	gone sync.Once
	busy sync.WaitGroup // events that the application has been given
}

// serve delivers until ctx ends, the application has gone or its rights are
// others, and then lets it finish what it was given.
func (a *App) serve(ctx context.Context, subs []subscription) (gone bool) {
	s := &session{app: a, away: make(chan struct{})}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	members := make([]*member, 0, len(subs))
	allowed := a.allowed(subs)
	for i, sub := range subs {
		if err := allowed[i]; err != nil {
			a.cfg.Logger.Error("a subscription of the application is not served", "topic", sub.Topic, "group", a.cfg.AppID, "error", err)
			continue
		}
		m := &member{session: s, sub: sub, pacer: pacer.New(a.cfg.Policies, sub.Topic, time.Now())}
		if !m.join(ctx) {
			break
		}
		members = append(members, m)
	}
	for serving := true; serving; {
		select {
		case <-ctx.Done():
			serving = false
		case <-s.away:
			gone, serving = true, false
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

// allowed says of each subscription why the application may not have it.
func (a *App) allowed(subs []subscription) []error {
	errs := make([]error, len(subs))
	for i, s := range subs {
		errs[i] = a.may(s.Topic)
	}
	return errs
}

// leave says that nothing listens at the application's address.
func (s *session) leave() { s.gone.Do(func() { close(s.away) }) }

// member is the application's place in one consumer group.
type member struct {
	*group.Member // set before it is started
	session       *session
	sub           subscription
	pacer         *pacer.Pacer
	running       atomic.Int64 // events that the application has been given
}

// join subscribes, however often that takes; false: ctx has ended, or the
// application has gone.
func (m *member) join(ctx context.Context) bool {
	a := m.session.app
	most := Concurrency
	backoff := pause.Backoff{First: firstPause, Most: mostPause}
	for {
		joined, err := a.cfg.Groups.Subscribe(ctx, group.Subscription{
			Topic: m.sub.Topic, Group: a.cfg.AppID, Options: wire.SubscribeOptions{MaxInflight: &most},
			Sink: m, Pacer: m.pacer, MemberID: a.cfg.AppID + " at " + a.cfg.Address.Host,
		})
		if err == nil {
			m.Member = joined
			joined.Start()
			return true
		}
		if ctx.Err() == nil {
			a.cfg.Logger.Warn("cannot subscribe for the application", "topic", m.sub.Topic, "group", a.cfg.AppID, "error", err)
		}
		select {
		case <-m.session.away:
			return false
		default:
		}
		if !pause.Unless(ctx, backoff.Step(), m.session.away) {
			return false
		}
	}
}

// Room reports whether the application is to be given more.
func (m *member) Room() bool { return m.running.Load() < Concurrency }

// Deliver gives events to the application, each by itself; the group's window
// and Room bound how many, and events of one key come one after the other.
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
