// Package embedded is the store of one sidecar: a log in its data folder.
package embedded

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/policypb"
	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/pebblelog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/sidecar/internal/store"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// Config is what a Store needs.
type Config struct {
	Dir      string // the data folder
	InMemory bool   // for tests
	// Beside names files of other parts of the sidecar in Dir.
	Beside   []string
	NodeID   string
	LowWater int64 // see pebblelog.Options
	Policies *policy.Current
	Tails    *tail.Tails
	Logger   *slog.Logger
}

// Store is a store.Store.
type Store struct {
	log      *pebblelog.Log
	roster   *roster.Roster
	notifier writer.Notifier
	opened   time.Time
	backups  *backups // nil: none can be taken
}

var _ store.Store = (*Store)(nil)

// Open opens the log. On a full disk it waits for room until ctx ends.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if spooled := filepath.Join(cfg.Dir, store.SpoolFolder); exists(spooled) {
		cfg.Logger.Warn("this folder may have events that were spooled for a shared store; start with that --store to bring them there",
			"folder", spooled)
	}
	log, err := pebblelog.Open(pebblelog.Options{
		Dir: cfg.Dir, InMemory: cfg.InMemory, Beside: append(cfg.Beside, store.SpoolFolder, store.PendingEndsFile, BackupSocket),
		NodeID: cfg.NodeID, LowWater: cfg.LowWater, GiveUp: ctx.Done(), Logger: cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	s := &Store{log: log, roster: roster.Alone(cfg.NodeID), notifier: store.NewNotifier(cfg.Tails, cfg.Policies, nil), opened: time.Now()}
	if !cfg.InMemory {
		s.backups = serveBackups(cfg.Dir, log, cfg.Logger)
	}
	return s, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// ID implements store.Store, as do the other methods. The folder is the store.
func (s *Store) ID() string { return policypb.PublicID(s.log.StoreID()) }

func (s *Store) FolderSecret() string { return s.log.StoreID() }
func (s *Store) URL() string          { return setting.Embedded }

func (s *Store) Log() eventlog.Log         { return s.log }
func (s *Store) Entry() eventlog.Appender  { return s.log }
func (s *Store) History() replay.Source    { return s.log }
func (s *Store) Parts() replay.Parts       { return replay.Parts{Log: s.log} }
func (s *Store) Spool() store.Spool        { return nil }
func (s *Store) Roster() *roster.Roster    { return s.roster }
func (s *Store) Notifier() writer.Notifier { return s.notifier }
func (s *Store) Moved(eventlog.GroupName)  {}
func (s *Store) Erased(topic string)       { s.notifier.Tails.Forget(topic) }
func (s *Store) Away() bool                { return false }
func (s *Store) HeapBytes() int64          { return s.log.HeapBytes() }

// ackLinger is about two syncs: where events come faster than that, acks are saved and synced with the next deliveries.
const ackLinger = time.Millisecond

func (s *Store) Timing() store.Timing {
	return store.Timing{Together: true, AckLinger: ackLinger, CountEvery: time.Second}
}

func (s *Store) Status() store.Status {
	st := store.Status{State: store.StateOK, Disk: telemetry.DiskStat(s.log.Space()), Since: s.opened, Err: s.log.Err()}
	if at := s.log.Since(); at.After(st.Since) {
		st.Since = at
	}
	switch {
	case s.log.Err() != nil:
		st.State, st.Detail = store.StateFailed, "the embedded log has failed and takes no more events; restart the sidecar"
	case st.Disk.Short:
		st.State, st.Detail = store.StateDisk, "the disk has too little room: publishes are refused, and everything else continues"
		st.Err = &eventlog.DiskFullError{Free: st.Disk.Free, LowWater: st.Disk.LowWater}
	}
	return st
}

func (s *Store) GroupStats(groups *group.Manager) []telemetry.GroupStat {
	stats, _ := groups.Stats()
	return stats
}

func (s *Store) Drain(context.Context, spool.DeadLetters) error { return nil }
func (s *Store) Follow(context.Context, *group.Manager) error   { return nil }

// Close implements store.Store.
func (s *Store) Close() error {
	s.backups.close()
	return s.log.Close()
}
