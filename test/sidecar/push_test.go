package sidecar

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// pushes is how many events each of the tests below publishes.
var pushes = flag.Int("pushes", 1000, "events of TestPushOverKills and TestDaprBulkOverKills")

const pushPolicies = `
- name: "*"
  connection: {rate: 0}
  publish: {rate: 0}
  delivery: {max_inflight: 200, max_attempts: 100000, ack_timeout: 5s, backoff: {min: 10ms, max: 50ms}}
`

// receiver is an application that gets events by POST. It has an address through all its lives.
type receiver struct {
	addr string
	took func(*http.Request, http.ResponseWriter) []string // answers, and returns the ids of the events that it took
	mu   sync.Mutex
	got  map[string]int // by id
	life *httptest.Server
}

func (r *receiver) start(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", r.addr)
	require.NoError(t, err)
	r.addr = ln.Addr().String()
	r.life = &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, id := range r.took(q, w) {
			r.got[id]++
		}
	})}}
	r.life.Start()
}

func (r *receiver) kill() {
	r.life.CloseClientConnections()
	r.life.Close()
}

// TestPushOverKills pushes events while the application, the sidecar and the store are killed in turn. Each event that was answered
// reaches the application, and none becomes a dead letter.
func TestPushOverKills(t *testing.T) {
	testkit.Rounds(t, func(t *testing.T, seed uint64) {
		app := &receiver{took: func(q *http.Request, _ http.ResponseWriter) []string { return []string{q.Header.Get("sluice-id")} }}
		overKills(t, seed, app, "mail", func(dir string) []string {
			return []string{"--push", testkit.Write(t, filepath.Join(dir, "push.yaml"),
				fmt.Sprintf("- {topic: orders, group: mail, url: 'http://%s', from: earliest}", app.addr))}
		})
	})
}

// TestDaprBulkOverKills is the same for an application of Dapr's that gets events in bulk.
func TestDaprBulkOverKills(t *testing.T) {
	testkit.Rounds(t, func(t *testing.T, seed uint64) {
		app := &receiver{took: tookInBulk}
		overKills(t, seed, app, "shop.pubsub", func(string) []string {
			return []string{"--dapr-app-id", "shop", "--dapr-app", "http://" + app.addr}
		})
	})
}

// tookInBulk is an application of Dapr's: it has one subscription, and takes all entries.
func tookInBulk(q *http.Request, w http.ResponseWriter) (ids []string) {
	if q.Method == http.MethodGet {
		fmt.Fprint(w, `[{"pubsubname":"pubsub","topic":"orders","route":"/orders","bulkSubscribe":{"enabled":true,"maxAwaitDurationMs":20}}]`)
		return nil
	}
	var in struct {
		Entries []struct {
			EntryID string
			Event   struct{ ID string }
		}
	}
	if err := json.NewDecoder(q.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return nil
	}
	type status struct {
		EntryID string `json:"entryId"`
		Status  string `json:"status"`
	}
	answer := struct {
		Statuses []status `json:"statuses"`
	}{}
	for _, en := range in.Entries {
		ids = append(ids, en.Event.ID)
		answer.Statuses = append(answer.Statuses, status{en.EntryID, "SUCCESS"})
	}
	_ = json.NewEncoder(w).Encode(answer) // the test has killed this application, maybe
	return ids
}

// overKills is a round for an application. flags are those that let the sidecar serve it.
func overKills(t *testing.T, seed uint64, app *receiver, group string, flags func(dir string) []string) {
	random := rand.New(rand.NewPCG(seed, 0))
	server := mongotest.Start(t)
	dir := t.TempDir()
	app.addr, app.got = "127.0.0.1:0", map[string]int{}
	app.start(t)
	t.Cleanup(func() { app.life.Close() })
	args := append([]string{"--policies", testkit.Write(t, filepath.Join(dir, "policies.yaml"), pushPolicies)}, flags(dir)...)
	db := database{uri: server.URI(server.NewDatabase(t))}
	start := func() *testkit.Sidecar { return startShared(t, dir, "node", db, args...) }
	p := start()
	await(t, func() string { // a group of Dapr's begins at the latest event
		return until(testkit.Call(t, "GET", p.URL()+"/v1/topics/orders/groups/"+group, ""), `"blocked_by":`)
	})
	var url atomic.Pointer[string]
	url.Store(new(p.URL()))
	var publishing sync.WaitGroup
	publishing.Go(func() { publishOrders(t, &url, *pushes) })
	published := make(chan struct{})
	go func() {
		defer close(published)
		publishing.Wait()
	}()
	for turn, over := 0, false; !over || turn < 6; turn++ {
		pause.For(t.Context(), between(random, 200*time.Millisecond, 700*time.Millisecond))
		switch turn % 3 {
		case 0:
			app.kill()
			pause.For(t.Context(), between(random, 100*time.Millisecond, 300*time.Millisecond))
			app.start(t)
		case 1:
			p.Kill()
			p = start()
			url.Store(new(p.URL()))
		case 2:
			if server.CanStop() {
				server.Kill()
				server.Restart()
			}
		}
		select {
		case <-published:
			over = true
		default:
		}
	}
	<-published
	for came, over := -1, false; !over; { // each wait is for one more event, however many there are
		await(t, func() string {
			app.mu.Lock()
			n := len(app.got)
			app.mu.Unlock()
			lag := testkit.Call(t, "GET", p.URL()+"/v1/topics/orders/groups/"+group, "")
			over = n == *pushes && until(lag, `"`+group+`","lag":0`) == ""
			if over || n > came {
				came = n
				return ""
			}
			return fmt.Sprintf("%d of %d events have come, %s", n, *pushes, lag.Body)
		})
	}
	dead := testkit.Call(t, "GET", p.URL()+"/v1/topics/orders/dlq", "")
	if !strings.Contains(string(dead.Body), `"total":0`) {
		t.Errorf("dead letters: %s", dead.Body)
	}
	again := 0
	for _, n := range app.got {
		again += n - 1
	}
	t.Logf("%d events, %d deliveries more than once", *pushes, again)
	stop(t, p)
}

// until says what an answer is as long as it does not contain a text.
func until(a testkit.Answer, text string) string {
	if strings.Contains(string(a.Body), text) {
		return ""
	}
	return string(a.Body) + " does not have " + text
}

// publishOrders publishes events in batches, each again until all of it is answered.
func publishOrders(t *testing.T, url *atomic.Pointer[string], n int) {
	const batch = 50
	for first := 0; first < n; first += batch {
		var lines strings.Builder
		for i := first; i < min(first+batch, n); i++ {
			fmt.Fprintf(&lines, `{"payload":%d,"opts":{"id":"%d","key":"%d"}}`+"\n", i, i, i%100)
		}
		for ok := false; !ok && t.Context().Err() == nil; {
			res, err := http.Post(*url.Load()+"/v1/topics/orders/events", "application/x-ndjson", strings.NewReader(lines.String()))
			if err != nil {
				pause.For(t.Context(), 20*time.Millisecond)
				continue
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			ok = err == nil && res.StatusCode == http.StatusOK && !strings.Contains(string(body), `"code"`)
		}
	}
}
