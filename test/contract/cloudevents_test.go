package contract

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// replayed is an event of a topic, by id.
func (s *server) replayed(t testing.TB, topic, id string) object {
	t.Helper()
	for _, e := range s.replay(t, "topic="+topic).List("events") {
		if e.Text("id") == id {
			return e
		}
	}
	t.Fatalf("%s has no event %s", topic, id)
	return nil
}

// "binary (ce-* headers), structured, batched: id is the id, source, type, subject… kept in headers
// as ce-*, partitionkey is the key."
func TestCloudEventModes(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "cloud.modes"
	const structured = `{"specversion":"1.0","id":"%s","source":"/shop","type":"com.example.order","subject":"ö",` +
		`"partitionkey":"k","time":"2024-05-06T07:08:09.010Z","data":{"b":1.25,"a":[]}}`
	binary := func(id string) []string {
		return []string{"ce-specversion: 1.0", "ce-id: " + id, "ce-source: /shop", "ce-type: com.example.order", "ce-subject: %C3%B6",
			"ce-partitionkey: k", "ce-time: 2024-05-06T07:08:09.010Z", "Content-Type: application/json"}
	}
	if a := s.post(t, topic, `{"b": 1.25, "a": []}`, binary("binary")...); a.Status != 201 || a.JSON(t).Text("id") != "binary" ||
		a.JSON(t).Text("ts") != "1714979289010" {
		t.Errorf("binary: %d %s", a.Status, a.Body)
	}
	if a := s.post(t, topic, fmt.Sprintf(structured, "structured"),
		"Content-Type: application/cloudevents+json; charset=UTF-8"); a.Status != 201 {
		t.Errorf("structured: %d %s", a.Status, a.Body)
	}
	a := s.post(t, topic, "["+fmt.Sprintf(structured, "batched")+`,{"specversion":"1.0"},`+fmt.Sprintf(structured, "binary")+"]",
		"Content-Type: application/cloudevents-batch+json")
	results := a.JSON(t).List("results")
	if a.Status != 200 || len(results) != 3 {
		t.Fatalf("batched: %d %s", a.Status, a.Body)
	}
	refused := results[1].Text("code") == "bad_request" && results[1].Text("error") != ""
	if results[0].Text("id") != "batched" || !refused || results[2]["duplicate"] != true {
		t.Fatalf("batched: %s", a.Body)
	}
	for _, id := range []string{"binary", "structured", "batched"} {
		e := s.replayed(t, topic, id)
		headers, _ := e["headers"].(map[string]any)
		for name, want := range map[string]string{"ce-source": "/shop", "ce-type": "com.example.order", "ce-subject": "ö",
			"ce-time": "2024-05-06T07:08:09.010Z", "ce-specversion": "1.0"} {
			if headers[name] != want {
				t.Errorf("%s: header %s is %v, want %s", id, name, headers[name], want)
			}
		}
		if e.Text("key") != "k" || e.Text("ts") != "1714979289010" || headers["ce-id"] != nil || headers["ce-partitionkey"] != nil {
			t.Errorf("%s: %v", id, e)
		}
		if text, _ := json.Marshal(e["payload"]); string(text) != `{"a":[],"b":1.25}` {
			t.Errorf("%s: payload %s", id, text)
		}
	}
	again := s.post(t, topic, `{"b":1.25,"a":[]}`, binary("structured")...)
	if again.Status != 200 || again.JSON(t)["duplicate"] != true {
		t.Errorf("the same event in another mode: %d %s", again.Status, again.Body)
	}
	if a := s.post(t, topic, `{"b":1.25,"a":[]}`, append(binary("binary"), "ce-more: x")...); a.Status != 409 {
		t.Errorf("another event of that id: %d %s", a.Status, a.Body)
	}
}

// Data that is not JSON stays as it is, and keeps its type.
func TestCloudEventData(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "cloud.data"
	structured := "Content-Type: application/cloudevents+json"
	for id, post := range map[string]func() testkit.Answer{
		"png": func() testkit.Answer {
			return s.post(t, topic, "\x00\xff", "ce-specversion: 1.0", "ce-id: png", "ce-source: /s", "ce-type: t", "Content-Type: image/png")
		},
		"png64": func() testkit.Answer {
			return s.post(t, topic, `{"specversion":"1.0","id":"png64","source":"/s","type":"t","datacontenttype":"image/png",`+
				`"data_base64":"AP8="}`, structured)
		},
	} {
		if a := post(); a.Status != 201 {
			t.Fatalf("%s: %d %s", id, a.Status, a.Body)
		}
		e := s.replayed(t, topic, id)
		if e.Text("payload_base64") != "AP8=" || e.At("headers").(map[string]any)["content-type"] != "image/png" {
			t.Errorf("%s: %v", id, e)
		}
	}
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":%q}`, topic)
	const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	if a := s.post(t, topic, `{"specversion":"1.0","id":"n","source":"/s","type":"t","traceparent":"`+trace+`","data":12345678901234567890}`,
		structured); a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	e := k.event()
	parent := fmt.Sprint(e.At("event.headers.traceparent"))
	if e.Text("event.payload") != "12345678901234567890" || !strings.Contains(parent, "0af7651916cd43dd8448eb211c80319c") {
		t.Errorf("%v", e)
	}
}

// An invalid CloudEvent is refused, and the error names the attribute.
func TestCloudEventRefusals(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, tc := range []struct{ body, contentType, names string }{
		{`{"specversion":"1.0","source":"/s","type":"t"}`, "application/cloudevents+json", "id"},
		{`{"specversion":"1.0","id":"i","type":"t"}`, "application/cloudevents+json", "source"},
		{`{"specversion":"1.0","id":"i","source":"/s"}`, "application/cloudevents+json", "type"},
		{`{"specversion":"0.3","id":"i","source":"/s","type":"t"}`, "application/cloudevents+json", "specversion"},
		{`{"specversion":"1.0","id":"i","source":"/s","type":"t","myExt":"x"}`, "application/cloudevents+json", "myExt"},
		{`{"specversion":"1.0","id":"i","source":"/s","type":"t","time":"now"}`, "application/cloudevents+json", "time"},
		{`{}`, "application/cloudevents-batch+json", "array"},
		{`{}`, "application/cloudevents+avro", "avro"},
	} {
		a := s.post(t, "cloud.refused", tc.body, "Content-Type: "+tc.contentType)
		if e := a.JSON(t); a.Status != 400 || e.Text("code") != "bad_request" || !strings.Contains(e.Text("error"), tc.names) {
			t.Errorf("%s: %d %s", tc.body, a.Status, a.Body)
		}
	}
	if a := s.post(t, "cloud.refused", `{"specversion":`, "Content-Type: application/cloudevents+json"); a.Status != 400 ||
		a.JSON(t).Text("code") != "bad_json" {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := s.post(t, "cloud.refused", `1`, "ce-id: i", "ce-source: /s", "ce-type: t"); a.Status != 400 ||
		!strings.Contains(a.JSON(t).Text("error"), "specversion") {
		t.Errorf("%d %s", a.Status, a.Body)
	}
}

// "POST /v1.0/publish/{pubsub}/{topic}: the same publish under the path that Dapr clients use (204
// on success)".
func TestDaprPublish(t *testing.T) {
	t.Parallel()
	s := shared(t)
	post := func(path, body string, headers ...string) testkit.Answer {
		t.Helper()
		return testkit.Call(t, "POST", s.URL()+path, body, headers...)
	}
	for range 2 { // the second is a duplicate
		if a := post("/v1.0/publish/mypubsub/dapr.orders", `{"orderId":17}`, "Content-Type: application/json",
			"Sluice-Id: d1"); a.Status != 204 || len(a.Body) > 0 {
			t.Errorf("%d %s", a.Status, a.Body)
		}
	}
	if a := post("/v1.0/publish/mypubsub/dapr.orders?metadata.partitionKey=k",
		`{"specversion":"1.0","id":"d2","source":"/s","type":"t","data":1}`, "Content-Type: application/cloudevents+json"); a.Status != 204 {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := post("/v1.0-alpha1/publish/bulk/mypubsub/dapr.orders", `[{"entryId":"a","event":{"n":1},`+
		`"contentType":"application/json"},{"entryId":"b","event":"x","contentType":"text/plain"}]`); a.Status != 204 {
		t.Errorf("bulk: %d %s", a.Status, a.Body)
	}
	if e := s.replayed(t, "dapr.orders", "d2"); e.Text("key") != "k" || e.Text("payload") != "1" {
		t.Errorf("%v", e)
	}
	if n := s.replay(t, "topic=dapr.orders").Number(t, "count"); n != 4 {
		t.Errorf("%d events, want 4", n)
	}
	for path, code := range map[string]string{"/v1.0/publish/p/_x": "bad_request", "/v1.0/publish/p/paused.x": "topic_paused"} {
		if a := post(path, `1`); a.JSON(t).Text("code") != code {
			t.Errorf("%s: %d %s", path, a.Status, a.Body)
		}
	}
}

// "?format=cloudevents (opts.format of SUBSCRIBE and pull) makes WebSocket, SSE, pull, replay and export hand out structured CloudEvents."
func TestCloudEventsOut(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.out"
	s.put(t, topic, "a", `{"n":1.5}`, "Sluice-Key: k", "Sluice-Ts: 1500")
	a := s.post(t, topic, "\xff", "ce-specversion: 1.0", "ce-id: b", "ce-source: /shop", "ce-type: order", "ce-color: red",
		"Content-Type: text/plain; charset=iso-8859-1")
	if a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	check := func(where string, events []object) {
		t.Helper()
		if len(events) != 2 {
			t.Errorf("%s: %v", where, events)
			return
		}
		if !events[0].Has(testkit.Members{"specversion": "1.0", "id": "a", "type": topic, "source": "/topics/" + topic, "partitionkey": "k",
			"time": "1970-01-01T00:00:01.500Z", "datacontenttype": "application/json", "data.n": "1.5", "payload": ""}) {
			t.Errorf("%s: %v", where, events[0])
		}
		if !events[1].Has(testkit.Members{"id": "b", "type": "order", "source": "/shop", "color": "red", "data_base64": "/w==",
			"datacontenttype": "text/plain; charset=iso-8859-1"}) {
			t.Errorf("%s: %v", where, events[1])
		}
	}
	check("replay", s.replay(t, "format=cloudevents&topic="+topic).List("events"))
	check("replay of the fleet", s.replay(t, "scope=fleet&format=cloudevents&topic="+topic).List("events"))
	export := testkit.Call(t, "GET", s.ReplayURL()+"/export?ndjson=0&format=cloudevents&topic="+topic, "")
	check("export", testkit.ParseObject(t, fmt.Appendf(nil, `{"events":%s}`, export.Body)).List("events"))
	pulled := s.pulled(t, topic, "g", `{"max":2,"wait_ms":10000,"opts":{"from":"earliest","format":"cloudevents"}}`, 2)
	check("pull", eventsOf(pulled))
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"%s","opts":{"from":"earliest","format":"cloudevents"}}`, topic)
	check("WebSocket", eventsOf(k.events(2)))
	k.refused("bad_request", `{"op":"SUBSCRIBE","topic":"t","opts":{"format":"xml"}}`)
	streamed := s.stream(t, topic, "?from=earliest&format=cloudevents")
	check("stream", []object{streamed.event(), streamed.event()})
}

// A CloudEvent goes out with no more than it came with: no time, no data and no type of data where it had none. A null is data.
func TestCloudEventsWithoutData(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.bare"
	for id, more := range map[string]string{"none": ``, "null": `,"datacontenttype":"application/json","data":null`} {
		a := s.post(t, topic, fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/s","type":"x"%s}`, id, more),
			"Content-Type: application/cloudevents+json")
		if a.Status != 201 {
			t.Fatalf("%d %s", a.Status, a.Body)
		}
	}
	events := map[string]string{}
	for _, e := range s.replay(t, "format=cloudevents&topic="+topic).List("events") {
		text, _ := json.Marshal(e)
		events[e.Text("id")] = string(text)
	}
	for id, want := range map[string]string{
		"none": `{"id":"none","source":"/s","specversion":"1.0","type":"x"}`,
		"null": `{"data":null,"datacontenttype":"application/json","id":"null","source":"/s","specversion":"1.0","type":"x"}`,
	} {
		got := regexp.MustCompile(`,"trace(id|parent|state)":"[^"]*"`).ReplaceAllString(events[id], "")
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// eventsOf are the events of deliveries.
func eventsOf(deliveries []object) (events []object) {
	for _, d := range deliveries {
		events = append(events, d["event"].(map[string]any))
	}
	return events
}

// "dedupe.by: source_id: a CloudEvent's event id is ce- and the first 32 hexadecimal digits of the SHA-256 of source, a line feed and id;
// header ce-id keeps its own, which goes out again as a CloudEvent's id."
func TestCloudEventsOfTwoSources(t *testing.T) {
	t.Parallel()
	const topic, policies = "sources", `
- {name: sources*, dedupe: {by: source_id}, partitions: 2}
- {name: "*", publish: {rate: 0}, connection: {rate: 0}}
`
	const ofB, ofA = "ce-0683e5b6aa97b4c9c67674fce7ddc2d5", "ce-0921129f78b78d80e40ecfae4e384cb9"
	all := []string{"1", ofB, ofA}
	h := newHome(t)
	s := h.start(t, policies)
	structured := func(source, data string) testkit.Answer {
		t.Helper()
		return s.post(t, topic, `{"specversion":"1.0","id":"1","source":"`+source+`","type":"t","time":"2024-05-06T07:08:09Z","data":`+data+`}`,
			"Content-Type: application/cloudevents+json")
	}
	binary := func(source, data string) testkit.Answer {
		t.Helper()
		return s.post(t, topic, data, "ce-specversion: 1.0", "ce-id: 1", "ce-source: "+source, "ce-type: t", "ce-time: 2024-05-06T07:08:09Z")
	}
	expect := func(what string, a testkit.Answer, status int, id string) {
		t.Helper()
		if a.Status != status || id != "" && a.JSON(t).Text("id") != id {
			t.Errorf("%s: %d %s, want %d for %s", what, a.Status, a.Body, status, id)
		}
	}
	expect("of /a", structured("/a", "1"), 201, ofA)
	expect("of /b", binary("/b", "2"), 201, ofB)
	expect("not as a CloudEvent", s.post(t, topic, "3", "Sluice-Id: 1"), 201, "1")
	require.NoError(t, s.Stop(t.Context()))
	s = h.start(t, policies)
	expect("of /a again", binary("/a", "1"), 200, ofA)
	expect("another of /b", structured("/b", "3"), 409, "")

	if got := ids(s.replay(t, "format=cloudevents&topic="+topic).List("events")); len(got) != 3 || strings.Join(got, "") != "111" {
		t.Errorf("as CloudEvents they have the ids %v, want 1, 1, 1", got)
	}
	for _, scope := range []string{"store", "fleet"} {
		if got := sortedIDs(s.replay(t, "scope="+scope+"&topic="+topic).List("events")); !slices.Equal(got, all) {
			t.Errorf("replay of the %s has %v", scope, got)
		}
	}

	// What was exported comes back as what it was, in either form.
	exported := testkit.Call(t, "GET", s.ReplayURL()+"/export?topic="+topic, "")
	var lines []string
	for line := range strings.Lines(string(exported.Body)) {
		e := testkit.ParseObject(t, []byte(line))
		headers, err := json.Marshal(e["headers"])
		require.NoError(t, err)
		lines = append(lines, fmt.Sprintf(`{"payload":%s,"opts":{"id":%q,"ts":%s,"headers":%s}}`,
			e.Text("payload"), e.Text("id"), e.Text("ts"), headers))
	}
	expect("as events", s.post(t, "sources.copy", strings.Join(lines, "\n"), "Content-Type: application/x-ndjson"), 200, "")
	exported = testkit.Call(t, "GET", s.ReplayURL()+"/export?ndjson=0&format=cloudevents&topic="+topic, "")
	expect("as CloudEvents", s.post(t, "sources.copy", string(exported.Body), "Content-Type: application/cloudevents-batch+json"), 200, "")
	copied := append(all, wire.CloudEventID("/topics/"+topic, "1")) // the plain one again, since it did not come back as it went
	slices.Sort(copied)
	if got := sortedIDs(s.replay(t, "topic=sources.copy").List("events")); !slices.Equal(got, copied) {
		t.Errorf("the copy has %v", got)
	}

	// Both die, and come again; one is erased.
	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":%q,"group":"g","opts":{"from":"earliest"}}`, topic)
	for range 3 {
		k.ok(`{"op":"NACK","topic":%q,"group":"g","id":%q,"dead_letter":true}`, topic, k.event().Text("event.id"))
	}
	s.letters(t, topic+".dlq", 3)
	a := testkit.Call(t, "POST", s.URL()+"/v1/topics/"+topic+"/dlq/redrive", `{"group":"g"}`)
	expect("redrive", a, 200, "")
	if got := sortedIDs(k.events(3)); !slices.Equal(got, all) {
		t.Errorf("redriven are %v", got)
	}
	expect("erase", testkit.Call(t, "DELETE", s.URL()+"/v1/topics/"+topic+"/events?id="+ofA, ""), 200, "")
	expect("the erased one", testkit.Call(t, "GET", s.URL()+"/v1/topics/"+topic+"/events/"+ofA, ""), 404, "")
	expect("the other one", testkit.Call(t, "GET", s.URL()+"/v1/topics/"+topic+"/events/"+ofB, ""), 200, "")

	dapr := func(source string) testkit.Answer {
		t.Helper()
		return testkit.Call(t, "POST", s.URL()+"/v1.0/publish/p/sources.dapr?metadata.cloudevent.id=1&metadata.cloudevent.source="+source, "1",
			"Content-Type: application/json")
	}
	expect("by Dapr, of a", dapr("a"), 204, "")
	expect("by Dapr, of b", dapr("b"), 204, "")
	if n := s.replay(t, "topic=sources.dapr").Number(t, "count"); n != 2 {
		t.Errorf("%d events by Dapr, want 2", n)
	}
}

func sortedIDs(events []object) []string { return slices.Sorted(slices.Values(ids(events))) }
