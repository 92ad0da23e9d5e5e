package gatewaytest

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-bus/sluice/internal/schema"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway"
)

// Description is what the app listener says of itself at GET /v1/openapi.json.
type Description struct {
	Operations []*Operation
	Shared     map[string]any // schemas
	compiled   *schema.Cache
}

// Operation is a method of a path.
type Operation struct {
	Method, Path string
	Parameters   []struct {
		Name, In string
		Schema   map[string]any
	}
	RequestBody struct{ Content contents }
	Responses   map[string]struct{ Content contents }
}

type contents map[string]struct{ Schema map[string]any }

// Describe returns the description.
var Describe = sync.OnceValue(func() *Description {
	w := httptest.NewRecorder()
	logger := slog.New(slog.DiscardHandler)
	gateway.New(gateway.Config{Logger: logger}).Handler().ServeHTTP(w, httptest.NewRequest("GET", "/v1/openapi.json", nil))
	var doc struct {
		Paths      map[string]map[string]*Operation
		Components struct{ Schemas map[string]any }
	}
	text := strings.ReplaceAll(w.Body.String(), "#/components/schemas/", "#/$defs/")
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		panic(err)
	}
	d := &Description{Shared: doc.Components.Schemas, compiled: schema.NewCache(100)}
	for _, path := range slices.Sorted(maps.Keys(doc.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(doc.Paths[path])) {
			op := doc.Paths[path][method]
			op.Method, op.Path = strings.ToUpper(method), path
			d.Operations = append(d.Operations, op)
		}
	}
	return d
})

// find returns the operation of a request, nil if none is described.
func (d *Description) find(method, path string) *Operation {
	path, _, _ = strings.Cut(path, "?")
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

// CheckAnswer returns an error unless the answer to a request is described; of a path without a
// description every answer is right.
func (d *Description) CheckAnswer(method, path string, status int, kind string, body []byte) error {
	op := d.find(method, path)
	if op == nil {
		return nil
	}
	answer, ok := op.Responses[fmt.Sprint(status)]
	if !ok && status != http.StatusMethodNotAllowed {
		return fmt.Errorf("the status is not described")
	}
	kind, _, _ = strings.Cut(kind, ";")
	content, ok := answer.Content[kind]
	if !ok && (len(answer.Content) > 0 || len(body) > 0) && status != http.StatusMethodNotAllowed {
		return fmt.Errorf("content type %q is not described", kind)
	}
	if !ok || kind == "text/event-stream" {
		return nil
	}
	texts := [][]byte{body}
	if kind == "application/x-ndjson" {
		texts = nil
		for line := range strings.Lines(string(body)) {
			texts = append(texts, []byte(line))
		}
	}
	return d.checkTexts(content.Schema, texts)
}

func (d *Description) checkTexts(of map[string]any, texts [][]byte) error {
	of = maps.Clone(of)
	of["$defs"] = d.Shared
	text, err := json.Marshal(closed(of))
	if err != nil {
		return err
	}
	compiled, err := d.compiled.Get(string(text))
	if err != nil {
		return err
	}
	for _, text := range texts {
		if bad := compiled.Check(text); bad != nil {
			return fmt.Errorf("%s at %q", bad.Msg, bad.Pointer)
		}
	}
	return nil
}

// closed forbids members that a schema does not name: all that is answered is described.
func closed(s any) any {
	switch s := s.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, value := range s {
			out[name] = closed(value)
		}
		if s["type"] == "object" && s["properties"] != nil {
			out["additionalProperties"] = false
		}
		return out
	case []any:
		out := make([]any, len(s))
		for i := range s {
			out[i] = closed(s[i])
		}
		return out
	}
	return s
}
