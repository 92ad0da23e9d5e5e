package manage_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
)

func TestLifeOfAnEvent(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	const trace = "0af7651916cd43dd8448eb211c80319c"
	s.Do(t, "POST", "/v1/topics/t/events", `{"n":1e2}`, "Sluice-Id: e/1", "Sluice-Ts: 7", "Traceparent: 00-"+trace+"-b7ad6b7169203331-01")
	c := s.Dial(t)
	c.Ask(`{"op":"SUBSCRIBE","topic":"t","group":"billing","opts":{"from":"earliest"}}`)
	c.WantEvent("e/1")
	before := time.Now().Add(-time.Minute)

	res, text := s.Do(t, "GET", "/v1/topics/t/events/e%2F1", "")
	var got struct {
		Event      json.RawMessage
		AcceptedAt string `json:"accepted_at"`
		Stored     *struct {
			StoreID string `json:"store_id"`
			NodeID  string `json:"node_id"`
			Seq     uint64
		}
		Groups  []wire.EventFate
		TraceID string `json:"trace_id"`
	}
	if err := json.Unmarshal([]byte(text), &got); err != nil || res.StatusCode != 200 {
		t.Fatalf("%s %s: %v", res.Status, text, err)
	}
	if !strings.Contains(text, `{"event":{"id":"e/1","ts":7,"topic":"t","partition":`) ||
		!strings.Contains(string(got.Event), `"payload":{"n":1e2}`) {
		t.Errorf("the event is not as it is stored: %s", text)
	}
	at, err := time.Parse("2006-01-02T15:04:05.000Z", got.AcceptedAt)
	if err != nil || at.Before(before) {
		t.Errorf("accepted_at is %q: %v", got.AcceptedAt, err)
	}
	if got.Stored == nil || got.Stored.StoreID != "store" || got.Stored.NodeID != "node" || got.Stored.Seq != 1 || got.TraceID != trace {
		t.Errorf("%s", text)
	}
	if len(got.Groups) != 1 || got.Groups[0].State != "in_flight" || got.Groups[0].Attempts != 1 || got.Groups[0].Owner != "node" ||
		got.Groups[0].Member == "" {
		t.Errorf("groups: %+v", got.Groups)
	}

	c.Ask(`{"op":"ACK","topic":"t","group":"billing","id":"e/1"}`)
	if _, text = s.Do(t, "GET", "/v1/topics/t/events/e%2F1",
		""); !strings.Contains(text, `"groups":[{"group":"billing","state":"settled","attempts":0,"owner":"node","cursor":2}]`) {
		t.Errorf("after the ack: %s", text)
	}
}

func TestLifeOfNoEvent(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	s.Do(t, "POST", "/v1/topics/t/events", `1`, "Sluice-Id: e1")
	for path, status := range map[string]int{
		"/v1/topics/t/events/nothing":                           404,
		"/v1/topics/nothing/events/e1":                          404,
		"/v1/topics/a%20b/events/e1":                            400,
		"/v1/topics/t/events/" + strings.Repeat("x", 129):       400,
		"/v1/topics/t/events/e1":                                200,
		"/v1/topics/_internal/events/" + strings.Repeat("x", 1): 404,
	} {
		if res, text := s.Do(t, "GET", path, ""); res.StatusCode != status {
			t.Errorf("%s: %s, want %d: %s", path, res.Status, status, text)
		}
	}
}

// An identity that may read a topic sees its events, and the groups that it may use.
func TestLifeAndRights(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t, "tokens:\n"+
		gatewaytest.Entry("app", `publish: ["*"], subscribe: ["*"], groups: ["*"]`)+
		gatewaytest.Entry("billing", "subscribe: [t], groups: [billing]")+
		gatewaytest.Entry("auditor", "replay: [t]")+
		gatewaytest.Entry("other", "subscribe: [x], replay: [x]"),
	).Access})
	const app = "Authorization: Bearer app"
	s.Do(t, "POST", "/v1/topics/t/events", `1`, "Sluice-Id: e1", app)
	for _, group := range []string{"billing", "mail"} {
		s.Do(t, "POST", "/v1/topics/t/groups/"+group+"/pull", `{"wait_ms":0,"opts":{"from":"earliest"}}`, app)
	}
	for _, c := range []struct {
		token  string
		status int
		groups string
	}{
		{"app", 200, "billing mail"}, {"billing", 200, "billing"}, {"auditor", 200, ""}, {"other", 403, ""},
	} {
		res, text := s.Do(t, "GET", "/v1/topics/t/events/e1", "", "Authorization: Bearer "+c.token)
		var got struct {
			Event      json.RawMessage
			AcceptedAt string `json:"accepted_at"`
			Stored     *struct {
				StoreID string `json:"store_id"`
				NodeID  string `json:"node_id"`
				Seq     uint64
			}
			Groups  []wire.EventFate
			TraceID string `json:"trace_id"`
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || res.StatusCode != c.status {
			t.Errorf("%s: %s %s: %v", c.token, res.Status, text, err)
		}
		var names []string
		for _, f := range got.Groups {
			names = append(names, f.Group)
		}
		if strings.Join(names, " ") != c.groups {
			t.Errorf("%s sees the groups %v, want %s", c.token, names, c.groups)
		}
	}
}
