package rest

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

	"github.com/sluice-bus/sluice/internal/schema"
)

// description is the part of an OpenAPI document that requests are made of.
type description struct {
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]any }
}

type operation struct {
	Parameters []struct {
		Name, In string
		Schema   map[string]any
	}
	RequestBody *struct{ Content map[string]content }
	Responses   map[string]struct{ Content map[string]content }
}

type content struct{ Schema map[string]any }

// random makes requests of a description, most of them wrong in some way.
type random struct {
	*rand.Rand
	*description
}

var (
	randomTexts   = []string{"", "a", "a", "orders.*", "*", "30s", "none", "header:x", "w:1", "gone", "1", "..", "é", "{}", "a b"}
	randomNumbers = []any{0, 1, 1, 2, -1, 100, 2.5, 1e18, json.Number("1e400")}
)

func pick[T any](r random, from []T) T { return from[r.IntN(len(from))] }

// value makes a value that mostly follows a schema.
func (r random) value(of map[string]any, depth int) any {
	if ref, ok := of["$ref"].(string); ok {
		of = r.Components.Schemas[ref[strings.LastIndexByte(ref, '/')+1:]].(map[string]any)
	}
	if choices, ok := of["anyOf"].([]any); ok {
		of = pick(r, choices).(map[string]any)
	}
	if r.IntN(25) == 0 || depth > 6 {
		return pick(r, []any{nil, true, 7, "x", []any{}, map[string]any{"x": 1}})
	}
	if enum, ok := of["enum"].([]any); ok {
		return pick(r, enum)
	}
	kind, _ := of["type"].(string)
	if kinds, ok := of["type"].([]any); ok {
		kind = pick(r, kinds).(string)
	}
	switch kind {
	case "object":
		object := map[string]any{}
		members, _ := of["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if r.IntN(1+len(members)/2) < 2 {
				object[name] = r.value(members[name].(map[string]any), depth+1)
			}
		}
		if r.IntN(20) == 0 {
			object["unknown"] = 1
		}
		return object
	case "array":
		list := []any{}
		for range r.IntN(4) {
			items, _ := of["items"].(map[string]any)
			list = append(list, r.value(items, depth+1))
		}
		return list
	case "integer", "number":
		return pick(r, randomNumbers)
	case "boolean":
		return r.IntN(2) == 0
	case "null":
		return nil
	}
	return pick(r, randomTexts)
}

func (r random) request(method, path string, op operation) *http.Request {
	query, header := url.Values{}, http.Header{}
	for _, p := range op.Parameters {
		value := fmt.Sprint(r.value(p.Schema, 5))
		switch {
		case p.In == "path":
			path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(pick(r, randomTexts)), 1)
		case r.IntN(3) > 0:
		case p.In == "query":
			query.Add(p.Name, value)
		default:
			header.Set(p.Name, pick(r, []string{`"1"`, `"2"`, "*", "x", value}))
		}
	}
	if r.IntN(20) == 0 {
		query.Add(pick(r, []string{"unknown", "limit", "dry_runs"}), "1")
	}
	body := ""
	if op.RequestBody != nil {
		text, _ := json.Marshal(r.value(op.RequestBody.Content["application/json"].Schema, 0))
		if body = string(text); r.IntN(20) == 0 {
			body = body[:r.IntN(len(body)+1)]
		}
	}
	in := httptest.NewRequest(strings.ToUpper(method), "http://127.0.0.1:7080"+path+"?"+query.Encode(), strings.NewReader(body))
	maps.Copy(in.Header, header)
	return in
}

// TestRandomRequests: no request makes the API fail, or answer with what its description does not
// have.
func TestRandomRequests(t *testing.T) {
	a := newAPI(t)
	var d description
	if err := json.Unmarshal(a.send("GET", "/v1/openapi.json", "").Body.Bytes(), &d); err != nil || len(d.Paths) < 14 {
		t.Fatalf("%d paths: %v", len(d.Paths), err)
	}
	compiled := map[string]*schema.Schema{}
	check := func(where string, of map[string]any, body []byte) {
		if compiled[where] == nil {
			text, err := json.Marshal(map[string]any{"allOf": []any{of}, "components": map[string]any{"schemas": d.Components.Schemas}})
			if err != nil {
				t.Fatal(err)
			}
			if compiled[where], err = schema.Compile(string(text)); err != nil {
				t.Fatalf("%s: %v", where, err)
			}
		}
		if wrong := compiled[where].Check(body); wrong != nil {
			t.Errorf("%s: %+v in %.500s", where, *wrong, body)
		}
	}
	r := random{rand.New(rand.NewPCG(1, 2)), &d}
	seen := map[string]int{}
	for range 250 {
		for _, path := range slices.Sorted(maps.Keys(d.Paths)) {
			for _, method := range slices.Sorted(maps.Keys(d.Paths[path])) {
				op, w := d.Paths[path][method], httptest.NewRecorder()
				in := r.request(method, path, op)
				a.ServeHTTP(w, in)
				where := fmt.Sprint(method, " ", path, " ", w.Code)
				if seen[where]++; w.Code >= 500 && w.Code != http.StatusServiceUnavailable {
					t.Fatalf("%s %s: %d %s", in.Method, in.URL, w.Code, w.Body)
				}
				// A path with an unclean name is another route.
				answer, described := op.Responses[fmt.Sprint(w.Code)]
				if !described && w.Code != http.StatusNotFound && w.Code != http.StatusMethodNotAllowed {
					t.Errorf("%s %s: %d is not described: %.300s", in.Method, in.URL, w.Code, w.Body)
				} else if body, ok := answer.Content["application/json"]; ok {
					check(where, body.Schema, w.Body.Bytes())
				} else if described && w.Body.Len() > 0 {
					t.Errorf("%s: a body that is not described: %.300s", where, w.Body)
				}
			}
		}
	}
	for _, where := range []string{"put /v1/policies/{name} 201", "put /v1/policies/{name} 422", "delete /v1/policies/{name} 204",
		"post /v1/apply 200", "get /v1/topics 200", "get /v1/topics 400"} {
		if seen[where] == 0 {
			t.Errorf("no request led to %s", where)
		}
	}
}

func TestAbout(t *testing.T) {
	a := newAPI(t, func(c *Config) {
		c.Access = tokens{}
		c.About = About{Program: "p", Version: "v", NodeID: "n", Listeners: map[string]string{"http": "h:1"}}
	})
	want(t, a.send("GET", "/", "", "Accept", "application/json"), 200, `{"program":"p","version":"v"}`)
	known := a.send("GET", "/", "", "Accept", "application/json", "Authorization", "Bearer viewer").Body.String()
	for _, part := range []string{
		`"node_id":"n","listeners":{"http":"h:1"},"routes":[`, `"PUT /v1/policies/{name}"`, `"GET /v1/openapi.json"`,
	} {
		if !strings.Contains(known, part) {
			t.Errorf("%s has no %s", known, part)
		}
	}
	for _, accept := range []string{"", "*/*", "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"} {
		if got := a.send("GET", "/", "", "Accept", accept).Body.String(); got != "console /" {
			t.Errorf("Accept %q: %s", accept, got)
		}
	}
}
