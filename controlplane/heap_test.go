package controlplane

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/setting"
	"github.com/sluice-bus/sluice/test/heaptest"
	"github.com/sluice-bus/sluice/test/require"
)

// TestHeapByRoute: what a client makes the control plane hold at any route, reading nothing, or not sending all, is
// counted.
func TestHeapByRoute(t *testing.T) {
	dir, err := os.MkdirTemp("", "heap") // the names of sockets are short, and their buffers in the kernel small
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	c, err := New(t.Context(), Config{
		XDSListen: "unix:" + dir + "/xds", HTTPListen: "unix:" + dir + "/http", DataDir: dir, Store: setting.Embedded, Name: "cp",
		DrainTimeout: time.Second, StoreTimeout: time.Second, MaxBufferedBytes: 1 << 30, Logger: slog.New(slog.DiscardHandler),
	})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ready := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx, func() error { close(ready); return nil }); err != nil {
			t.Error(err)
		}
	})
	defer running.Wait()
	defer stop()
	<-ready
	dial := func() (net.Conn, error) { return net.Dial("unix", dir+"/http") }
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return dial() },
	}}
	defer client.CloseIdleConnections()
	do := func(method, path, body string) []byte {
		t.Helper()
		return heaptest.Do(t, client, method, path, body, "Accept", "application/json")
	}
	for i := range 50 { // and a history
		do("PUT", fmt.Sprint("/v1/policies/large", i%10), fmt.Sprintf(
			`{"publish":{"rate":%d},"schema":{"compatibility":"none","json_schema":{"description":%q}}}`, i+1, strings.Repeat("x", 60<<10)))
	}
	var about struct{ Routes []string }
	require.NoError(t, json.Unmarshal(do("GET", "/", ""), &about))
	if len(about.Routes) < 20 {
		t.Fatalf("it has the routes %q", about.Routes)
	}
	policy := do("GET", "/v1/policies/large1", "")
	queries := map[string]string{
		"GET /v1/audit": "?limit=1000", "GET /v1/sidecars": "?limit=1000", "GET /v1/topics": "?limit=1000&history=1",
		"PUT /v1/policies/{name}": "?dry_run=1", "DELETE /v1/policies/{name}": "?dry_run=1",
		"GET /debug/pprof/": "heap",
	}
	bodies := map[string]string{
		"PUT /v1/policies/{name}": string(policy), "POST /v1/apply": `{"policies":[` + string(policy) + `],"dry_run":true}`,
		"POST /v1/policies/{name}/schemas/check": `{"json_schema":{}}`, "POST /v1/policies/{name}/rollback": `{"version":0}`,
		"PUT /v1/policies/{name}/groups/{group}": `{"paused":true}`,
	}
	paths := strings.NewReplacer("{name}", "large1", "{group}", "g", "{node_id}", "n", "{store}", "s", "{path...}", "topics")
	p, some := heaptest.Program{Dial: dial, Counted: c.budget.Used}, heaptest.Some(t)
	for _, pattern := range about.Routes {
		method, path, found := strings.Cut(pattern, " ")
		if !found {
			method, path = "GET", pattern
		}
		request := heaptest.Request{
			Method: method, Path: paths.Replace(path) + queries[pattern], Body: bodies[pattern],
			Headers: "Content-Type: application/json\r\n",
		}
		behaviours := request.Behaviours()
		request.Headers += "Accept-Encoding: gzip\r\n"
		behaviours["does not read what is compressed"] = request.Behaviours()["does not read"]
		for how, text := range some(behaviours) {
			t.Run(strings.ReplaceAll(pattern+" "+how, "/", " "), func(t *testing.T) { p.Check(t, text) })
		}
	}
}
