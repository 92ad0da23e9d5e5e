package retention

import (
	"context"
	"hash/maphash"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// Counted has the methods that counting a topic needs.
type Counted interface {
	Extents(ctx context.Context, topic string) ([]eventlog.Extent, error)
	Read(ctx context.Context, topic string, partition int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error)
}

// maxPlannedKeys bounds the memory of a Plan: it knows the effect of compaction for that many keys.
const maxPlannedKeys = 1_000_000

// planPage bounds the page of a topic that a Plan has in memory.
var planPage = eventlog.Bounds{Events: 1000, Bytes: sizePage}

// Plan counts the events that a retention would remove from a topic. If atLeast is true, there may
// be more, since the topic has too many keys.
func Plan(ctx context.Context, log Counted, topic string, keep policy.Retention, now time.Time) (events int64, atLeast bool, err error) {
	extents, err := log.Extents(ctx, topic)
	if err != nil {
		return 0, false, err
	}
	rules := eventlog.Retention{TTLMS: wholeMS(keep.TTL)}
	if keep.MaxBytes > 0 {
		if rules.UpTo, err = tooMuch(ctx, log, topic, keep.MaxBytes); err != nil {
			return 0, false, err
		}
	}
	p := planned{keys: map[uint64]struct{}{}, seed: maphash.MakeSeed()}
	for partition, e := range extents {
		expired := true // expired events are the oldest part
		for next := e.First; next <= e.Head; {
			page, err := log.Read(ctx, topic, partition, next, planPage)
			if err != nil {
				return 0, false, err
			}
			for _, r := range page {
				switch expired = expired && rules.Over(partition, r.Seq, r.AcceptedAt, now.UnixMilli()); {
				case expired:
					events++
				case keep.Compact && p.superseded(r.Key):
					events++
				}
			}
			if len(page) == 0 || !expired && !keep.Compact {
				break
			}
			next = page[len(page)-1].Seq + 1
		}
	}
	return events, p.full, nil
}

// tooMuch returns for each partition the highest seq to remove, so that the topic holds at most
// that many bytes.
func tooMuch(ctx context.Context, log Counted, topic string, most int64) ([]uint64, error) {
	var z sizing
	if err := z.start(ctx, log, topic); err != nil {
		return nil, err
	}
	for more := true; more; {
		var err error
		if more, err = z.count(ctx, log, topic, most, planPage.Events); err != nil {
			return nil, err
		}
	}
	z.trim(most)
	return z.upTo, nil
}

// planned has the hashes of the keys that a Plan has seen.
type planned struct {
	keys map[uint64]struct{}
	seed maphash.Seed
	full bool
}

// superseded reports whether the latest event of a key so far supersedes an earlier one.
func (p *planned) superseded(key string) bool {
	if key == "" {
		return false
	}
	h := maphash.String(p.seed, key)
	if _, seen := p.keys[h]; seen {
		return true
	}
	if p.full = p.full || len(p.keys) >= maxPlannedKeys; !p.full {
		p.keys[h] = struct{}{}
	}
	return false
}
