package group

import (
	"context"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
)

// groupCount is about how many groups the store has: as they were counted last,
// and those that were made here since.
type groupCount struct {
	mu      sync.Mutex
	counted time.Time
	groups  int
}

// countEvery is how old a count may be by which another group is made.
const countEvery = 10 * time.Second

// reserve takes the place of one more group, or says that there is none.
func (c *groupCount) reserve(ctx context.Context, log eventlog.Groups, now time.Time, most int) error {
	if most == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted.IsZero() || now.Sub(c.counted) >= countEvery {
		all, err := log.AllEpochs(ctx)
		if err != nil {
			return err
		}
		names := make(map[eventlog.GroupName]bool)
		for _, e := range all {
			names[eventlog.GroupName{Topic: e.Topic, Group: e.Group}] = true
		}
		c.counted, c.groups = now, len(names)
	}
	if c.groups >= most {
		return topics.TooMany("groups", c.groups, "--max-groups", most)
	}
	c.groups++
	return nil
}
