package gateway

import (
	"fmt"
	"testing"
)

// TestPlanRetention: an operator can ask how many events a shorter retention removes before setting
// it.
func TestPlanRetention(t *testing.T) {
	s := start(t, setup{policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"partitions":2}]`})
	for i := range 10 {
		s.publish(t, "orders", fmt.Sprint("e", i), fmt.Sprint("k", i%2))
	}
	plan := orders + "/retention"
	s.want(t, 200, `{"events":0}`, "GET", plan, "")
	s.want(t, 200, `{"events":0}`, "GET", plan+"?ttl=1h&max_bytes=0&compact=0", "")
	s.want(t, 200, `{"events":8}`, "GET", plan+"?compact=1", "")
	s.want(t, 200, `{"events":10}`, "GET", plan+"?max_bytes=1", "")
	for _, bad := range []string{"?ttl=1day", "?ttl=-1s", "?ttl=", "?max_bytes=-1", "?compact=yes", "?ttl=1h&ttl=2h"} {
		s.want(t, 400, "bad_request", "GET", plan+bad, "")
	}
	s.want(t, 404, "not_found", "GET", "/v1/topics/nobody/retention", "")
	s.want(t, 405, "", "DELETE", plan, "")
}

func TestRightsToPlanRetention(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("app", "publish: [orders]")+entry("reader", "replay: [orders]")).Access})
	s.want(t, 201, "", "POST", orders+"/events", "1", "Authorization: Bearer app")
	s.want(t, 403, "forbidden", "GET", orders+"/retention", "", "Authorization: Bearer app")
	s.want(t, 200, `{"events":0}`, "GET", orders+"/retention", "", "Authorization: Bearer reader")
}
