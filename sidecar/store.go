package sidecar

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
	"github.com/sluice-bus/sluice/sidecar/internal/wakeup"
)

// store is the sidecar's event log, with everything that depends on its kind. An embedded log
// belongs to this sidecar alone. A shared one may be away, and other sidecars use it too.
type store struct {
	log    eventlog.Log
	roster *roster.Roster
	// way is the way of publishes into the log, and source is the log and its spool as replays see
	// them.
	way    publishWay
	source replay.Source

	// held is how much of the heap the store keeps for good.
	held func() int64
	// space is the state of the disk that events are stored on here.
	space func() pebblelog.Space
	// id names the store; "" while a shared one was never reached.
	id func() string
	// state returns whether publishes can be accepted, and if not, why.
	state func() (state, detail string)

	// waiting counts the spooled events for the store, and unmetConcerns are the write concerns
	// that the store does not meet, by topic.
	waiting       func() telemetry.SpoolStat
	unmetConcerns func() map[string]string
	// countEvery is the least time between two counts of scheduled events.
	countEvery time.Duration

	// Of a shared store only.
	shared *sharedStore
	// signal tells the other sidecars of events that were appended here, and moved that a group has
	// moved.
	signal func(eventlog.Hint)
	moved  func(eventlog.GroupName)
	// slots reports which slots of scheduled events this sidecar releases; nil: all.
	slots func(int) bool
	// away reports whether the store does not answer now.
	away func() bool
	// ackTimeout is how long an ack may wait to be durable, and ackLinger how long it waits to
	// share a save with others. The embedded log needs neither: it either answers at once or has
	// failed, and a save costs little.
	ackTimeout, ackLinger time.Duration
}

// publishWay is the part of a log that publishes need.
type publishWay interface {
	admit.Catalog
	eventlog.Appender
}

// sharedStore has the parts of a shared store.
type sharedStore struct {
	log       *mongolog.Log
	queue     *pebblelog.Log // under the spool
	spool     *spool.Log
	waker     *wakeup.Waker
	announcer wakeup.Announcer
	gauges    group.Gauges
	erasures  *erasures
}

// openStore opens the log that the settings name.
func (s *Sidecar) openStore(ctx context.Context) (err error) {
	if setting.IsMongoDB(s.cfg.Store) {
		return s.openShared(ctx)
	}
	if dir := s.spoolDir(); exists(dir) {
		s.cfg.Logger.Warn("this folder may have events that were spooled for a shared store; start with that --store to bring them there", "folder", dir)
	}
	log, err := s.openPebble(ctx, pebblelog.Options{Dir: s.cfg.DataDir, InMemory: s.cfg.InMemory, Beside: []string{spoolName, pendingEndsName, capturesName}})
	if err != nil {
		return err
	}
	s.store = store{
		log: log, way: log, source: log,
		roster: roster.Alone(s.cfg.NodeID),
		held:   log.HeapBytes,
		id:     log.StoreID,
		state: func() (state, detail string) {
			switch {
			case log.Err() != nil:
				return stateFailed, "the embedded log has failed and takes no more events; restart the sidecar"
			case log.Space().Short:
				return stateDisk, "the disk has too little room: publishes are refused, and everything else continues"
			}
			return stateOK, ""
		},
		space:         log.Space,
		waiting:       func() telemetry.SpoolStat { return telemetry.SpoolStat{} },
		unmetConcerns: func() map[string]string { return nil },
		countEvery:    time.Second,
	}
	return nil
}

// openPebble opens a log on this machine's disk. Opening it, and later writes, wait for room on the
// disk until ctx ends.
func (s *Sidecar) openPebble(ctx context.Context, o pebblelog.Options) (*pebblelog.Log, error) {
	o.NodeID, o.Logger, o.LowWater, o.GiveUp = s.cfg.NodeID, s.cfg.Logger, int64(s.cfg.DiskLowWater), ctx.Done()
	return pebblelog.Open(o)
}

// openShared opens the log in MongoDB, which may not be reachable yet, and the spool in front of
// it.
func (s *Sidecar) openShared(ctx context.Context) error {
	log, err := mongolog.Open(mongolog.Options{
		URL: s.cfg.Store, NodeID: s.cfg.NodeID, Timeout: s.cfg.StoreTimeout, Logger: s.cfg.Logger,
		Monitor:      mongowatch.Monitor(s.tracing.Commands()),
		WriteConcern: func(topic string) string { return s.policyOf(topic).Durability.WriteConcern },
	})
	switch {
	case errors.Is(err, eventlog.ErrUnavailable):
		return err // starting again may help
	case err != nil:
		return &ConfigError{Err: err}
	}
	if mongowatch.InClear(s.cfg.Store) {
		s.cfg.Logger.Warn("events and the store's password are sent unencrypted: --store has no tls=true; this is for networks that encrypt by themselves",
			"store", secrets.Without(s.cfg.Store))
	}
	sh := &sharedStore{log: log, erasures: newErasures()}
	s.store = store{
		log: log, shared: sh, id: log.StoreID, state: sh.state, countEvery: 15 * time.Second,
		unmetConcerns: log.UnmetConcerns,
		waiting: func() telemetry.SpoolStat {
			stats := sh.spool.Stats()
			return telemetry.SpoolStat{Events: int64(stats.Events), Bytes: stats.Bytes}
		},
		signal: sh.announcer.Appended,
		moved:  func(g eventlog.GroupName) { log.Send(eventlog.Signal{Moved: []eventlog.GroupName{g}}) },
		slots:  func(slot int) bool { return s.store.roster.Mine("_scheduled-" + strconv.Itoa(slot)) },
		away:   func() bool { return sh.spool.Stats().Away }, ackTimeout: s.cfg.StoreTimeout, ackLinger: group.DefaultAckLinger,
	}
	if sh.queue, err = s.openPebble(ctx, pebblelog.Options{Dir: s.spoolDir(), Queue: true}); err != nil {
		return fmt.Errorf("spool: %w", err)
	}
	s.store.held, s.store.space = sh.queue.HeapBytes, sh.queue.Space
	sh.spool, err = spool.Open(ctx, spool.Config{
		Log: log, Ping: log.Ping, StoreID: log.StoreID, StoreURL: secrets.Without(s.cfg.Store), Store: sh.queue, Folder: s.spoolDir(), Policies: s.policies, MaxBytes: s.cfg.SpoolMaxBytes, Logger: s.cfg.Logger,
		Announce: func(topic string, partition int, recs []*eventlog.Record) { s.announce(topic, partition, recs) },
		Heard: func(topic string, partition int, head uint64) {
			s.tails.Heard(topic, partition, head)
			log.Send(eventlog.Signal{Appended: []eventlog.Hint{{Topic: topic, Partition: partition, Head: head}}})
		},
		AppendDeadLetter: func(ctx context.Context, rec *eventlog.Record, done func(error)) {
			s.publisher.AppendDeadLetter(ctx, rec, done)
		},
		DeadLettered: func(topic string) { s.metrics.Group(topic, "").DeadLettered(1) },
		Erasures:     log, Erased: func(topic string) {
			s.erased(topic)
			sh.erasures.add(topic)
		},
		Tracing: s.tracing,
	})
	if err != nil {
		return err
	}
	s.store.way, s.store.source = sh.spool, sh.spool.Source(log)
	s.store.roster = roster.New(roster.Config{
		Nodes: log, Name: s.cfg.NodeID, Lease: s.cfg.Lease, Logger: s.cfg.Logger,
		Announced:   func(groups []eventlog.GroupName) { log.Send(eventlog.NodeSignal(groups)) },
		PendingEnds: pendingEndsFile{filepath.Join(s.cfg.DataDir, pendingEndsName), s.cfg.Logger},
	})
	sh.announcer = wakeup.Announcer{Company: func() bool { return s.store.roster.View().Company() }, Send: log.Send}
	s.store.roster.Watch(sh.announcer.Looked)
	sh.waker = wakeup.New(wakeup.Config{
		Log: log, Tails: s.tails, Unread: s.unread(), Logger: s.cfg.Logger, Nodes: s.store.roster.Poke,
		Moved:      func(groups []eventlog.GroupName) { s.groups.Moved(groups) },
		MaybeMoved: func(topics []string) { s.groups.MaybeMoved(topics) },
		Erased:     s.forgetErased,
	})
	return nil
}

// spoolName is the spool's folder in the data folder.
const spoolName = "spool"

func (s *Sidecar) spoolDir() string { return filepath.Join(s.cfg.DataDir, spoolName) }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// announce announces events that the spool has moved into the log.
func (s *Sidecar) announce(topic string, partition int, recs []*eventlog.Record) {
	outs := make([]eventlog.Outcome, len(recs))
	for i, rec := range recs {
		outs[i] = eventlog.Outcome{Partition: partition, Seq: rec.Seq}
	}
	s.writer.Announce(topic, partition, recs, outs)
}

// released announces scheduled events that are now in the log.
func (s *Sidecar) released(topic string, partition int, head uint64) {
	s.tails.Heard(topic, partition, head)
	if s.store.signal != nil {
		s.store.signal(eventlog.Hint{Topic: topic, Partition: partition, Head: head})
	}
}

// forgetErased drops the events of topics from memory after another sidecar has erased some. It
// must not block.
func (s *Sidecar) forgetErased(names []string) {
	for _, name := range names {
		s.tails.Forget(name)
	}
	s.store.shared.erasures.add(names...)
}

// erased tells the other sidecars that events of a topic were erased.
func (s *Sidecar) erased(topic string) {
	s.tails.Forget(topic)
	if sh := s.store.shared; sh != nil {
		sh.log.Send(eventlog.Signal{Erased: []string{topic}})
	}
}

// gatewaySpool is the spool as the gateway sees it.
type gatewaySpool struct {
	*spool.Log
	log *mongolog.Log
}

// Erase erases events of a topic that wait in the spool. Other sidecars find a mark in the store,
// and erase their events before these get into the log.
func (s gatewaySpool) Erase(ctx context.Context, e eventlog.Erasure, r eventlog.Retention) (int, error) {
	n, err := s.Log.Erase(ctx, e.Topic, e.Key(), e.Covers, r)
	if err == nil {
		err = s.log.SaveEpochs(ctx, nil, []eventlog.Mark{e.Mark(time.Now().UnixMilli())})
	}
	return n, err
}

// groupLog is the log as groups see it: subscribing creates the topics that publishing would
// create.
type groupLog struct {
	eventlog.Log
	topics *topics.Catalog
}

func (s *Sidecar) groupLog() groupLog { return groupLog{s.store.log, s.topics} }

// EnsureTopic implements eventlog.Appender, without the spool.
func (l groupLog) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	return l.topics.EnsureIn(ctx, l.Log, name, partitions)
}

// state is the state of a shared store: while it is away, publishes are accepted as long as the
// spool has room.
func (sh *sharedStore) state() (state, detail string) {
	switch stats := sh.spool.Stats(); {
	case sh.queue.Err() != nil:
		return stateFailed, "the spool has failed and takes no more events; restart the sidecar"
	case stats.Shut:
		return stateStarting, "the spool has events for another --store, and this one is away; publishes are refused until it is known whether it is the same store"
	case stats.Full:
		return stateFull, "the spool is full: events wait there for the store, and there is no room for more"
	case (stats.Away || sh.log.Err() != nil) && sh.queue.Space().Short:
		return stateDisk, "the store is away, and the disk of the spool has too little room: publishes are refused"
	case stats.Away || sh.log.Err() != nil:
		return stateAway, "the store is away; publishes are spooled, where their topics' policies allow it"
	case stats.Draining:
		return stateDraining, ""
	}
	return stateOK, ""
}

// close closes the logs that openStore opened.
func (st *store) close() error {
	var errs []error
	if st.shared != nil && st.shared.queue != nil {
		errs = append(errs, st.shared.queue.Close())
	}
	if st.log != nil {
		errs = append(errs, st.log.Close())
	}
	return errors.Join(errs...)
}
