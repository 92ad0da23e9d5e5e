package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// Bounds of the fields with named members, in one policy.
const (
	MaxGroups  = 1000 // consumer groups in groups
	MaxWeights = 1000 // tenants in delivery.fairness.weights
	// MaxMergedBytes bounds the text that groups and weights of policies resolved together inherit:
	// each policy that sets some has a copy of all of them.
	MaxMergedBytes = 32 << 20
)

// Merged is how many bytes of text the policy's own groups and weights have inherited; e has the
// effective values of its name. A policy that sets none shares them.
func (p *Policy) Merged(e *Effective) (n int) {
	if own := p.values.Groups; own != "" {
		n += len(e.Groups) - len(own)
	}
	if own := p.values.Delivery.Fairness.Weights; own != "" {
		n += len(e.Delivery.Fairness.Weights) - len(own)
	}
	return n
}

// Groups are the limits of consumer groups by their names: the object of the document as JSON text,
// in the order of names, so that equal ones are ==. "": there are none.
type Groups string

// GroupLimits are the limits of one consumer group in a policy.
type GroupLimits struct {
	Paused      bool    `json:"paused"`       // nothing is delivered to it
	Rate        float64 `json:"rate"`         // events per second to all of its members together; 0: no limit
	MaxInflight int     `json:"max_inflight"` // events in flight at all of its members together; 0: no limit but their own
}

// groupFields marks the limits that are set.
type groupFields struct {
	Paused      *bool    `json:"paused,omitempty"`
	Rate        *float64 `json:"rate,omitempty"`
	MaxInflight *int     `json:"max_inflight,omitempty"`
}

// Of returns the limits of a group. It parses all groups: keep its result.
func (g Groups) Of(name string) GroupLimits {
	if g == "" {
		return GroupLimits{}
	}
	return named[GroupLimits](string(g))[name]
}

// over returns the groups, which inherit unset limits from below.
func (g Groups) over(below Groups) Groups {
	return Groups(merged(string(g), string(below), func(f, below groupFields) groupFields {
		return groupFields{
			Paused:      cmp.Or(f.Paused, below.Paused),
			Rate:        cmp.Or(f.Rate, below.Rate),
			MaxInflight: cmp.Or(f.MaxInflight, below.MaxInflight),
		}
	}))
}

// Weights are the weights of tenants by their names, like [Groups]; a tenant without one has weight
// 1.
type Weights string

// All returns the weights by the names of the tenants.
func (w Weights) All() map[string]float64 {
	if w == "" {
		return nil
	}
	return named[float64](string(w))
}

// over returns the weights, and inherits those of other names from below.
func (w Weights) over(below Weights) Weights {
	return Weights(merged(string(w), string(below), func(weight, _ float64) float64 { return weight }))
}

// named parses the members of a text that this package wrote.
func named[T any](text string) map[string]T {
	members := map[string]T{}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &members); err != nil {
			panic("policy: " + err.Error())
		}
	}
	return members
}

// textOf encodes members for named.
func textOf[T any](members map[string]T) string {
	if len(members) == 0 {
		return ""
	}
	text, err := json.Marshal(members)
	if err != nil {
		panic("policy: " + err.Error())
	}
	return string(text)
}

// merged joins the members of two texts; both merges a member that is in both.
func merged[T any](text, below string, both func(member, below T) T) string {
	switch {
	case text == "":
		return below
	case below == "":
		return text
	}
	members := named[T](text)
	for name, b := range named[T](below) {
		if m, ok := members[name]; ok {
			b = both(m, b)
		}
		members[name] = b
	}
	return textOf(members)
}

// memberErrors are the mistakes in the members of a field, each with its path below the field.
type memberErrors []wire.FieldError

func (e memberErrors) Error() string { return e[0].Field + ": " + e[0].Message }

// fieldErrors are the mistakes in err, the error of parsing the field at path.
func fieldErrors(line int, path string, err error) []wire.FieldError {
	members, ok := errors.AsType[memberErrors](err)
	if !ok {
		return []wire.FieldError{fieldError(line, path, err.Error())}
	}
	for i := range members {
		members[i].Field = join(path, members[i].Field)
	}
	return members
}

// readNamed parses an object with named members, or a string that holds such an object. The
// function one parses each member.
func readNamed(n *yaml.Node, most int, example string, one func(name string, value *yaml.Node) error) error {
	shows := shown(n)
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		if root, err := jsonRoot([]byte(n.Value)); err == nil {
			n = root
		}
	}
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("must be an object such as %s, not %s", example, shows)
	}
	if len(n.Content) > 2*most {
		return fmt.Errorf("has %d members; at most %d are allowed", len(n.Content)/2, most)
	}
	var p parser
	for name, value := range p.members(n, "") {
		if err := one(name.Value, value); err != nil {
			p.bad = append(p.bad, fieldErrors(value.Line, name.Value, err)...)
		}
	}
	if len(p.bad) > 0 {
		return memberErrors(p.bad)
	}
	return nil
}

// groups are the limits of consumer groups.
var groups = kind[Groups]{readGroups, namedSchema(MaxGroups, object(map[string]any{
	"paused":       described(boolean.schema, "nothing is delivered to the group"),
	"rate":         described(rate.schema, "events a second to all of its members together; 0: no limit"),
	"max_inflight": described(groupInflight.schema, "unacked events of all of its members together; 0: no limit but their own"),
}))}

var groupInflight = whole[int](0, maxInflight)

func readGroups(n *yaml.Node) (Groups, error) {
	members := map[string]groupFields{}
	err := readNamed(n, MaxGroups, "{audit: {paused: true}}", func(name string, value *yaml.Node) error {
		if e := codec.CheckGroup(name); e != nil {
			return errors.New(e.Msg)
		}
		f, err := oneGroup(value)
		if f != (groupFields{}) {
			members[name] = f
		}
		return err
	})
	return Groups(textOf(members)), err
}

// oneGroup reads the limits of one consumer group.
func oneGroup(n *yaml.Node) (f groupFields, err error) {
	err = readNamed(n, MaxGroups, "{paused: true}", func(key string, value *yaml.Node) (err error) {
		switch key {
		case "paused":
			f.Paused, err = pointed(boolean, value)
		case "rate":
			f.Rate, err = pointed(rate, value)
		case "max_inflight":
			f.MaxInflight, err = pointed(groupInflight, value)
		default:
			err = errors.New("unknown key; allowed here: paused, rate, max_inflight")
		}
		return err
	})
	return f, err
}

func pointed[T any](of kind[T], n *yaml.Node) (*T, error) {
	v, err := of.read(n)
	return &v, err
}

// weights are the weights of tenants.
var weights = kind[Weights]{readWeights, namedSchema(MaxWeights, described(weight.schema, "the weight of the tenant of that name"))}

var weight = number(minWeight, maxWeight)

func readWeights(n *yaml.Node) (Weights, error) {
	members := map[string]float64{}
	err := readNamed(n, MaxWeights, "{acme: 2}", func(name string, value *yaml.Node) (err error) {
		members[name], err = weight.read(value)
		return err
	})
	return Weights(textOf(members)), err
}

// Grouping is how events are assigned to tenants: the policy's publish.per and
// delivery.fairness.by.
type Grouping string

// PerHeader begins a Grouping by the value of a header, whose name follows.
const PerHeader = "header:"

// KeyPrefix is the Grouping by the beginning of the key; a colon and a separator may follow.
const KeyPrefix = "key_prefix"

// perHeader is publish.per.
var perHeader = kind[Grouping]{readPerHeader, map[string]any{"type": []string{"string", "null"}, "pattern": "^(header:.+)?$"}}

func readPerHeader(n *yaml.Node) (Grouping, error) {
	if g, ok := grouping(n); ok && (g == "" || strings.HasPrefix(string(g), PerHeader)) {
		return g, nil
	}
	return "", fmt.Errorf(`must be "header:NAME", or "" for none, not %s`, shown(n))
}

// fairnessBy is delivery.fairness.by.
var fairnessBy = kind[Grouping]{readFairnessBy,
	map[string]any{"type": []string{"string", "null"}, "pattern": "^(header:.+|key_prefix(:.+)?)?$"}}

func readFairnessBy(n *yaml.Node) (Grouping, error) {
	if g, ok := grouping(n); ok {
		return g, nil
	}
	return "", fmt.Errorf(`must be "header:NAME", "key_prefix", "key_prefix:SEPARATOR", or "" for none, not %s`, shown(n))
}

func grouping(n *yaml.Node) (Grouping, bool) {
	switch {
	case n.Kind != yaml.ScalarNode:
		return "", false
	case n.ShortTag() == "!!null":
		return "", true
	case n.Value == "", n.Value == KeyPrefix:
		return Grouping(n.Value), true
	}
	kind, rest, _ := strings.Cut(n.Value, ":")
	if rest == "" || len(rest) > wire.MaxGroupBytes || kind+":" != PerHeader && kind != KeyPrefix {
		return "", false
	}
	if kind == KeyPrefix {
		return Grouping(n.Value), true
	}
	return Grouping(PerHeader + strings.ToLower(rest)), true
}

// maxTenantName bounds the name of a tenant.
const maxTenantName = 128

// Tenant returns the tenant of an event, or the hash of its name if that is long; "" is that of
// events without the header, or without a key.
func (g Grouping) Tenant(key string, headers wire.Headers) string {
	name := g.tenant(key, headers)
	if len(name) <= maxTenantName {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (g Grouping) tenant(key string, headers wire.Headers) string {
	if name, ok := strings.CutPrefix(string(g), PerHeader); ok {
		for i := range headers {
			if strings.EqualFold(headers[i].Name, name) {
				return headers[i].Value
			}
		}
		return ""
	}
	end := -1
	if separator, ok := strings.CutPrefix(string(g), KeyPrefix+":"); ok {
		end = strings.Index(key, separator)
	} else {
		end = strings.IndexFunc(key, endsPrefix)
	}
	if end < 0 {
		return key
	}
	return key[:end]
}

// endsPrefix reports whether a character ends the prefix of a key: any but letters, digits, dash
// and underscore.
func endsPrefix(c rune) bool {
	letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= utf8.RuneSelf
	digit := '0' <= c && c <= '9'
	return !letter && !digit && c != '-' && c != '_'
}
