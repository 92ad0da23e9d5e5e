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
	byGroup map[eventlog.GroupName]telemetry.DeadStat
}

// Count counts by group. A topic without dead letters has one entry, of no group. reads is how many
// queries of the log that took, roughly.
func (c *Counter) Count(ctx context.Context, log Log, now time.Time) (stats []telemetry.DeadStat, reads int, err error) {
	topics, err := log.Topics(ctx)
	if err != nil {
		return nil, 0, err
	}
	named, err := log.NamedDeadLetterTopics(ctx)
	if err != nil {
		return nil, 0, err
	}
	reads++
	counted, sums := map[string]count{}, map[eventlog.GroupName]telemetry.DeadStat{}
	for _, t := range topics {
		_, hasName := slices.BinarySearch(named, t.Name)
		if !hasName && !strings.HasSuffix(t.Name, wire.DeadLetterSuffix) {
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
		last, known := c.counted[t.Name]
		if !known || now.Sub(last.at) >= recountEvery || last.first != first || !slices.Equal(last.extents, extents) {
			last = count{extents: extents, first: first, at: now}
			if last.byGroup, err = byGroup(ctx, log, t.Name); err != nil {
				return nil, 0, err
			}
			reads++
		}
		counted[t.Name] = last
		for of, st := range last.byGroup {
			sums[of] = sum(sums[of], st)
		}
	}
	c.counted = counted
	return slices.Collect(maps.Values(sums)), reads, nil
}

// sum adds the dead letters of a group in one topic to those in others.
func sum(a, b telemetry.DeadStat) telemetry.DeadStat {
	switch {
	case a.Count == 0:
		return b
	case b.Count == 0:
		return a
	}
	a.Count += b.Count
	if b.Oldest.Before(a.Oldest) {
		a.Oldest = b.Oldest
	}
	if b.Newest.After(a.Newest) {
		a.Newest = b.Newest
	}
	return a
}

// byGroup counts the dead letters in a topic, by the topic and group in which they died.
func byGroup(ctx context.Context, log eventlog.Reader, letters string) (map[eventlog.GroupName]telemetry.DeadStat, error) {
	stats := map[eventlog.GroupName]telemetry.DeadStat{}
	own, isOwn := strings.CutSuffix(letters, wire.DeadLetterSuffix)
	n, size := 0, 0
	bounds := eventlog.Bounds{Events: 1000, Bytes: mostBytes / 8}
	for page, err := range eventlog.Pages(ctx, log, letters, eventlog.ScanQuery{}, bounds) {
		if err != nil {
			return nil, err
		}
		for _, rec := range page {
			size += rec.Size()
			if !isOwn && !eventlog.IsDeadLetter(rec) { // of an application that publishes there
				continue
			}
			of := eventlog.GroupName{Topic: own}
			of.Group, _ = rec.Headers.Get(wire.HeaderDeadGroup)
			if died, named := rec.Headers.Get(wire.HeaderDeadTopic); named && !isOwn {
				of.Topic = died
			}
			at := time.UnixMilli(rec.TS)
			stats[of] = sum(stats[of], telemetry.DeadStat{Topic: of.Topic, Group: of.Group, Count: 1, Oldest: at, Newest: at})
		}
		if n += len(page); n >= mostCounted || size >= mostBytes {
			break
		}
	}
	if len(stats) == 0 && isOwn {
		stats[eventlog.GroupName{Topic: own}] = telemetry.DeadStat{Topic: own}
	}
	return stats, nil
}
