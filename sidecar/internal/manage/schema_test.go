package manage_test

import (
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

// Identities that may publish or subscribe to a topic may read its schema; others may not.
func TestSchemaRights(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t,
		"tokens:\n"+gatewaytest.Entry("in", "publish: [orders]")+gatewaytest.Entry("out", "subscribe: [orders]")+
			gatewaytest.Entry("else", "publish: [other], subscribe: [other], replay: [orders]")).Access})
	s.Policies.Swap(gatewaytest.Snapshot(t, `[{"name":"orders","schema":{"json_schema":{"type":"number"}}}]`))
	s.Want(t, 200, `"json_schema":{"type":"number"}`, "GET", gatewaytest.Orders+"/schema", "", "Authorization: Bearer in")
	s.Want(t, 200, `"version":1`, "GET", gatewaytest.Orders+"/schema", "", "Authorization: Bearer out")
	s.Want(t, 403, "forbidden", "GET", gatewaytest.Orders+"/schema", "", "Authorization: Bearer else")
	s.Want(t, 401, "unauthorized", "GET", gatewaytest.Orders+"/schema", "")
	s.Want(t, 400, "topic", "GET", "/v1/topics/a%20b/schema", "", "Authorization: Bearer in")
}
