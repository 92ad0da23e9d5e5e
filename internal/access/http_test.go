package access

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAuthenticateAndRequire(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", "tokens:\n - {name: ops, sha256: %s, ops: true}\n - {name: app, sha256: %s}", sumOf(aliceToken), sumOf(nodeToken))
	a, log := f.open(Sidecar)
	who := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, a.From(r.Context()).Name) })
	for _, tc := range []struct {
		name      string
		handler   http.Handler
		path      string
		token     string
		status    int
		body      string // part of it
		challenge string
	}{
		{"somebody", a.Authenticate(who), "/v1/x", nodeToken, 200, "app", ""},
		{"nobody", a.Authenticate(who), "/v1/x", "", 401, `"code":"unauthorized"`, `Bearer realm="sluice"`},
		{"a stranger", a.Authenticate(who), "/v1/x", "what-is-this", 401, "not known", `Bearer realm="sluice", error="invalid_token"`},
		{"who may", a.Require(Operate, who, "/healthz"), "/metrics", aliceToken, 200, "ops", ""},
		{"who may not", a.Require(Operate, who, "/healthz"), "/metrics", nodeToken, 403, `"code":"forbidden"`, ""},
		{"an open path", a.Require(Operate, who, "/healthz"), "/healthz", "", 200, "", ""},
		{"like an open path", a.Require(Operate, who, "/healthz"), "/healthz/x", "", 401, "", `Bearer realm="sluice"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := httptest.NewRequest("GET", tc.path, nil)
			if tc.token != "" {
				r.Header.Set("Authorization", "Bearer "+tc.token)
			}
			w := httptest.NewRecorder()
			tc.handler.ServeHTTP(w, r)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.body) || w.Header().Get("WWW-Authenticate") != tc.challenge {
				t.Errorf("%d %q %s", w.Code, w.Header(), w.Body)
			}
		})
	}
	if !strings.Contains(log.String(), "access refused") || strings.Contains(log.String(), "what-is-this") {
		t.Errorf("the log:\n%s", log)
	}
}

func TestRefusedCertificateEndsItsConnection(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", "tokens: []")
	a, _ := f.open(Sidecar)
	for _, certs := range [][]*x509.Certificate{nil, {{}}} {
		r := httptest.NewRequest("GET", "/", nil)
		r.TLS = &tls.ConnectionState{PeerCertificates: certs}
		w := httptest.NewRecorder()
		a.Authenticate(http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != 401 || (w.Header().Get("Connection") == "close") != (len(certs) > 0) {
			t.Errorf("%d certificates: %d %v", len(certs), w.Code, w.Header())
		}
	}
}
