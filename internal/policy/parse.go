package policy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// Bounds of a policy document. Each of its values and names is a node, which takes 160 bytes while
// it is parsed; ten thousand policies that set every field have 800,000.
const (
	MaxDocumentBytes = 16 << 20
	MaxDocumentNodes = 1_000_000
)

// ParseYAML reads a document: a list of policies, or an object whose member "policies" is one. The
// error is a *[wire.Error] with code invalid_policy that lists every bad field, each with its line;
// then no policy is returned.
func ParseYAML(data []byte) ([]Policy, error) {
	if len(data) > MaxDocumentBytes {
		return nil, tooLarge(len(data))
	}
	if indicators(data) > 2*MaxDocumentNodes {
		return nil, refused("policies", "%v", errTooManyNodes)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF): // nothing but white space and comments
		doc = yaml.Node{Kind: yaml.DocumentNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Tag: "!!null"}}}
	case err != nil:
		return nil, notYAML(err)
	}
	switch err := dec.Decode(new(yaml.Node)); {
	case err == nil:
		return nil, refused("policies", "the file has more than one YAML document; write one list")
	case !errors.Is(err, io.EOF):
		return nil, notYAML(err)
	}
	return parse(doc.Content[0])
}

// ParseJSON reads the same document as JSON.
func ParseJSON(data []byte) ([]Policy, error) {
	if len(data) > MaxDocumentBytes {
		return nil, tooLarge(len(data))
	}
	root, err := jsonRoot(data)
	if err != nil {
		return nil, refused("policies", "%v", err)
	}
	return parse(root)
}

// indicators counts the characters that begin or end nodes of a YAML document: there is at least
// one for each node, also for an alias, which is never followed.
func indicators(data []byte) (n int) {
	for _, c := range data {
		switch c {
		case '[', '{', ',', ':', '\n', '-', '?':
			n++
		}
	}
	return n
}

var errTooManyNodes = fmt.Errorf("the document has more than %d values and names, the most that are read", MaxDocumentNodes)

// jsonRoot parses a text that is one JSON value.
func jsonRoot(data []byte) (*yaml.Node, error) {
	dec := nodeReader{Decoder: json.NewDecoder(bytes.NewReader(data)), left: MaxDocumentNodes}
	dec.UseNumber()
	root, err := dec.node(0)
	if errors.Is(err, errTooManyNodes) {
		return nil, err
	}
	if err == nil {
		if _, end := dec.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("more text after the document")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return root, nil
}

// maxNesting bounds the depth of a JSON document: parsing takes stack.
const maxNesting = 512

// nodeReader parses JSON values as nodes, a bounded number of them.
type nodeReader struct {
	*json.Decoder
	left int
}

// node parses the next JSON value as the node that YAML would make of it, without a line; depth is
// its depth.
func (dec *nodeReader) node(depth int) (*yaml.Node, error) {
	if dec.left--; dec.left < 0 {
		return nil, errTooManyNodes
	}
	tok, err := dec.Token()
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	scalar := func(tag, value string) (*yaml.Node, error) {
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: tag, Value: value}, nil
	}
	switch v := tok.(type) {
	case nil:
		return scalar("!!null", "null")
	case bool:
		return scalar("!!bool", strconv.FormatBool(v))
	case string:
		return scalar("!!str", v)
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return scalar("!!float", v.String())
		}
		return scalar("!!int", v.String())
	}
	if depth == maxNesting {
		return nil, fmt.Errorf("nested more than %d deep", maxNesting)
	}
	n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	if tok == json.Delim('{') {
		n.Kind, n.Tag = yaml.MappingNode, "!!map" // names and values in turn
	}
	for dec.More() {
		item, err := dec.node(depth + 1)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, item)
	}
	if _, err := dec.Token(); err != nil { // the closing bracket
		return nil, io.ErrUnexpectedEOF
	}
	return n, nil
}

func tooLarge(size int) error {
	return refused("policies", "the document has %d bytes; at most %d are read", size, MaxDocumentBytes)
}

func notYAML(err error) error {
	return refused("policies", "not YAML: %s", strings.TrimPrefix(err.Error(), "yaml: "))
}

// refused is the error of one bad field.
func refused(field, format string, args ...any) error {
	return refusal([]wire.FieldError{{Field: field, Message: fmt.Sprintf(format, args...)}})
}

// refusal makes one error of all bad fields. Its message names each of them, too.
func refusal(bad []wire.FieldError) error {
	reasons := make([]string, len(bad))
	for i := range bad {
		bad[i].Field = cmp.Or(bad[i].Field, "policies") // the document itself
		reasons[i] = bad[i].Field + ": " + bad[i].Message
	}
	e := wire.Errorf(wire.InvalidPolicy, "%s", strings.Join(reasons, "; "))
	e.Fields = bad
	return e
}

// parser walks a document and collects its mistakes.
type parser struct {
	bad []wire.FieldError
	// ignored are members of a policy that are ignored.
	ignored []string
	// unnamed allows a policy without a name.
	unnamed bool
}

func (p *parser) refuse(n *yaml.Node, path, format string, args ...any) {
	p.bad = append(p.bad, fieldError(n.Line, path, fmt.Sprintf(format, args...)))
}

func fieldError(line int, path, msg string) wire.FieldError {
	if line > 0 {
		msg = fmt.Sprintf("line %d: %s", line, msg)
	}
	return wire.FieldError{Field: path, Message: msg}
}

func parse(root *yaml.Node) ([]Policy, error) {
	var p parser
	policies := p.document(root)
	_, bad := resolve(policies)
	if bad = append(p.bad, bad...); len(bad) > 0 {
		return nil, refusal(bad)
	}
	return policies, nil
}

// document parses the list of policies, which may be in an object.
func (p *parser) document(root *yaml.Node) []Policy {
	list := root
	if root.Kind == yaml.MappingNode {
		list = nil
		for name, value := range p.members(root, "") {
			if name.Value == "policies" {
				list = value
			} else {
				p.refuse(name, name.Value, "unknown key; the document is a list of policies, or an object with the key policies")
			}
		}
		if list == nil {
			p.refuse(root, "policies", "is missing; write policies: [] for none")
			return nil
		}
	}
	if list.Kind != yaml.SequenceNode {
		p.refuse(list, "policies", "must be a list of policies ([] for none), not %s", shown(list))
		return nil
	}
	policies := make([]Policy, len(list.Content))
	for i, n := range list.Content {
		policies[i] = p.policy(n, fmt.Sprintf("policies[%d]", i))
	}
	return policies
}

// members yields the names and values of an object, refusing names that are not scalars or occur
// twice.
func (p *parser) members(n *yaml.Node, path string) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(name, value *yaml.Node) bool) {
		seen := map[string]bool{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := n.Content[i], n.Content[i+1]
			switch {
			case name.Kind != yaml.ScalarNode:
				p.refuse(name, path, "a key must be a string, not %s", shown(name))
			case seen[name.Value]:
				p.refuse(name, join(path, name.Value), "the key occurs twice")
			case !yield(name, value):
				return
			}
			seen[name.Value] = true
		}
	}
}

func (p *parser) policy(n *yaml.Node, path string) Policy {
	if n.Kind != yaml.MappingNode {
		p.refuse(n, path, "must be an object such as {name: orders.*}, not %s", shown(n))
		return Policy{bad: true}
	}
	before := len(p.bad)
	out := Policy{line: n.Line}
	named := false
	for name, value := range p.members(n, path) {
		if name.Value == "name" {
			named = true
			out.line = value.Line
			out.Name = p.name(value, join(path, "name"))
			continue
		}
		if slices.Contains(p.ignored, name.Value) {
			continue
		}
		p.member(&out, path, "", name, value)
	}
	if !named && !p.unnamed {
		p.refuse(n, join(path, "name"), "is missing; a topic, or a prefix and * such as orders.*")
	}
	out.bad = len(p.bad) > before
	return out
}

// member parses the value of one key in a section of the policy: a field, or a section.
func (p *parser) member(out *Policy, policyPath, section string, name, value *yaml.Node) {
	if allowed := keysIn[section]; !slices.Contains(allowed, name.Value) {
		p.refuse(name, join(join(policyPath, section), name.Value), "unknown key; allowed here: %s", strings.Join(allowed, ", "))
		return
	}
	path := join(section, name.Value)
	if i := fieldAt(path); i >= 0 {
		if err := fields[i].read(&out.values, value); err != nil {
			p.bad = append(p.bad, fieldErrors(value.Line, join(policyPath, path), err)...)
			return
		}
		out.set = out.set.with(i)
		return
	}
	switch {
	case value.Kind == yaml.MappingNode:
		for inner, v := range p.members(value, join(policyPath, path)) {
			p.member(out, policyPath, path, inner, v)
		}
	case value.Kind == yaml.ScalarNode && value.ShortTag() == "!!null": // a section left empty
	default:
		p.refuse(value, join(policyPath, path), "must be an object with %s, not %s", strings.Join(keysIn[path], ", "), shown(value))
	}
}

// keysIn are the keys that are allowed, by section; "" is the policy itself.
var keysIn = func() map[string][]string {
	keys := map[string][]string{"": {"name"}}
	for _, f := range fields {
		section := ""
		for key := range strings.SplitSeq(f.path, ".") {
			if !slices.Contains(keys[section], key) {
				keys[section] = append(keys[section], key)
			}
			section = join(section, key)
		}
	}
	return keys
}()

func (p *parser) name(n *yaml.Node, path string) string {
	if n.Kind == yaml.ScalarNode && ValidName(n.Value) {
		return n.Value
	}
	p.refuse(n, path, "must be a topic (1 to %d of A-Z a-z 0-9 . _ -), or a prefix of one and a * at the end, not %s",
		wire.MaxTopicBytes, shown(n))
	return ""
}

// ValidName reports whether a policy may have that name: a topic, or a prefix of one followed by *.
func ValidName(name string) bool {
	literal := strings.TrimSuffix(name, "*")
	return name != "" && len(name) <= wire.MaxTopicBytes && codec.OnlyTopicBytes(literal)
}

// join appends a key to the path of its section.
func join(path, key string) string {
	if path == "" || key == "" {
		return path + key
	}
	return path + "." + key
}
