package rest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestRoutesThatAreNotThere(t *testing.T) {
	a := newAPI(t)
	for _, path := range []string{"/v1", "/v1/", "/v1/policy", "/v1/policies/a/b", "/v1/policies/a/history/1", "/v1/policies/",
		"/v1/ui/app.js"} {
		refused(t, a.send("GET", path, ""), wire.NotFound)
	}
	for path, allow := range map[string]string{
		"/v1/policies":            "GET, HEAD",
		"/v1/policies/a":          "DELETE, GET, HEAD, PUT",
		"/v1/policies/a/history":  "GET, HEAD",
		"/v1/policies/a/rollback": "POST",
		"/v1/apply":               "POST",
		"/v1/audit":               "GET, HEAD",
		"/v1/sidecars":            "GET, HEAD",
		"/v1/topics":              "GET, HEAD",
		"/v1/whoami":              "GET, HEAD",
		"/v1/status":              "GET, HEAD",
		"/metrics":                "GET, HEAD",
		"/healthz":                "GET, HEAD",
		"/readyz":                 "GET, HEAD",
	} {
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"} {
			if slices.Contains(strings.Split(allow, ", "), method) {
				continue
			}
			w := a.send(method, path, `{}`)
			if w.Code != 405 || w.Header().Get("Allow") != allow || w.Header().Get("Content-Type") != "application/json" {
				t.Errorf("%s %s: %d, Allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	for _, path := range []string{"/", "/index.html", "/v1x", "/healthz/x"} {
		if w := a.send("GET", path, ""); w.Body.String() != "console "+path {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestHeadersOfAnswers(t *testing.T) {
	a := newAPI(t)
	for _, w := range []*httptest.ResponseRecorder{
		a.send("GET", "/v1/policies", ""), a.send("GET", "/v1/policies/none", ""), a.send("PUT", "/v1/policies/a", `{`),
		a.send("PUT", "/v1/policies/a", `{}`), a.send("DELETE", "/v1/policies/a", ""), a.send("GET", "/v1/nothing", ""),
		a.send("GET", "/healthz", ""), a.send("GET", "/metrics", ""), a.send("PATCH", "/v1/policies", ""),
	} {
		for name, value := range map[string]string{
			"X-Content-Type-Options":       "nosniff",
			"Cache-Control":                "no-store",
			"Content-Security-Policy":      "default-src 'none'; frame-ancestors 'none'",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Result().Header.Get(name); got != value {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	if got := a.send("GET", "/", "").Header().Get("Content-Security-Policy"); got != "" {
		t.Errorf("the console's headers are its own: %q", got)
	}
}

func TestHead(t *testing.T) {
	a := newAPI(t)
	a.send("PUT", "/v1/policies/a", `{}`)
	for _, path := range []string{"/v1/policies", "/v1/policies/a", "/v1/policies/a/history", "/v1/audit", "/v1/sidecars",
		"/v1/topics", "/v1/whoami", "/v1/status"} {
		get, head := a.send("GET", path, ""), a.send("HEAD", path, "")
		if head.Code != 200 || head.Header().Get("Content-Length") != fmt.Sprint(get.Body.Len()) ||
			head.Header().Get("ETag") != get.Header().Get("ETag") {
			t.Errorf("HEAD %s: %d %v", path, head.Code, head.Header())
		}
	}
	if w := a.send("HEAD", "/v1/policies/none", ""); w.Code != 404 {
		t.Errorf("HEAD of nothing: %d", w.Code)
	}
}

func TestParameters(t *testing.T) {
	a := newAPI(t)
	for _, path := range []string{"/v1/audit?limit=1&limit=1", "/v1/policies?x=1&x=2", "/v1/topics?history=1&history=1",
		"/v1/audit?limit=%zz"} {
		refused(t, a.send("GET", path, ""), wire.BadRequest)
	}
	for query, name := range map[string]string{
		"audit?limit=": "limit", "audit?limit=0": "limit", "audit?limit=1001": "limit", "audit?limit=-1": "limit", "audit?limit=%2B1": "limit",
		"audit?limit=1e2": "limit", "audit?limit=ten": "limit", "audit?before=": "before", "audit?before=0": "before", "audit?before=x": "before",
		"topics?history=": "history", "topics?history=yes": "history", "topics?history=2": "history",
		"audit?before=9&later=1": "later", "audit?limt=9": "did you mean", "policies?x=1": "x",
	} {
		w := a.send("GET", "/v1/"+query, "")
		refused(t, w, wire.BadRequest)
		if !strings.Contains(w.Body.String(), name) {
			t.Errorf("%s: the parameter is not named: %s", query, w.Body)
		}
	}
	for _, path := range []string{"/v1/audit?limit=1000&before=9", "/v1/topics?history=0", "/v1/topics?history=1"} {
		if w := a.send("GET", path, ""); w.Code != 200 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestHealth(t *testing.T) {
	var broken error
	a := newAPI(t, func(c *Config) { c.Ready = func() error { return broken } })
	for _, path := range []string{"/healthz", "/readyz"} {
		if w := a.send("GET", path, ""); w.Code != 200 || w.Header().Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
	broken = errors.New("the store cannot be reached")
	w := a.send("GET", "/readyz", "")
	refused(t, w, wire.StoreUnavailable)
	if !strings.Contains(w.Body.String(), broken.Error()) || w.Header().Get("Retry-After") == "" {
		t.Errorf("%s, %v", w.Body, w.Header())
	}
	if w := a.send("GET", "/healthz", ""); w.Code != 200 {
		t.Errorf("alive: %d", w.Code)
	}
	want(t, a.send("GET", "/v1/status", ""), 200, `{"version":"devel"}`)
	if w := a.send("GET", "/metrics", ""); w.Body.String() != "sluice_up 1\n" {
		t.Errorf("metrics: %s", w.Body)
	}
}

func TestWhatTheCatalogFailsWith(t *testing.T) {
	requests := [][3]string{
		{"PUT", "/v1/policies/a", `{}`}, {"DELETE", "/v1/policies/a", ""}, {"GET", "/v1/policies/a/history", ""},
		{"POST", "/v1/policies/a/rollback", `{"version":1}`}, {"POST", "/v1/apply", `{"policies":[]}`}, {"GET", "/v1/audit", ""},
	}
	for _, tc := range []struct {
		err  error
		code wire.Code
	}{
		{fmt.Errorf("secret: %w", &wire.Error{Code: wire.StoreUnavailable, Msg: "away"}), wire.StoreUnavailable},
		{wire.Errorf(wire.PayloadTooLarge, "too large"), wire.PayloadTooLarge},
		{fmt.Errorf("put: %w", errBroken), wire.Internal},
		{context.Canceled, wire.Internal},
	} {
		for _, r := range requests {
			var log strings.Builder
			a := newAPI(t, func(c *Config) {
				c.Catalog = failing{Catalog: c.Catalog, err: tc.err}
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			w := a.send(r[0], r[1], r[2])
			refused(t, w, tc.code)
			if strings.Contains(w.Body.String(), "secret") || strings.Contains(w.Body.String(), "sidecar's log") {
				t.Errorf("%s %s: %s", r[0], r[1], w.Body)
			}
			if told := log.String(); tc.code == wire.Internal && !strings.Contains(told, tc.err.Error()) {
				t.Errorf("%s %s: the log has not the detail: %s", r[0], r[1], told)
			}
			if retry := w.Header().Get("Retry-After") != ""; retry != (tc.code == wire.StoreUnavailable) {
				t.Errorf("%s %s: Retry-After %t", r[0], r[1], retry)
			}
		}
	}
}
