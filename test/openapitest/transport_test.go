package openapitest

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

const description = `{"openapi":"3.1.0","paths":{"/things/{name}":{"put":{
	"parameters":[{"name":"name","in":"path","schema":{"type":"string"}},{"name":"limit","in":"query","schema":{"type":"integer"}}],
	"requestBody":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/Thing"}}}},
	"responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/Thing"}}}},"204":{}}}}},
	"components":{"schemas":{"Thing":{"type":"object","properties":{"size":{"type":"integer"}}}}}}`

// The transport fails what a server took, or answered, and does not describe.
func TestTransport(t *testing.T) {
	answer := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == Path {
			_, _ = io.WriteString(w, description)
			return
		}
		status, body, _ := strings.Cut(answer, " ")
		w.WriteHeader(map[string]int{"200": 200, "201": 201, "204": 204, "400": 400}[status])
		_, _ = io.WriteString(w, body)
	}))
	defer server.Close()
	client := &http.Client{Transport: &Transport{Next: server.Client().Transport}}
	for _, tc := range []struct {
		target, body, answer string
		bad                  string // what is wrong; "": nothing
	}{
		{"/things/a?limit=1", `{"size":1}`, `200 {"size":1}`, ""}, {"/things/a", "", "204", ""}, {"/else", "x", "201 x", ""},
		{"/things/a", `{"size":null}`, "204", ""},
		{"/things/a", "", "201", "the status"},
		{"/things/a", "", `200 {"size":"1"}`, "want integer"}, {"/things/a", "", `200 {"seize":1}`, "seize"},
		{"/things/a?limt=1", "", "204", "limt"}, {"/things/a?limit=x", "", "204", "limit"}, {"/things/a", `{"seize":1}`, "204", "seize"},
	} {
		answer = tc.answer
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, server.URL+tc.target, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadAll(res.Body)
		res.Body.Close()
		if (err == nil) != (tc.bad == "") || err != nil && !strings.Contains(err.Error(), tc.bad) {
			t.Errorf("%s %s: %s: %v; want %q", tc.target, tc.body, tc.answer, err, tc.bad)
		}
	}
}
