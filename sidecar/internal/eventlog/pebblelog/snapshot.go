package pebblelog

import (
	"context"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Snapshot freezes a topic: it has every event that is durable when it is called, also if that is
// truncated, swept or compacted afterwards. Closing the log ends it.
func (l *Log) Snapshot(ctx context.Context, name string) (eventlog.Snapshot, error) {
	t, err := l.enterTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	defer l.leave()
	// It counts before it is taken: from then on no segment is dropped.
	s := &snapshot{log: l, topic: t}
	l.snapshots.Store(s, nil)
	// First the reaches: durable events are applied, so the snapshot has all events that the heads count.
	if s.reaches, err = l.reaches(t); err != nil {
		l.snapshots.Delete(s)
		return nil, err
	}
	s.at = l.db.NewSnapshot()
	return s, nil
}

// snapshot is an eventlog.Snapshot.
type snapshot struct {
	log     *Log
	topic   *topic
	reaches []reach

	mu sync.RWMutex // held for reading by scans
	at *pebble.Snapshot
}

// Scan implements eventlog.Snapshot.
func (s *snapshot) Scan(ctx context.Context, name string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	if err := s.log.enter(ctx); err != nil {
		return nil, err
	}
	defer s.log.leave()
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.at == nil:
		return nil, errClosed
	case name != s.topic.name:
		return nil, eventlog.NotFound("topic %q in the snapshot of %q", name, s.topic.name)
	}
	return view{index: s.at, journal: s.log.journal}.scan(ctx, s.topic, s.reaches, q, b)
}

// Close implements eventlog.Snapshot.
func (s *snapshot) Close() {
	s.log.snapshots.Delete(s)
	s.release()
}

// release lets Pebble go on without the snapshot.
func (s *snapshot) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.at == nil {
		return
	}
	// It fails only if it was closed before.
	_ = s.at.Close()
	s.at = nil
	s.log.reclaim.wake.Set()
}
