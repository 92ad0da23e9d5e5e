package main

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

// TestStoreIsAskedThroughTheControlPlane: with --store a command prints what it prints of a sidecar.
func TestStoreIsAskedThroughTheControlPlane(t *testing.T) {
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "t", 3)
	run(t, sidecar, "", "sub", "t", "--group", "g", "--from", "earliest", "--max", "1").wantOK(t)
	run(t, sidecar, "", "pub", "t", "1", "--id", "later", "--delay", "1h").wantOK(t)
	const prefix = "/v1/stores/some%20store"
	plane := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		path, ok := strings.CutPrefix(r.In.URL.EscapedPath(), prefix)
		if strings.HasPrefix(path, "/topics") {
			path = "/v1" + path
		}
		target, err := url.Parse(sidecar.URL)
		if err != nil || !ok {
			t.Errorf("asked for %s: %v", r.In.URL, err)
			return
		}
		r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = target.Scheme, target.Host, ""
		r.Out.URL.Path, r.Out.URL.RawPath = path, ""
	}})
	defer plane.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	through := []string{"--store", "some store", "--control-plane-url", plane.URL}
	for _, command := range []string{
		"topics -o json", "events t -o json", "replay t", "export t -", "latest t", "groups t -o json", "dlq list t", "scheduled list t -o json",
	} {
		args := strings.Fields(command)
		direct := run(t, sidecar, "", args...)
		got := run(t, &sluicetest.Sidecar{}, "", append(args, through...)...)
		if direct.status != 0 || got.status != 0 || got.stdout != direct.stdout {
			t.Errorf("sluice %s: %d %s%s; of a sidecar: %d %s", command, got.status, got.stdout, got.stderr, direct.status, direct.stdout)
		}
	}
	run(t, &sluicetest.Sidecar{}, "", append([]string{"groups", "seek", "t", "g", "--from", "earliest", "--yes"}, through...)...).wantOK(t)
	run(t, sidecar, "", append([]string{"pub", "t", "1"}, through...)...).wantFailure(t, 2, "--store does not go with pub")
}
