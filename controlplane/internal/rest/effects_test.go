package rest

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// steadily is an hour of a rate.
func steadily(perSecond float32) (h fleet.Hour) {
	for i := range h {
		h[i] = fleet.Slot{Events: perSecond * float32(fleet.HourSlot.Seconds()), Peak: perSecond}
	}
	return h
}

func TestEffectsOfAPolicy(t *testing.T) {
	r := &registry{
		sidecars: []fleet.Sidecar{{NodeID: "a", Connected: true, ControlPlane: "here"}, {NodeID: "b", Connected: true}, {NodeID: "c"}},
		hours: fleet.Hours{Since: time.Unix(0, 0), Complete: true, Topics: map[string][]fleet.Hour{
			"orders.paid": {steadily(20), steadily(5)}, "orders.late": {steadily(1)}, "orders.own": {steadily(100)}, "payments": {steadily(500)},
		}},
	}
	a := newAPI(t, func(c *Config) { c.Registry, c.Access, c.Name = r, tokens{}, "here" })
	as := func(role string) []string { return []string{"Authorization", "Bearer " + role} }
	a.send("PUT", "/v1/policies/orders.own", `{"publish":{"rate":7,"burst":7}}`, as("editor")...)
	const path = "/v1/policies/orders.*/effects"
	want(t, a.send("POST", path, `{"publish":{"rate":10,"burst":10},"reason":"x"}`, as("viewer")...), http.StatusOK,
		`{"since":"T","complete":true,"sidecars":{"counted":1,"live":2},"topics":[`+
			`{"topic":"orders.paid","events":90000,"refused_before":0,"refused_after":35990},`+
			`{"topic":"orders.late","events":3600,"refused_before":0,"refused_after":0}]}`)
	want(t, a.send("POST", path, `{"publish":{"per":"header:tenant"}}`, as("viewer")...), http.StatusOK,
		`{"since":"T","complete":true,"sidecars":{"counted":1,"live":2},"topics":[`+
			`{"topic":"orders.own","events":360000,"refused_before":334793,"refused_after":null},`+
			`{"topic":"orders.paid","events":90000,"refused_before":0,"refused_after":null},`+
			`{"topic":"orders.late","events":3600,"refused_before":0,"refused_after":null}]}`)
	want(t, a.send("POST", path, `{"partitions":3}`, as("viewer")...), http.StatusOK,
		`{"since":"T","complete":true,"sidecars":{"counted":1,"live":2},"topics":[]}`)
	refused(t, a.send("POST", path, `{"publish":{"rate":-1}}`, as("viewer")...), wire.InvalidPolicy)
	refused(t, a.send("POST", path, `{`, as("viewer")...), wire.BadJSON)
	for i := range maxEffects + 3 {
		r.hours.Topics[fmt.Sprint("orders.", i)] = []fleet.Hour{steadily(1)}
	}
	many := a.send("POST", path, `{"paused":true}`, as("viewer")...).Body.String()
	if n := strings.Count(many, `"topic":`); n != maxEffects || !strings.HasSuffix(many, `,"more":6}`+"\n") {
		t.Errorf("%d topics, %.80q", n, many[max(len(many)-80, 0):])
	}
	if policies := a.send("GET", "/v1/policies", "", as("viewer")...).Body.String(); strings.Contains(policies, `"orders.*"`) {
		t.Errorf("the policy is there: %s", policies)
	}
}

// Every change may have a reason, which the history and the audit log keep.
func TestReasons(t *testing.T) {
	a := newAPI(t)
	for _, change := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", "/v1/policies/orders", `{"partitions":3,"reason":"the first"}`, 201},
		{"PUT", "/v1/policies/orders", `{"partitions":4,"reason":"the second"}`, 200},
		{"POST", "/v1/policies/orders/rollback", `{"version":1,"reason":"the third"}`, 200},
		{"POST", "/v1/apply", `{"policies":[{"name":"orders"}],"reason":"the fourth"}`, 200},
		{"DELETE", "/v1/policies/orders?reason=the+fifth", "", 204},
	} {
		if w := a.send(change.method, change.path, change.body); w.Code != change.status {
			t.Errorf("%s %s: %d %s", change.method, change.path, w.Code, w.Body)
		}
	}
	for _, path := range []string{"/v1/audit", "/v1/policies/orders/history"} {
		text := a.send("GET", path, "").Body.String()
		at := len(text)
		for _, reason := range []string{"the first", "the second", "the third", "the fourth", "the fifth"} { // newest first
			next := strings.Index(text, `"reason":"`+reason+`"`)
			if next < 0 || next > at {
				t.Errorf("%s has no %q in its place: %s", path, reason, text)
			}
			at = next
		}
	}
	long := strings.Repeat("x", maxReasonBytes+1)
	refused(t, a.send("PUT", "/v1/policies/a", `{"reason":""}`), wire.BadRequest)
	refused(t, a.send("PUT", "/v1/policies/a", `{"reason":7}`), wire.BadRequest)
	refused(t, a.send("POST", "/v1/policies/orders/rollback", `{"version":1,"reason":"`+long+`"}`), wire.BadRequest)
	refused(t, a.send("POST", "/v1/apply", `{"policies":[],"reason":""}`), wire.BadRequest)
	refused(t, a.send("DELETE", "/v1/policies/orders?reason=", ""), wire.BadRequest)
	refused(t, a.send("DELETE", "/v1/policies/orders?reason="+long, ""), wire.BadRequest)
}
