package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// between is a way to the control plane on which before is called ahead of each change, and returns
// its address.
func between(t *testing.T, target string, before func()) string {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if r.Method != http.MethodGet && !bytes.Contains(body, []byte(`"dry_run":true`)) {
			before()
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		front.Close()
		transport.CloseIdleConnections()
	})
	return front.URL
}

const twoPolicies = `
- name: orders.*
  publish: {rate: 1000, burst: 1000}
- name: orders.created
  publish: {rate: 500}
`

const planned = `+ orders.*
    publish.rate: 1000
    publish.burst: 1000
+ orders.created
    publish.rate: 500

2 to create, 0 to update, 0 to delete, 0 unchanged
`

func TestPolicyApply(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{})
	name := file(t, twoPolicies)
	want(t, plane.ok("policy", "apply", "-f", name, "--dry-run"), planned)
	want(t, plane.ok("policy", "list"), "no policies: the defaults hold for every topic\n")
	want(t, plane.ok("policy", "apply", "-f", name), planned+"applied: revision 1\n")
	want(t, plane.ok("policy", "apply", "-f", name), "0 to create, 0 to update, 0 to delete, 2 unchanged\nnothing to change\n")

	const other = "policies: [{name: orders.*, publish: {rate: 2000, scope: fleet}}]"
	plane.run(other, "policy", "apply", "-f", "-", "--prune").wantFailure(t, 2, "--yes")
	got := plane.run(other, "policy", "apply", "-f", "-", "--prune", "--yes").wantOK(t)
	want(t, got.stdout, `~ orders.* (version 1)
    publish.rate: 1000 -> 2000
    publish.burst: 1000 -> not set
    publish.scope: fleet
- orders.created (version 1)
    publish.rate: 500 -> not set

0 to create, 1 to update, 1 to delete, 0 unchanged
applied: revision 2
`)
	asJSON := []string{"policy", "apply", "-f", name, "-o", "json"}
	for line := range strings.Lines(plane.ok(asJSON...) + plane.ok(append(asJSON, "--dry-run")...)) {
		var result struct {
			DryRun  bool `json:"dry_run"`
			Changes []struct{ Action string }
		}
		if err := json.Unmarshal([]byte(line), &result); err != nil || len(result.Changes) != 2 ||
			result.Changes[1].Action == "unchanged" != result.DryRun {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestPolicyDiff(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{})
	name := file(t, twoPolicies)
	diff := func(status int, stdout string, args ...string) {
		t.Helper()
		got := plane.run("", append([]string{"policy", "diff", "-f", name}, args...)...)
		if got.status != status || got.stderr != "" {
			t.Errorf("status %d, stderr %q", got.status, got.stderr)
		}
		want(t, got.stdout, stdout)
	}
	diff(1, planned)
	plane.ok("policy", "apply", "-f", name)
	diff(0, "0 to create, 0 to update, 0 to delete, 2 unchanged\n")
	plane.ok("policy", "set", "payments", "paused=true")
	diff(0, "0 to create, 0 to update, 0 to delete, 2 unchanged\n")
	diff(1, "- payments (version 1)\n    paused: true -> not set\n\n0 to create, 0 to update, 1 to delete, 2 unchanged\n", "--prune")
	plane.run("", "policy", "diff", "-f", name, "--control-plane", "http://127.0.0.1:1").wantFailure(t, 2, "refused")
	plane.run("", "policy", "diff", "-f", "not-there").wantFailure(t, 2, "not-there")
}

func TestPolicyFileThatIsNotValid(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{Refuse: func(name string, _ json.RawMessage) []wire.FieldError {
		if name == "payments" {
			return []wire.FieldError{{Field: "publish.burst", Message: "must be at least 1"}}
		}
		return nil
	}})
	const bad = "- name: a b\n- name: c\n  publish:\n    rate: -1\n"
	for _, command := range []string{"apply", "diff"} {
		got := plane.run(bad, "policy", command, "-f", "-").wantFailure(t, 2,
			"sluice: standard input: the policies are not valid, so nothing was sent\n")
		for _, line := range []string{"  policies[0].name: line 1: must be", "  policies[1].publish.rate: line 4: must be"} {
			if !strings.Contains(got.stderr, line) {
				t.Errorf("%q is missing in\n%s", line, got.stderr)
			}
		}
	}
	// The control plane knows the other policies, too.
	const fine = "- name: a\n- name: payments\n"
	plane.run(fine, "policy", "diff", "-f", "-").wantFailure(t, 2, "1 field is not valid")
	got := plane.run(fine, "policy", "apply", "-f", "-")
	want(t, got.stderr, "  payments: publish.burst: must be at least 1\nsluice: invalid_policy: 1 field is not valid, "+
		"so nothing was changed\n")
}

func TestPolicyApplyAgainstOthers(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{})
	front := between(t, plane.URL, func() { plane.ok("policy", "set", "orders.created", "publish.rate=7") })
	got := plane.run(twoPolicies, "policy", "apply", "-f", "-", "--control-plane", front)
	if got.status != 0 || !strings.HasPrefix(got.stderr, "Someone else changed policies") ||
		!strings.Contains(got.stdout, "~ orders.created (version 1)\n    publish.rate: 7 -> 500\n") {
		t.Errorf("%+v", got)
	}
}

func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, " YES \n": true, "n\n": false, "\n": false, "": false, "yep\n": false} {
		var out bytes.Buffer
		got, err := confirm(t.Context(), strings.NewReader(answer), &out, "Apply this? ")
		if got != want || err != nil || out.String() != "Apply this? " {
			t.Errorf("%q: %v, %v, %q", answer, got, err, &out)
		}
	}
	silent, end := io.Pipe()
	defer end.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := confirm(ctx, silent, io.Discard, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestNamed(t *testing.T) {
	for field, name := range map[string]string{
		"policies[1].publish.rate":          "b: publish.rate",
		`policies["orders.*"].publish.rate`: "orders.*: publish.rate",
		"policies[2].publish.rate":          "policies[2].publish.rate",
		"policies[0]":                       "policies[0]",
		"policies":                          "policies",
		"publish.rate":                      "publish.rate",
	} {
		want(t, named(field, []string{"a", "b"}), name)
	}
}
