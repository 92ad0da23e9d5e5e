package sidecar

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/lifecycle"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
)

// Run serves until ctx ends. Then it stops in order: it refuses new ops, answers those under way,
// closes connections, saves and releases groups, and closes the log. It calls ready once it serves.
// The error says why it could not serve, or what a stop did not complete.
func (s *Sidecar) Run(ctx context.Context, ready func() error) error {
	defer s.close()
	parts := s.parts(func() error {
		if ctx.Err() != nil {
			return nil // a stop was asked for during the start
		}
		s.ops.Serving()
		return ready()
	})
	err := lifecycle.Run(ctx, lifecycle.Deadline{After: s.cfg.DrainTimeout, Passed: s.abortGroups}, parts...)
	s.leave()
	return err
}

// parts are what runs, in the order in which it stops.
func (s *Sidecar) parts(ready func() error) []lifecycle.Part {
	settled := make(chan struct{}) // closed when the policies are known, or the wait for them is over
	app := s.server(s.listeners.app, s.gateway.Handler())
	app.ConnContext = s.gateway.ConnContext
	history := s.server(s.listeners.replay, s.tracing.Handler(replay.New(s.history()), "/replay", "/export"))
	return []lifecycle.Part{
		{Stop: s.refuse},
		{Run: append(s.helpers(), func(ctx context.Context) error {
			s.policies.await(ctx, s.cfg.Logger)
			close(settled)
			if ctx.Err() != nil {
				return nil
			}
			return ready()
		})},
		{Stop: void(s.gateway.Shutdown)}, // ops under way are answered, WebSockets closed, events given back uncounted
		{Stop: void(s.daprAPI.Shutdown)}, // its clients answer for theirs, and so does the application
		{Stop: void(s.daprApp.Shutdown)},
		{Stop: void(s.push.Shutdown)},
		{Awaited: true, Run: []func(context.Context) error{ // HTTP requests under way finish
			func(ctx context.Context) error {
				<-settled // connections wait meanwhile, so first publishes are limited
				return app.Serve(ctx, s.listeners.app)
			},
			func(ctx context.Context) error { return history.Serve(ctx, s.listeners.replay) },
			func(ctx context.Context) error {
				<-settled
				return s.daprAPI.Serve(ctx, s.listeners.dapr)
			},
			s.servePeople,
			s.serveOps,
		}},
		{Stop: s.groups.Stop},
		{Stop: void(s.writer.Stop)},
		{Stop: func(context.Context) error { s.abortGroups(); return nil }}, // ends further queries of groups' figures
		{Run: []func(context.Context) error{ // groups and the writer need it to the end
			s.store.Roster().Run,
			func(ctx context.Context) error { return s.store.Drain(ctx, s.publisher) },
		}},
	}
}

// helpers are what runs beside the way of events.
func (s *Sidecar) helpers() []func(context.Context) error {
	sweeper := retention.Sweeper{
		Log: s.store.Log(), Mine: s.store.Roster().Mine, Known: s.policies.known, Policies: s.policies.Current,
		Logger: s.cfg.Logger, Interval: s.cfg.RetentionInterval, Batch: 1000,
	}
	run := []func(context.Context) error{
		sweeper.Run, s.scheduler.Run, s.followPolicies, s.access.Run, s.rereadFiles, s.forgetDeleted,
		func(ctx context.Context) error { return s.dead.Run(ctx, s.groups) },
		func(ctx context.Context) error { return s.groups.Expire(ctx, s.cfg.GroupExpiry) },
		func(ctx context.Context) error { return s.store.Follow(ctx, s.groups) },
		s.push.Run,
		func(ctx context.Context) error { return s.daprApp.Run(eventlog.MadeBy(ctx, s.cfg.DaprAppIdentity)) },
	}
	run = append(run, s.followControl()...)
	for _, o := range s.outboxes {
		run = append(run, refusable(o.Run))
	}
	for _, c := range s.captures {
		run = append(run, refusable(c.Run))
	}
	return run
}

// refusable makes an error of a source, which refuses another store than its own, one of settings.
func refusable(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			return &ConfigError{Err: err}
		}
		return nil
	}
}

func void(stop func(context.Context)) func(context.Context) error {
	return func(ctx context.Context) error {
		stop(ctx)
		return nil
	}
}

// refuse begins a stop.
func (s *Sidecar) refuse(context.Context) error {
	s.cfg.Logger.Info("stopping", "deadline", s.cfg.DrainTimeout)
	s.ops.Stopping()
	return nil
}

// followPolicies tells the groups about every change. It watches for the next change before it
// tells them about the last one, so that it misses none.
func (s *Sidecar) followPolicies(ctx context.Context) error {
	for {
		_, changed := s.policies.Watch()
		s.groups.PoliciesChanged() // also of changes before the Watch
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// rereadFiles reads files at each SIGHUP that are otherwise read when they change.
func (s *Sidecar) rereadFiles(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.cfg.Hangups:
			s.access.Reread()
			s.policies.file.Reread()
			s.push.Reread()
		}
	}
}

// forgetEvery is the pause between two looks for deleted topics and groups, where the price of a
// query of the store allows it.
const forgetEvery = 5 * time.Second

// forgetDeleted drops what is kept for the names of topics and groups that were deleted, here or by
// another sidecar.
func (s *Sidecar) forgetDeleted(ctx context.Context) error {
	for pause.For(ctx, max(forgetEvery, s.store.Timing().CountEvery)) {
		_ = s.forgetGone(ctx) // the store is away, as others say
	}
	return nil
}

// forgetGone is one look for topics that have metrics or were used here, and for groups with metrics.
func (s *Sidecar) forgetGone(ctx context.Context) error {
	topics, groups := s.metrics.Names()
	topics = append(topics, s.topics.Known()...)
	slices.Sort(topics)
	topics, groups, err := s.store.Log().Gone(ctx, slices.Compact(topics), groups)
	if err != nil {
		return err
	}
	for _, topic := range topics {
		s.topics.Forget(topic)
		s.publisher.Forget(topic)
		s.dead.Forget(topic)
		s.metrics.ForgetTopic(topic)
	}
	s.groups.Forget(groups)
	return nil
}

// leaveTimeout bounds a stop's wait for the control plane's answer.
const leaveTimeout = 3 * time.Second

// leave tells the control plane, at the end of an orderly stop, that replays need not ask this
// sidecar: the store has others, and the spool is empty. Without that, a replay of the fleet has to
// report this sidecar as missing.
func (s *Sidecar) leave() {
	if s.policies.control == nil || s.store.Roster().IsAlone() || s.store.Status().Spool.Events > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := s.policies.control.AnnounceDrained(ctx); err != nil {
		s.cfg.Logger.Warn("cannot tell the control plane that this sidecar stops in order: "+
			"replays of the fleet name it as missing until it is back, or forgotten", "error", err)
	}
}
