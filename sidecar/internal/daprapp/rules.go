package daprapp

import (
	"errors"
	"fmt"
	"strings"

	"cel.dev/cel-go/cel"
)

// maxRuleCost bounds the work of one expression for one event.
const maxRuleCost = 1_000_000

// rulesEnv has the variable event: its attributes, extensions and data, as in the CloudEvent.
var rulesEnv = func() *cel.Env {
	env, err := cel.NewEnv(cel.Variable("event", cel.DynType))
	if err != nil {
		panic(err) // it is a constant
	}
	return env
}()

// route is a rule; a nil program matches every event.
type route struct {
	path    string
	match   string
	program cel.Program
}

// compile reads a rule's expression.
func compile(rule Rule) (r route, err error) {
	r.path, r.match = rule.Path, strings.TrimSpace(rule.Match)
	if r.match == "" {
		return r, nil
	}
	ast, issues := rulesEnv.Compile(r.match)
	if issues.Err() != nil {
		return r, issues.Err()
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) && !t.IsExactType(cel.DynType) {
		return r, fmt.Errorf("%q is of the type %s; it must be true or false", r.match, t)
	}
	r.program, err = rulesEnv.Program(ast, cel.CostLimit(maxRuleCost))
	return r, err
}

// errNoRoute says that no rule matches an event.
var errNoRoute = errors.New("no rule of the subscription matches the event, and it has no default route")

// pathOf finds the path for an event: that of the first rule that matches. An expression that cannot be evaluated for the
// event is an error, as in Dapr.
func (s *Subscription) pathOf(e envelope) (string, error) {
	var event map[string]any
	for i := range s.routes {
		r := &s.routes[i]
		if r.program == nil {
			return r.path, nil
		}
		if event == nil {
			event = map[string]any{"event": e.Map()}
		}
		out, _, err := r.program.Eval(event)
		if err != nil {
			return "", fmt.Errorf("the rule %q cannot be evaluated: %w", r.match, err)
		}
		if matches, is := out.Value().(bool); !is {
			return "", fmt.Errorf("the rule %q gives %v; it must give true or false", r.match, out.Value())
		} else if matches {
			return r.path, nil
		}
	}
	return "", errNoRoute
}
