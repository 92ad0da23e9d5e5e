package main

import (
	"context"
	"encoding/json"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// groupPolicy is the arguments and flags of the commands that change what the policy of a topic says of one group.
type groupPolicy struct {
	controlPlane
	Topic string `arg:"" help:"The topic."`
	Group string `arg:"" help:"The group."`
	changeFlags
}

// set gives fields of the group values, in the topic's policy, which is made if there is none.
func (g *groupPolicy) set(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane, fields map[string]any) error {
	var assignments []assignment
	for _, field := range groupFields {
		value, ok := fields[field]
		if !ok {
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			return err
		}
		assignments = append(assignments, assignment{[]string{"groups", g.Group, field}, text})
	}
	return assign(ctx, app, c, plane, g.Topic, assignments, &g.changeFlags)
}

type groupsPauseCommand struct{ groupPolicy }

func (*groupsPauseCommand) Help() string {
	return `Sets groups.GROUP.paused in the topic's policy, on all sidecars. What is in flight can
be acked; publishing goes on, and the group gets the backlog once it is resumed.

Examples:

  sluice groups pause orders billing --wait`
}

// Run pauses.
func (p *groupsPauseCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	return p.set(ctx, app, c, plane, map[string]any{"paused": true})
}

type groupsResumeCommand struct{ groupPolicy }

func (*groupsResumeCommand) Help() string {
	return `Sets groups.GROUP.paused to false in the topic's policy. What slow has set stays.

Examples:

  sluice groups resume orders billing`
}

// Run resumes.
func (r *groupsResumeCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	return r.set(ctx, app, c, plane, map[string]any{"paused": false})
}

type groupsSlowCommand struct {
	groupPolicy
	Rate        *float64 `help:"Deliveries a second to all of its members together; 0 is no bound."`
	MaxInflight *int     `help:"How many events of the group may wait for their ack; 0 is no bound."`
}

func (*groupsSlowCommand) Help() string {
	return `Sets groups.GROUP.rate and groups.GROUP.max_inflight in the topic's policy.

Examples:

  sluice groups slow orders billing --rate 50
  sluice groups slow orders billing --rate 0 --max-inflight 1 --wait`
}

// Run sets what is given.
func (s *groupsSlowCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	fields := map[string]any{}
	if s.Rate != nil {
		fields["rate"] = *s.Rate
	}
	if s.MaxInflight != nil {
		fields["max_inflight"] = *s.MaxInflight
	}
	if len(fields) == 0 {
		return program.Usagef("give --rate, --max-inflight or both")
	}
	return s.set(ctx, app, c, plane, fields)
}
