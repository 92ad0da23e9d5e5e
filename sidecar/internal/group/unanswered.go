package group

import (
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// unanswered are the groups of a sidecar that could not learn who owns their partitions. An outage of the store meets all of them, each
// about once a second: the log has a line at its begin, and one once every group has its answer.
type unanswered struct {
	logger *slog.Logger
	clock  clock.Clock

	mu     sync.Mutex
	groups map[eventlog.GroupName]bool
	since  time.Time
	most   int
}

func newUnanswered(logger *slog.Logger, c clock.Clock) *unanswered {
	return &unanswered{logger: logger, clock: c, groups: map[eventlog.GroupName]bool{}}
}

func (u *unanswered) add(g eventlog.GroupName, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.groups) == 0 {
		u.since, u.most = u.clock.Now(), 0
		u.logger.Warn("consumer groups cannot ask who owns their partitions; asking again about once a second",
			"topic", g.Topic, "group", g.Group, "error", err)
	}
	u.groups[g] = true
	u.most = max(u.most, len(u.groups))
}

// remove notes that a group has its answer, or needs none any more.
func (u *unanswered) remove(g eventlog.GroupName) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.groups[g] {
		return
	}
	if delete(u.groups, g); len(u.groups) == 0 {
		u.logger.Info("consumer groups know again who owns their partitions", "groups", u.most,
			"after", u.clock.Since(u.since).Round(time.Millisecond))
	}
}
