package group

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/topics"
)

// groupCount estimates how many groups the store has, and how many were made for each identity: the
// last count, and the groups that were made here since.
type groupCount struct {
	log             Log
	clock           clock.Clock
	most, mostByOne int // 0: any number

	mu      sync.Mutex
	counted time.Time
	groups  int
	madeFor map[string]int
}

// countEvery is how old the count may be when another group is made.
const countEvery = 10 * time.Second

// reserve counts one more group, made for the identity that ctx names, or returns an error if there
// are too many.
func (c *groupCount) reserve(ctx context.Context) error {
	by, now, each := eventlog.Maker(ctx), c.clock.Now(), c.mostByOne
	if by == "" {
		each = 0
	}
	if c.most == 0 && each == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counted.IsZero() || now.Sub(c.counted) >= countEvery {
		all, err := c.log.AllEpochs(ctx)
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
	case c.most > 0 && c.groups >= c.most:
		return topics.TooMany("groups", c.groups, "--max-groups", c.most)
	case each > 0 && c.madeFor[by] >= each:
		return topics.TooMany("groups that were made for "+strconv.Quote(by), c.madeFor[by], "a tenth of --max-groups", each)
	}
	c.groups++
	c.madeFor[by]++
	return nil
}
