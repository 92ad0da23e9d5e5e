package main

import (
	"context"
	"fmt"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type topicsCommand struct {
	List   topicsListCommand   `cmd:"" default:"withargs" help:"List the topics."`
	Create topicsCreateCommand `cmd:"" help:"Make a topic, also where publishing does not."`
	Delete topicsDeleteCommand `cmd:"" help:"Delete a topic, with its events, groups and dead letters."`
}

func (*topicsCommand) Help() string {
	return `Without a command of its own it lists the topics.

Examples:

  sluice topics
  sluice topics create orders.created
  sluice topics delete orders.created --dry-run`
}

type topicsListCommand struct {
	Prefix string `help:"Only the topics whose names begin with this."`
}

func (*topicsListCommand) Help() string {
	return `Lists the topics of the sidecar's store. EVENTS counts the places between the
first and the last event of each partition in a large topic: where retention or
compaction left gaps, there are fewer.

Examples:

  sluice topics list --prefix orders.
  sluice topics list --json | jq -r .topic`
}

// Run prints the topics.
func (l *topicsListCommand) Run(ctx context.Context, app *program.App, c *client) error {
	h := c.http()
	defer h.CloseIdle()
	var topics []admin.TopicInfo
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		topics, err = h.TopicsWithPrefix(ctx, l.Prefix)
		return err
	})
	if err != nil {
		return err
	}
	if c.JSON {
		return printJSONLines(app.Stdout, topics)
	}
	rows := make([][]string, len(topics))
	for i, t := range topics {
		events := t.Events
		for _, p := range t.Partitions {
			if t.Events == 0 && p.Head >= p.First { // an older sidecar does not count
				events += int64(p.Head - max(p.First, 1) + 1)
			}
		}
		rows[i] = []string{t.Topic, fmt.Sprint(len(t.Partitions)), fmt.Sprint(events)}
	}
	return table(app.Stdout, []string{"TOPIC", "PARTITIONS", "EVENTS"}, rows)
}
