package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

type policySetCommand struct {
	Name   string   `arg:"" help:"The policy: a topic, or a prefix and a *. It is made if there is none."`
	Fields []string `arg:"" name:"FIELD=VALUE" help:"A field's path and its value; without a value the field is not set any more."`
	changeFlags
}

func (*policySetCommand) Help() string {
	return `Changes the fields that are given and leaves the others as they are. A value is
written as in YAML: 500, 30s, true, fleet. FIELD= unsets the field, so that it
comes from the next policy that matches.

The fields: publish.rate, publish.burst, publish.bytes_per_second, publish.scope,
publish.on_limit, publish.max_wait, publish.per, connection.rate, connection.burst,
delivery.rate, delivery.max_inflight, delivery.ack_timeout,
delivery.max_attempts, delivery.backoff.min, delivery.backoff.max, delivery.fairness.by,
delivery.fairness.weights.TENANT, groups.NAME.paused, groups.NAME.rate,
groups.NAME.max_inflight, partitions, dedupe.window, dedupe.by, retention.ttl, retention.compact,
retention.max_bytes, retention.expired, retention.dead_letters,
durability.write_concern, durability.on_store_unavailable, durability.spool_max_bytes,
schema.json_schema, schema.compatibility, tracing.sample_ratio,
auto_create, paused.

NAME and TENANT may have dots. In double quotes, with JSON's escapes, they may have
everything: 'groups."a=b".rate=5'.

Examples:

  sluice policy set orders.created publish.rate=500 publish.burst=500
  sluice policy set 'orders.*' publish.scope=fleet --wait
  sluice policy set orders.created groups.billing.v2.rate=50
  sluice policy set orders.created retention.ttl=24h --dry-run --events
  sluice policy set orders.created retention.ttl=`
}

// Run changes the policy.
func (s *policySetCommand) Run(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane) error {
	assignments := make([]assignment, len(s.Fields))
	for i, text := range s.Fields {
		var err error
		if assignments[i], err = parseAssignment(text); err != nil {
			return err
		}
	}
	return assign(ctx, app, c, plane, s.Name, assignments, &s.changeFlags)
}

// assignment gives the field at a path a value; nil takes it away.
type assignment struct {
	path  []string
	value json.RawMessage
}

// head is the members of a policy that are none of its settings.
var head = []string{"name", "version", "updated_at", "updated_by"}

// parseAssignment reads FIELD=VALUE. The control plane decides which fields exist, and which values
// they take.
func parseAssignment(text string) (assignment, error) {
	path, value, ok := parsePath(text)
	switch {
	case !ok || slices.Contains(path, ""):
		return assignment{}, program.Usagef("%q: expected FIELD=VALUE, such as publish.rate=500", text)
	case slices.Contains(head, path[0]):
		return assignment{}, program.Usagef("%q: %s cannot be set", text, path[0])
	case value == "":
		return assignment{path, nil}, nil
	case json.Valid([]byte(value)):
		return assignment{path, json.RawMessage(value)}, nil
	}
	quoted, err := json.Marshal(value)
	return assignment{path, quoted}, err
}

// parsePath reads a path up to the "=" behind it, and returns the rest. Parts are separated by dots; a part that begins with a
// quotation mark is a JSON string.
func parsePath(text string) (path []string, rest string, ok bool) {
	quoted := false
	for {
		var part string
		if strings.HasPrefix(text, `"`) {
			in := json.NewDecoder(strings.NewReader(text))
			if in.Decode(&part) != nil {
				return nil, "", false
			}
			quoted, text = true, text[in.InputOffset():]
		} else if end := strings.IndexAny(text, ".="); end >= 0 {
			part, text = text[:end], text[end:]
		}
		path = append(path, part)
		switch {
		case strings.HasPrefix(text, "="):
			if !quoted {
				path = joinName(path)
			}
			return path, text[1:], true
		case !strings.HasPrefix(text, "."):
			return nil, "", false
		}
		text = text[1:]
	}
}

// groupFields are the fields of a policy's entry for one group.
var groupFields = []string{"paused", "rate", "max_inflight"}

// joinName joins the parts of a name with dots, of a group or a tenant, that was written without quotation marks.
func joinName(path []string) []string {
	weights := []string{"delivery", "fairness", "weights"}
	switch {
	case len(path) > 2 && path[0] == "groups":
		name, field := path[1:], path[len(path):]
		if last := path[len(path)-1]; slices.Contains(groupFields, last) {
			name, field = path[1:len(path)-1], []string{last}
		}
		return append([]string{"groups", strings.Join(name, ".")}, field...)
	case len(path) > 3 && slices.Equal(path[:3], weights):
		return append(weights, strings.Join(path[3:], "."))
	}
	return path
}

// assignTries is how often a change of fields is repeated because another client changed the policy
// in between.
const assignTries = 5

// assign changes fields of a policy, also while other clients change other fields, and prints its
// changes.
func assign(ctx context.Context, app *program.App, c *client, plane *admin.ControlPlane, name string, assignments []assignment,
	flags *changeFlags) error {
	for try := 1; ; try++ {
		before, err := current(ctx, c, plane, name)
		if err != nil {
			return err
		}
		document, when, err := assigned(name, before, assignments)
		if err != nil {
			return err
		}
		if flags.DryRun {
			var plan admin.ApplyResult
			if plan, err = askPlane(ctx, c, func(ctx context.Context) (admin.ApplyResult, error) {
				return plane.PlanPutPolicy(ctx, name, document, when)
			}); err == nil {
				return flags.printPlan(ctx, app, c, plane, plan)
			}
		} else {
			var now admin.Policy
			if now, err = askPlane(ctx, c, func(ctx context.Context) (admin.Policy, error) {
				return plane.PutPolicy(ctx, name, document, when)
			}); err == nil {
				return flags.saved(ctx, app, c, plane, before, &now)
			}
		}
		if !errors.Is(err, &wire.Error{Code: wire.PreconditionFailed}) || try == assignTries {
			return listed(app.Stderr, err, name)
		}
	}
}

// assigned is the policy before with the assignments, and the condition that it is still the one
// that is there.
func assigned(name string, before *admin.Policy, assignments []assignment) (document json.RawMessage, when admin.Condition, err error) {
	document, when = json.RawMessage(`{}`), admin.Condition{Absent: true}
	if before != nil {
		document, when = before.Document, admin.Condition{Version: before.Version}
	} else if !slices.ContainsFunc(assignments, func(a assignment) bool { return a.value != nil }) {
		return nil, when, wire.Errorf(wire.NotFound, "there is no policy %q in which to unset anything", name)
	}
	for _, a := range assignments {
		if document, err = withMember(document, a.path, a.value); err != nil {
			return nil, when, err
		}
	}
	return document, when, nil
}

// withMember returns the object with the member at path set, or taken away where the value is nil.
// A section that this leaves empty goes, too.
func withMember(object json.RawMessage, path []string, value json.RawMessage) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if object != nil {
		if err := json.Unmarshal(object, &members); err != nil || members == nil {
			return nil, program.Usagef("%s is a value, and has no field %s", object, strings.Join(path, "."))
		}
	}
	key := path[0]
	if len(path) > 1 {
		inner, err := withMember(members[key], path[1:], value)
		if err != nil {
			return nil, err
		}
		value = inner
		if string(inner) == "{}" {
			value = nil
		}
	}
	members[key] = value
	if value == nil {
		delete(members, key)
	}
	return json.Marshal(members)
}
