package contract

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// call is a request, the status of its answer, and words that its error has.
type call struct {
	request, body string // request: "GET /path"
	headers       []string
	status        int
	says          string
}

// answers makes the requests of a listener in turn, and follows no redirect.
func answers(t *testing.T, base string, calls []call) {
	t.Helper()
	client := &http.Client{Transport: http.DefaultClient.Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, c := range calls {
		method, path, _ := strings.Cut(c.request, " ")
		a := testkit.CallWith(t, client, method, base+path, c.body, c.headers...)
		if a.Status != c.status || !strings.Contains(string(a.Body), c.says) {
			t.Errorf("%s %v %.80s: want %d with %q, got %d %.300s", c.request, c.headers, c.body, c.status, c.says, a.Status, a.Body)
		}
		if a.Status >= 400 && method != http.MethodHead && !isError(t, a) {
			t.Errorf("%s: no sentence and code: %s", c.request, a.Body)
		}
	}
}

func isError(t *testing.T, a testkit.Answer) bool {
	o := a.JSON(t)
	return o.Text("error") != "" && o.Text("code") != ""
}

// "What a request has and the sidecar does not know … is bad_request naming it and the nearest that is known", on every route.
func TestWhatIsNotKnownIsRefused(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "/v1/topics/one.known"
	s.put(t, "one.known", "x", "1")
	s.pull(t, "one.known", "g", fromStart)
	bad := func(request, body, says string, headers ...string) call {
		return call{request, body, headers, 400, says}
	}
	answers(t, s.URL(), []call{
		bad("DELETE "+topic+"?dryRun=1", "", "dry_run"),
		bad("DELETE "+topic+"/events?Id=x", "", "id"),
		bad("DELETE "+topic+"/groups/g?force=1", "", "force"),
		bad("DELETE "+topic+"/scheduled/x?dry_run=1", "", "dry_run"),
		bad("GET "+topic+"/events/x?verbose=1", "", "verbose"),
		bad("GET "+topic+"/groups/g?member=1", "", "member"),
		bad("GET "+topic+"/groups?limits=1", "", "limit"),
		bad("GET "+topic+"/dlq?groups=g", "", "group"),
		bad("GET "+topic+"/latest?keys=a", "", "key"),
		bad("GET "+topic+"/scheduled?limt=1", "", "limit"),
		bad("GET "+topic+"/schema?version=1", "", "version"),
		bad("GET "+topic+"/stream?afterID=x", "", "afterId"),
		bad("GET /v1/topics?prefx=a", "", "prefix"),
		bad("PUT "+topic+"?partitions=3", "", "partitions"),
		bad("PUT "+topic+"/groups/g/cursor?dryRun=1", `{"from":"earliest"}`, "dry_run"),
		bad("PUT "+topic+"/groups/g/cursor", `{"from":"ts","timestamp":1}`, "timestamp"),
		bad("PUT "+topic+"/groups/g/cursor", `{"from":"earliest","ts":1}`, "ts goes with from ts, and from is earliest"),
		bad("PUT "+topic+"/groups/g/cursor?dry_run=1", `{"from":"ts","ts":1,"afterId":"x"}`, "afterId"),
		bad("PUT "+topic+"/groups/g/cursor", `{"from":"latest","positions":{"0":1}}`, "positions"),
		bad("POST "+topic+"/groups/g/pull", `{"opts":{"positions":{"0":1}}}`, "positions goes with from positions, and from is missing"),
		bad("GET "+topic+"/stream?ts=1", "", "ts"),
		bad("GET "+topic+"/stream?from=ts&ts=1&afterId=x", "", "afterId"),
		bad("GET "+topic+"/stream?positions={}", "", "positions"),
		bad("POST "+topic+"/events?id=x", "1", "id"),
		bad("POST "+topic+"/events", "1", "Sluice-Key", "Sluice-Kee: k"),
		bad("POST "+topic+"/events", "1", "Sluice-Deliver-At", "Sluice-Deliver-Att: 1"),
		bad("POST "+topic+"/groups/g/pull?max=1", "{}", "max"),
		bad("POST "+topic+"/groups/g/pull", `{"maxx":1}`, "max"),
		bad("POST "+topic+"/groups/g/pull", `{"opts":{"maxinflight":1}}`, "maxInflight"),
		bad("POST "+topic+"/groups/g/pull", `{"opts":{"filter":{"tags":"a"}}}`, "tag"),
		bad("POST "+topic+"/groups/g/ack", `{"leases":[],"lease":"x"}`, "leases"),
		bad("POST "+topic+"/groups/g/nack", `{"leases":[],"delay":1}`, "delay_ms"),
		bad("POST "+topic+"/groups/g/modack", `{"leases":[],"extend_ms":1,"extends":1}`, "extend_ms"),
		bad("POST "+topic+"/dlq/redrive", `{"group":"g","reasons":"a"}`, "reason"),
		bad("POST "+topic+"/dlq/discard", `{"group":"g","befor":1}`, "before"),
		bad("POST "+topic+"/dlq/discard?dry_run=1", `{"group":"g"}`, "dry_run"),
		bad("GET /v1/openapi.json?format=yaml", "", "format"),
	})
	lines := testkit.Call(t, "POST", s.URL()+topic+"/events", `{"payload":1,"opt":{}}`+"\n"+`{"payload":1,"opts":{"keys":"k"}}`,
		"Content-Type: application/x-ndjson").JSON(t).List("results")
	for i, nearest := range []string{"opts", "key"} {
		if lines[i]["code"] != "bad_request" || !strings.Contains(lines[i].Text("error"), nearest) {
			t.Errorf("line %d: %v", i, lines[i])
		}
	}
	answers(t, s.ReplayURL(), []call{
		bad("GET /replay?topic=one.known&offset=1", "", "offset"),
		bad("GET /replay?topic=one.known&afterID=x", "", "afterId"),
		bad("GET /replay?topic=one.known&ts=1", "", "ts"),
		bad("GET /replay?topic=one.known&from=ts&ts=1&afterId=x", "", "afterId"),
		bad("GET /export?topic=one.known&from=1", "", "fromTs"),
		bad("GET /export?topic=one.known&partial=yes", "", "partial"),
	})
	// "Not on /, pages, /healthz, /readyz, /metrics, /debug"
	known := func(request string) call { return call{request, "", []string{"Sluice-Any: 1"}, 200, ""} }
	answers(t, s.URL(), []call{known("GET /?any=1")})
	answers(t, s.ReplayURL(), []call{known("GET /?any=1")})
	answers(t, s.OpsURL(), []call{known("GET /?any=1"), known("GET /healthz?any=1"), known("GET /readyz?any=1"), known("GET /metrics?any=1"),
		known("GET /debug/pprof/?any=1"), bad("GET /v1/status?any=1", "", "any")})

	k := s.dial(t)
	for frame, nearest := range map[string]string{
		`{"op":"PUBLISH","topic":"one.known","payload":1,"opt":{}}`:                       "opts",
		`{"op":"PUBLISH","topic":"one.known","payload":1,"opts":{"Key":"k"}}`:             "key",
		`{"op":"PUBLISH","topic":"one.known","payload":1,"opts":{"ttl":1}}`:               "ttl_ms",
		`{"op":"SUBSCRIBE","topic":"one.known","opts":{"max_inflight":1}}`:                "maxInflight",
		`{"op":"SUBSCRIBE","topic":"one.known","opts":{"from":"earliest","afterId":"x"}}`: "afterId",
		`{"op":"SUBSCRIBE","topic":"one.known","opts":{"ts":1}}`:                          "ts",
		`{"op":"SUBSCRIBE","topic":"one.known","opts":{"from":""}}`:                       "from is empty",
		`{"op":"SUBSCRIBE","topic":"one.known","opts":{"format":""}}`:                     "format is empty",
		`{"op":"SUBSCRIBE","topic":"one.known","groups":"g"}`:                             "group",
		`{"op":"SUBSCRIBE","topic":"one.known","opts":{"filter":{"headers":{"a":"b"}}}}`:  "header",
		`{"op":"UNSUBSCRIBE","topic":"one.known","opts":{}}`:                              "opts",
		`{"op":"ACK","topic":"one.known","group":"g","id":"x","delay_ms":1}`:              "delay_ms",
		`{"op":"NACK","topic":"one.known","group":"g","id":"x","deadLetter":true}`:        "dead_letter",
		`{"op":"MODACK","topic":"one.known","group":"g","id":"x","extendMs":1}`:           "extend_ms",
		`{"op":"PAUSE","topic":"one.known","groop":"g"}`:                                  "group",
		`{"op":"RESUME","topic":"one.known","x":1}`:                                       "x",
		`{"op":"PING","payload":1}`:                                                       "payload",
		`{"op":"AUTH","tokn":"a"}`:                                                        "token",
		`{"op":"PUBLISH","topic":"one.known","events":[{"payload":1}],"opts":{"id":"x"}}`: "opts",
	} {
		if r := k.refused("bad_request", "%s", frame); !strings.Contains(r.Text("msg"), nearest) {
			t.Errorf("%s does not name %q: %v", frame, nearest, r)
		}
	}
	if n := s.replay(t, "topic=one.known").Number(t, "count"); n != 1 {
		t.Errorf("%d events are stored, want the one from before", n)
	}
}

// "An optional selector of a change that is there and empty is bad_request, never all."
func TestEmptySelectors(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "/v1/topics/one.empty"
	for _, id := range []string{"a", "b"} {
		s.put(t, "one.empty", id, "1")
		s.dial(t).die("one.empty", "g"+id, id)
	}
	s.letters(t, "one.empty.dlq", 2)
	empty := func(request, body, says string) call { return call{request, body, nil, 400, says} }
	answers(t, s.URL(), []call{
		empty("POST "+topic+"/dlq/discard", `{"group":""}`, "group"),
		empty("POST "+topic+"/dlq/discard", `{"group":"ga","reason":""}`, "reason"),
		empty("POST "+topic+"/dlq/discard", `{"dlq_ids":[]}`, "dlq_ids"),
		empty("POST "+topic+"/dlq/discard", `{"dlq_ids":[""]}`, "dlq_ids"),
		empty("POST "+topic+"/dlq/discard", `{}`, "group"),
		empty("POST "+topic+"/dlq/redrive", `{"group":""}`, "group"),
		empty("POST "+topic+"/dlq/redrive", `{"group":"ga","reason":""}`, "reason"),
		empty("POST "+topic+"/dlq/redrive", `{"dlq_ids":[]}`, "dlq_ids"),
		empty("POST "+topic+"/dlq/redrive", `{}`, "group"),
		empty("GET "+topic+"/dlq?group=", "", "group"),
		empty("GET "+topic+"/dlq?reason=", "", "reason"),
		empty("GET "+topic+"/latest?key=", "", "key"),
		empty("GET "+topic+"/stream?group=", "", "group"),
		empty("DELETE "+topic+"/events?id=", "", "id"),
		empty("DELETE "+topic+"/events?key=", "", "key"),
		empty("PUT "+topic+"/groups/ga/cursor", `{"from":"afterId","afterId":""}`, "afterId"),
		empty("PUT "+topic+"/groups/ga/cursor", `{"from":""}`, "from"),
		empty("PUT "+topic+"/groups/ga/cursor?dry_run=", `{"from":"earliest"}`, "dry_run"),
		empty("DELETE "+topic+"?dry_run=", "", "dry_run"),
	})
	answers(t, s.ReplayURL(), []call{
		empty("GET /replay?topic=one.empty&key=", "", "key"),
		empty("GET /replay?topic=one.empty&from=", "", "from")})
	if total := testkit.Call(t, "GET", s.URL()+topic+"/dlq", "").JSON(t).Text("total"); total != "2" {
		t.Errorf("%s dead letters are left of 2", total)
	}
}

// "No path is redirected: an unclean one is 404", and 405 has Allow.
func TestPaths(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.put(t, "one.paths", "x", "1")
	none := func(request string) call { return call{request, "", nil, 404, "not_found"} }
	answers(t, s.URL(), []call{
		none("DELETE /v1/topics/one.paths/scheduled/.."), none("DELETE /v1/topics/one.paths/"), none("DELETE /v1/topics/one.paths/."),
		none("DELETE /v1//topics/one.paths"), none("GET //v1/topics"), none("GET /v1/topics/"), none("DELETE /v1/topics/other/../one.paths"),
		none("GET /v2"), none("GET /ws/"),
		{"DELETE /v1/topics/one.paths/scheduled/%2E%2E", "", nil, 400, "bad_request"},
		{"DELETE /v1/topics/one.paths/groups/%2e", "", nil, 400, "bad_request"},
		{"DELETE /v1/topics/%2e%2e", "", nil, 400, "bad_request"},
		{"POST /v1/topics/%2e/events", "1", nil, 400, "bad_request"},
		{"POST /v1/topics/one.paths/events", "1", []string{"Sluice-Id: .."}, 400, "bad_request"},
	})
	answers(t, s.ReplayURL(), []call{none("GET /replay/?topic=one.paths"), none("GET /./replay?topic=one.paths")})
	answers(t, s.OpsURL(), []call{none("GET /healthz/"), none("GET //metrics")})
	if n := s.replay(t, "topic=one.paths").Number(t, "count"); n != 1 {
		t.Errorf("%d events are left of 1", n)
	}
	for url, allow := range map[string]string{
		s.URL() + "/v1/topics/one.paths/events": "POST", s.URL() + "/v1/topics": "GET", s.ReplayURL() + "/replay?topic=t": "GET",
		s.OpsURL() + "/v1/status": "GET",
	} {
		a := testkit.Call(t, "PATCH", url, "")
		if a.Status != 405 || !strings.Contains(a.Header.Get("Allow"), allow) || a.JSON(t)["code"] != "not_found" {
			t.Errorf("%s: %d, Allow %q, %s", url, a.Status, a.Header.Get("Allow"), a.Body)
		}
	}
}

// "HTTP/1.0 without Host is served."
func TestHTTP10(t *testing.T) {
	t.Parallel()
	s := shared(t)
	for _, c := range []struct{ address, path string }{{s.Listen, "/v1/topics"}, {s.Replay, "/replay?topic=t"}, {s.Ops, "/healthz"}} {
		conn, err := net.Dial("tcp", c.address)
		require.NoError(t, err)
		defer conn.Close()
		_, err = io.WriteString(conn, "GET "+c.path+" HTTP/1.0\r\n\r\n")
		require.NoError(t, err)
		if text, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(text), "HTTP/1.0 200 ") {
			t.Errorf("%s: %v %.200s", c.path, err, text)
		}
	}
}

// "The sentence says what was wrong": which of topic, group and event is not there.
func TestWhatIsNotThereIsNamed(t *testing.T) {
	t.Parallel()
	s := shared(t)
	s.put(t, "one.named", "x", "1")
	none := func(request, says string) call { return call{request, `{"from":"earliest"}`, nil, 404, says} }
	answers(t, s.URL(), []call{
		none("PUT /v1/topics/one.named/groups/nobody/cursor", `there is no group \"nobody\" of topic \"one.named\"`),
		none("PUT /v1/topics/one.nowhere/groups/g/cursor?dry_run=1", `there is no topic \"one.nowhere\"`),
	})
	none = func(request, says string) call { return call{request, "", nil, 404, says} }
	answers(t, s.URL(), []call{
		none("GET /v1/topics/one.nowhere", `there is no topic \"one.nowhere\"`),
		none("GET /v1/topics/one.nowhere/latest", `there is no topic \"one.nowhere\"`),
		none("GET /v1/topics/one.named/groups/nobody", `there is no group \"nobody\" of topic \"one.named\"`),
		none("GET /v1/topics/one.named/events/y", `\"y\"`),
		none("DELETE /v1/topics/one.nowhere", `there is no topic \"one.nowhere\"`),
		none("DELETE /v1/topics/one.named/groups/nobody", `there is no group \"nobody\" of topic \"one.named\"`),
		none("DELETE /v1/topics/one.named/events?id=y", `there is no event \"y\" of topic \"one.named\"`),
		none("DELETE /v1/topics/one.named/scheduled/y", `\"y\"`),
	})
}
