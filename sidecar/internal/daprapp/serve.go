package daprapp

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/delivery"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// ending is why the application is not served any longer as it was.
type ending int

const (
	stopped ending = iota // ctx has ended, or rights have changed
	away                  // nothing listens there any more
	changed               // it has other subscriptions
)

var (
	errAway    = errors.New("nothing listens at the application's address")
	errChanged = errors.New("the application has other subscriptions")
)

// serve delivers until ctx ends, the application is away or has other subscriptions than list, or its rights have
// changed. Then it waits for the answers to the events at the application.
func (a *App) serve(ctx context.Context, list []Described, subs []Subscription) ending {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	allowed := a.allowed(subs)
	var members []*delivery.Member
	for i := range subs {
		if err := allowed[i]; err != nil {
			a.cfg.Logger.Error("a subscription of the application is not served",
				"topic", subs[i].Topic, "group", a.groupOf(&subs[i]), "error", err)
			member := a.member(&subs[i], end)
			member.NoteSubscribe(err)
			continue
		}
		m := delivery.Join(ctx, a.giving, a.member(&subs[i], end))
		if m == nil {
			break
		}
		m.Start()
		members = append(members, m)
	}
	var asking sync.WaitGroup
	asking.Go(func() { a.watch(ctx, list, end) })
	for serving := true; serving; {
		select {
		case <-ctx.Done():
			serving = false
		case <-a.rights:
			serving = slices.EqualFunc(allowed, a.allowed(subs), func(x, y error) bool { return (x == nil) == (y == nil) })
		}
	}
	end(nil)
	asking.Wait()
	var leaving sync.WaitGroup
	for _, m := range members {
		leaving.Go(func() { m.Leave(group.Unsubscribed) })
	}
	leaving.Wait()
	switch context.Cause(ctx) {
	case errAway:
		return away
	case errChanged:
		return changed
	}
	return stopped
}

// watch asks the application again now and then, so that a restart is noticed also while there are no events, and ends
// serving when it is away or answers otherwise.
func (a *App) watch(ctx context.Context, list []Described, end context.CancelCauseFunc) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch now, err := a.askOnce(ctx); {
		case errors.Is(err, errAway):
			end(errAway)
		case err == nil && !same(list, now):
			end(errChanged)
		}
	}
}

// member is the configuration of the member for a subscription.
func (a *App) member(s *Subscription, end context.CancelCauseFunc) delivery.Config {
	cfg := delivery.Config{
		Topic: s.Topic, Group: a.groupOf(s), DeadLetterTopic: s.DeadLetterTopic,
		Name: a.cfg.AppID + " at " + a.cfg.Address.Host, Address: a.cfg.Address.Host,
		Carrier: &carrier{app: a, sub: s, end: end}, Window: max(Concurrency, s.batch), Batch: s.batch, Wait: s.wait,
		Groups: a.cfg.Groups, Policies: a.cfg.Policies, Share: a.cfg.Share, Logger: a.cfg.Logger,
	}
	if a.cfg.Note != nil {
		cfg.Note = a.cfg.Note(cfg.Name, s.Topic, a.groupOf(s))
	}
	return cfg
}

func (a *App) groupOf(s *Subscription) string { return GroupOf(a.cfg.AppID, s.PubsubName) }

// allowed returns for each subscription why the application may not have it.
func (a *App) allowed(subs []Subscription) []error {
	errs := make([]error, len(subs))
	for i := range subs {
		s := &subs[i]
		if bad := codec.CheckGroup(a.groupOf(s)); bad != nil {
			errs[i] = bad
		} else if a.cfg.May != nil {
			errs[i] = a.cfg.May(s.Topic, a.groupOf(s), s.DeadLetterTopic)
		}
	}
	return errs
}
