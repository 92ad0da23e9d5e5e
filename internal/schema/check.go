package schema

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Violation is the first violation of a schema in a payload.
type Violation struct {
	// Pointer is the JSON Pointer of the value; "" is the payload itself.
	Pointer string
	Msg     string // what is wrong with the value, as the rest of a sentence
}

// Check returns the violation of a payload, which is JSON; nil: there is none. If there are
// several, it is the one whose pointer comes first: an object's pointer comes before those of its
// members. If members have the same name, the last one counts, and a lone surrogate escape counts
// as U+FFFD.
func (s *Schema) Check(payload []byte) *Violation {
	v, err := decode(payload)
	if err != nil {
		return &Violation{Msg: "cannot be checked: " + err.Error()}
	}
	if pointer, number := hugeNumber(v, nil); number != "" {
		return &Violation{Pointer: pointer, Msg: "is the number " + shown(number) + ", which is too large or too small to be checked"}
	}
	if sizeOf(v)*s.cost.value+len(payload)*s.cost.text/textShare > maxSteps {
		return &Violation{Msg: tooCostly}
	}
	err = s.compiled.Validate(v)
	if err == nil {
		return nil
	}
	why, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return &Violation{Msg: "cannot be checked: " + err.Error()}
	}
	first := violationOf(why)
	return &first
}

// violationOf returns the first violation of a validation.
func violationOf(e *jsonschema.ValidationError) Violation {
	first := slices.MinFunc(leaves(e, nil), inOrder)
	return Violation{Pointer: pointerOf(first.InstanceLocation), Msg: complaint(first.ErrorKind)}
}

// leaves collects the errors below groups, allOf and references. It keeps an error of anyOf or
// oneOf itself, since each subschema has errors of its own.
func leaves(e *jsonschema.ValidationError, out []*jsonschema.ValidationError) []*jsonschema.ValidationError {
	switch e.ErrorKind.(type) {
	case *kind.Schema, *kind.Group, *kind.AllOf, *kind.Reference:
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				out = leaves(cause, out)
			}
			return out
		}
	}
	return append(out, e)
}

// inOrder sorts a value before its members by name and its elements by index; errors of one value
// are in the schema's own order of keywords.
func inOrder(a, b *jsonschema.ValidationError) int {
	if c := slices.CompareFunc(a.InstanceLocation, b.InstanceLocation, byToken); c != 0 {
		return c
	}
	if c := strings.Compare(a.SchemaURL, b.SchemaURL); c != 0 {
		return c
	}
	return slices.Compare(a.ErrorKind.KeywordPath(), b.ErrorKind.KeywordPath())
}

func byToken(a, b string) int {
	i, errA := strconv.Atoi(a)
	j, errB := strconv.Atoi(b)
	if errA == nil && errB == nil && i != j {
		return i - j
	}
	return strings.Compare(a, b)
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// pointerOf writes a location as RFC 6901 does.
func pointerOf(tokens []string) string {
	var p strings.Builder
	for _, t := range tokens {
		p.WriteByte('/')
		p.WriteString(pointerEscapes.Replace(t))
	}
	return p.String()
}

// Numbers are compared as exact fractions, whose cost grows with their exponents and digits:
// numbers beyond these bounds are not compared.
const (
	maxNumberBytes = 1000
	maxExponent    = 1000
)

// hugeNumber finds the first number out of bounds, at a place inside of at.
func hugeNumber(v any, at []string) (pointer, number string) {
	switch v := v.(type) {
	case json.Number:
		if isHuge(string(v)) {
			return pointerOf(at), string(v)
		}
	case map[string]any:
		first := ""
		for name, member := range v {
			if number != "" && name > first {
				continue
			}
			if p, n := hugeNumber(member, append(at, name)); n != "" {
				first, pointer, number = name, p, n
			}
		}
	case []any:
		for i, item := range v {
			switch item.(type) {
			case json.Number, map[string]any, []any: // the rest is not worth a place
				if pointer, number = hugeNumber(item, append(at, strconv.Itoa(i))); number != "" {
					return pointer, number
				}
			}
		}
	}
	return pointer, number
}

func isHuge(number string) bool {
	digits, exponent := extent(number)
	return digits > maxNumberBytes || exponent < -maxExponent || exponent > maxExponent
}

// extent is the length of a number and its exponent. An exponent that does not fit in an int counts
// as one above maxExponent.
func extent(number string) (digits, exponent int) {
	if i := strings.IndexAny(number, "eE"); i >= 0 {
		var err error
		if exponent, err = strconv.Atoi(number[i+1:]); err != nil {
			exponent = maxExponent + 1
		}
	}
	return len(number), exponent
}
