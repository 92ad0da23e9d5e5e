package sidecar

import (
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

// pushes is how many events TestPushOverKills publishes.
var pushes = flag.Int("pushes", 1000, "events of TestPushOverKills")

const pushPolicies = `
- name: "*"
  connection: {rate: 0}
  publish: {rate: 0}
  delivery: {max_inflight: 200, max_attempts: 100000, ack_timeout: 5s, backoff: {min: 10ms, max: 50ms}}
`

// receiver is an application that gets events by POST. It has an address through all its lives.
type receiver struct {
	addr string
	mu   sync.Mutex
	got  map[string]int // by id
	life *httptest.Server
}

func (r *receiver) start(t *testing.T) {
	t.Helper()
	ln, err := net.Listen("tcp", r.addr)
	require.NoError(t, err)
	r.addr = ln.Addr().String()
	r.life = &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got[q.Header.Get("sluice-id")]++
	})}}
	r.life.Start()
}

func (r *receiver) kill() {
	r.life.CloseClientConnections()
	r.life.Close()
}

// TestPushOverKills pushes events while the application, the sidecar and the store are killed in turn. Each event that was answered
// reaches the application, and none becomes a dead letter.
func TestPushOverKills(t *testing.T) { testkit.Rounds(t, pushOverKills) }

func pushOverKills(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	server := mongotest.Start(t)
	dir, app := t.TempDir(), &receiver{addr: "127.0.0.1:0", got: map[string]int{}}
	app.start(t)
	t.Cleanup(func() { app.life.Close() })
	policies := testkit.Write(t, filepath.Join(dir, "policies.yaml"), pushPolicies)
	file := testkit.Write(t, filepath.Join(dir, "push.yaml"),
		fmt.Sprintf("- {topic: orders, group: mail, url: 'http://%s', from: earliest}", app.addr))
	db := database{uri: server.URI(server.NewDatabase(t))}
	start := func() *testkit.Sidecar {
		return startShared(t, dir, "node", db, "--policies", policies, "--push", file)
	}
	p := start()
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
	await(t, func() string {
		app.mu.Lock()
		n := len(app.got)
		app.mu.Unlock()
		lag := testkit.Call(t, "GET", p.URL()+"/v1/topics/orders/groups/mail", "")
		if n == *pushes && strings.Contains(string(lag.Body), `"mail","lag":0`) {
			return ""
		}
		return fmt.Sprintf("%d of %d events have come, %s", n, *pushes, lag.Body)
	})
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
