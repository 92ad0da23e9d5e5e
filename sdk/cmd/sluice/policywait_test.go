package main

import (
	"reflect"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

func TestAcked(t *testing.T) {
	targets := map[string]int64{"orders.*": 4, "payments": 2}
	users := map[string][]string{"payments": {"new"}}
	refusal := func(policy string, version int64) *admin.Rejection {
		return &admin.Rejection{Policy: policy, Version: version, Reason: "no"}
	}
	now := acked(targets, users, []admin.Sidecar{
		{NodeID: "globs alone", Connected: true, Versions: map[string]int64{"orders.*": 4}},
		{NodeID: "newer", Connected: true, Versions: map[string]int64{"orders.*": 5, "payments": 3}},
		{NodeID: "old", Connected: true, Versions: map[string]int64{"orders.*": 3, "payments": 1}},
		{NodeID: "new", Connected: true, Versions: map[string]int64{"orders.*": 4}},
		{NodeID: "away", Versions: map[string]int64{"orders.*": 3}},
		{NodeID: "refused", Connected: true, Versions: map[string]int64{"orders.*": 4, "payments": 1}, Rejected: refusal("payments", 2)},
		{NodeID: "refused before", Connected: true, Versions: map[string]int64{"orders.*": 3}, Rejected: refusal("orders.*", 3)},
	})
	want := acks{
		Acked: []string{"globs alone", "newer"},
		Pending: []behind{{NodeID: "old", Policy: "orders.*", Version: 4}, {NodeID: "new", Policy: "payments", Version: 2},
			{NodeID: "refused before", Policy: "orders.*", Version: 4}},
		Refused: []behind{{NodeID: "refused", Policy: "payments", Version: 2, Reason: "no"}},
		Away:    1,
	}
	if !reflect.DeepEqual(now, want) {
		t.Errorf("got  %+v\nwant %+v", now, want)
	}
	if got := now.String(); got != "acked by 2 of 6 sidecars, refused by 1, 1 not connected" {
		t.Error(got)
	}
	// Without the globs, sidecars that do not use the policy do not count.
	if now := acked(map[string]int64{"payments": 2}, nil, []admin.Sidecar{{NodeID: "a",
		Connected: true}}); now.String() != "no connected sidecar uses it" {
		t.Errorf("%+v", now)
	}
}

func TestAckedThatItIsGone(t *testing.T) {
	now := acked(map[string]int64{"orders.*": gone, "payments": 2}, nil, []admin.Sidecar{
		{NodeID: "has none", Connected: true},
		{NodeID: "has both", Connected: true, Versions: map[string]int64{"orders.*": 3, "payments": 2}},
		{NodeID: "has one", Connected: true, Versions: map[string]int64{"payments": 2}},
	})
	want := acks{Acked: []string{"has one"}, Pending: []behind{{NodeID: "has both", Policy: "orders.*"}}, Refused: []behind{}}
	if !reflect.DeepEqual(now, want) {
		t.Errorf("got  %+v\nwant %+v", now, want)
	}
}

func TestPolicyWait(t *testing.T) {
	var asked atomic.Int64
	sidecars := func() []admin.Sidecar {
		s1 := admin.Sidecar{NodeID: "s1", Connected: true, Versions: map[string]int64{"*": 0}}
		if asked.Add(1) > 2 {
			s1.Versions["*"] = 1
		}
		return []admin.Sidecar{s1}
	}
	plane := startPlane(t, sluicetest.ControlPlaneOptions{Sidecars: sidecars})
	want(t, plane.ok("policy", "set", "*", "paused=true", "--wait"), "    paused: true\n* is now at version 1\nacked by 1 of 1 sidecars\n")
	if asked.Load() != 3 {
		t.Errorf("asked %d times", asked.Load())
	}
	got := plane.run("", "policy", "resume", "*", "--wait", "--wait-timeout", "1ms", "-o", "json").wantFailure(t, 4,
		"sluice: the change is made, and not all sidecars have taken it within 1ms")
	if !strings.HasPrefix(got.stderr, "  s1 has not acked * version 2\n") || !strings.HasSuffix(got.stdout,
		`{"acked":[],"pending":[{"node_id":"s1","policy":"*","version":2}],"refused":[],"not_connected":0}`+"\n") {
		t.Errorf("%+v", got)
	}
	got = plane.run("", "policy", "delete", "*", "--yes", "--wait", "--wait-timeout", "1ms").wantFailure(t, 4, "  s1 still has *\n")
	if !strings.HasSuffix(got.stdout, "acked by 0 of 1 sidecars\n") {
		t.Errorf("%+v", got)
	}

	plane = startPlane(t, sluicetest.ControlPlaneOptions{Sidecars: func() []admin.Sidecar {
		return []admin.Sidecar{{NodeID: "s1", Connected: true, Rejected: &admin.Rejection{Policy: "orders.*", Version: 1, Reason: "too old"}}}
	}})
	got = plane.run("- name: orders.*\n", "policy", "apply", "-f", "-", "--wait").wantFailure(t, 4, "sidecars have refused it")
	if !strings.HasPrefix(got.stderr, "  s1 refused orders.* version 1: too old\n") || !strings.HasSuffix(got.stdout,
		"acked by 0 of 1 sidecars, refused by 1\n") {
		t.Errorf("%+v", got)
	}
}
