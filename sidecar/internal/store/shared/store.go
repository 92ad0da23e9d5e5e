package shared

import (
	"cmp"
	"context"
	"time"

	"github.com/sluice-bus/sluice/internal/secrets"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/sidecar/internal/store"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// ID implements store.Store, as do the other methods.
func (s *Store) ID() string { return s.log.StoreID() }

func (s *Store) FolderSecret() string      { return s.queue.StoreID() }
func (s *Store) URL() string               { return secrets.Without(s.cfg.URL) }
func (s *Store) Log() eventlog.Log         { return s.log }
func (s *Store) Entry() eventlog.Appender  { return s.spool }
func (s *Store) History() replay.Source    { return s.spool.Source(s.log) }
func (s *Store) Spool() store.Spool        { return erasingSpool{s.spool, s.log} }
func (s *Store) Roster() *roster.Roster    { return s.roster }
func (s *Store) Notifier() writer.Notifier { return s.notifier }
func (s *Store) Moved(g eventlog.GroupName) {
	s.log.Send(eventlog.Signal{Moved: []eventlog.GroupName{g}})
}
func (s *Store) Away() bool       { return s.spool.Stats().Away }
func (s *Store) HeapBytes() int64 { return s.queue.HeapBytes() }

func (s *Store) Erased(topic string) {
	s.cfg.Tails.Forget(topic)
	s.log.Send(eventlog.Signal{Erased: []string{topic}})
}

func (s *Store) Parts() replay.Parts {
	return replay.Parts{Log: s.log, Spool: s.spool.Snapshot, Waiting: s.spool.Waiting}
}

func (s *Store) GroupStats(*group.Manager) []telemetry.GroupStat { return s.gauges.Get() }

// Timing implements store.Store. Saves that are each a command are shared, and a store that does
// not answer is not waited for.
func (s *Store) Timing() store.Timing {
	return store.Timing{AckTimeout: s.cfg.Timeout, AckLinger: group.DefaultAckLinger, Reach: true, CountEvery: 15 * time.Second}
}

// Status implements store.Store. While the log is away, publishes are accepted as long as the spool
// has room.
func (s *Store) Status() store.Status {
	stats := s.spool.Stats()
	st := store.Status{
		Spool:         telemetry.SpoolStat{Events: int64(stats.Events), Bytes: stats.Bytes},
		Disk:          telemetry.DiskStat(s.queue.Space()),
		UnmetConcerns: s.log.UnmetConcerns(), Since: stats.Since, Err: cmp.Or(s.queue.Err(), stats.Cause, s.log.Err()),
	}
	away := stats.Away || s.log.Err() != nil
	if at := s.queue.Since(); at.After(st.Since) && (s.queue.Err() != nil || away && st.Disk.Short) {
		st.Since = at
	}
	switch {
	case s.queue.Err() != nil:
		st.State, st.Detail = store.StateFailed, "the spool has failed and takes no more events; restart the sidecar"
	case stats.Shut:
		st.State, st.Detail = store.StateStarting, "the spool has events for another --store, and this one is away; "+
			"publishes are refused until it is known whether it is the same store"
	case stats.Full:
		st.State, st.Detail = store.StateFull, "the spool is full: events wait there for the store, and there is no room for more"
	case away && s.cfg.SpoolMaxBytes == 0:
		st.State, st.Detail = store.StateFull, "the store is away, and nothing is spooled (--spool-max-bytes 0): publishes are refused"
	case away && st.Disk.Short:
		st.State, st.Detail = store.StateDisk, "the store is away, and the disk of the spool has too little room: publishes are refused"
	case away:
		st.State, st.Detail = store.StateAway, "the store is away; publishes are spooled, where their topics' policies allow it"
	case stats.Draining:
		st.State = store.StateDraining
	default:
		st.State = store.StateOK
	}
	return st
}

// erasingSpool is a store.Spool.
type erasingSpool struct {
	*spool.Log
	log *mongolog.Log
}

// Erase implements store.Spool. Other sidecars find a mark in the store, and erase their events
// before these get into the log.
func (s erasingSpool) Erase(ctx context.Context, e eventlog.Erasure, r eventlog.Retention) (int, error) {
	n, err := s.Log.Erase(ctx, e.Topic, e.Key(), e.Covers, r)
	if err == nil {
		err = s.log.SaveEpochs(ctx, nil, []eventlog.Mark{e.Mark(time.Now().UnixMilli())})
	}
	return n, err
}
