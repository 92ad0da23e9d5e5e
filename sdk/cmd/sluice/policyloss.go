package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

// lossFlags are the flags of a command that plans a change of policies.
type lossFlags struct {
	Events bool `help:"Also say how many events the change removes from the store of the sidecar at --url."`
}

// printPlan prints what would change, with --events also what that removes.
func (f *lossFlags) printPlan(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane, plan admin.ApplyResult) error {
	if f.Events {
		withLosses(ctx, app, c, plane, &plan)
	}
	return printPlan(app.Stdout, c.Output, plan)
}

// withLosses adds to a plan how many events it removes from the sidecar's store, by topic. Where
// that is not known it says why.
func withLosses(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane, plan *admin.ApplyResult) {
	if !slices.ContainsFunc(plan.Changes, touchesRetention) {
		return
	}
	var err error
	if plan.Events, err = losses(ctx, c, plane, plan.Changes); err != nil {
		fmt.Fprintf(app.Stderr, "How many events this removes is not known: %s\n", plain(err.Error()))
	}
}

func touchesRetention(change admin.PolicyChange) bool {
	return slices.ContainsFunc(diff(change.From, change.To), func(f fieldChange) bool { return strings.HasPrefix(f.path, "retention.") })
}

// losses asks the sidecar about each topic whose retention changes.
func losses(ctx context.Context, c *client, plane *admin.ControlPlane,
	changes []admin.PolicyChange) (map[string]admin.RetentionPlan, error) {
	before, after, err := snapshots(ctx, c, plane, changes)
	if err != nil {
		return nil, err
	}
	h := c.ProvideSidecar(ctx)
	lost := map[string]admin.RetentionPlan{}
	return lost, c.tell(ctx, func(ctx context.Context) error {
		topics, err := h.Topics(ctx)
		for _, topic := range topics {
			was, is := before.Topic(topic.Topic).Retention, after.Topic(topic.Topic).Retention
			if was == is {
				continue
			}
			plan, err := h.PlanRetention(ctx, topic.Topic, admin.Retention{TTL: is.TTL, MaxBytes: is.MaxBytes, Compact: is.Compact})
			if err != nil {
				return err
			}
			if plan.Events > 0 {
				lost[topic.Topic] = plan
			}
		}
		return err
	})
}

// snapshots are the policies as they are, and as they are to be.
func snapshots(ctx context.Context, c *client, plane *admin.ControlPlane,
	changes []admin.PolicyChange) (before, after *policy.Snapshot, err error) {
	list, err := askPlane(ctx, c, plane.Policies)
	if err != nil {
		return nil, nil, err
	}
	documents := map[string]*admin.Policy{}
	for i := range list.Policies {
		documents[list.Policies[i].Name] = &list.Policies[i]
	}
	if before, err = snapshot(documents); err != nil {
		return nil, nil, err
	}
	for _, change := range changes {
		if documents[change.Name] = change.To; change.To == nil {
			delete(documents, change.Name)
		}
	}
	after, err = snapshot(documents)
	return before, after, err
}

func snapshot(documents map[string]*admin.Policy) (*policy.Snapshot, error) {
	var policies []policy.Policy
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		p, err := policy.ParsePolicy(documents[name].Document, "version", "updated_at", "updated_by")
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	return policy.NewSnapshot(policies, "plan")
}

// printLosses prints how many events go.
func printLosses(w io.Writer, lost map[string]admin.RetentionPlan) error {
	for _, topic := range slices.Sorted(maps.Keys(lost)) {
		how := "events of topic"
		if lost[topic].AtLeast {
			how = "events or more of topic"
		}
		if _, err := fmt.Fprintf(w, "removes %d %s %s from the sidecar's store\n", lost[topic].Events, how, plain(topic)); err != nil {
			return err
		}
	}
	return nil
}
