package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// groupPolicy is the arguments and flags of the commands that change what the policy of a topic says of one group.
type groupPolicy struct {
	controlPlane
	Topic  string `arg:"" help:"The topic."`
	Group  string `arg:"" help:"The group."`
	Reason string `placeholder:"TEXT" help:"Why, for the policy's history and the audit log."`
	waitFlags
}

// set changes some limits of the group in the topic's policy, which is made if there is none, also while others change the policy.
func (g *groupPolicy) set(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane,
	change func(*admin.GroupLimits)) error {
	for try := 1; ; try++ {
		before, err := current(ctx, c, plane, g.Topic)
		if err != nil {
			return err
		}
		limits, when := admin.GroupLimits{}, admin.Condition{Absent: true}
		if before != nil {
			var document struct{ Groups map[string]admin.GroupLimits }
			if err := json.Unmarshal(before.Document, &document); err != nil {
				return fmt.Errorf("the policy %s: %w", g.Topic, err)
			}
			limits, when = document.Groups[g.Group], admin.Condition{Version: before.Version}
		}
		change(&limits)
		limits.Reason = g.Reason
		after, err := askPlane(ctx, c, func(ctx context.Context) (admin.Policy, error) {
			return plane.PutGroup(ctx, g.Topic, g.Group, limits, when)
		})
		if err == nil {
			return g.saved(ctx, app, c, plane, before, &after)
		}
		if !errors.Is(err, &wire.Error{Code: wire.PreconditionFailed}) || try == assignTries {
			return listed(app.Stderr, err, g.Topic)
		}
	}
}

type groupsPauseCommand struct{ groupPolicy }

func (*groupsPauseCommand) Help() string {
	return `Sets groups.GROUP.paused in the topic's policy, on all sidecars. What is in flight can
be acked; publishing goes on, and the group gets the backlog once it is resumed. An
operator may do it.

Examples:

  sluice groups pause orders billing --reason "the bank is down" --wait`
}

// Run pauses.
func (p *groupsPauseCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	return p.set(ctx, app, c, plane, func(l *admin.GroupLimits) { l.Paused = new(true) })
}

type groupsResumeCommand struct{ groupPolicy }

func (*groupsResumeCommand) Help() string {
	return `Sets groups.GROUP.paused to false in the topic's policy. What slow has set stays.

Examples:

  sluice groups resume orders billing --reason "the bank is back"`
}

// Run resumes.
func (r *groupsResumeCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	return r.set(ctx, app, c, plane, func(l *admin.GroupLimits) { l.Paused = new(false) })
}

type groupsSlowCommand struct {
	groupPolicy
	Rate        *float64 `help:"Deliveries a second to all of its members together; 0 is no bound."`
	MaxInflight *int     `help:"How many events of the group may wait for their ack; 0 is no bound."`
}

func (*groupsSlowCommand) Help() string {
	return `Sets groups.GROUP.rate and groups.GROUP.max_inflight in the topic's policy. An
operator may do it.

Examples:

  sluice groups slow orders billing --rate 50 --reason "it floods the bank"
  sluice groups slow orders billing --rate 0 --max-inflight 1 --wait`
}

// Run sets what is given.
func (s *groupsSlowCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	if s.Rate == nil && s.MaxInflight == nil {
		return program.Usagef("give --rate, --max-inflight or both")
	}
	return s.set(ctx, app, c, plane, func(l *admin.GroupLimits) {
		if s.Rate != nil {
			l.Rate = s.Rate
		}
		if s.MaxInflight != nil {
			l.MaxInflight = s.MaxInflight
		}
	})
}
