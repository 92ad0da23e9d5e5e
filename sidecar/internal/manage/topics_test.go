package manage_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/test/require"
)

func TestListTopics(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"partitions":2}]`})
	s.Want(t, 200, `{"topics":[]}`, "GET", "/v1/topics", "")
	for i := range 5 {
		s.Want(t, 201, `"partitions":2`, "PUT", fmt.Sprintf("/v1/topics/idle.%d", i), "")
	}
	s.Publish(t, "orders", "a", "k")
	s.Publish(t, "orders", "b", "k")
	s.Want(t, 200, `"events":[{`, "POST", gatewaytest.Billing+"/pull", gatewaytest.PullOne)
	var list struct {
		Topics []struct {
			Topic      string
			Partitions []map[string]any
			Events     int
			Bytes      int
			FirstTS    *int64 `json:"first_ts"`
			Groups     []string
		}
		Next string
	}
	read := func(query string) []string {
		t.Helper()
		list.Topics, list.Next = nil, ""
		require.NoError(t, json.Unmarshal([]byte(s.Want(t, 200, "", "GET", "/v1/topics"+query, "")), &list))
		var names []string
		for _, tp := range list.Topics {
			names = append(names, tp.Topic)
		}
		return names
	}
	if names := read("?prefix=orders"); len(names) != 1 {
		t.Fatalf("%+v", list)
	}
	orders := list.Topics[0]
	if orders.Events != 2 || orders.Bytes == 0 || orders.FirstTS == nil {
		t.Errorf("%+v", orders)
	}
	if len(orders.Partitions) != 2 || fmt.Sprint(orders.Groups) != "[billing]" {
		t.Errorf("%+v", orders)
	}
	var all []string
	for query := "?prefix=idle&limit=2"; ; query = "?prefix=idle&limit=2&cursor=" + list.Next {
		all = append(all, read(query)...)
		if list.Next == "" {
			break
		}
	}
	if fmt.Sprint(all) != "[idle.0 idle.1 idle.2 idle.3 idle.4]" {
		t.Errorf("page by page: %v", all)
	}
	if read("?limit=6"); list.Next != "" {
		t.Error("a next after the last")
	}
	for _, query := range []string{"limit=0", "limit=1001", "limit=x", "cursor=%21", "prefix="} {
		s.Want(t, 400, "bad_request", "GET", "/v1/topics?"+query, "")
	}
}

// One topic is what the list has of it. Its groups are those that the caller may join.
func TestShowTopic(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Want(t, 404, "not_found", "GET", gatewaytest.Orders, "")
	s.Want(t, 400, "bad_request", "GET", "/v1/topics/a%20b", "")
	for i, ts := range []string{"7", "3", "5"} {
		s.Want(t, 201, "", "POST", gatewaytest.Orders+"/events", "1", "Sluice-Ts: "+ts, fmt.Sprint("Sluice-Id: ", i))
	}
	s.Publish(t, "orders.late", "a", "k")
	s.Want(t, 200, `"events":[{`, "POST", gatewaytest.Billing+"/pull", gatewaytest.PullOne)
	_, err := s.Log.Erase(t.Context(), "orders", 0, []uint64{2}, eventlog.Retention{}, 0)
	require.NoError(t, err)
	s.Want(t, 200, `{"topic":"orders","partitions":[{"partition":0,"first":1,"head":3}],"events":2,"bytes":`, "GET", gatewaytest.Orders, "")
	s.Want(t, 200, `,"first_ts":5,"last_ts":7,"groups":["billing"]}`, "GET", gatewaytest.Orders, "")
	one := s.Want(t, 200, `"groups":["billing"]}`, "GET", gatewaytest.Orders, "")
	s.Want(t, 200, `{"topics":[`+strings.TrimSpace(one)+`,`, "GET", "/v1/topics?prefix=orders", "")
}

func TestMakeTopic(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	s.Want(t, 201, `{"topic":"orders","partitions":8}`, "PUT", gatewaytest.Orders, "")
	s.Want(t, 200, `{"topic":"orders","partitions":8}`, "PUT", gatewaytest.Orders, "")
	s.Want(t, 400, "bad_request", "PUT", "/v1/topics/_sys", "")
	s.Want(t, 400, "bad_request", "PUT", "/v1/topics/orders.dlq", "")
}

func TestDeleteTopic(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	s.Want(t, 404, "not_found", "DELETE", gatewaytest.Orders, "")
	s.Want(t, 404, "not_found", "DELETE", gatewaytest.Orders+"?dry_run=1", "")
	for i := range 3 {
		s.Publish(t, "orders", fmt.Sprint(i), "k")
	}
	s.PublishDead(t, "orders.dlq", "d")
	s.Want(t, 200, `"events":[{`, "POST", gatewaytest.Billing+"/pull", gatewaytest.PullOne)
	s.Want(t, 200, `"events":3,"bytes":`, "DELETE", gatewaytest.Orders+"?dry_run=1", "")
	s.Want(t, 200, `"groups":["billing"],"dead_letters":1,"scheduled":0}`, "DELETE", gatewaytest.Orders+"?dry_run=1", "")
	s.Want(t, 409, "in_use", "DELETE", gatewaytest.Orders, "")
	s.Want(t, 409, "in_use", "DELETE", gatewaytest.Billing, "")
	s.Want(t, 400, "bad_request", "DELETE", gatewaytest.Orders+"?dry_run=maybe", "")
	s.Gateway.Consumers.EndPulls()
	s.Want(t, 204, "", "DELETE", gatewaytest.Orders, "")
	s.Want(t, 404, "not_found", "DELETE", gatewaytest.Orders, "")
	s.Want(t, 404, "not_found", "GET", gatewaytest.Billing, "")
	s.Want(t, 200, `{"topics":[]}`, "GET", "/v1/topics", "")
	s.Publish(t, "orders", "0", "k") // it is made again, and the id is free
	s.Want(t, 200, `"events":1,`, "DELETE", gatewaytest.Orders+"?dry_run=1", "")
}

func TestDeleteGroup(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	s.Want(t, 404, "not_found", "DELETE", gatewaytest.Billing, "")
	s.Publish(t, "orders", "a", "k")
	s.Want(t, 200, `"events":[{`, "POST", gatewaytest.Billing+"/pull", gatewaytest.PullOne)
	s.Gateway.Consumers.EndPulls()
	s.Want(t, 204, "", "DELETE", gatewaytest.Billing, "")
	s.Want(t, 404, "not_found", "DELETE", gatewaytest.Billing, "")
	s.Want(t, 404, "not_found", "GET", gatewaytest.Billing, "")
	s.Want(t, 200, `{"groups":[]}`, "GET", gatewaytest.Orders+"/groups", "")
}

// A puller that settled everything is no member, so the group and the topic can be deleted.
func TestDeleteBehindPulls(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	const all = `{"max":10,"wait_ms":0,"opts":{"from":"earliest","autoAck":true}}`
	for id, what := range map[string]string{"a": gatewaytest.Billing, "b": gatewaytest.Orders} {
		s.Publish(t, "orders", id, "k")
		s.Want(t, 200, `"events":[{`, "POST", gatewaytest.Billing+"/pull", all)
		gatewaytest.Eventually(t, "the ack is saved", func() bool { res, _ := s.Do(t, "DELETE", what, ""); return res.StatusCode == 204 })
	}
}

func TestPlanSeek(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","publish":{"rate":0},"partitions":1}]`})
	for i := range 4 {
		s.Publish(t, "orders", fmt.Sprint(i), "k")
	}
	s.Want(t, 200, "", "POST", gatewaytest.Billing+"/pull", `{"max":1,"wait_ms":0,"opts":{"from":"earliest"}}`)
	cursor := gatewaytest.Billing + "/cursor"
	s.Want(t, 200, `{"replays":0,"skips":4,"partitions":[{"partition":0,"from":1,"to":5}]}`, "PUT", cursor+"?dry_run=1", `{"from":"latest"}`)
	s.Want(t, 200, `"lag":4`, "GET", gatewaytest.Billing, "") // nothing has changed
	s.Want(t, 204, "", "PUT", cursor, `{"from":"positions","positions":{"0":3}}`)
	s.Want(t, 200, `"cursor":4`, "GET", gatewaytest.Billing, "")
	s.Want(t, 200, `{"replays":3,"skips":0,"partitions":[{"partition":0,"from":4,"to":1}]}`, "PUT", cursor+"?dry_run=1", `{"from":"earliest"}`)
	for body, part := range map[string]string{
		`{"from":"positions"}`:                      "positions is missing",
		`{"from":"positions","positions":{}}`:       "positions names no partition",
		`{"from":"positions","positions":{"1":1}}`:  "partitions 0 to 0, not 1",
		`{"from":"positions","positions":{"x":1}}`:  "is not the number of a partition",
		`{"from":"positions","positions":{"0":-1}}`: "positions must be an object",
		`{"from":"positions","positions":{"0":99}}`: "seqs up to 4, not 99",
		`{"from":"positions","positions":[1]}`:      "positions must be an object",
		`{"from":"elsewhere"}`:                      "from is",
	} {
		s.Want(t, 400, part, "PUT", cursor, body)
	}
	s.Want(t, 404, "not_found", "PUT", gatewaytest.Orders+"/groups/nobody/cursor?dry_run=1", `{"from":"latest"}`)
}

func TestRightsToDelete(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t,
		"tokens:\n"+gatewaytest.Entry("app", "publish: [orders], subscribe: [orders], groups: [billing]")+gatewaytest.Entry("admin",
			"admin: [orders]")).Access})
	bearer := func(token string) string { return "Authorization: Bearer " + token }
	s.Want(t, 403, "forbidden", "PUT", "/v1/topics/other", "", bearer("app"))
	s.Want(t, 201, "", "PUT", gatewaytest.Orders, "", bearer("app")) // as publishing would
	s.Want(t, 200, "", "PUT", gatewaytest.Orders, "", bearer("admin"))
	s.Want(t, 403, "forbidden", "GET", "/v1/topics/other", "", bearer("app"))
	s.Want(t, 200, `"topic":"orders"`, "GET", gatewaytest.Orders, "", bearer("app"))
	s.Policies.Swap(gatewaytest.Snapshot(t, `[{"name":"*","auto_create":false}]`)) // now publishing would not
	s.Want(t, 403, "forbidden", "PUT", gatewaytest.Orders, "", bearer("app"))
	s.Want(t, 200, "", "PUT", gatewaytest.Orders, "", bearer("admin"))
	s.Want(t, 403, "forbidden", "DELETE", gatewaytest.Orders, "", bearer("app"))
	s.Want(t, 403, "forbidden", "DELETE", gatewaytest.Orders+"/groups/other", "", bearer("app"))
	s.Want(t, 404, "not_found", "DELETE", gatewaytest.Billing, "", bearer("app"))
	s.Want(t, 403, "forbidden", "DELETE", "/v1/topics/other", "", bearer("admin"))
	s.Want(t, 204, "", "DELETE", gatewaytest.Orders, "", bearer("admin"))
}

// TestAutoCreate: where the policy says so, nothing but PUT makes a topic.
func TestAutoCreate(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","auto_create":false,"publish":{"rate":0}}]`})
	publish := gatewaytest.Orders + "/events"
	s.Want(t, 404, `auto_create`, "POST", publish, "1")
	s.Want(t, 404, `auto_create`, "POST", publish, "1", "Sluice-Delay-Ms: 60000")
	s.Want(t, 404, `auto_create`, "POST", gatewaytest.Billing+"/pull", gatewaytest.PullOne)
	s.Want(t, 404, `auto_create`, "GET", gatewaytest.Orders+"/stream", "")
	s.Want(t, 200, `{"topics":[]}`, "GET", "/v1/topics", "")
	s.Want(t, 201, "", "PUT", gatewaytest.Orders, "")
	s.Want(t, 201, "", "POST", publish, "1")
	s.Want(t, 204, "", "DELETE", gatewaytest.Orders, "")
	s.Want(t, 404, "not_found", "POST", publish, "1") // it does not come back by itself
	s.Want(t, 201, "", "PUT", gatewaytest.Orders, "")
	s.Want(t, 201, "", "POST", publish, "1")
}

// TestTooManyTopics: no caller can make more topics than the store may have.
func TestTooManyTopics(t *testing.T) {
	s := start(t, gatewaytest.Setup{MostTopics: 2})
	for i := range 5 {
		status := map[bool]int{true: 201, false: 503}[i < 2]
		s.Want(t, status, "", "POST", fmt.Sprintf("/v1/topics/t%d/events", i), "1")
	}
	s.Want(t, 503, `"retry_after_ms":60000`, "PUT", gatewaytest.Orders, "")
	s.Want(t, 503, "--max-topics allows 2", "PUT", gatewaytest.Orders, "")
	s.Want(t, 201, "", "POST", "/v1/topics/t0/events", "1")
	s.Want(t, 204, "", "DELETE", "/v1/topics/t1", "")
	s.Want(t, 201, "", "PUT", gatewaytest.Orders, "")
}

// TestTooManyOfOneIdentity: an identity makes no more topics and groups than it may, by any way.
// Other identities, and the topics and groups that it has, go on.
func TestTooManyOfOneIdentity(t *testing.T) {
	rights := `publish: ["*"], subscribe: ["*"], admin: ["*"]`
	s := start(t, gatewaytest.Setup{MostEach: 2,
		Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("mallory", rights)+gatewaytest.Entry("app", rights)).Access})
	mallory, app := "Authorization: Bearer mallory", "Authorization: Bearer app"
	s.Want(t, 201, "", "POST", "/v1/topics/m0/events", "1", mallory)
	s.Want(t, 201, "", "PUT", "/v1/topics/m1", "", mallory)
	s.Want(t, 503, `2 topics that were made for \"mallory\", and a tenth of --max-topics allows 2`, "POST", "/v1/topics/m2/events", "1",
		mallory)
	s.Want(t, 503, "overloaded", "PUT", "/v1/topics/m2", "", mallory)
	s.Want(t, 503, "overloaded", "POST", "/v1/topics/m2/groups/g/pull", `{"wait_ms":0}`, mallory)
	ws := s.DialAs(t, "mallory")
	ws.Send(`{"op":"PUBLISH","topic":"m2","payload":1}`)
	ws.Want("ERR/overloaded")
	ws.Send(`{"op":"SUBSCRIBE","topic":"m2"}`)
	ws.Want("ERR/overloaded")
	s.Want(t, 201, "", "POST", "/v1/topics/m1/events", "1", mallory)
	s.Want(t, 201, "", "POST", "/v1/topics/m2/events", "1", app)
	s.Want(t, 201, "", "POST", "/v1/topics/m2/events", "1", mallory)
	s.Want(t, 204, "", "DELETE", "/v1/topics/m0", "", mallory)
	s.Want(t, 201, "", "PUT", "/v1/topics/m3", "", mallory)

	pull := func(status int, part, group, who string) {
		t.Helper()
		s.Want(t, status, part, "POST", "/v1/topics/m1/groups/"+group+"/pull", `{"wait_ms":0}`, who)
	}
	pull(200, "", "g0", mallory)
	ws.Ask(`{"op":"SUBSCRIBE","topic":"m1","group":"g1"}`)
	pull(503, `a tenth of --max-groups allows 2`, "g2", mallory)
	ws.Send(`{"op":"SUBSCRIBE","topic":"m1","group":"g2"}`)
	ws.Want("ERR/overloaded")
	pull(200, "", "g0", mallory)
	pull(200, "", "g2", app)
}

// A topic is listed for whoever has any right to it.
func TestListedByRights(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("owner", "publish: ['*'], admin: [a.admin]")+
		gatewaytest.Entry("some", "publish: [a.publish], subscribe: [a.subscribe], replay: [a.replay], admin: [a.admin]")).Access})
	for _, right := range []string{"admin", "none", "publish", "replay", "subscribe"} {
		s.Want(t, 201, "", "PUT", "/v1/topics/a."+right, "", "Authorization: Bearer owner")
	}
	var list struct{ Topics []struct{ Topic string } }
	require.NoError(t, json.Unmarshal([]byte(s.Want(t, 200, "", "GET", "/v1/topics", "", "Authorization: Bearer some")), &list))
	if got := fmt.Sprint(list.Topics); got != "[{a.admin} {a.publish} {a.replay} {a.subscribe}]" {
		t.Errorf("listed are %s", got)
	}
}

// TestDeletionTakesLettersOfLetters: with a topic go its dead letters, and those of who consumes these.
func TestDeletionTakesLettersOfLetters(t *testing.T) {
	for _, topic := range []string{"t", "t.dlq"} {
		s := start(t, gatewaytest.Setup{})
		s.Publish(t, "t", "a", "")
		for _, letters := range []string{"t.dlq", "t.dlq.dlq", "t.dlq.dlq.dlq"} {
			s.PublishDead(t, letters, "a")
		}
		dead := 3 - strings.Count(topic, ".dlq")
		s.Want(t, 200, fmt.Sprintf(`"dead_letters":%d,`, dead), "DELETE", "/v1/topics/"+topic+"?dry_run=1", "")
		s.Want(t, 204, "", "DELETE", "/v1/topics/"+topic, "")
		left, err := s.Log.Topics(t.Context())
		if err != nil || len(left) != 3-dead {
			t.Errorf("after %s was deleted there are %v, %v", topic, left, err)
		}
	}
}
