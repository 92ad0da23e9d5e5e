package spool

import (
	"context"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Snapshot freezes the waiting events of a topic; eventlog.ErrNotFound if none ever waited. Every
// event that was answered as spooled before the call is in the snapshot or already in the log. So a
// caller that takes a snapshot first and reads the log afterwards misses no event, even if the
// spool is drained meanwhile.
func (l *Log) Snapshot(ctx context.Context, topic string) (eventlog.Snapshot, error) {
	s, err := l.cfg.Store.Snapshot(ctx, topic)
	if err != nil {
		return nil, err
	}
	return frozen{s}, nil
}

// Waiting finds a waiting event by its id; eventlog.ErrNotFound if there is none. It does not ask
// the log.
func (l *Log) Waiting(ctx context.Context, topic, id string) (*eventlog.Record, error) {
	r, err := l.cfg.Store.Lookup(ctx, topic, id)
	if err != nil {
		return nil, err
	}
	return marked(r), nil
}

// frozen shows the spool's records as readers see them.
type frozen struct{ eventlog.Snapshot }

func (f frozen) Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	page, err := f.Snapshot.Scan(ctx, topic, q, b)
	for i, r := range page {
		page[i] = marked(r)
	}
	return page, err
}
