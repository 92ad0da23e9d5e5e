package gateway

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
)

// erasedLine ends the stream of an erasure of n events.
func erasedLine(n int) string { return fmt.Sprintf(`{"done":%d,"of":%d,"ok":true}`, n, n) }

func TestEraseByID(t *testing.T) {
	s := start(t, setup{policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"partitions":1}]`})
	for _, id := range []string{"a", "b", "c"} {
		s.publish(t, "orders", id, "k-"+id)
	}
	s.want(t, 201, "", "POST", dlqTopic+"/events", `"secret"`, "Sluice-Id: dlq-1", "Sluice-Header-sluice-dlq-id: b")
	events := orders + "/events"
	s.want(t, 404, "not_found", "DELETE", events+"?id=nobody", "")
	s.want(t, 405, "id and key", "DELETE", events, "")
	if res, _ := s.do(t, "DELETE", events, ""); res.Header.Get("Allow") != "POST" {
		t.Errorf("Allow is %q, which is to list methods", res.Header.Get("Allow"))
	}
	for _, query := range []string{"?id=", "?id=a&key=k", "?key="} {
		s.want(t, 400, "bad_request", "DELETE", events+query, "")
	}
	s.want(t, 200, erasedLine(2), "DELETE", events+"?id=b", "")
	s.want(t, 404, "not_found", "DELETE", events+"?id=b", "")
	s.want(t, 404, "not_found", "GET", events+"/b", "")
	s.want(t, 404, "not_found", "GET", dlqTopic+"/events/dlq-1", "")
	s.want(t, 409, "conflict", "POST", events, `{"n":1}`, "Sluice-Id: b", "Sluice-Key: k-b") // it does not come back
	pulled := s.want(t, 200, "", "POST", billing+"/pull", `{"max":10,"wait_ms":0,"opts":{"from":"earliest"}}`)
	if strings.Count(pulled, `"seq"`) != 2 || strings.Contains(pulled, "k-b") {
		t.Errorf("pulled %s", pulled)
	}
}

// TestEraseByKey checks that a group delivers no erased event any more, neither one in its memory
// nor one that it has delivered before.
func TestEraseByKey(t *testing.T) {
	s := start(t, setup{policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"partitions":1}]`})
	c := s.dial(t)
	c.ask(`{"op":"SUBSCRIBE","topic":"orders","group":"billing","opts":{"from":"earliest"}}`)
	for i := range 3 {
		s.publish(t, "orders", fmt.Sprint("p", i), "person")
		s.publish(t, "orders", fmt.Sprint("o", i), fmt.Sprint("other", i))
	}
	for _, id := range []string{"p0", "o0", "o1", "o2"} { // the key's others wait for the first
		c.wantEvent(id)
	}
	s.want(t, 200, erasedLine(3), "DELETE", orders+"/events?key=person", "")
	s.want(t, 200, erasedLine(0), "DELETE", orders+"/events?key=person", "")
	c.ask(`{"op":"ACK","topic":"orders","group":"billing","ids":["o0","o1","o2"]}`)
	eventually(t, "the group has gone past what was erased", func() bool {
		_, text := s.do(t, "GET", billing, "")
		return strings.Contains(text, `"lag":0`)
	})
	s.want(t, 200, `"events":3,`, "GET", "/v1/topics?prefix=orders", "")
}

func TestRightsToErase(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("app", "publish: [orders], subscribe: [orders], replay: [orders]")+entry("admin", "admin: [orders]")).Access})
	s.want(t, 201, "", "POST", orders+"/events", "1", "Sluice-Id: a", "Authorization: Bearer app")
	s.want(t, 403, "forbidden", "DELETE", orders+"/events?id=a", "", "Authorization: Bearer app")
	s.want(t, 200, erasedLine(1), "DELETE", orders+"/events?id=a", "", "Authorization: Bearer admin")
}

// TestEraseSpooled: an erasure also removes spooled events, and finds a topic that has no other
// ones.
func TestEraseSpooled(t *testing.T) {
	s := start(t, setup{spooled: []eventlog.Record{{Event: wire.Event{Topic: "orders", ID: "a", Key: "k"}}, {Event: wire.Event{Topic: "orders", ID: "b"}}}})
	spool := s.gateway.cfg.Spool.(*testSpool)
	s.publish(t, "orders", "c", "k")
	s.want(t, 200, erasedLine(1), "DELETE", orders+"/events?id=b", "")
	s.want(t, 404, "not_found", "DELETE", orders+"/events?id=b", "")
	if len(spool.waiting) != 1 || spool.waiting[0].ID != "a" {
		t.Errorf("waiting: %+v", spool.waiting)
	}
	s.want(t, 200, erasedLine(2), "DELETE", orders+"/events?key=k", "")
	if len(spool.waiting) != 0 {
		t.Errorf("waiting: %+v", spool.waiting)
	}
}
