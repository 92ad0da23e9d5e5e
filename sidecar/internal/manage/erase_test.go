package manage_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

// erasedLine ends the stream of an erasure of n events.
func erasedLine(n int) string { return fmt.Sprintf(`{"done":%d,"of":%d,"ok":true}`, n, n) }

func TestEraseByID(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"partitions":1}]`})
	for _, id := range []string{"a", "b", "c"} {
		s.Publish(t, "orders", id, "k-"+id)
	}
	s.PublishDead(t, "orders.dlq", "dlq-1", wire.Header{Name: wire.HeaderDeadTopic, Value: "orders"},
		wire.Header{Name: wire.HeaderDeadID, Value: "b"})
	events := gatewaytest.Orders + "/events"
	s.Want(t, 404, "not_found", "DELETE", events+"?id=nobody", "")
	s.Want(t, 405, "id and key", "DELETE", events, "")
	if res, _ := s.Do(t, "DELETE", events, ""); res.Header.Get("Allow") != "POST" {
		t.Errorf("Allow is %q, which is to list methods", res.Header.Get("Allow"))
	}
	for _, query := range []string{"?id=", "?id=a&key=k", "?key="} {
		s.Want(t, 400, "bad_request", "DELETE", events+query, "")
	}
	s.Want(t, 200, erasedLine(2), "DELETE", events+"?id=b", "")
	s.Want(t, 404, "not_found", "DELETE", events+"?id=b", "")
	s.Want(t, 404, "not_found", "GET", events+"/b", "")
	s.Want(t, 404, "not_found", "GET", gatewaytest.DeadOrders+"/events/dlq-1", "")
	s.Want(t, 409, "conflict", "POST", events, `{"n":1}`, "Sluice-Id: b", "Sluice-Key: k-b") // it does not come back
	pulled := s.Want(t, 200, "", "POST", gatewaytest.Billing+"/pull", `{"max":10,"wait_ms":0,"opts":{"from":"earliest"}}`)
	if strings.Count(pulled, `"seq"`) != 2 || strings.Contains(pulled, "k-b") {
		t.Errorf("pulled %s", pulled)
	}
}

// TestEraseByKey checks that a group delivers no erased event any more, neither one in its memory
// nor one that it has delivered before.
func TestEraseByKey(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"partitions":1}]`})
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"orders","group":"billing","opts":{"from":"earliest"}}`)
	for i := range 3 {
		s.Publish(t, "orders", fmt.Sprint("p", i), "person")
		s.Publish(t, "orders", fmt.Sprint("o", i), fmt.Sprint("other", i))
	}
	for _, id := range []string{"p0", "o0", "o1", "o2"} { // the key's others wait for the first
		c.WantEvent(id)
	}
	s.Want(t, 200, erasedLine(3), "DELETE", gatewaytest.Orders+"/events?key=person", "")
	s.Want(t, 200, erasedLine(0), "DELETE", gatewaytest.Orders+"/events?key=person", "")
	c.Ask(`{"op":"ACK","topic":"orders","group":"billing","ids":["o0","o1","o2"]}`)
	gatewaytest.Eventually(t, "the group has gone past what was erased", func() bool {
		_, text := s.Do(t, "GET", gatewaytest.Billing, "")
		return strings.Contains(text, `"lag":0`)
	})
	s.Want(t, 200, `"events":3,`, "GET", "/v1/topics?prefix=orders", "")
}

func TestRightsToErase(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t,
		"tokens:\n"+gatewaytest.Entry("app", "publish: [orders], subscribe: [orders], replay: [orders]")+gatewaytest.Entry("admin",
			"admin: [orders]")).Access})
	s.Want(t, 201, "", "POST", gatewaytest.Orders+"/events", "1", "Sluice-Id: a", "Authorization: Bearer app")
	s.Want(t, 403, "forbidden", "DELETE", gatewaytest.Orders+"/events?id=a", "", "Authorization: Bearer app")
	s.Want(t, 200, erasedLine(1), "DELETE", gatewaytest.Orders+"/events?id=a", "", "Authorization: Bearer admin")
}

// TestEraseSpooled: an erasure also removes spooled events, and finds a topic that has no other
// ones.
func TestEraseSpooled(t *testing.T) {
	s := start(t, gatewaytest.Setup{Spooled: []eventlog.Record{{Event: wire.Event{Topic: "orders", ID: "a", Key: "k"}},
		{Event: wire.Event{Topic: "orders", ID: "b"}}}})
	spool := s.Spool
	s.Publish(t, "orders", "c", "k")
	s.Want(t, 200, erasedLine(1), "DELETE", gatewaytest.Orders+"/events?id=b", "")
	s.Want(t, 404, "not_found", "DELETE", gatewaytest.Orders+"/events?id=b", "")
	if len(spool.Waiting) != 1 || spool.Waiting[0].ID != "a" {
		t.Errorf("waiting: %+v", spool.Waiting)
	}
	s.Want(t, 200, erasedLine(2), "DELETE", gatewaytest.Orders+"/events?key=k", "")
	if len(spool.Waiting) != 0 {
		t.Errorf("waiting: %+v", spool.Waiting)
	}
}
