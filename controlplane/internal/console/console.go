// Package console serves the web page of the control plane: static files that are part of the
// program, under headers that let them load nothing from elsewhere and run nothing but themselves.
package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"time"

	"github.com/sluice-bus/sluice/internal/httpapi"
)

//go:embed static
var static embed.FS

// Policy is the Content-Security-Policy of every answer: only the page's own files and the API of
// the same origin, no inline script or style, no frame around it.
const Policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// types are the content types of the served files, by extension; other files (licences, notes on
// their origin) are for readers of the source. They are listed here because the mime package's
// types differ from machine to machine.
var types = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".mjs":  "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
}

// Handler serves the page at / and its files below. Other paths get the JSON errors of the API.
func Handler() http.Handler {
	var routes []httpapi.Route
	err := fs.WalkDir(static, "static", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || types[path.Ext(name)] == "" {
			return err
		}
		content, err := fs.ReadFile(static, name)
		if err != nil {
			return err
		}
		at := name[len("static"):]
		routes = append(routes, file(at, at, content))
		if at == "/index.html" {
			routes = append(routes, file("/{$}", at, content))
		}
		return nil
	})
	if err != nil { // the files are in the program: only a defect gets here
		panic(fmt.Sprintf("console: embedded files: %v", err))
	}
	router := httpapi.NewRouter(routes)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", Policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		router.ServeHTTP(w, r)
	})
}

// file serves one file at a path. Browsers cache it and validate it on each request, so that a page never
// mixes the files of two versions of the program.
func file(at, name string, content []byte) httpapi.Route {
	sum := sha256.Sum256(content)
	etag := `"` + hex.EncodeToString(sum[:12]) + `"`
	return httpapi.Route{Pattern: "GET " + at, Unchecked: true, Serve: func(w http.ResponseWriter, r *httpapi.Request, _ error) {
		h := w.Header()
		h.Set("Content-Type", types[path.Ext(name)])
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", etag)
		http.ServeContent(w, r.Request, name, time.Time{}, bytes.NewReader(content))
	}}
}
