package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// MarshalJSON writes the policy as the document has it: its name, and the
// fields that it sets and no others, in the order of the contract. Equal
// policies have equal texts, and [Policy.UnmarshalJSON] reads them back equal.
func (p Policy) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil), nil }

// AppendJSON is MarshalJSON into a buffer that is there.
func (p *Policy) AppendJSON(out []byte) []byte {
	out = appendText(append(out, `{"name":`...), p.Name)
	var open []string // the sections that are open, outermost first
	for path, v := range p.Values() {
		sections := strings.Split(path, ".")
		key := sections[len(sections)-1]
		sections = sections[:len(sections)-1]
		same := common(open, sections)
		out = append(out, strings.Repeat("}", len(open)-same)...)
		for _, section := range sections[same:] {
			out = append(appendKey(out, section), '{')
		}
		open = sections
		out = appendValue(appendKey(out, key), path, v)
	}
	return append(append(out, strings.Repeat("}", len(open))...), '}')
}

// common counts the sections at the beginning that two paths share.
func common(a, b []string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// appendKey writes the name of a member, with a comma before it where it is
// not the first of its object.
func appendKey(out []byte, key string) []byte {
	if out[len(out)-1] != '{' {
		out = append(out, ',')
	}
	return append(appendText(out, key), ':')
}

// appendValue writes a value as [Policy.Values] yields it.
func appendValue(out []byte, path string, v any) []byte {
	switch v := v.(type) {
	case float64:
		return appendNumber(out, v)
	case int64:
		return strconv.AppendInt(out, v, 10)
	case bool:
		return strconv.AppendBool(out, v)
	case time.Duration:
		return appendText(out, durationText(v))
	case string:
		switch empty, isJSON := emptyJSON[path]; {
		case !isJSON:
			return appendText(out, v)
		case v == "":
			return append(out, empty...)
		}
		return append(out, v...)
	}
	panic(fmt.Sprintf("policy: %s has a value of type %T", path, v))
}

// emptyJSON has the fields whose values are JSON themselves, and what they are
// when they are empty.
var emptyJSON = map[string]string{schemaPath: "null", "groups": "{}", "delivery.fairness.weights": "{}"}

// durationText leaves out what time.Duration spells and people do not: 168h
// rather than 168h0m0s.
func durationText(d time.Duration) string {
	text := d.String()
	if short, ok := strings.CutSuffix(text, "m0s"); ok {
		text = short + "m"
	}
	if short, ok := strings.CutSuffix(text, "h0m"); ok {
		text = short + "h"
	}
	return text
}

// appendNumber writes large and tiny numbers with an exponent: digits without
// one have to be a whole number that the document can hold as such.
func appendNumber(out []byte, v float64) []byte {
	if v != 0 && (v < 1e-6 || v >= maxExactNumber) {
		return strconv.AppendFloat(out, v, 'e', -1, 64)
	}
	return strconv.AppendFloat(out, v, 'f', -1, 64)
}

// UnmarshalJSON reads one policy, as [ParsePolicy] does; it must have a name.
func (p *Policy) UnmarshalJSON(data []byte) error {
	read, err := ParsePolicy(data)
	if err != nil {
		return err
	}
	if read.Name == "" {
		return refusal([]wire.FieldError{{Field: "name", Message: "is missing; a topic, or a prefix and * such as orders.*"}})
	}
	*p = read
	return nil
}

// ParsePolicy reads one policy as JSON. Members of the names in ignored are
// passed over, and the name may be absent: then it is empty. How the fields
// relate to those of other policies is not looked at; [NewSnapshot] does that.
// The error is a *[wire.Error] with code invalid_policy and every bad field by
// its path, such as publish.rate.
func ParsePolicy(data []byte, ignored ...string) (Policy, error) {
	return parsePolicy(data, parser{ignored: ignored, unnamed: true})
}

// ParseStored is ParsePolicy for a policy that was let in before: whether its
// schema compiles is not looked at again, since an older program may have
// allowed it.
func ParseStored(data []byte) (Policy, error) {
	return parsePolicy(data, parser{unnamed: true, stored: true})
}

func parsePolicy(data []byte, p parser) (Policy, error) {
	if len(data) > MaxDocumentBytes {
		return Policy{}, tooLarge(len(data))
	}
	root, err := jsonRoot(data)
	if err != nil {
		return Policy{}, refusal([]wire.FieldError{{Field: "policy", Message: err.Error()}})
	}
	if root.Kind != yaml.MappingNode {
		return Policy{}, refusal([]wire.FieldError{{Field: "policy",
			Message: "must be an object such as {\"name\":\"orders.*\"}, not " + shown(root)}})
	}
	policy := p.policy(root, "")
	if len(p.bad) > 0 {
		return Policy{}, refusal(p.bad)
	}
	return policy, nil
}

// ParseList reads the document of [ParseJSON], but passes over the members of
// policies that ignored names, and does not look at how the fields of policies
// relate: for policies that others, which are not in the document, complete.
func ParseList(data []byte, ignored ...string) ([]Policy, error) {
	if len(data) > MaxDocumentBytes {
		return nil, tooLarge(len(data))
	}
	root, err := jsonRoot(data)
	if err != nil {
		return nil, refusal([]wire.FieldError{{Field: "policies", Message: err.Error()}})
	}
	p := parser{ignored: ignored}
	policies := p.document(root)
	_, twice := inOrder(policies)
	if bad := append(p.bad, twice...); len(bad) > 0 {
		return nil, refusal(bad)
	}
	return policies, nil
}

// ValidName reports whether a policy may have that name: a topic, or a prefix
// of one and a * at the end.
func ValidName(name string) bool { return validName(name) }

// Version is a short hash of what the policy says, whatever its spelling.
func (p *Policy) Version() string { return p.version() }

// Equal reports whether two policies say the same, whatever their spelling and
// however their schemas are counted.
func (p *Policy) Equal(q *Policy) bool {
	ours, theirs := p.values, q.values
	ours.Schema.Version, theirs.Schema.Version = 0, 0
	return p.Name == q.Name && p.set == q.set && ours == theirs
}

// Match names the policy that is the most specific one for a topic; "": none
// is, so that the defaults hold.
func (s *Snapshot) Match(topic string) string {
	if s.own(topic) != nil {
		return topic
	}
	for _, n := range s.lengths {
		if n > len(topic) || n == 0 {
			continue
		}
		if _, ok := s.globs[topic[:n]]; ok {
			return topic[:n] + "*"
		}
	}
	if s.topics != nil && s.prefixes["*"] != nil {
		return "*"
	}
	_, found := slices.BinarySearchFunc(s.list, "*", func(p InForce, name string) int { return strings.Compare(p.Name, name) })
	if found {
		return "*"
	}
	return ""
}
