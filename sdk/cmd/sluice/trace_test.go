package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/test/sluicetest"
)

const storedLife = `{"event":{"id":"o/17","ts":1700000000000,"topic":"orders","partition":3,"seq":1042,"key":"customer 17",
 "headers":{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},"payload":{"n":1e2}},
"accepted_at":"2023-11-14T22:13:20.004Z","stored":{"store_id":"4f1c","node_id":"edge-1","partition":3,"seq":1042},
"groups":[
 {"group":"audit","state":"waiting","attempts":0,"owner":"edge-1","cursor":1040,"waits_for":"turn"},
 {"group":"billing","state":"in_flight","attempts":2,"owner":"edge-1","cursor":1042,"member":"edge-1/7","due_ms":12300},
 {"group":"idle","state":"waiting","attempts":1,"owner":"","cursor":1042,"waits_for":"backoff","due_ms":4000},
 {"group":"mail","state":"settled","attempts":0,"owner":"edge-2","cursor":1050},
 {"group":"search","state":"dead","attempts":5,"owner":"edge-1","cursor":1043,
  "dead_letter":{"topic":"orders.dlq","id":"dlq-ab12","ts":1700000060000,"partition":0,"seq":12,"reason":"no such index","attempts":5}}],
"trace_id":"0af7651916cd43dd8448eb211c80319c"}`

const wantStoredLife = `orders  o/17
├─ published  2023-11-14T22:13:20.000Z  key "customer 17", trace 0af7651916cd43dd8448eb211c80319c
├─ stored     2023-11-14T22:13:20.004Z  partition 3, seq 1042, store 4f1c
├─ audit      waiting                   for its turn, 2 places behind the cursor
├─ billing    in flight                 attempt 2, with edge-1/7, 12.3s left
├─ idle       waiting                   to be delivered again, in 4s, after 1 attempt, no sidecar delivers its partition
├─ mail       settled                   acked, or passed over
└─ search     dead                      5 attempts: "no such index"
   └─ orders.dlq  dlq-ab12  2023-11-14T22:14:20.000Z  partition 0, seq 12
`

const spooledLife = `{"event":{"id":"o18","ts":1700000000000,"topic":"orders","payload":1},
"accepted_at":"2023-11-14T22:13:20.004Z","spooled":{"node_id":"edge-1"},"groups":[]}`

const wantSpooledLife = `orders  o18
├─ published  2023-11-14T22:13:20.000Z
└─ spooled    2023-11-14T22:13:20.004Z  by edge-1 until its store is back; no group gets it before
`

// tells serves the lives of two events.
func tells(t *testing.T) (url string) {
	t.Helper()
	mux := http.NewServeMux()
	for path, body := range map[string]string{"o%2F17": storedLife, "o18": spooledLife} {
		mux.HandleFunc("GET /v1/topics/orders/events/"+path, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, body)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"error":"the topic has no event with this id","code":"not_found"}`)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

func TestTrace(t *testing.T) {
	sidecar, url := start(t, sluicetest.Options{}), tells(t)
	for id, want := range map[string]string{"o/17": wantStoredLife, "o18": wantSpooledLife} {
		if got := run(t, sidecar, "", "trace", "orders", id, "--url", url).wantOK(t); got.stdout != want {
			t.Errorf("got\n%swant\n%s", got.stdout, want)
		}
	}
	if got := run(t, sidecar, "", "trace", "orders", "o18", "-o", "json", "--url", url).wantOK(t); got.stdout != spooledLife+"\n" {
		t.Errorf("got %s", got.stdout)
	}
	run(t, sidecar, "", "trace", "orders", "none", "--url", url).wantFailure(t, 3, "no event with this id")
	run(t, sidecar, "", "trace", "orders").wantFailure(t, 2, "<id>")
	help := run(t, sidecar, "", "trace", "--help").wantOK(t)
	if !strings.Contains(help.stdout, "Examples:\n\n    sluice trace orders.created ") {
		t.Errorf("no examples: %s", help.stdout)
	}
}
