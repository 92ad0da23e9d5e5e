package main

import (
	"context"
	"fmt"

	"github.com/sluice-bus/sluice/internal/program"
	sluice "github.com/sluice-bus/sluice/sdk"
)

type topicsCommand struct{}

func (*topicsCommand) Help() string {
	return `Lists the topics of the sidecar's store. EVENTS counts the places between the
first and the last event of each partition: where retention or compaction left
gaps, there are fewer.

Examples:

  sluice topics
  sluice topics --json | jq -r .topic`
}

// Run prints the topics.
func (*topicsCommand) Run(ctx context.Context, app *program.App, c *client) error {
	h := c.http()
	defer h.CloseIdle()
	var topics []sluice.TopicInfo
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		topics, err = h.Topics(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		for _, t := range topics {
			if err := printJSON(app.Stdout, t); err != nil {
				return err
			}
		}
		return nil
	}
	rows := make([][]string, len(topics))
	for i, t := range topics {
		var events uint64
		for _, p := range t.Partitions {
			if p.Head >= p.First {
				events += p.Head - max(p.First, 1) + 1
			}
		}
		rows[i] = []string{t.Topic, fmt.Sprint(len(t.Partitions)), fmt.Sprint(events)}
	}
	return table(app.Stdout, []string{"TOPIC", "PARTITIONS", "EVENTS"}, rows)
}
