package main

import (
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

// TestPlansSayHowManyEventsGo: a plan that shortens what topics keep says how many events that
// removes, where that is asked for; others ask no sidecar.
func TestPlansSayHowManyEventsGo(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{})
	sidecar := start(t, sluicetest.Options{})
	fill(t, sidecar, "orders.created", 5)
	fill(t, sidecar, "payments", 3)
	at := []string{"--events", "--url", sidecar.URL}
	const removed = "removes 5 events of topic orders.created from the sidecar's store\n"
	name := file(t, "- name: orders.*\n  retention: {max_bytes: 1}\n- name: payments\n  retention: {ttl: 1000h}\n")
	for _, command := range [][]string{
		{"policy", "apply", "-f", name, "--dry-run"},
		{"policy", "set", "orders.*", "retention.max_bytes=1", "--dry-run"},
	} {
		if got := plane.ok(append(command, at...)...); !strings.HasSuffix(got, removed) || strings.Contains(got, "payments from") {
			t.Errorf("%q says\n%s", command, got)
		}
	}
	got := plane.run("", append([]string{"policy", "diff", "-f", name}, at...)...)
	if got.status != 1 || !strings.HasSuffix(got.stdout, removed) {
		t.Errorf("diff: %+v", got)
	}
	if got := plane.ok(append([]string{"policy", "apply", "-f", name, "--dry-run", "-o", "json"}, at...)...); !strings.Contains(got,
		`"events":{"orders.created":{"events":5}}`) {
		t.Errorf("as JSON: %s", got)
	}
	plane.ok("policy", "set", "payments", "retention.compact=true")
	got = plane.run("", append([]string{"policy", "delete", "payments", "--dry-run"}, at...)...).wantOK(t)
	if strings.Contains(got.stdout, "removes") || got.stderr != "" {
		t.Errorf("a deletion after which more is kept: %+v", got)
	}
	nobody := []string{"--events", "--url", "http://127.0.0.1:1"}
	if got := plane.run("", append([]string{"policy", "set", "orders.*", "paused=true", "--dry-run"},
		nobody...)...).wantOK(t); got.stderr != "" {
		t.Errorf("a plan that keeps all events: %+v", got)
	}
	got = plane.run("", append([]string{"policy", "set", "orders.*", "retention.ttl=1h", "--dry-run"}, nobody...)...)
	if got.status != 0 || !strings.HasPrefix(got.stderr, "How many events this removes is not known: ") {
		t.Errorf("without a sidecar: %+v", got)
	}
}
