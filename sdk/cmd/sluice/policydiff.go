package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
)

type policyDiffCommand struct {
	File  string `short:"f" required:"" placeholder:"FILE" help:"The policies as YAML; - is standard input."`
	Prune bool   `help:"Also report policies that are not in the file, which apply --prune would delete."`
	lossFlags
}

func (*policyDiffCommand) Help() string {
	return `Shows how the policies in the file differ from those of the control plane, field
by field, which is what apply would change. It changes nothing, and a token that
may only read is enough.

The exit status is 0 where there is no difference, 1 where there are some, and 2
for an error, such as a policy that is not valid.

Examples:

  sluice policy diff -f policies.yaml
  sluice policy diff -f policies.yaml --prune
  sluice policy diff -f policies.yaml -o json | jq -r '.changes[] | select(.action=="update").name'`
}

// Run prints the differences.
func (d *policyDiffCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	different, err := d.run(ctx, app, c, plane)
	if err != nil {
		return program.Usagef("%w", err) // 1 means something else here
	}
	if different {
		return program.Silent(program.StatusFailure)
	}
	return nil
}

func (d *policyDiffCommand) run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) (different bool, err error) {
	wanted, err := readPolicies(app, d.File)
	if err != nil {
		return false, err
	}
	plan, err := apply(ctx, app, c, plane, wanted, admin.ApplyRequest{Prune: d.Prune, DryRun: true})
	if err != nil {
		return false, err
	}
	different = slices.ContainsFunc(plan.Changes, isChange)
	return different, d.printPlan(ctx, app, c, plane, plan)
}

func isChange(c admin.PolicyChange) bool { return c.Action != admin.ActionUnchanged }

func isDeletion(c admin.PolicyChange) bool { return c.Action == admin.ActionDelete }

// fieldChange is one field that differs; nil where it is not set.
type fieldChange struct {
	path     string
	from, to json.RawMessage
}

// diff lists the fields that differ between two policies, of which either may be nil.
func diff(from, to *admin.Policy) (changes []fieldChange) {
	before, after := settings(from), settings(to)
	for _, path := range paths(before, after) {
		if !bytes.Equal(before[path], after[path]) {
			changes = append(changes, fieldChange{path, before[path], after[path]})
		}
	}
	return changes
}

// documentOrder is the fields' places in the document.
var documentOrder = func() map[string]int {
	order := map[string]int{}
	defaults := policy.Defaults()
	for path := range defaults.Values() {
		order[path] = len(order) + 1
	}
	return order
}()

// paths lists the fields that any of the policies sets in the order of the document; fields that
// this program does not know come last.
func paths(policies ...map[string]json.RawMessage) []string {
	var all []string
	for _, set := range policies {
		all = slices.AppendSeq(all, maps.Keys(set))
	}
	place := func(path string) int { return cmp.Or(documentOrder[path], len(documentOrder)+1) }
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(place(a)-place(b), strings.Compare(a, b)) })
	return slices.Compact(all)
}

// settings are the fields that a policy sets, by their paths.
func settings(p *admin.Policy) map[string]json.RawMessage {
	set := map[string]json.RawMessage{}
	if p != nil {
		flatten(set, "", p.Document)
	}
	for _, path := range head {
		delete(set, path)
	}
	return set
}

// flatten puts the members of sections into set. A JSON Schema is one value.
func flatten(set map[string]json.RawMessage, path string, value json.RawMessage) {
	var members map[string]json.RawMessage
	if _, known := documentOrder[path]; known || json.Unmarshal(value, &members) != nil || members == nil {
		var compact bytes.Buffer
		_ = json.Compact(&compact, value) // decoding the policy has found it valid
		set[path] = compact.Bytes()
		return
	}
	for name, member := range members {
		if path != "" {
			name = path + "." + name
		}
		flatten(set, name, member)
	}
}

// shown writes a field's value for people: a text without its quotes, where they make no
// difference.
func shown(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil && value[0] == '"' {
		return visible(text)
	}
	return string(value)
}

// printChanges prints what becomes of each policy, and how many there are of each kind.
func printChanges(w io.Writer, changes []admin.PolicyChange) error {
	ink := inkFor(w)
	count := map[string]int{}
	var out bytes.Buffer
	for _, change := range changes {
		count[change.Action]++
		if !isChange(change) {
			continue
		}
		switch change.Action {
		case admin.ActionCreate:
			fmt.Fprintln(&out, ink.green("+ "+change.Name))
		case admin.ActionDelete:
			fmt.Fprintln(&out, ink.red("- "+change.Name)+version(change.From))
		default:
			fmt.Fprintln(&out, ink.yellow("~ "+change.Name)+version(change.From))
		}
		printFields(&out, ink, change.From, change.To)
	}
	if out.Len() > 0 {
		out.WriteByte('\n')
	}
	fmt.Fprintf(&out, "%d to create, %d to update, %d to delete, %d unchanged\n", count[admin.ActionCreate],
		count[admin.ActionUpdate], count[admin.ActionDelete], count[admin.ActionUnchanged])
	_, err := out.WriteTo(w)
	return err
}

// printPlan prints what would change.
func printPlan(w io.Writer, output format, plan admin.ApplyResult) error {
	if output.isDocument() {
		return output.write(w, plan)
	}
	return errors.Join(printChanges(w, plan.Changes), printLosses(w, plan.Events))
}

func version(p *admin.Policy) string {
	if p == nil || p.Version == 0 {
		return ""
	}
	return fmt.Sprintf(" (version %d)", p.Version)
}

// printFields prints the fields that differ.
func printFields(out *bytes.Buffer, ink ink, from, to *admin.Policy) {
	for _, f := range diff(from, to) {
		switch {
		case f.from == nil:
			fmt.Fprintln(out, ink.green(fmt.Sprintf("    %s: %s", f.path, shown(f.to))))
		case f.to == nil:
			fmt.Fprintln(out, ink.red(fmt.Sprintf("    %s: %s -> not set", f.path, shown(f.from))))
		default:
			fmt.Fprintf(out, "    %s: %s -> %s\n", f.path, ink.red(shown(f.from)), ink.green(shown(f.to)))
		}
	}
}
