package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type usageCommand struct {
	Prefix string `help:"Only the topics whose names begin with this."`
	watchFlag
}

func (*usageCommand) Help() string {
	return `Lists the topics of a store, the largest first, with what they keep, and how much
that is a day between their first and their last event. What retention has removed
is not counted.

Examples:

  sluice usage
  sluice usage --prefix orders. -o wide
  sluice usage -o json | jq -r '.topics[] | [.topic, .events, .bytes] | @csv'`
}

// Run prints the topics.
func (u *usageCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	list := func(ctx context.Context) ([]admin.TopicInfo, error) {
		return ask(ctx, c, func(ctx context.Context) ([]admin.TopicInfo, error) { return h.TopicsWithPrefix(ctx, u.Prefix) })
	}
	return show(ctx, app, c, u.Watch, list, func(s *sheet, topics []admin.TopicInfo) error {
		slices.SortStableFunc(topics, func(a, b admin.TopicInfo) int { return cmp.Compare(b.Bytes, a.Bytes) })
		var rows [][]string
		var events, bytes int64
		for _, t := range topics {
			events, bytes = events+t.Events, bytes+t.Bytes
			rows = append(rows, []string{t.Topic, fmt.Sprint(t.Events), fmt.Sprint(t.Bytes), aDay(t.Events, &t), aDay(t.Bytes, &t),
				s.millis(t.FirstTS), s.millis(t.LastTS)})
		}
		rows = append(rows, []string{"all", fmt.Sprint(events), fmt.Sprint(bytes), "-", "-", "-", "-"})
		err := s.table([]string{"TOPIC", "EVENTS", "BYTES", "EVENTS/DAY", "BYTES/DAY"}, []string{"FIRST EVENT", "LAST EVENT"}, rows)
		return errors.Join(err, s.from("sidecar", c.URL))
	})
}

// leastUsageTime is the time from a topic's first event to its last that is long enough to speak of a day.
const leastUsageTime = time.Minute

// aDay is how much of something a topic had a day, as long as its events are kept.
func aDay(n int64, t *admin.TopicInfo) string {
	if t.FirstTS == nil || t.LastTS == nil {
		return "-"
	}
	span := time.Duration(*t.LastTS-*t.FirstTS) * time.Millisecond
	if span < leastUsageTime {
		return "-"
	}
	return fmt.Sprintf("%.0f", float64(n)*float64(24*time.Hour)/float64(span))
}
