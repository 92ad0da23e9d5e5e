package rest

import (
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestOperatorsChangeGroupsAlone(t *testing.T) {
	a := newAPI(t, func(c *Config) { c.Access = tokens{} })
	as := func(role string) []string { return []string{"Authorization", "Bearer " + role} }
	a.send("PUT", "/v1/policies/orders.*", `{"partitions":4,"groups":{"audit":{"rate":5}}}`, as("editor")...)
	const path = "/v1/policies/orders.*/groups/billing"
	want(t, a.send("PUT", path, `{"paused":true,"rate":12.5,"reason":"it floods the bank"}`, as("operator")...), http.StatusOK,
		`{"name":"orders.*","partitions":4,"groups":{"audit":{"rate":5},"billing":{"paused":true,"rate":12.5}},"version":2,`+
			`"updated_at":"T","updated_by":"the operator"}`)
	if audit := a.send("GET", "/v1/audit", "", as("viewer")...).Body.String(); !strings.Contains(audit, `"reason":"it floods the bank"`) {
		t.Errorf("the audit log has no reason: %s", audit)
	}
	want(t, a.send("PUT", path, `{}`, as("operator")...), http.StatusOK, // what is left out is inherited again
		`{"name":"orders.*","partitions":4,"groups":{"audit":{"rate":5}},"version":3,"updated_at":"T","updated_by":"the operator"}`)
	want(t, a.send("PUT", "/v1/policies/new/groups/g", `{"max_inflight":1}`, as("operator")...), http.StatusCreated,
		`{"name":"new","groups":{"g":{"max_inflight":1}},"version":1,"updated_at":"T","updated_by":"the operator"}`)
	for body, code := range map[string]wire.Code{
		`{"pause":true}`: wire.BadRequest, `{"reason":""}`: wire.BadRequest, `{"reason":1}`: wire.BadRequest, `{`: wire.BadJSON,
		`{"rate":-1}`: wire.InvalidPolicy, `{"paused":"yes"}`: wire.InvalidPolicy,
	} {
		refused(t, a.send("PUT", path, body, as("operator")...), code)
	}
	refused(t, a.send("PUT", path, `{}`, append(as("operator"), "If-Match", `"1"`)...), wire.PreconditionFailed)
	refused(t, a.send("PUT", "/v1/policies/a*b/groups/g", `{}`, as("operator")...), wire.InvalidPolicy)
	refused(t, a.send("PUT", "/v1/policies/orders.*/groups/a%2Fb", `{"rate":1}`, as("operator")...), wire.InvalidPolicy)
	for _, role := range []string{"viewer", "reader", "sidecar"} {
		refused(t, a.send("PUT", path, `{}`, as(role)...), wire.Forbidden)
	}
	for policy, covered := range map[string]bool{"orders.new": true, "orders.*": true, "*": false, "payments": false} {
		if err := (Identity{Name: "olga", Role: operator, Topics: []string{"orders.*"}}).mayOperate(policy); (err == nil) != covered {
			t.Errorf("%s: %v", policy, err)
		}
	}
}
