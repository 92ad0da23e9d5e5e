package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// MarshalJSON encodes the policy as a document: its name and the fields that it sets, in the order
// of the contract. Equal policies have equal texts, and [Policy.UnmarshalJSON] reads them back
// equal.
func (p Policy) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil), nil }

// AppendJSON is MarshalJSON into an existing buffer.
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

// appendKey appends the name of a member, with a comma unless it is the first of its object.
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

// emptyJSON has the fields whose values are JSON themselves, with their empty values.
var emptyJSON = map[string]string{schemaPath: "null", "groups": "{}", "delivery.fairness.weights": "{}"}

// durationText shortens the text of time.Duration: 168h instead of 168h0m0s.
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

// appendNumber writes large and tiny numbers with an exponent: a number without one has to be a
// whole number that the document can hold exactly.
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
		return refused("name", "is missing; a topic, or a prefix and * such as orders.*")
	}
	*p = read
	return nil
}

// ParsePolicy parses one policy as JSON. It ignores the members named in ignored, and the name may
// be absent: then it is empty. It does not check the fields against those of other policies;
// [NewSnapshot] does. The error is a *[wire.Error] with code invalid_policy and every bad field by
// its path, such as publish.rate.
func ParsePolicy(data []byte, ignored ...string) (Policy, error) {
	if len(data) > MaxDocumentBytes {
		return Policy{}, tooLarge(len(data))
	}
	root, err := jsonRoot(data)
	if err != nil {
		return Policy{}, refused("policy", "%v", err)
	}
	if root.Kind != yaml.MappingNode {
		return Policy{}, refused("policy", `must be an object such as {"name":"orders.*"}, not %s`, shown(root))
	}
	p := parser{ignored: ignored, unnamed: true}
	policy := p.policy(root, "")
	if len(p.bad) > 0 {
		return Policy{}, refusal(p.bad)
	}
	return policy, nil
}

// ParseList parses the document of [ParseJSON], but ignores the members of policies that ignored
// names, and does not check fields against each other: for policies that are completed by others
// outside of the document.
func ParseList(data []byte, ignored ...string) ([]Policy, error) {
	if len(data) > MaxDocumentBytes {
		return nil, tooLarge(len(data))
	}
	root, err := jsonRoot(data)
	if err != nil {
		return nil, refused("policies", "%v", err)
	}
	p := parser{ignored: ignored}
	policies := p.document(root)
	_, twice := inOrder(policies)
	if bad := append(p.bad, twice...); len(bad) > 0 {
		return nil, refusal(bad)
	}
	return policies, nil
}

// Equal reports whether two policies have the same content, independent of their spelling and their
// schemas' versions.
func (p *Policy) Equal(q *Policy) bool {
	ours, theirs := p.values, q.values
	ours.Schema.Version, theirs.Schema.Version = 0, 0
	return p.Name == q.Name && p.set == q.set && ours == theirs
}

// Match names the most specific policy of a topic; "": there is none, so that the defaults hold.
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
	if _, found := s.find("*"); found || s.prefixes["*"] != nil {
		return "*"
	}
	return ""
}
