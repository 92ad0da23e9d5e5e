package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

type topicsCommand struct {
	List   topicsListCommand   `cmd:"" default:"withargs" help:"List the topics."`
	Create topicsCreateCommand `cmd:"" help:"Create a topic, even if publishing does not create topics."`
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
	watchFlag
}

func (*topicsListCommand) Help() string {
	return `Lists the topics of the sidecar's store. EVENTS counts the places between the
first and the last event of each partition in a large topic: where retention or
compaction left gaps, there are fewer. Events that wait in spools are not counted:
"sluice status" has those of one sidecar.

Examples:

  sluice topics list --prefix orders.
  sluice topics list -o json | jq -r '.topics[].topic'`
}

// exists returns an error with the code not_found unless there is a topic of that name.
func exists(ctx context.Context, h *admin.HTTP, topic string) error {
	if _, err := h.Topic(ctx, topic); !isNotFound(err) {
		return err
	}
	topics, err := h.Topics(ctx)
	if err != nil {
		return err
	}
	names := make([]string, len(topics))
	for i, t := range topics {
		names[i] = t.Topic
	}
	return wire.Errorf(wire.NotFound, "there is no topic %s%s", topic, nearest.Hint(topic, names))
}

// nearestTopic names the topic that was meant where err says that there is something not, and it is the topic.
func nearestTopic(ctx context.Context, h *admin.HTTP, topic string, err error) error {
	if isNotFound(err) {
		if missing := exists(admin.WithAnswers(ctx, nil), h, topic); isNotFound(missing) {
			return missing
		}
	}
	return err
}

// Run prints the topics.
func (l *topicsListCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP) error {
	list := func(ctx context.Context) ([]admin.TopicInfo, error) {
		return ask(ctx, c, func(ctx context.Context) ([]admin.TopicInfo, error) { return h.TopicsWithPrefix(ctx, l.Prefix) })
	}
	return show(ctx, app, c, l.Watch, list, func(s *sheet, topics []admin.TopicInfo) error {
		rows := make([][]string, len(topics))
		for i, t := range topics {
			rows[i] = []string{t.Topic, fmt.Sprint(len(t.Partitions)), fmt.Sprint(t.Events), s.millis(t.LastTS), s.millis(t.FirstTS),
				fmt.Sprint(t.Bytes), orNone(t.Groups)}
		}
		err := s.table([]string{"TOPIC", "PARTITIONS", "EVENTS", "LAST EVENT"}, []string{"FIRST EVENT", "BYTES", "GROUPS"}, rows)
		return errors.Join(err, s.from("sidecar", c.URL))
	})
}
