package deadletter

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

const (
	// mostCounted bounds how many dead letters of a topic are counted, and mostBytes how many bytes
	// are read for that. A larger number would not matter.
	mostCounted = 10_000
	mostBytes   = 8 << 20
	// recountEvery is how old the count of a topic may be that begins and ends as it did then: dead
	// letters between may be gone.
	recountEvery = time.Minute
)

// Counter counts the dead letters of all topics, again and again.
type Counter struct{ counted map[string]count }

// count is that of one topic.
type count struct {
	extents []eventlog.Extent
	first   string // the id of the oldest dead letter; "": there is none
	at      time.Time
	byGroup map[string]telemetry.DeadStat
}

// Count counts by group. A topic without dead letters has one entry, of no group. reads is how many
// queries of the log that took, roughly.
func (c *Counter) Count(ctx context.Context, log eventlog.Reader, now time.Time) (stats []telemetry.DeadStat, reads int, err error) {
	topics, err := log.Topics(ctx)
	if err != nil {
		return nil, 0, err
	}
	counted := map[string]count{}
	for _, t := range topics {
		topic, is := strings.CutSuffix(t.Name, wire.DeadLetterSuffix)
		if !is {
			continue
		}
		extents, err := log.Extents(ctx, t.Name)
		if err != nil {
			return nil, 0, err
		}
		head, err := log.Scan(ctx, t.Name, eventlog.ScanQuery{}, eventlog.Bounds{Events: 1})
		if err != nil {
			return nil, 0, err
		}
		first := ""
		if len(head) > 0 {
			first = head[0].ID
		}
		reads += 2
		last, known := c.counted[topic]
		if !known || now.Sub(last.at) >= recountEvery || last.first != first || !slices.Equal(last.extents, extents) {
			last = count{extents: extents, first: first, at: now}
			if last.byGroup, err = byGroup(ctx, log, topic); err != nil {
				return nil, 0, err
			}
			reads++
		}
		counted[topic] = last
		stats = slices.AppendSeq(stats, maps.Values(last.byGroup))
	}
	c.counted = counted
	return stats, reads, nil
}

// byGroup counts the dead letters of a topic.
func byGroup(ctx context.Context, log eventlog.Reader, topic string) (map[string]telemetry.DeadStat, error) {
	stats := map[string]telemetry.DeadStat{}
	n, size := 0, 0
	bounds := eventlog.Bounds{Events: 1000, Bytes: mostBytes / 8}
	for page, err := range eventlog.Pages(ctx, log, topic+wire.DeadLetterSuffix, eventlog.ScanQuery{}, bounds) {
		if err != nil {
			return nil, err
		}
		for _, rec := range page {
			group, _ := rec.Headers.Get(wire.HeaderDeadGroup)
			st, at := stats[group], time.UnixMilli(rec.TS)
			if st.Count++; st.Count == 1 {
				st.Topic, st.Group, st.Oldest = topic, group, at
			}
			st.Newest = at
			stats[group] = st
			size += rec.Size()
		}
		if n += len(page); n >= mostCounted || size >= mostBytes {
			break
		}
	}
	if len(stats) == 0 {
		stats[""] = telemetry.DeadStat{Topic: topic}
	}
	return stats, nil
}
