package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

type policyApplyCommand struct {
	File   string `short:"f" required:"" placeholder:"FILE" help:"The policies as YAML; - is standard input."`
	Prune  bool   `help:"Delete the policies that are not in the file."`
	DryRun bool   `help:"Show the changes, and make none."`
	Yes    bool   `short:"y" help:"Do not ask before the change."`
	lossFlags
	waitFlags
}

func (*policyApplyCommand) Help() string {
	return `Makes the policies what the file says, all of them or, if one is not valid, none,
after it has shown the difference. On a terminal it asks first; in a pipe or
with --yes it does not. Policies that are not in the file stay as they are, but
for --prune, which without a terminal needs --yes where it deletes some. The file is the same as for the sidecar's --policies:

  - {name: orders.*, publish: {rate: 1000, burst: 1000}}
  - {name: orders.created, publish: {rate: 500}}

Examples:

  sluice policy apply -f policies.yaml
  sluice policy apply -f policies.yaml --dry-run --events
  sluice policy apply -f policies.yaml --prune --yes --wait
  generate-policies | sluice policy apply -f -`
}

// Run applies the file.
func (a *policyApplyCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	wanted, err := readPolicies(app, a.File)
	if err != nil {
		return err
	}
	request := admin.ApplyRequest{Prune: a.Prune, DryRun: true}
	plan, err := apply(ctx, app, c, plane, wanted, request)
	if err != nil {
		return err
	}
	asks := !a.Yes && !a.DryRun && interactive(app)
	if a.Events || asks {
		withLosses(ctx, app, c, plane, &plan)
	}
	if err := a.show(app, c, plan, asks); err != nil {
		return err
	}
	if a.DryRun {
		return nil
	}
	if !slices.ContainsFunc(plan.Changes, isChange) {
		return a.done(ctx, app, c, plane, plan)
	}
	if asks || a.Prune && slices.ContainsFunc(plan.Changes, isDeletion) {
		if err := asked(ctx, app, a.Yes, "Apply this?"); err != nil {
			return err
		}
	}
	request.DryRun = false
	result, err := apply(ctx, app, c, plane, wanted, request)
	if err != nil {
		return err
	}
	if !c.Output.isDocument() && !sameChanges(plan.Changes, result.Changes) {
		fmt.Fprintln(app.Stderr, "Someone else changed policies meanwhile. These are the changes:")
		if err := printChanges(app.Stdout, result.Changes); err != nil {
			return err
		}
	}
	return a.done(ctx, app, c, plane, result)
}

// apply sends the wanted policies with the request.
func apply(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane, wanted []admin.Policy,
	request admin.ApplyRequest) (admin.ApplyResult, error) {
	names := make([]string, len(wanted))
	for i := range wanted {
		names[i] = wanted[i].Name
		request.Policies = append(request.Policies, wanted[i].Document)
	}
	result, err := askPlane(ctx, c, func(ctx context.Context) (admin.ApplyResult, error) {
		return plane.ApplyPolicies(ctx, request)
	})
	if err != nil {
		return result, listed(app.Stderr, err, names...)
	}
	return result, nil
}

// show prints the changes: as a document only before a question, or in a dry run.
func (a *policyApplyCommand) show(app *program.App, c *client, plan admin.ApplyResult, asks bool) error {
	switch {
	case !c.Output.isDocument() || a.DryRun:
		return printPlan(app.Stdout, c.Output, plan)
	case asks:
		return printPlan(app.Stderr, "", plan)
	}
	return nil
}

// done says that it is done, and waits for the sidecars if that is wanted.
func (a *policyApplyCommand) done(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane,
	result admin.ApplyResult) error {
	targets := map[string]int64{}
	for _, change := range result.Changes {
		targets[change.Name] = gone
		if change.To != nil {
			targets[change.Name] = change.To.Version
		}
	}
	var err error
	switch {
	case c.Output.isDocument():
		result.DryRun = false // where there was nothing to do, nothing more was sent
		err = c.Output.write(app.Stdout, result)
	case !slices.ContainsFunc(result.Changes, isChange):
		_, err = fmt.Fprintln(app.Stdout, "nothing to change")
	default:
		_, err = fmt.Fprintf(app.Stdout, "applied: revision %d\n", result.Revision)
	}
	if err != nil {
		return err
	}
	return a.await(ctx, app, c, plane, targets)
}

// sameChanges tells whether the changes that were made are those that were shown.
func sameChanges(plan, done []admin.PolicyChange) bool {
	return slices.EqualFunc(plan, done, func(a, b admin.PolicyChange) bool {
		return a.Name == b.Name && a.Action == b.Action && len(diff(a.From, b.From)) == 0
	})
}

// readPolicies reads a file of policies. It prints every bad field with its line, and then returns
// none.
func readPolicies(app *program.App, name string) ([]admin.Policy, error) {
	text, err := readAll(app, name)
	if err != nil {
		return nil, err
	}
	if name == "-" {
		name = "standard input"
	}
	parsed, err := policy.ParseYAML(text)
	if err != nil {
		if refusal, ok := errors.AsType[*wire.Error](err); ok {
			for _, f := range refusal.Fields {
				fmt.Fprintf(app.Stderr, "  %s: %s\n", plain(f.Field), plain(f.Message))
			}
		}
		return nil, program.Usagef("%s: the policies are not valid, so nothing was sent", name)
	}
	policies := make([]admin.Policy, len(parsed))
	for i := range parsed {
		document, err := json.Marshal(parsed[i])
		if err != nil {
			return nil, err
		}
		policies[i] = admin.Policy{Name: parsed[i].Name, Document: document}
	}
	return policies, nil
}

// readAll reads a file, or standard input, as far as a document may be long.
func readAll(app *program.App, name string) ([]byte, error) {
	in := app.Stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, policy.MaxDocumentBytes+1))
	if err != nil {
		return nil, fmt.Errorf("reading the policies: %w", err)
	}
	return text, nil
}

// interactive reports whether a question can be asked.
func interactive(app *program.App) bool { return isTerminal(app.Stdin) && terminal.Is(app.Stderr) }

// confirm asks a question, and returns whether the answer is y or yes.
func confirm(ctx context.Context, in io.Reader, out io.Writer, question string) (bool, error) {
	if _, err := io.WriteString(out, question); err != nil {
		return false, err
	}
	answer := make(chan string, 1)
	go func() { // not waited for: nothing ends a read from a terminal
		line, _ := bufio.NewReader(in).ReadString('\n') // an end without an answer is none
		answer <- strings.ToLower(strings.TrimSpace(line))
	}()
	select {
	case text := <-answer:
		return text == "y" || text == "yes", nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}
