package push

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sdk/wire/nearest"
)

// Defaults of an entry.
const (
	defaultInflight = 16
	defaultTimeout  = 30 * time.Second
)

// field is a key of an entry.
type field struct {
	name string
	must bool
	doc  string
	read func(e *Entry, n *yaml.Node) error
	// schema is the JSON Schema of its value.
	schema map[string]any
}

var (
	formats = []Format{FormatEvent, FormatCloudEvents, FormatStructured, FormatPayload}
	starts  = []string{wire.FromLatest, wire.FromEarliest}

	textSchema = map[string]any{"type": "string", "minLength": 1}
	mapSchema  = map[string]any{"type": "object", "additionalProperties": textSchema}
)

var fields = []field{
	{"topic", true, "the topic", checked(func(e *Entry) *string { return &e.Topic }, codec.CheckReadTopic), textSchema},
	{"group", true, "the consumer group", checked(func(e *Entry) *string { return &e.Group }, codec.CheckGroup), textSchema},
	{"url", true, "where each event is POSTed to: http:// or https://", readURL, textSchema},
	{"format", false, "how an event is written; the default is event", func(e *Entry, n *yaml.Node) error {
		e.Format = Format(n.Value)
		return oneOf(n, e.Format, formats)
	}, map[string]any{"enum": formats}},
	{"max_inflight", false, "events that it has at a time, for each sidecar; the default is 16", func(e *Entry, n *yaml.Node) (err error) {
		if e.MaxInflight, err = strconv.Atoi(n.Value); err != nil || e.MaxInflight < 1 || e.MaxInflight > maxInflight {
			return fmt.Errorf("must be a whole number from 1 to %d, not %s", maxInflight, shown(n))
		}
		return nil
	}, map[string]any{"type": "integer", "minimum": 1, "maximum": maxInflight}},
	{"timeout", false, "how long the endpoint may take for an event; the default is 30s", func(e *Entry, n *yaml.Node) (err error) {
		if e.Timeout, err = time.ParseDuration(n.Value); err != nil || e.Timeout < time.Millisecond {
			return fmt.Errorf(`must be a duration such as "30s" of at least 1ms, not %s`, shown(n))
		}
		return nil
	}, setting.DurationSchema()},
	{"secret_file", false, "file of the secrets that sign requests: one or two of whsec_…, one on each line", text(func(e *Entry) *string {
		return &e.SecretFile
	}), textSchema},
	{"headers", false, "headers of every request", readHeaders, mapSchema},
	{"from", false, "where a new group begins; the default is latest", func(e *Entry, n *yaml.Node) error {
		e.From = n.Value
		return oneOf(n, e.From, starts)
	}, map[string]any{"enum": starts}},
	{"filter", false, "key, tag and header (NAME: value); events without a match of every part are acked unseen", readFilter, map[string]any{
		"type": "object", "additionalProperties": false,
		"properties": map[string]any{"key": textSchema, "tag": textSchema, "header": mapSchema},
	}},
	{"identity", false, "entry of --auth-config with whose rights the events are consumed", text(func(e *Entry) *string {
		return &e.Identity
	}), textSchema},
}

// JSONSchema is the JSON Schema of the file, so that editors complete it and point out mistakes.
func JSONSchema() map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range fields {
		schema := map[string]any{"description": f.doc}
		for name, value := range f.schema {
			schema[name] = value
		}
		properties[f.name] = schema
		if f.must {
			required = append(required, f.name)
		}
	}
	return map[string]any{
		"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Endpoints that a sidecar of Sluice pushes events to",
		"type": []string{"array", "null"}, "maxItems": maxEntries,
		"items": map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false},
	}
}

// read reads an entry, and returns every mistake.
func (e *Entry) read(n *yaml.Node) (errs []error) {
	if n.Kind != yaml.MappingNode {
		return []error{fmt.Errorf("line %d: an entry must be an object with topic, group and url, not %s", n.Line, shown(n))}
	}
	var names []string
	for _, f := range fields {
		names = append(names, f.name)
	}
	seen, errs := members(n, names, func(name string, value *yaml.Node) error {
		return fields[slices.Index(names, name)].read(e, value)
	})
	for _, f := range fields {
		if f.must && !seen[f.name] {
			errs = append(errs, fmt.Errorf("line %d: %s is missing", n.Line, f.name))
		}
	}
	return errs
}

// members reads the members of an object, whose names are known.
func members(n *yaml.Node, known []string, read func(name string, value *yaml.Node) error) (seen map[string]bool, errs []error) {
	seen = map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		bad := func(err error) { errs = append(errs, fmt.Errorf("line %d: %s: %w", name.Line, name.Value, err)) }
		switch {
		case !slices.Contains(known, name.Value):
			bad(fmt.Errorf("unknown key%s", nearest.Known(name.Value, known)))
		case seen[name.Value]:
			bad(errors.New("the key occurs twice"))
		case value.Kind == yaml.AliasNode:
			bad(errors.New("is an alias; write the value out"))
		default:
			if err := read(name.Value, value); err != nil {
				bad(err)
			}
		}
		seen[name.Value] = true
	}
	return seen, errs
}

// text reads a text.
func text(to func(*Entry) *string) func(*Entry, *yaml.Node) error {
	return func(e *Entry, n *yaml.Node) error {
		if n.Kind != yaml.ScalarNode || n.ShortTag() == "!!null" || n.Value == "" {
			return fmt.Errorf("must be a text that is not empty, not %s", shown(n))
		}
		*to(e) = n.Value
		return nil
	}
}

// checked reads a text by a rule of the contract.
func checked(to func(*Entry) *string, check func(string) *wire.Error) func(*Entry, *yaml.Node) error {
	read := text(to)
	return func(e *Entry, n *yaml.Node) error {
		if err := read(e, n); err != nil {
			return err
		}
		if bad := check(*to(e)); bad != nil {
			return errors.New(bad.Msg)
		}
		return nil
	}
}

func oneOf[T comparable](n *yaml.Node, value T, allowed []T) error {
	if n.Kind != yaml.ScalarNode || !slices.Contains(allowed, value) {
		return fmt.Errorf("must be one of %v, not %s", allowed, shown(n))
	}
	return nil
}

func readURL(e *Entry, n *yaml.Node) error {
	u, err := url.Parse(n.Value)
	switch {
	case n.Kind != yaml.ScalarNode || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return fmt.Errorf("must be like https://host/path, not %s", shown(n))
	case u.User != nil:
		return errors.New("must not have a user or a password: give an Authorization in headers")
	case u.Fragment != "":
		return errors.New("must not have a fragment, which is never sent")
	}
	e.URL = u
	return nil
}

// reserved are headers that are not the file's to set: Sluice's, and those of the connection.
var reserved = []string{"Connection", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive", "Te", "Trailer",
	"Transfer-Encoding", "Traceparent", "Tracestate", "Upgrade"}

func readHeaders(e *Entry, n *yaml.Node) error {
	e.Headers = http.Header{}
	return readMap(n, func(name, value string) error {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+-.^_`|~") != "":
			return fmt.Errorf("%q cannot be the name of a header", name)
		case slices.Contains(reserved, canonical), strings.HasPrefix(canonical, "Webhook-"), strings.HasPrefix(canonical, "Sluice-"),
			strings.HasPrefix(canonical, "Ce-"), strings.HasPrefix(canonical, "Proxy-"):
			return fmt.Errorf("%s is not a header to be set here", name)
		case e.Headers[canonical] != nil:
			return fmt.Errorf("%s occurs twice", name)
		case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
			return fmt.Errorf("the value of %s has characters that a header cannot carry", name)
		}
		e.Headers[canonical] = []string{value}
		return nil
	})
}

func readFilter(e *Entry, n *yaml.Node) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("must be an object with key, tag and header, not %s", shown(n))
	}
	e.Filter = &wire.Filter{}
	_, errs := members(n, []string{"key", "tag", "header"}, func(name string, value *yaml.Node) error {
		switch name {
		case "key":
			e.Filter.Key = &value.Value
		case "tag":
			e.Filter.Tag = &value.Value
		default:
			return readMap(value, func(name, value string) error {
				e.Filter.Headers = e.Filter.Headers.With(strings.ToLower(name), value)
				return nil
			})
		}
		if value.Kind != yaml.ScalarNode {
			return fmt.Errorf("must be a text, not %s", shown(value))
		}
		return nil
	})
	return errors.Join(errs...)
}

// readMap calls add for each member of an object of texts.
func readMap(n *yaml.Node, add func(name, value string) error) error {
	if n.Kind != yaml.MappingNode {
		return fmt.Errorf("must be an object, not %s", shown(n))
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name, value := n.Content[i], n.Content[i+1]
		if value.Kind != yaml.ScalarNode || value.ShortTag() == "!!null" {
			return fmt.Errorf("the value of %s must be a text, not %s", name.Value, shown(value))
		}
		if err := add(name.Value, value.Value); err != nil {
			return err
		}
	}
	return nil
}

// shown is how an error quotes a node.
func shown(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "an object"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.ShortTag() == "!!null":
		return "nothing"
	}
	return fmt.Sprintf("%.60q", n.Value)
}
