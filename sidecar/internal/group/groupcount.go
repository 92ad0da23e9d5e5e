package group

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
)

// groupCount estimates how many groups the store has, and how many were made for each identity: the
// last count, and the groups that were made here since.
type groupCount struct {
	mu      sync.Mutex
	counted time.Time
	groups  int
	madeFor map[string]int
}

// countEvery is how old the count may be when another group is made.
const countEvery = 10 * time.Second

// reserve counts one more group, made for the identity that ctx names, or returns an error if there
// are too many.
func (c *groupCount) reserve(ctx context.Context, cfg *Config) error {
	by, now, most, each := eventlog.Maker(ctx), cfg.Clock.Now(), cfg.MaxGroups, cfg.MaxGroupsEach
	if by == "" {
		each = 0
	}
	if most == 0 && each == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted.IsZero() || now.Sub(c.counted) >= countEvery {
		all, err := cfg.Log.AllEpochs(ctx)
		if err != nil {
			return err
		}
		names := make(map[eventlog.GroupName]bool)
		c.madeFor = make(map[string]int)
		for _, e := range all {
			if name := (eventlog.GroupName{Topic: e.Topic, Group: e.Group}); !names[name] {
				names[name] = true
				c.madeFor[e.Progress.By]++
			}
		}
		c.counted, c.groups = now, len(names)
	}
	switch {
	case most > 0 && c.groups >= most:
		return topics.TooMany("groups", c.groups, "--max-groups", most)
	case each > 0 && c.madeFor[by] >= each:
		return topics.TooMany("groups that were made for "+strconv.Quote(by), c.madeFor[by], "a tenth of --max-groups", each)
	}
	c.groups++
	c.madeFor[by]++
	return nil
}
