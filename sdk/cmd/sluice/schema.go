package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/schema"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// schemaCommand is the commands about schemas. asyncapi.go has the export.
type schemaCommand struct {
	controlPlane

	Check    schemaCheckCommand    `cmd:"" asks:"plane store" help:"Say whether a schema is compatible with earlier ones."`
	List     schemaListCommand     `cmd:"" asks:"plane" help:"List the schemas that a policy has had."`
	Show     schemaShowCommand     `cmd:"" help:"Print the schema of a topic, or a version of a policy's."`
	AsyncAPI schemaAsyncAPICommand `cmd:"" asks:"app" name:"asyncapi" help:"Describe topics and their schemas as an AsyncAPI document."`
}

func (*schemaCommand) Help() string {
	return `A policy may have a JSON Schema, to which the payloads of its topics are held. The
control plane counts the schemas of each policy, and refuses one that does not go
with those before it, by the policy's schema.compatibility.

Examples:

  sluice schema check order.json --topic orders.created
  sluice schema check order.json --against order-before.json
  sluice schema show orders.created
  sluice schema asyncapi orders.created payments`
}

type schemaCheckCommand struct {
	File          string   `arg:"" help:"The JSON Schema; - is standard input."`
	Topic         string   `xor:"with" help:"Compare with the schemas of the policy from which this topic has its schema."`
	Policy        string   `xor:"with" help:"Compare with the schemas of this policy: a topic, or a prefix and a *."`
	Against       []string `xor:"with" placeholder:"OLD" sep:"none" help:"Compare with the schema in this file, without a control plane; may be repeated."`
	Events        string   `placeholder:"TOPIC" help:"Say also which of this topic's latest 200 events the schema refuses; its store is --store, or the only one."`
	Compatibility string   `placeholder:"HOW" help:"none, backward, forward or full, all except none also with _transitive (default: the policy's, and backward for files)."`
}

func (*schemaCheckCommand) Help() string {
	return `Says whether a schema may take the place of those before it, and why not: backward
asks that it accepts all that the one before accepts, forward the opposite, full
both. What cannot be decided counts as incompatible. Nothing is changed.
--events says which stored events the schema would have refused.

The exit status is 0 where the schema is compatible, 1 where it is not, and 2 for
an error, such as a schema that does not compile.

Examples:

  sluice schema check order.json --topic orders.created
  sluice schema check order.json --policy 'orders.*' --compatibility full
  sluice schema check order.json --topic orders.created --events orders.created
  git show main:order.json | sluice schema check order.json --against -`
}

// Run prints whether the schema is compatible.
func (s *schemaCheckCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	check, err := s.check(ctx, app, c, plane)
	if err != nil {
		return program.Usagef("%w", err) // 1 means something else here
	}
	switch {
	case c.Output.isDocument():
		err = c.Output.write(app.Stdout, check)
	case check.Compatible:
		_, err = io.WriteString(app.Stdout, "compatible\n"+refusedEvents(check.Events))
	default:
		out := "incompatible:\n"
		for _, reason := range check.Reasons {
			out += "  " + plain(reason) + "\n"
		}
		_, err = io.WriteString(app.Stdout, out+refusedEvents(check.Events))
	}
	if err == nil && !check.Compatible {
		err = program.Silent(program.StatusFailure)
	}
	return err
}

// refusedEvents are lines about stored events.
func refusedEvents(of *admin.SchemaEvents) string {
	if of == nil {
		return ""
	}
	out := fmt.Sprintf("of the latest %d events it refuses %d\n", of.Checked, of.Refused)
	for _, e := range of.Examples {
		out += fmt.Sprintf("  %s: at %q %s\n", plain(e.ID), e.Pointer, plain(e.Reason))
	}
	return out
}

func (s *schemaCheckCommand) check(ctx context.Context, app *program.App, c *client,
	plane *admin.ControlPlane) (check admin.SchemaCheck, err error) {
	if len(s.Against) == 0 && s.Topic == "" && s.Policy == "" {
		return check, fmt.Errorf("one of --topic, --policy and --against is needed: what to compare with")
	}
	text, err := readSchema(app, s.File)
	if err != nil {
		return check, err
	}
	opts := admin.SchemaCheckOptions{Compatibility: s.Compatibility, Topic: s.Events}
	switch {
	case len(s.Against) > 0 && s.Events != "":
		return check, fmt.Errorf("--events does not go with --against: the control plane compares with events")
	case len(s.Against) > 0:
		return s.compare(ctx, app, text)
	case s.Events != "":
		if opts.Store, err = onlyStore(ctx, c, plane); err != nil {
			return check, err
		}
	}
	name := s.Policy
	if name == "" {
		if name, err = schemaPolicy(ctx, c, plane, s.Topic); err != nil {
			return check, err
		}
	}
	return askPlane(ctx, c, func(ctx context.Context) (admin.SchemaCheck, error) {
		return plane.CheckSchema(ctx, name, text, opts)
	})
}

// onlyStore is --store, or the store of all sidecars.
func onlyStore(ctx context.Context, c *client, plane *admin.ControlPlane) (string, error) {
	if c.Store != "" {
		return c.Store, nil
	}
	stores, err := askPlane(ctx, c, plane.Stores)
	if err == nil && len(stores) != 1 {
		err = fmt.Errorf("--store is needed: the sidecars have %d stores, which sluice overview lists", len(stores))
	}
	if err != nil {
		return "", err
	}
	return stores[0].Store, nil
}

// compare compares with files, all of them, as a control plane would with versions.
func (s *schemaCheckCommand) compare(ctx context.Context, app *program.App, text json.RawMessage) (check admin.SchemaCheck, err error) {
	how := policy.CompatibilityBackward
	if s.Compatibility != "" {
		document, err := json.Marshal(map[string]any{"schema": map[string]any{"compatibility": s.Compatibility}})
		if err != nil {
			return check, err
		}
		read, err := policy.ParsePolicy(document)
		if err != nil {
			return check, fmt.Errorf("--compatibility: %w", err)
		}
		how = read.Compatibility()
	}
	older := make([]policy.Older, len(s.Against))
	for i, name := range s.Against {
		was, err := readSchema(app, name)
		if err != nil {
			return check, err
		}
		older[i] = policy.Older{Name: sourceName(name), Text: string(was)}
	}
	reasons := how.Breaks(schema.NewBudget(ctx), string(text), older)
	return admin.SchemaCheck{Compatible: len(reasons) == 0, Reasons: append([]string{}, reasons...)}, nil
}

func sourceName(file string) string {
	if file == "-" {
		return "standard input"
	}
	return file
}

// readSchema reads a file that has a schema, as compact JSON.
func readSchema(app *program.App, file string) (json.RawMessage, error) {
	text, err := readAll(app, file)
	if err != nil {
		return nil, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return nil, fmt.Errorf("%s: is not JSON: %w", sourceName(file), err)
	}
	if _, err := schema.Compile(compact.String()); err != nil {
		return nil, fmt.Errorf("%s: the schema %w", sourceName(file), err)
	}
	return compact.Bytes(), nil
}

// schemaPolicy names the policy from which a topic has its schema.
func schemaPolicy(ctx context.Context, c *client, plane *admin.ControlPlane, topic string) (string, error) {
	list, err := askPlane(ctx, c, plane.Policies)
	if err != nil {
		return "", err
	}
	best, text := "", ""
	for i := range list.Policies {
		p := &list.Policies[i]
		prefix, glob := strings.CutSuffix(p.Name, "*")
		its, has := settings(p)["schema.json_schema"]
		if !has || p.Name != topic && !(glob && strings.HasPrefix(topic, prefix)) {
			continue
		}
		if best == "" || p.Name == topic || best != topic && len(p.Name) > len(best) {
			best, text = p.Name, string(its)
		}
	}
	if best == "" || text == "null" {
		return "", fmt.Errorf("topic %s has no schema: no policy that holds for it sets schema.json_schema, so there is nothing to compare with",
			topic)
	}
	return best, nil
}

type schemaListCommand struct {
	Policy string `arg:"" help:"The policy: a topic, or a prefix and a *."`
}

func (*schemaListCommand) Help() string {
	return `Lists the schemas that a policy has had, the newest first.

Examples:

  sluice schema list orders.created`
}

// Run prints the versions.
func (s *schemaListCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	ask := func(ctx context.Context) ([]admin.SchemaVersion, error) { return schemasOf(ctx, c, plane, s.Policy) }
	return show(ctx, app, c, false, ask, func(out *sheet, versions []admin.SchemaVersion) error {
		rows := make([][]string, len(versions))
		for i, v := range versions {
			rows[i] = []string{fmt.Sprint(v.Version), out.time(v.At), plain(v.By), fmt.Sprint(len(v.JSONSchema))}
		}
		return out.table([]string{"VERSION", "SINCE", "BY", "BYTES"}, nil, rows)
	})
}

func schemasOf(ctx context.Context, c *client, plane *admin.ControlPlane, name string) ([]admin.SchemaVersion, error) {
	return askPlane(ctx, c, func(ctx context.Context) ([]admin.SchemaVersion, error) { return plane.Schemas(ctx, name) })
}

type schemaShowCommand struct {
	Name    string `arg:"" help:"The topic; with --schema-version the policy."`
	Version int64  `name:"schema-version" placeholder:"N" help:"The policy's schema with this number, from the control plane; without it, the schema by which the sidecar checks a topic's payloads."`
}

func (*schemaShowCommand) Help() string {
	return `Prints a schema, and nothing else.

Examples:

  sluice schema show orders.created
  sluice schema show 'orders.*' --schema-version 2`
}

// Run prints the schema.
func (s *schemaShowCommand) Run(ctx context.Context, app *program.App, c *client, h *admin.HTTP, plane *admin.ControlPlane) error {
	if s.Version == 0 {
		is, err := topicSchema(ctx, c, h, s.Name)
		if err != nil {
			return err
		}
		return printIndented(app, c, is.JSONSchema)
	}
	versions, err := schemasOf(ctx, c, plane, s.Name)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(versions, func(v admin.SchemaVersion) bool { return v.Version == s.Version })
	if i < 0 {
		return wire.Errorf(wire.NotFound, "policy %s has no version %d of its schema, or not any more", plain(s.Name), s.Version)
	}
	return printIndented(app, c, versions[i].JSONSchema)
}

func topicSchema(ctx context.Context, c *client, h *admin.HTTP, topic string) (admin.TopicSchema, error) {
	return ask(ctx, c, func(ctx context.Context) (admin.TopicSchema, error) { return h.Schema(ctx, topic) })
}

// printIndented prints JSON: for people in lines, with -o json in one.
func printIndented(app *program.App, c *client, text json.RawMessage) error {
	if c.Output.isDocument() {
		return c.Output.writeText(app.Stdout, text)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, text, "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err := out.WriteTo(app.Stdout)
	return err
}
