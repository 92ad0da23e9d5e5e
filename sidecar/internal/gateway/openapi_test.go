package gateway_test

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

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

// shapes makes random requests.
type shapes struct{ *rand.Rand }

var words = []string{
	"t", "t", "t", "g", "a", "", ".", "..", "_x", "t.dlq", "é", "a b", "0", "1", "-1", "now", "earliest", "1e9", "%", "\"", "null",
	"9007199254740993", strings.Repeat("x", 300),
}

func (r *shapes) one(of []string) string { return of[r.IntN(len(of))] }

// value is a value of a parameter: mostly one that its schema allows.
func (r *shapes) value(s map[string]any) string {
	if values, ok := s["enum"].([]any); ok && r.IntN(4) > 0 {
		return fmt.Sprint(values[r.IntN(len(values))])
	}
	if s["type"] == "integer" && r.IntN(4) > 0 {
		return fmt.Sprint(r.IntN(2000))
	}
	return r.one(words)
}

// json is a JSON value: mostly one that the schema allows.
func (r *shapes) json(d *gatewaytest.Description, s map[string]any, depth int) any {
	if ref, ok := s["$ref"].(string); ok {
		s, _ = d.Shared[strings.TrimPrefix(ref, "#/$defs/")].(map[string]any)
	}
	if r.IntN(12) == 0 || depth > 4 {
		return []any{nil, true, 0, -1, 1.5, "", "x", []any{}, map[string]any{"x": 1}}[r.IntN(9)]
	}
	if choices, ok := s["anyOf"].([]any); ok {
		s, _ = choices[r.IntN(len(choices))].(map[string]any)
	}
	switch s["type"] {
	case "object":
		out := map[string]any{}
		members, _ := s["properties"].(map[string]any)
		for name, of := range members {
			if of, ok := of.(map[string]any); ok && r.IntN(3) > 0 {
				out[name] = r.json(d, of, depth+1)
			}
		}
		if r.IntN(8) == 0 {
			out[r.one(words)] = 1
		}
		return out
	case "array":
		items, _ := s["items"].(map[string]any)
		out := []any{}
		for range r.IntN(3) {
			out = append(out, r.json(d, items, depth+1))
		}
		return out
	case "string":
		return r.one(words)
	case "integer", "number":
		return r.IntN(2000)
	case "boolean":
		return r.IntN(2) == 0
	}
	return map[string]any{"any": r.one(words)}
}

func (r *shapes) request(t *testing.T, d *gatewaytest.Description, op *gatewaytest.Operation) *http.Request {
	path, query := op.Path, url.Values{}
	req := httptest.NewRequest(op.Method, "/", nil)
	for _, p := range op.Parameters {
		switch name := strings.ReplaceAll(p.Name, "*", "x"); {
		case p.In == "path":
			path = strings.ReplaceAll(path, "{"+p.Name+"}", url.PathEscape(r.value(p.Schema)))
		case r.IntN(3) > 0:
		case p.In == "query":
			query.Add(name, r.value(p.Schema))
		default:
			req.Header.Set(name, r.value(p.Schema))
		}
	}
	if r.IntN(10) == 0 {
		query.Add(r.one(words), r.one(words))
	}
	if r.IntN(20) == 0 {
		req.Header.Set("Sluice-"+r.one([]string{"Id", "Key", "Other"}), r.one(words))
	}
	var body string
	if kinds := slices.Sorted(maps.Keys(op.RequestBody.Content)); len(kinds) > 0 {
		kind := r.one(kinds)
		value := r.json(d, op.RequestBody.Content[kind].Schema, 0)
		if pull, ok := value.(map[string]any); ok && strings.HasSuffix(path, "/pull") {
			pull["wait_ms"] = 0
		} else if strings.HasSuffix(path, "/pull") {
			value = map[string]any{"wait_ms": 0, "max": value}
		}
		text, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if body = string(text); r.IntN(20) == 0 && !strings.HasSuffix(path, "/pull") {
			body = body[:r.IntN(len(body)+1)]
		}
		req.Header.Set("Content-Type", strings.Replace(kind, "*/*", "text/plain", 1))
	}
	made := httptest.NewRequest(op.Method, "/", strings.NewReader(body))
	made.Header = req.Header
	made.URL = &url.URL{Path: "/", RawQuery: query.Encode()}
	made.URL.RawPath = path
	if made.URL.Path, _ = url.PathUnescape(path); made.URL.Path == path {
		made.URL.RawPath = ""
	}
	return made
}

// Requests of many shapes, allowed and not, get answers that are described, and none is a defect's.
func TestAnswersAreDescribed(t *testing.T) {
	s := gatewaytest.Start(t, gatewaytest.Setup{Policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0}}]`})
	h := s.Gateway.Handler()
	d := gatewaytest.Describe()
	r := &shapes{rand.New(rand.NewPCG(1, 2))}
	fine := map[*gatewaytest.Operation]int{}
	for range 10_000 {
		op := d.Operations[r.IntN(len(d.Operations))]
		if op.Path == "/ws" || strings.HasSuffix(op.Path, "/stream") {
			continue // these have no end
		}
		req := r.request(t, d, op)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, req)
		if err := d.CheckAnswer(op.Method, req.URL.EscapedPath(), w.Code, w.Header().Get("Content-Type"), w.Body.Bytes()); err != nil {
			t.Errorf("%s %s: %d %.300s: %v", op.Method, req.URL, w.Code, w.Body, err)
		}
		if strings.Contains(w.Body.String(), `"code":"internal"`) {
			t.Errorf("%s %s: %d %.300s", op.Method, req.URL, w.Code, w.Body)
		}
		if w.Code < 300 {
			fine[op]++
		}
	}
	if len(fine) < len(d.Operations)*3/5 {
		t.Errorf("only %d of %d operations were ever done", len(fine), len(d.Operations))
	}
}
