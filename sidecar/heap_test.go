package sidecar

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-bus/sluice/internal/daprpb"
	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/heaptest"
	"github.com/sluice-bus/sluice/test/require"
)

// heapSidecar is a sidecar in the test's process. Its listeners are unix sockets, whose buffers in the kernel are small.
type heapSidecar struct {
	*Sidecar
	clients map[string]*http.Client // by listener
}

func startHeapSidecar(t *testing.T) heapSidecar {
	t.Helper()
	dir, err := os.MkdirTemp("", "heap") // the names of sockets are short
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	var cfg Config
	program.Defaults(&cfg)
	cfg.Listen, cfg.ReplayListen, cfg.OpsListen = "unix:"+dir+"/app", "unix:"+dir+"/replay", "unix:"+dir+"/ops"
	cfg.DataDir, cfg.InMemory, cfg.NodeID, cfg.MaxBufferedBytes, cfg.Logger = dir, true, "node", 1<<30, slog.New(slog.DiscardHandler)
	cfg.Policies, cfg.DaprGRPCListen, cfg.DaprAppID = dir+"/policies", "unix:"+dir+"/dapr", "app"
	require.NoError(t, os.WriteFile(cfg.Policies, []byte("- {name: '*', publish: {rate: 0}, connection: {rate: 0}, partitions: 1}\n"), 0o600))
	s, err := New(t.Context(), cfg)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ready := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx, func() error { close(ready); return nil }); err != nil {
			t.Error(err)
		}
	})
	h := heapSidecar{s, map[string]*http.Client{}}
	t.Cleanup(func() {
		for _, c := range h.clients {
			c.CloseIdleConnections()
		}
		stop()
		running.Wait()
	})
	<-ready
	for name, ln := range map[string]net.Listener{"app": s.listeners.app, "replay": s.listeners.replay, "ops": s.listeners.ops} {
		dial := dialer(ln)
		h.clients[name] = &http.Client{Transport: &http.Transport{
			DialContext: func(context.Context, string, string) (net.Conn, error) { return dial() },
		}}
	}
	return h
}

func dialer(ln net.Listener) func() (net.Conn, error) {
	return func() (net.Conn, error) { return net.Dial("unix", ln.Addr().String()) }
}

// do makes a request, and returns its answer.
func (h heapSidecar) do(t *testing.T, listener, method, path, body string, headers ...string) []byte {
	t.Helper()
	return heaptest.Do(t, h.clients[listener], method, path, body, headers...)
}

// fill makes topics whose lists, events and groups are large.
func (h heapSidecar) fill(t *testing.T) {
	t.Helper()
	payload := `"` + strings.Repeat("x", 256<<10) + `"`
	for i := range 16 {
		h.do(t, "app", "POST", "/v1/topics/large/events", payload, "Sluice-Id", fmt.Sprint("e", i), "Sluice-Key", fmt.Sprint("k", i))
	}
	key := strings.Repeat("k", 500)
	for i := range 1000 {
		h.do(t, "app", "POST", "/v1/topics/large/events", "1", "Sluice-Key", fmt.Sprint(key, i), "Sluice-Delay-Ms", "86400000")
	}
	var pulled struct {
		Events []struct{ Ctx struct{ Lease string } }
	}
	const dead = "/v1/topics/large/groups/dead/"
	require.NoError(t, json.Unmarshal(h.do(t, "app", "POST", dead+"pull", `{"max":8,"opts":{"from":"earliest"}}`), &pulled))
	leases := make([]string, len(pulled.Events))
	for i, e := range pulled.Events {
		leases[i] = e.Ctx.Lease
	}
	body, err := json.Marshal(map[string]any{"leases": leases, "dead_letter": true})
	require.NoError(t, err)
	h.do(t, "app", "POST", dead+"nack", string(body))
	for i := range 500 {
		h.do(t, "app", "PUT", fmt.Sprint("/v1/topics/", strings.Repeat("n", 200), i), "")
	}
	h.do(t, "app", "POST", "/v1/topics/large/groups/g/pull", `{"max":1,"wait_ms":0,"opts":{"from":"earliest","ackTimeoutMs":1000}}`)
}

// What the routes are asked for, beside their paths.
var (
	heapQueries = map[string]string{
		"GET /v1/topics": "?limit=1000", "GET /v1/topics/{topic}/scheduled": "?limit=1000", "GET /v1/topics/{topic}/dlq": "?limit=1000",
		"GET /v1/topics/{topic}/stream": "?from=earliest", "GET /replay": "?topic=large", "GET /export": "?topic=large",
		"DELETE /v1/topics/{topic}/events": "?id=none", "POST /peer/ids": "?topic=large", "DELETE /v1/topics/{topic}": "?dry_run=1",
		"GET /v1/topics/{topic}/retention": "?compact=true",
	}
	heapBodies = map[string]string{
		"POST /v1/topics/{topic}/events":               "1",
		"POST /v1/topics/{topic}/groups/{group}/pull":  `{"max":16,"wait_ms":60000}`,
		"PUT /v1/topics/{topic}/groups/{group}/cursor": `{"from":"earliest"}`,
		"POST /v1/topics/{topic}/dlq/redrive":          `{"group":"other"}`, "POST /v1/topics/{topic}/dlq/discard": `{"group":"other"}`,
		"POST /peer/ids": `{"ids":["e1"]}`,
	}
	heapPaths = strings.NewReplacer("{topic}", "large", "{group}", "g", "{id}", "e1", "{pubsub}", "p", "{$}", "")
)

// TestHeapByRoute: what a client makes the sidecar hold at any route, reading nothing, or not sending all, is counted.
func TestHeapByRoute(t *testing.T) {
	h := startHeapSidecar(t)
	h.fill(t)
	some := heaptest.Some(t)
	for listener, ln := range map[string]net.Listener{"app": h.listeners.app, "replay": h.listeners.replay, "ops": h.listeners.ops} {
		var about struct{ Routes []string }
		require.NoError(t, json.Unmarshal(h.do(t, listener, "GET", "/", ""), &about))
		if len(about.Routes) < 5 {
			t.Fatalf("%s has the routes %q", listener, about.Routes)
		}
		p := heaptest.Program{Dial: dialer(ln), Counted: h.budget.Used}
		for _, pattern := range about.Routes {
			method, path, _ := strings.Cut(pattern, " ")
			if path == "/debug/pprof/profile" || path == "/debug/pprof/trace" {
				continue // the process has their buffers, and at most budget.Profiles at a time
			}
			request := heaptest.Request{
				Method: method, Path: heapPaths.Replace(path) + heapQueries[pattern], Body: heapBodies[pattern],
				Headers: "Content-Type: application/json\r\n",
			}
			for how, text := range some(request.Behaviours()) {
				t.Run(strings.ReplaceAll(listener+" "+pattern+" "+how, "/", " "), func(t *testing.T) { p.Check(t, text) })
			}
		}
	}
}

// http2Frame is a frame of HTTP/2 on stream 1, or 0 if it is of the connection.
func http2Frame(kind, flags, stream byte, payload string) string {
	return string([]byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, stream}) + payload
}

// grpcCall begins a call on a connection of its own: a message that has length bytes, and of these the beginning.
func grpcCall(method string, length int, beginning string) string {
	fields := ""
	for _, f := range [][2]string{
		{":method", "POST"}, {":scheme", "http"}, {":path", method}, {":authority", "localhost"},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		fields += "\x00" + string(rune(len(f[0]))) + f[0] + string(rune(len(f[1]))) + f[1]
	}
	data := string(binary.BigEndian.AppendUint32([]byte{0}, uint32(length))) + beginning
	text := "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + http2Frame(4, 0, 0, "") + http2Frame(1, 4, 1, fields)
	for chunk := range slices.Chunk([]byte(data), 16<<10) {
		text += http2Frame(0, 0, 1, string(chunk))
	}
	return text
}

// TestHeapByCall is TestHeapByRoute for Dapr's API over gRPC.
func TestHeapByCall(t *testing.T) {
	h := startHeapSidecar(t)
	p := heaptest.Program{Dial: dialer(h.listeners.dapr), Counted: h.budget.Used}
	for _, method := range []string{"PublishEvent", "BulkPublishEvent", "GetMetadata", "SubscribeTopicEventsAlpha1", "GetState"} {
		path := "/" + daprpb.Dapr_ServiceDesc.ServiceName + "/" + method
		for how, text := range map[string]string{
			"does not write": grpcCall(path, 8<<20, ""), "stops midway": grpcCall(path, 8<<20, strings.Repeat("x", 60<<10)),
			"too long": grpcCall(path, 1<<30, strings.Repeat("x", 60<<10)),
		} {
			t.Run(method+" "+how, func(t *testing.T) { p.Check(t, text) })
		}
	}
}

// frame is a text message of a WebSocket's client, as if it had length bytes.
func frame(length int, text string) string {
	head := binary.BigEndian.AppendUint64([]byte{0x81, 0x80 | 127}, uint64(length))
	return string(append(head, 0, 0, 0, 0)) + text // a mask of zeros
}

const upgrade = "GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
	"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"

// TestHeapByOp is TestHeapByRoute for the ops of WebSockets.
func TestHeapByOp(t *testing.T) {
	h := startHeapSidecar(t)
	h.fill(t)
	key := strings.Repeat("k", 500)
	op := func(name, members string) string {
		return fmt.Sprintf(`{"op":%q,"corr":%q,"topic":"large","group":"g"%s}`, name, key, members)
	}
	subscribe := op(wire.OpSubscribe, `,"opts":{"from":"earliest","maxInflight":1000}`)
	ops := map[string][]string{
		wire.OpAuth:        {`{"op":"AUTH","token":"` + key + `"}`},
		wire.OpPublish:     {fmt.Sprintf(`{"op":"PUBLISH","corr":%q,"topic":"t","opts":{"id":"same"},"payload":1}`, key)},
		wire.OpSubscribe:   {subscribe, `{"op":"SUBSCRIBE","topic":"large","opts":{"from":"earliest"}}`},
		wire.OpUnsubscribe: {op(wire.OpUnsubscribe, "")},
		wire.OpAck:         {subscribe, op(wire.OpAck, `,"id":"e1"`)},
		wire.OpNack:        {subscribe, op(wire.OpNack, `,"id":"e1"`)},
		wire.OpModAck:      {subscribe, op(wire.OpModAck, `,"id":"e1","extend_ms":60000`)},
		wire.OpPause:       {op(wire.OpPause, "")}, wire.OpResume: {op(wire.OpResume, "")}, wire.OpPing: {op(wire.OpPing, "")},
	}
	p, some := heaptest.Program{Dial: dialer(h.listeners.app), Counted: h.budget.Used}, heaptest.Some(t)
	for _, name := range slices.Sorted(maps.Keys(ops)) {
		var once strings.Builder
		for _, text := range ops[name] {
			once.WriteString(frame(len(text), text))
		}
		last := ops[name][len(ops[name])-1]
		often := strings.Repeat(frame(len(last), last), 2000)
		for how, text := range some(map[string]string{
			"once": once.String(), "again and again": once.String() + often,
			"does not write": frame(1<<24, ""), "stops midway": frame(1<<20, last+strings.Repeat(" ", 1<<19)),
		}) {
			t.Run(name+" "+how, func(t *testing.T) { p.Check(t, upgrade+text) })
		}
	}
}

// TestFramesAreNoHeads: what a WebSocket sends does not count as heads of requests that have not begun.
func TestFramesAreNoHeads(t *testing.T) {
	h := startHeapSidecar(t)
	c, err := dialer(h.listeners.app)()
	require.NoError(t, err)
	defer c.Close()
	ping := fmt.Sprintf(`{"op":"PING","corr":%q}`, strings.Repeat("k", 100))
	const pings = 1000
	_, err = io.WriteString(c, upgrade+strings.Repeat(frame(len(ping), ping), pings))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, pings*len(ping)))
	require.NoError(t, err)
	if used := h.budget.Unauthenticated().Used(); used != 0 {
		t.Errorf("%d bytes count as heads", used)
	}
}

// TestIdleConnections: an idle connection, WebSocket or not, takes 20 KiB at most.
func TestIdleConnections(t *testing.T) {
	h := startHeapSidecar(t)
	for name, text := range map[string]string{
		"WebSockets": upgrade, "HTTP": "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
	} {
		if each := heaptest.Idle(t, dialer(h.listeners.app), 500, text); each > 20<<10 {
			t.Errorf("%s: %d bytes each", name, each)
		} else {
			t.Logf("%s: %d bytes each", name, each)
		}
	}
}
