package retention

import (
	"context"
	"fmt"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

const (
	// TombstoneAge is the least age at which a tombstone is removed, so that a slow reader with a
	// copy of the topic learns that a key was removed.
	TombstoneAge = 24 * time.Hour
	// compactAgain is the time after which a topic is compacted from its start again. Only then
	// compaction removes events that were their key's latest the last time, and tombstones that
	// were too young.
	compactAgain = time.Hour
)

// compaction is the progress of a topic's compaction. Between two passes over the whole topic it
// continues with events appended since, which supersede most of the others.
type compaction struct {
	began time.Time // of the pass
	next  []uint64  // by partition: the seq to go on at
	// open are the partitions in which there is more to look at in this round.
	open []int
}

// start prepares a round. An interrupted pass continues before the next one begins.
func (c *compaction) start(ctx context.Context, log Log, topic string, now time.Time) error {
	extents, err := log.Extents(ctx, topic)
	if err != nil {
		return err
	}
	if c.next == nil || len(c.open) == 0 && now.Sub(c.began) >= compactAgain {
		c.began, c.next = now, make([]uint64, len(extents))
	}
	c.open = c.open[:0]
	for p, e := range extents {
		c.next[p] = max(c.next[p], e.First)
		if c.next[p] <= e.Head {
			c.open = append(c.open, p)
		}
	}
	return nil
}

// step compacts a batch of the first partition that is still open.
func (c *compaction) step(
	ctx context.Context, log Log, topic string, rules eventlog.Compaction,
) (worked, more bool, removed int, err error) {
	if len(c.open) == 0 {
		return false, false, 0, nil
	}
	p := c.open[0]
	next, removed, err := log.Compact(ctx, topic, p, c.next[p], rules)
	if err != nil {
		return false, false, removed, fmt.Errorf("compact partition %d: %w", p, err)
	}
	if worked = next > c.next[p]; !worked {
		c.open = c.open[1:]
	}
	c.next[p] = next
	return worked, len(c.open) > 0, removed, nil
}

// compactJob is one round of compacting a topic.
func (s *Sweeper) compactJob(ctx context.Context, topic string, k *known) job {
	c, started := &k.compaction, false
	return job{"topic " + topic, func(now time.Time) (worked, more bool, err error) {
		rules := s.policy(topic)
		if !rules.Retention.Compact {
			return false, false, nil
		}
		if !started {
			if err := c.start(ctx, s.Log, topic, now); err != nil {
				return false, false, err
			}
			started = true
		}
		worked, more, removed, err := c.step(ctx, s.Log, topic, eventlog.Compaction{
			Retention: Rules(rules), Now: now.UnixMilli(), Limit: s.Batch,
			TombstonesBefore: now.Add(-TombstoneAge).UnixMilli(),
		})
		k.sizing.stale = k.sizing.stale || removed > 0
		return worked, more, err
	}}
}
