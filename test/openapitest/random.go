package openapitest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// Random makes random requests of a description, most of which are wrong in some way.
type Random struct {
	*Description
	// Words are texts for places where a schema has no values of its own.
	Words []string
	// Fixed are members of bodies that always have the same value.
	Fixed map[string]any
	// Without are operations that are left out, as "GET /path".
	Without []string

	*rand.Rand
}

var numbers = []any{0, 1, 1, 2, -1, 100, 2.5, 1e18, json.Number("1e400")}

func pick[T any](r *Random, from []T) T { return from[r.IntN(len(from))] }

// text is a value of a parameter: mostly one that its schema allows.
func (r *Random) text(of map[string]any) string {
	if of["type"] == "integer" && r.IntN(4) > 0 {
		return fmt.Sprint(r.IntN(2000))
	}
	if values, ok := of["enum"].([]any); ok && r.IntN(4) > 0 {
		return fmt.Sprint(pick(r, values))
	}
	return pick(r, r.Words)
}

// value is a JSON value: mostly one that the schema allows.
func (r *Random) value(of map[string]any, depth int) any {
	if ref, ok := of["$ref"].(string); ok {
		of = r.shared[ref[strings.LastIndexByte(ref, '/')+1:]].(map[string]any)
	}
	if choices, ok := of["anyOf"].([]any); ok {
		of = pick(r, choices).(map[string]any)
	}
	if depth > 6 || depth > 0 && r.IntN(20) == 0 {
		return pick(r, []any{nil, true, 0, -1, 1.5, "", "x", []any{}, map[string]any{"x": 1}})
	}
	if values, ok := of["enum"].([]any); ok {
		return pick(r, values)
	}
	kind, _ := of["type"].(string)
	if kinds, ok := of["type"].([]any); ok {
		kind = pick(r, kinds).(string)
	}
	switch kind {
	case "object":
		return r.object(of, depth)
	case "array":
		items, _ := of["items"].(map[string]any)
		list := []any{}
		for range r.IntN(4) {
			list = append(list, r.value(items, depth+1))
		}
		return list
	case "integer", "number":
		return pick(r, numbers)
	case "boolean":
		return r.IntN(2) == 0
	case "string":
		return pick(r, r.Words)
	case "null":
		return nil
	}
	return map[string]any{"any": pick(r, r.Words)}
}

func (r *Random) object(of map[string]any, depth int) map[string]any {
	object := map[string]any{}
	members, _ := of["properties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if value, fixed := r.Fixed[name]; fixed {
			object[name] = value
		} else if r.IntN(1+len(members)/2) < 2 {
			object[name] = r.value(members[name].(map[string]any), depth+1)
		}
	}
	if r.IntN(15) == 0 {
		object[pick(r, r.Words)] = 1
	}
	return object
}

// Request makes a request.
func (r *Random) Request(op *Operation) *http.Request {
	path, query, header := op.Path, url.Values{}, http.Header{}
	for _, p := range op.Parameters {
		name := strings.ReplaceAll(p.Name, "*", "x")
		switch {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(r.text(p.Schema)))
		case r.IntN(3) > 0:
		case p.In == "query":
			query.Add(name, r.text(p.Schema))
		default:
			header.Set(name, r.text(p.Schema))
		}
	}
	if r.IntN(15) == 0 {
		query.Add(pick(r, r.Words), pick(r, r.Words))
	}
	if r.IntN(20) == 0 {
		header.Set("Sluice-Other", pick(r, r.Words))
	}
	var body []byte
	if op.RequestBody != nil {
		kind := pick(r, slices.Sorted(maps.Keys(op.RequestBody.Content)))
		body, _ = json.Marshal(r.value(op.RequestBody.Content[kind].Schema, 0)) // of maps, lists and texts
		if r.IntN(20) == 0 {
			body = body[:1+r.IntN(len(body))]
		}
		header.Set("Content-Type", strings.Replace(kind, "*/*", "text/plain", 1))
	}
	req := httptest.NewRequest(op.Method, "http://127.0.0.1/", strings.NewReader(string(body)))
	req.Header = header
	req.URL.RawPath, req.URL.RawQuery = path, query.Encode()
	if req.URL.Path, _ = url.PathUnescape(path); req.URL.Path == path {
		req.URL.RawPath = ""
	}
	return req
}

// Try sends a handler n requests. It fails the test where an answer is not described, or is that of a defect, and returns which
// statuses each operation, as "GET /path", answered with.
func (r *Random) Try(t *testing.T, h http.Handler, n int, seed uint64) map[string]map[int]bool {
	r.Rand = rand.New(rand.NewPCG(seed, 2))
	seen := map[string]map[int]bool{}
	for range n {
		op := pick(r, r.Operations)
		name := op.Method + " " + op.Path
		if slices.Contains(r.Without, name) {
			continue
		}
		req, w := r.Request(op), httptest.NewRecorder()
		h.ServeHTTP(w, req)
		err := r.CheckAnswer(op.Method, req.URL.EscapedPath(), w.Code, w.Header().Get("Content-Type"), w.Body.Bytes())
		if err == nil && strings.Contains(w.Body.String(), `"code":"internal"`) {
			err = fmt.Errorf("a defect")
		}
		if err != nil {
			t.Errorf("%s %s: %d %.300s: %v", op.Method, req.URL, w.Code, w.Body, err)
		}
		if seen[name] == nil {
			seen[name] = map[int]bool{}
		}
		seen[name][w.Code] = true
	}
	return seen
}
