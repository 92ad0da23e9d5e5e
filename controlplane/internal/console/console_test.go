package console_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/console"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/test/require"
)

func request(method, at string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, at, nil)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	console.Handler().ServeHTTP(w, r)
	return w
}

// sources are the files of the page, by their path below it; own ones only, or those of others,
// too.
func sources(t *testing.T, vendored bool) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, dir := range []string{"", "vendor"} {
		if dir == "vendor" && !vendored {
			continue
		}
		entries, err := os.ReadDir(path.Join("static", dir))
		require.NoError(t, err)
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			content, err := os.ReadFile(path.Join("static", dir, e.Name()))
			require.NoError(t, err)
			out[path.Join(dir, e.Name())] = string(content)
		}
	}
	return out
}

func TestServesThePage(t *testing.T) {
	for at, kind := range map[string]string{
		"/":                   "text/html; charset=utf-8",
		"/index.html":         "text/html; charset=utf-8",
		"/app.js":             "text/javascript; charset=utf-8",
		"/vendor/preact.mjs":  "text/javascript; charset=utf-8",
		"/style.css":          "text/css; charset=utf-8",
		"/icon.svg":           "image/svg+xml",
		"/?from=a+bookmark":   "text/html; charset=utf-8",
		"/nothing":            "application/json",
		"/vendor/":            "application/json",
		"/vendor/README.md":   "application/json",
		"/../console.go":      "",
		"/static/index.html":  "application/json",
		"/vendor/%2e%2e/a.js": "",
	} {
		w := request("GET", at)
		if kind == "application/json" && w.Code != http.StatusNotFound || kind != "" && kind != "application/json" && w.Code != http.StatusOK {
			t.Errorf("%s: status %d", at, w.Code)
		}
		if got := w.Header().Get("Content-Type"); kind != "" && got != kind {
			t.Errorf("%s: Content-Type %q, want %q", at, got, kind)
		}
		if kind == "" && w.Code == http.StatusOK {
			t.Errorf("%s: got a file", at)
		}
		for name, want := range map[string]string{
			"Content-Security-Policy":      console.Policy,
			"X-Content-Type-Options":       "nosniff",
			"Referrer-Policy":              "no-referrer",
			"Cross-Origin-Opener-Policy":   "same-origin",
			"Cross-Origin-Resource-Policy": "same-origin",
		} {
			if got := w.Header().Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", at, name, got, want)
			}
		}
	}
}

func TestPolicyAllowsNothingInline(t *testing.T) {
	for _, directive := range strings.Split(console.Policy, "; ") {
		name, sources, _ := strings.Cut(directive, " ")
		for _, source := range strings.Fields(sources) {
			if source != "'none'" && source != "'self'" && (source != "data:" || name != "img-src") {
				t.Errorf("%s allows %s", name, source)
			}
		}
	}
}

func TestMethods(t *testing.T) {
	if w := request("HEAD", "/app.js"); w.Code != http.StatusOK || w.Body.Len() != 0 || w.Header().Get("Content-Length") == "" {
		t.Errorf("HEAD: status %d, %d bytes", w.Code, w.Body.Len())
	}
	for _, method := range []string{"POST", "PUT", "DELETE"} {
		if w := request(method, "/"); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" {
			t.Errorf("%s: status %d, Allow %q", method, w.Code, w.Header().Get("Allow"))
		}
	}
}

func TestKeptByBrowsersAsLongAsItIsTheSame(t *testing.T) {
	seen := map[string]string{}
	for name, content := range sources(t, true) {
		w := request("GET", "/"+name)
		if w.Code == http.StatusNotFound {
			continue
		}
		if got := w.Body.String(); got != content {
			t.Errorf("%s: served as another file", name)
		}
		etag := w.Header().Get("ETag")
		if other := seen[etag]; other != "" || etag == "" || w.Header().Get("Cache-Control") != "no-cache" {
			t.Errorf("%s: ETag %s (also of %q), Cache-Control %q", name, etag, other, w.Header().Get("Cache-Control"))
		}
		seen[etag] = name
		if again := request("GET", "/"+name, "If-None-Match", etag); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s: asked for again: status %d, %d bytes", name, again.Code, again.Body.Len())
		}
		if old := request("GET", "/"+name, "If-None-Match", `"old"`); old.Code != http.StatusOK {
			t.Errorf("%s: another version asked for: status %d", name, old.Code)
		}
	}
}

func TestNothingInline(t *testing.T) {
	index := sources(t, false)["index.html"]
	for what, pattern := range map[string]string{
		"a script without src": `<script(>|\s[^>]*[^>=]>[^<])`,
		"a style element":      `<style`,
		"a style attribute":    `\sstyle=`,
		"an event attribute":   `\son[a-z]+=`,
		"a script URL":         `javascript:`,
		"a base":               `<base`,
	} {
		if found := regexp.MustCompile(pattern).FindString(index); found != "" {
			t.Errorf("index.html has %s, which the Content-Security-Policy forbids: %s", what, found)
		}
	}
}

// TestComplete follows every reference between the files. Only a browser would miss a file that is
// not embedded; a file that no other refers to is dead.
func TestComplete(t *testing.T) {
	files := sources(t, true)
	used := map[string]bool{"index.html": true}
	imports := regexp.MustCompile(`(?m)^import[^'"]*['"]([^'"]+)['"]`)
	links := regexp.MustCompile(`(?:src|href)="([^"#$]+)"`)
	for name, content := range files {
		var found [][]string
		switch path.Ext(name) {
		case ".js", ".mjs":
			found = imports.FindAllStringSubmatch(content, -1)
			for i, f := range found {
				if !strings.HasPrefix(f[1], "./") {
					t.Errorf("%s imports %q: not a path that a browser can follow", name, f[1])
				}
				found[i][1] = path.Join(path.Dir(name), f[1])
			}
			found = append(found, links.FindAllStringSubmatch(content, -1)...)
		case ".html":
			found = links.FindAllStringSubmatch(content, -1)
		}
		for _, f := range found {
			used[f[1]] = true
			if w := request("GET", "/"+f[1]); w.Code != http.StatusOK {
				t.Errorf("%s refers to %s: status %d", name, f[1], w.Code)
			}
		}
	}
	for name := range files {
		if request("GET", "/"+name).Code == http.StatusOK && !used[name] {
			t.Errorf("%s is served, and nothing refers to it", name)
		}
	}
}

func TestFetchesNothingFromElsewhere(t *testing.T) {
	address := regexp.MustCompile(`(?:https?:)?//[a-z0-9-]+\.[a-z]`)
	for name, content := range sources(t, false) {
		for _, found := range address.FindAllString(content, -1) {
			if found != "http://www.w" { // the name space of SVG is a name
				t.Errorf("%s refers to %s…", name, found)
			}
		}
		// These would turn text into code or markup, or outlive the tab.
		for _, word := range []string{"eval(", "new Function", "innerHTML", "dangerouslySet", "insertAdjacentHTML", "document.write",
			"localStorage", "document.cookie"} {
			if strings.Contains(content, word) {
				t.Errorf("%s uses %s", name, word)
			}
		}
	}
}

// TestFieldsAreThePolicys holds the list of fields that the page has against the program's: no
// field may be missing, none may have another default.
func TestFieldsAreThePolicys(t *testing.T) {
	content := []byte(sources(t, false)["fields.js"])
	from, to := bytes.IndexByte(content, '['), bytes.LastIndexByte(content, ']')
	if from < 0 || to < from {
		t.Fatal("fields.js has no list")
	}
	type field struct {
		Path    string
		Kind    string
		Default any
		Members []field
	}
	var fields []field
	if err := json.Unmarshal(content[from:to+1], &fields); err != nil {
		t.Fatalf("the list in fields.js is not JSON: %v", err)
	}
	got := map[string]any{}
	for _, f := range fields {
		if got[f.Path] = f.Default; f.Kind == "duration" {
			d, err := time.ParseDuration(f.Default.(string))
			if err != nil {
				t.Errorf("%s: %v", f.Path, err)
			}
			got[f.Path] = d
		}
		if !slices.Contains([]string{"number", "whole", "choice", "duration", "yesno", "text", "json"}, f.Kind) {
			t.Errorf("%s: unknown kind %q", f.Path, f.Kind)
		}
	}
	defaults := policy.Defaults()
	for name, want := range defaults.Values() {
		value, ok := got[name]
		if !ok {
			t.Errorf("%s is missing", name)
		}
		switch v := want.(type) {
		case int64:
			want = float64(v)
		case string:
			if v == "" {
				want = nil
			}
		}
		if value != want {
			t.Errorf("%s: the default is %v, want %v", name, value, want)
		}
		delete(got, name)
	}
	for name := range got {
		t.Errorf("%s is no field of a policy", name)
	}

	groups := fields[slices.IndexFunc(fields, func(f field) bool { return f.Path == "groups" })]
	limits := map[string]any{}
	var names []string
	for _, f := range groups.Members {
		limits[f.Path] = f.Default
		names = append(names, f.Path)
	}
	doc, err := json.Marshal(map[string]any{"groups": map[string]any{"audit": limits}})
	require.NoError(t, err)
	p, err := policy.ParsePolicy(doc)
	if err != nil {
		t.Fatalf("%s: %v", doc, err)
	}
	for path, value := range p.Values() {
		if got := policy.Groups(value.(string)).Of("audit"); got != (policy.GroupLimits{}) {
			t.Errorf("%s: the limits of a group are %+v by default", path, got)
		}
	}
	_, err = policy.ParsePolicy([]byte(`{"groups":{"audit":{"no":1}}}`))
	if want := "allowed here: " + strings.Join(names, ", "); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the limits of a group: %v, want %s", err, want)
	}
}
