// Package shared is the store of many sidecars: a log in MongoDB. While it is away, a spool in this
// sidecar's data folder takes its events.
package shared

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/sidecar/internal/store"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
	"github.com/sluice-bus/sluice/sidecar/internal/wakeup"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// Config is what a Store needs.
type Config struct {
	URL           string // a MongoDB connection string
	Dir           string // the data folder
	NodeID        string
	Lease         time.Duration // see roster.Config
	Timeout       time.Duration // of one operation, retries included
	SpoolMaxBytes int64         // of all topics together; 0: nothing is spooled
	LowWater      int64         // of Dir's disk; see pebblelog.Options
	// Unread are topics whose signals are needed though nobody reads them.
	Unread   []string
	Policies *policy.Current
	Tails    *tail.Tails
	Metrics  *telemetry.Metrics
	Tracing  *tracing.Tracing // nil: off
	Logger   *slog.Logger
}

// Store is a store.Store.
type Store struct {
	cfg       Config
	log       *mongolog.Log
	queue     *pebblelog.Log // under the spool
	spool     *spool.Log
	roster    *roster.Roster
	announcer wakeup.Announcer
	notifier  writer.Notifier
	erasures  *erasures
	gauges    group.Gauges
}

var _ store.Store = (*Store)(nil)

// Open opens the log, which may not be reachable yet, and the spool before it. An error about wrong
// settings is a *setting.Error. On a full disk Open waits for room until ctx ends.
func Open(ctx context.Context, cfg Config) (_ *Store, err error) {
	s := &Store{cfg: cfg, erasures: newErasures()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.log, err = openLog(cfg); err != nil {
		return nil, err
	}
	s.roster = roster.New(roster.Config{
		Nodes: s.log, Name: cfg.NodeID, Lease: cfg.Lease, Logger: cfg.Logger,
		Announced:   func(groups []eventlog.GroupName) { s.log.Send(eventlog.NodeSignal(groups)) },
		PendingEnds: pendingEnds{filepath.Join(cfg.Dir, store.PendingEndsFile), cfg.Logger},
	})
	s.announcer = wakeup.Announcer{HasPeers: func() bool { return s.roster.View().HasPeers() }, Send: s.log.Send}
	s.roster.Watch(s.announcer.Looked)
	s.notifier = store.NewNotifier(cfg.Tails, cfg.Policies, s.announcer.Appended)
	return s, s.openSpool(ctx)
}

func openLog(cfg Config) (*mongolog.Log, error) {
	log, err := mongolog.Open(mongolog.Options{
		URL: cfg.URL, NodeID: cfg.NodeID, Timeout: cfg.Timeout, Logger: cfg.Logger,
		Monitor:      mongowatch.Monitor(cfg.Tracing.Commands()),
		WriteConcern: func(topic string) string { return cfg.Policies.Load().Topic(topic).Durability.WriteConcern },
	})
	switch {
	case errors.Is(err, eventlog.ErrUnavailable):
		return nil, err // starting again may help
	case err != nil:
		return nil, &setting.Error{Err: err}
	}
	if mongowatch.InClear(cfg.URL) {
		cfg.Logger.Warn("events and the store's password are sent unencrypted: --store has no tls=true; "+
			"this is for networks that encrypt by themselves", "store", secrets.Without(cfg.URL))
	}
	return log, nil
}

func (s *Store) openSpool(ctx context.Context) (err error) {
	folder := filepath.Join(s.cfg.Dir, store.SpoolFolder)
	s.queue, err = pebblelog.Open(pebblelog.Options{
		Dir: folder, Queue: true, NodeID: s.cfg.NodeID, LowWater: s.cfg.LowWater, GiveUp: ctx.Done(), Logger: s.cfg.Logger,
	})
	if err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	s.spool, err = spool.Open(ctx, spool.Config{
		Log: s.log, Ping: s.log.Ping, StoreID: s.log.StoreID, StoreURL: s.URL(), Store: s.queue, Folder: folder,
		Policies: s.cfg.Policies, MaxBytes: s.cfg.SpoolMaxBytes, Off: s.cfg.SpoolMaxBytes == 0, Logger: s.cfg.Logger, Tracing: s.cfg.Tracing,
		Announce: s.notifier.Stored, Heard: s.notifier.Heard,
		DeadLettered: func(topic string) { s.cfg.Metrics.Group(topic, "").DeadLettered(1) },
		Erasures:     s.log,
		Erased: func(topic string) {
			s.Erased(topic)
			s.erasures.add(topic)
		},
	})
	return err
}

// Drain implements store.Store. It ends with a *setting.Error if the log cannot use the store, or the
// spool's events are another store's.
func (s *Store) Drain(ctx context.Context, letters spool.DeadLetters) error {
	both, running := errgroup.WithContext(ctx)
	both.Go(func() error { return s.log.AwaitRefusal(running) })
	both.Go(func() error { return s.spool.Run(running, letters) })
	if err := both.Wait(); err != nil {
		return &setting.Error{Err: err}
	}
	return nil
}

// Follow implements store.Store.
func (s *Store) Follow(ctx context.Context, groups *group.Manager) error {
	waker := wakeup.New(wakeup.Config{
		Log: s.log, Tails: s.cfg.Tails, Unread: s.cfg.Unread, Logger: s.cfg.Logger,
		Nodes: s.roster.Wake, Moved: groups.Moved, MaybeMoved: groups.MaybeMoved, Erased: s.forget,
	})
	var all errgroup.Group
	all.Go(func() error { return waker.Run(ctx) })
	all.Go(func() error { return s.erasures.run(ctx, groups.Recheck, s.cfg.Logger) })
	all.Go(func() error { return s.gauges.Run(ctx, groups) })
	return all.Wait()
}

// Close implements store.Store.
func (s *Store) Close() error {
	var errs []error
	if s.queue != nil {
		errs = append(errs, s.queue.Close())
	}
	if s.log != nil {
		errs = append(errs, s.log.Close())
	}
	return errors.Join(errs...)
}

// forget makes readers and groups drop erased events of topics from memory. It does not block.
func (s *Store) forget(topics []string) {
	for _, topic := range topics {
		s.cfg.Tails.Forget(topic)
	}
	s.erasures.add(topics...)
}
