package policy

import (
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Values yields every field's path in the document ("publish.rate") and its value: a float64, an
// int64, a bool, a string or a [time.Duration].
func (e *Effective) Values() iter.Seq2[string, any] { return e.only(^fieldSet(0)) }

// Values yields the fields that the policy sets, as [Effective.Values] does.
func (p *Policy) Values() iter.Seq2[string, any] { return p.values.only(p.set) }

// only yields the fields of a set.
func (e *Effective) only(set fieldSet) iter.Seq2[string, any] {
	return func(yield func(string, any) bool) {
		for i, f := range fields {
			if set.has(i) && !yield(f.path, plain(f.get(e))) {
				return
			}
		}
	}
}

// plain converts a field's value to one of a few types.
func plain(v any) any {
	switch r := reflect.ValueOf(v); r.Kind() {
	case reflect.Int:
		return r.Int()
	case reflect.String:
		return r.String()
	}
	return v
}

// FromValues makes the values of a topic from values as [Effective.Values] yields them, with the
// defaults for the others. The error is a *[wire.Error] with every bad field, unknown ones
// included.
func FromValues(values iter.Seq2[string, any]) (*Effective, error) {
	p := Policy{Name: "*"}
	var bad []wire.FieldError
	var n yaml.Node // of each value
	for path, v := range values {
		i := fieldAt(path)
		if i < 0 {
			bad = append(bad, fieldError(0, path, "unknown field"))
			continue
		}
		n = valueNode(v)
		if err := fields[i].read(&p.values, &n); err != nil {
			bad = append(bad, fieldErrors(0, path, err)...)
			continue
		}
		p.set = p.set.with(i)
	}
	if len(bad) > 0 {
		return nil, refusal(bad)
	}
	e := Defaults()
	p.applyTo(&e)
	if bad := relations(&p, &e); len(bad) > 0 {
		return nil, refusal(bad)
	}
	return &e, nil
}

// valueNode encodes a value as in the document.
func valueNode(v any) yaml.Node {
	scalar := func(tag, text string) yaml.Node {
		return yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: text}
	}
	switch v := v.(type) {
	case float64:
		return scalar("!!float", strconv.FormatFloat(v, 'g', -1, 64))
	case int64:
		return scalar("!!int", strconv.FormatInt(v, 10))
	case bool:
		return scalar("!!bool", strconv.FormatBool(v))
	case string:
		if v == "" { // no schema, tenants or groups; no other field may be empty
			return scalar("!!null", "null")
		}
		return scalar("!!str", v)
	case time.Duration:
		return scalar("!!str", v.String())
	}
	return scalar("!!null", fmt.Sprintf("%T", v))
}
