package manage_test

import (
	"fmt"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

// TestPlanRetention: an operator can ask how many events a shorter retention removes before setting
// it.
func TestPlanRetention(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"partitions":2}]`})
	for i := range 10 {
		s.Publish(t, "orders", fmt.Sprint("e", i), fmt.Sprint("k", i%2))
	}
	plan := gatewaytest.Orders + "/retention"
	s.Want(t, 200, `{"events":0}`, "GET", plan, "")
	s.Want(t, 200, `{"events":0}`, "GET", plan+"?ttl=1h&max_bytes=0&compact=0", "")
	s.Want(t, 200, `{"events":8}`, "GET", plan+"?compact=1", "")
	s.Want(t, 200, `{"events":10}`, "GET", plan+"?max_bytes=1", "")
	for _, bad := range []string{"?ttl=1day", "?ttl=-1s", "?ttl=", "?max_bytes=-1", "?compact=yes", "?ttl=1h&ttl=2h"} {
		s.Want(t, 400, "bad_request", "GET", plan+bad, "")
	}
	s.Want(t, 404, "not_found", "GET", "/v1/topics/nobody/retention", "")
	s.Want(t, 405, "", "DELETE", plan, "")
}

func TestRightsToPlanRetention(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t,
		"tokens:\n"+gatewaytest.Entry("app", "publish: [orders]")+gatewaytest.Entry("reader", "replay: [orders]")).Access})
	s.Want(t, 201, "", "POST", gatewaytest.Orders+"/events", "1", "Authorization: Bearer app")
	s.Want(t, 403, "forbidden", "GET", gatewaytest.Orders+"/retention", "", "Authorization: Bearer app")
	s.Want(t, 200, `{"events":0}`, "GET", gatewaytest.Orders+"/retention", "", "Authorization: Bearer reader")
}
