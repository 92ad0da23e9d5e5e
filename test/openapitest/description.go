// Package openapitest holds HTTP servers to what they say of themselves at GET /v1/openapi.json: it checks requests that were
// accepted, and answers, and makes random requests.
package openapitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Path is where a server describes itself.
const Path = "/v1/openapi.json"

// Description is what a server says of itself.
type Description struct {
	Operations []*Operation

	shared  map[string]any // schemas
	schemas *schemas
}

// Operation is a method of a path.
type Operation struct {
	Method, Path string
	Parameters   []Parameter
	RequestBody  *struct{ Content content }
	Responses    map[string]struct{ Content content }
}

// Parameter is a parameter of a path, a query or a header.
type Parameter struct {
	Name, In string
	Schema   map[string]any
}

// content has the schema of each media type.
type content map[string]struct{ Schema map[string]any }

// Of returns the description of a handler.
func Of(h http.Handler) *Description {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+Path, nil))
	d, err := Parse(w.Body.Bytes())
	if err != nil {
		panic(err)
	}
	return d
}

// Parse reads a description.
func Parse(text []byte) (*Description, error) {
	var doc struct {
		Paths      map[string]map[string]*Operation
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("openapi: %w in %.100q", err, text)
	}
	whole, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	d := &Description{shared: doc.Components.Schemas}
	d.schemas = &schemas{compiler: jsonschema.NewCompiler(), compiled: map[string]*jsonschema.Schema{}}
	if err := d.schemas.compiler.AddResource(resource, closed(whole)); err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			op := doc.Paths[path][method]
			op.Method, op.Path = strings.ToUpper(method), path
			d.Operations = append(d.Operations, op)
		}
	}
	return d, nil
}

// closed forbids members that a schema does not name: all that is sent and answered is described.
func closed(s any) any {
	switch s := s.(type) {
	case map[string]any:
		for name, value := range s {
			s[name] = closed(value)
		}
		if s["type"] == "object" && s["properties"] != nil {
			s["additionalProperties"] = false
		}
	case []any:
		for i := range s {
			s[i] = closed(s[i])
		}
	}
	return s
}

// find returns the operation of a request with its path as it was sent, nil if none is described.
func (d *Description) find(method, path string) *Operation {
	given := strings.Split(path, "/")
	for _, op := range d.Operations {
		parts := strings.Split(op.Path, "/")
		if op.Method == method && slices.EqualFunc(parts, given, func(part, text string) bool {
			return part == text || strings.HasPrefix(part, "{") && text != "" && text != "." && text != ".."
		}) {
			return op
		}
	}
	return nil
}

// parameter returns the parameter that a request names; one whose name ends in "*" stands for all that begin so.
func (op *Operation) parameter(in, name string) *Parameter {
	for i := range op.Parameters {
		p := &op.Parameters[i]
		prefix, all := strings.CutSuffix(p.Name, "*")
		if p.In == in && (p.Name == name || all && strings.HasPrefix(name, prefix)) {
			return p
		}
	}
	return nil
}

// CheckRequest returns an error unless a request that was accepted is described: its query, its Sluice-* headers and its body. What
// a path without a description is sent is not checked.
func (d *Description) CheckRequest(method string, u *url.URL, header http.Header, body []byte) error {
	op := d.find(method, u.EscapedPath())
	if op == nil {
		return nil
	}
	for name, values := range u.Query() {
		p := op.parameter("query", name)
		if p == nil {
			return fmt.Errorf("the parameter %s is not described", name)
		}
		if err := d.checkValues(op, p, values); err != nil {
			return err
		}
	}
	for name, values := range header {
		p := op.parameter("header", name)
		if p == nil && strings.HasPrefix(name, "Sluice-") {
			return fmt.Errorf("the header %s is not described", name)
		}
		if p != nil {
			if err := d.checkValues(op, p, values); err != nil {
				return err
			}
		}
	}
	switch {
	case len(body) == 0 || method == http.MethodGet && op.RequestBody == nil, header.Get("Content-Encoding") != "":
		return nil
	case op.RequestBody == nil:
		return fmt.Errorf("a body is not described")
	}
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	if kind == "" || kind == "application/x-www-form-urlencoded" { // these stand for JSON
		kind = "application/json"
	}
	if _, ok := op.RequestBody.Content[kind]; !ok {
		if _, ok := op.RequestBody.Content["*/*"]; ok {
			return nil
		}
		kind = "application/json" // the bodies of routes that take nothing else, whatever their type
	}
	return d.checkBody(kind, body, op.pointer("requestBody", "content", kind, "schema"), withoutNulls)
}

// withoutNulls is a value of a request: members that are null count as absent.
func withoutNulls(value any) any {
	if object, ok := value.(map[string]any); ok {
		for name, member := range object {
			if member == nil {
				delete(object, name)
			} else {
				withoutNulls(member)
			}
		}
	}
	return value
}

// checkValues checks the values of a parameter, which are texts: one that stands for a number is checked as that, too.
func (d *Description) checkValues(op *Operation, p *Parameter, values []string) error {
	index := slices.IndexFunc(op.Parameters, func(x Parameter) bool { return x.Name == p.Name && x.In == p.In })
	at := op.pointer("parameters", fmt.Sprint(index), "schema")
	if p.Schema["type"] == "array" {
		at += "/items"
	}
	for _, value := range values {
		err := d.schemas.check(at, value)
		if number, bad := jsonschema.UnmarshalJSON(strings.NewReader(value)); err != nil && bad == nil {
			err = d.schemas.check(at, number)
		}
		if err != nil {
			return fmt.Errorf("the %s parameter %s: %w", p.In, p.Name, err)
		}
	}
	return nil
}

// CheckAnswer returns an error unless the answer to a request is described; of a path without a description every answer is right.
func (d *Description) CheckAnswer(method, path string, status int, kind string, body []byte) error {
	op := d.find(method, path)
	if op == nil || status == http.StatusMethodNotAllowed {
		return nil
	}
	answer, ok := op.Responses[fmt.Sprint(status)]
	if !ok {
		return fmt.Errorf("the status is not described")
	}
	kind, _, _ = strings.Cut(kind, ";")
	if _, ok = answer.Content[kind]; !ok {
		if len(answer.Content) > 0 || len(body) > 0 {
			return fmt.Errorf("content type %q is not described", kind)
		}
		return nil
	}
	asItIs := func(value any) any { return value }
	return d.checkBody(kind, body, op.pointer("responses", fmt.Sprint(status), "content", kind, "schema"), asItIs)
}

func (d *Description) checkBody(kind string, body []byte, pointer string, read func(any) any) error {
	texts := [][]byte{body}
	switch {
	case kind == "application/x-ndjson":
		texts = bytes.Split(bytes.TrimSpace(body), []byte("\n"))
	case !strings.HasSuffix(kind, "json"):
		return nil
	}
	for _, text := range texts {
		if kind == "application/x-ndjson" && len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err == nil {
			err = d.schemas.check(pointer, read(value))
		}
		if err != nil {
			return fmt.Errorf("%w: in %.300s", err, text)
		}
	}
	return nil
}

// pointer is the JSON Pointer of a part of the operation.
func (op *Operation) pointer(parts ...string) string {
	out := "#"
	for _, part := range append([]string{"paths", op.Path, strings.ToLower(op.Method)}, parts...) {
		out += "/" + url.PathEscape(strings.NewReplacer("~", "~0", "/", "~1").Replace(part))
	}
	return out
}

// resource is the URL that the description has for the compiler.
const resource = "https://description.invalid/openapi.json"

// schemas compiles the schemas of a description when they are first needed.
type schemas struct {
	mu       sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema // by pointer
}

// check returns an error unless a value is as the schema at the pointer has it.
func (s *schemas) check(pointer string, value any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	compiled := s.compiled[pointer]
	if compiled == nil {
		var err error
		if compiled, err = s.compiler.Compile(resource + pointer); err != nil {
			return err
		}
		s.compiled[pointer] = compiled
	}
	return compiled.Validate(value)
}
