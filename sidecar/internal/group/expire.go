package group

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const (
	// expiryOfGroups is a task that one sidecar of a store does: it deletes groups that have
	// expired.
	expiryOfGroups = "group expiry"
	// expiryLook is the longest time between two looks. The first look comes this long after the
	// start, so that members have come back by then.
	expiryLook = 10 * time.Minute
)

// Expire deletes, until ctx ends, the groups that have settled no event and have had no member for
// as long as after; 0: none. A group with progress never expires.
func (m *Manager) Expire(ctx context.Context, after time.Duration) error {
	if after == 0 {
		<-ctx.Done()
		return nil
	}
	for m.cfg.Clock.Sleep(ctx, min(after/4, expiryLook)) {
		if !m.cfg.Roster.Mine(expiryOfGroups) {
			continue
		}
		if err := m.expireUnused(ctx, m.cfg.Clock.Now().Add(-after)); err != nil && ctx.Err() == nil {
			m.cfg.Logger.Warn("unused consumer groups cannot be deleted; trying again", "error", err)
		}
	}
	return nil
}

// expireUnused deletes the groups that settled nothing and had no member since.
func (m *Manager) expireUnused(ctx context.Context, since time.Time) error {
	all, err := m.cfg.Log.AllEpochs(ctx)
	if err != nil {
		return err
	}
	stays := map[eventlog.GroupName]bool{}
	for _, e := range all {
		name := eventlog.GroupName{Topic: e.Topic, Group: e.Group}
		stays[name] = stays[name] || e.Progress.Unused == 0 || e.Progress.Unused > since.UnixMilli()
	}
	for name, stay := range stays {
		if stay {
			continue
		}
		switch deleted := m.Delete(ctx, name.Topic, name.Group); {
		case deleted == nil:
			m.cfg.Logger.Info("a consumer group has expired: it settled nothing, and had no members", "topic", name.Topic, "group", name.Group)
		case !errors.Is(deleted, eventlog.ErrNotFound) && !errors.Is(deleted, &wire.Error{Code: wire.InUse}):
			err = errors.Join(err, deleted)
		}
	}
	return err
}
