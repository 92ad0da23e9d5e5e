package httpapi

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// named answers with the name in the path.
func named(w http.ResponseWriter, r *Request, bad error) {
	if bad != nil {
		refuse(w, r.Request, wire.AsError(bad))
		return
	}
	_, _ = w.Write([]byte(r.PathValue("name")))
}

var topicRoutes = []Route{
	{
		Pattern: "GET /topics/{name}", Query: []Param{DryRun()}, Headers: []Param{Text("Sluice-Id", ""), Text("Sluice-Header-*", "")},
		Serve: named,
	},
	{Pattern: "POST /topics/{name}", Serve: named},
	{Pattern: "GET /debug/", Unchecked: true, Serve: named},
	{Pattern: "GET /{$}", Unchecked: true, Serve: named},
}

func TestRouter(t *testing.T) {
	h := NewRouter(topicRoutes)
	for _, tc := range []struct {
		request string
		status  int
		answer  string
	}{
		{"GET /topics/orders?dry_run=1", 200, "orders"}, {"HEAD /topics/a", 200, ""}, {"GET /topics/%2E%2E", 200, ".."}, {"GET /?x=1", 200, ""},
		{"DELETE /topics/a", 405, "the methods here are GET, HEAD, POST"},
		{"GET /topics/a?dryRun=1", 400, "dry_run"}, {"POST /topics/a?dry_run=1", 400, "dry_run"},
		{"GET /nowhere", 404, ""}, {"GET /topics/a/b", 404, ""}, {"GET /debug/x?y=1", 200, ""},
		// No path is redirected.
		{"GET /topics/a/", 404, ""}, {"GET /topics/a/../b", 404, ""}, {"POST /topics/..", 404, ""}, {"POST /topics/a/..", 404, ""},
		{"GET //topics/a", 404, ""}, {"GET /topics/./a", 404, ""}, {"GET //", 404, ""}, {"GET /debug", 404, ""},
	} {
		method, target, _ := strings.Cut(tc.request, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, target, nil))
		if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.answer) {
			t.Errorf("%s: %d %s; want %d and %q", tc.request, w.Code, w.Body, tc.status, tc.answer)
		}
		if w.Code >= 404 && (readReply(t, w).Code != "not_found" || (w.Code == 405) != (w.Header().Get("Allow") != "")) {
			t.Errorf("%s: %v %s", tc.request, w.Header(), w.Body)
		}
	}
}

func TestRouteWithoutABody(t *testing.T) {
	h := NewRouter(topicRoutes)
	for body, says := range map[string]string{
		"": "", "{}": "", " null\n": "", strings.Repeat(" ", 1<<20): "",
		`{"dry_run":true}`: "dry_run", "1": "leave it out", "{": "leave it out",
	} {
		for _, r := range []io.Reader{strings.NewReader(body), io.MultiReader(strings.NewReader(body))} { // of unknown length
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest("POST", "/topics/orders", r))
			if (w.Code == 200) != (says == "") || !strings.Contains(w.Body.String(), says) {
				t.Errorf("%.100s: %d %s", body, w.Code, w.Body)
			}
			w = httptest.NewRecorder()
			if h.ServeHTTP(w, httptest.NewRequest("GET", "/topics/orders", r)); w.Code != 200 {
				t.Errorf("a GET with %.100s: %d %s", body, w.Code, w.Body)
			}
		}
	}
}

func TestHeadersOfARoute(t *testing.T) {
	h := NewRouter(topicRoutes)
	for _, tc := range []struct {
		method, header, value, names string // of the error
	}{
		{"GET", "Sluice-Id", "a", ""}, {"GET", "Sluice-Header-X", "a", ""}, {"GET", "X-Other", "a", ""}, {"GET", "Sluic-Id", "a", ""},
		{"GET", "Sluice-Ids", "a", `"Sluice-Ids" is not known here (did you mean "Sluice-Id"?)`},
		{"POST", "Sluice-Id", "a", `"Sluice-Id" is not known here`},
	} {
		r := httptest.NewRequest(tc.method, "/topics/a", nil)
		r.Header.Set(tc.header, tc.value)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		got := ""
		if w.Code != 200 {
			got = readReply(t, w).Error
		}
		if (w.Code == 200) != (tc.names == "") || !strings.Contains(got, tc.names) {
			t.Errorf("%s %s: %d %s", tc.method, tc.header, w.Code, w.Body)
		}
	}
	r := httptest.NewRequest("GET", "/topics/a", nil)
	r.Header["Sluice-Id"] = []string{"a", "a"}
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 400 || !strings.Contains(w.Body.String(), "given 2 times") {
		t.Error(w.Code, w.Body)
	}
}

type body struct {
	Text   string   `json:"text"`
	Number *int     `json:"number,omitempty"`
	List   []string `json:"list,omitempty"`
	Inner  *struct {
		A bool `json:"a"`
	} `json:"inner,omitempty"`
	Any map[string]int `json:"any,omitempty"`
}

func TestReadObject(t *testing.T) {
	got, bad := ReadObject[body]([]byte(`{"text":"x","number":null,"list":["a"],"inner":{"a":true},"any":{"what":1}}`))
	if bad != nil || got.Text != "x" || got.Number != nil || !got.Inner.A || got.Any["what"] != 1 {
		t.Errorf("%+v, %v", got, bad)
	}
	for text, says := range map[string]string{
		``: "bad_json", `{`: "bad_json", "{\"text\":\"\xff\"}": "bad_json",
		`[1]`: "object with any, inner", `null`: "object with any, inner",
		`{"txet":""}`: `"txet" is not known here (did you mean "text"?)`, `{"Text":""}`: "Text",
		`{"inner":{"b":1}}`: `"b"`, `{"inner":1}`: "inner",
		`{"text":1}`: "text must be a string, and not a number", `{"number":1.5}`: "number must be a whole number",
		`{"list":"a"}`: "list must be an array of strings", `{"text":[1]}`: "and not an array", `{"text":true}`: "and not true or false",
		`{"number":1e99}`: "and not 1e99",
	} {
		if _, bad := ReadObject[body]([]byte(text)); bad == nil || !strings.Contains(bad.Error(), says) {
			t.Errorf("%s: %v", text, bad)
		}
	}
}

func TestDescription(t *testing.T) {
	routes := Describe(Description{Title: "T", Version: "1", Paths: []Param{Text("name", "a topic")}}, []Route{
		{
			Pattern: "PUT /topics/{name}", Summary: "put", Query: []Param{Whole("limit", "the most", 1, 9).Or("5")}, Body: JSONOf[body](),
			Answers: []Answer{{Status: 200, Doc: "fine", Content: JSONOf[body]()}}, Errors: []wire.Code{wire.RateLimited}, Serve: named,
		},
		{Pattern: "GET /healthz", Unchecked: true, Serve: named},
	})
	w := httptest.NewRecorder()
	NewRouter(routes).ServeHTTP(w, httptest.NewRequest("GET", DescriptionPath, nil))
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Schema   map[string]any
			}
			RequestBody struct{ Content map[string]any }
			Responses   map[string]struct {
				Content map[string]any
				Headers map[string]any
			}
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err, w.Body)
	}
	put := doc.Paths["/topics/{name}"]["put"]
	if doc.OpenAPI != "3.1.0" || len(doc.Paths) != 2 || len(put.Parameters) != 2 || put.Parameters[1].Schema["default"] != 5.0 {
		t.Errorf("%s", w.Body)
	}
	if len(put.RequestBody.Content) != 1 || put.Responses["429"].Headers["Retry-After"] == nil || put.Responses["200"].Content == nil {
		t.Errorf("%s", w.Body)
	}
}
