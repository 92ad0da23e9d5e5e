package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestReaderThatNeverReads publishes 200,000 events into a topic whose only reader never reads its
// socket: the sidecar must not keep them in memory for it.
func TestReaderThatNeverReads(t *testing.T) {
	const most = 200 << 20
	for _, c := range []struct{ name, subscribe string }{
		{"in a group", `{"op":"SUBSCRIBE","topic":"flood","group":"stuck","opts":{"maxInflight":100000}}`},
		{"without a group", `{"op":"SUBSCRIBE","topic":"flood"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := testkit.StartSidecar(t, t.TempDir(), "--policies", unlimited(t))
			idle := resident(t, p)
			stuck, _, err := websocket.Dial(t.Context(), "ws://"+p.Listen+"/ws", nil)
			require.NoError(t, err)
			defer stuck.CloseNow()
			require.NoError(t, stuck.Write(t.Context(), websocket.MessageText, []byte(c.subscribe)))
			flood(t, p, 200_000, 300)
			if got := resident(t, p); got > most {
				t.Errorf("%d MiB resident, want at most %d MiB", got>>20, most>>20)
			} else {
				t.Logf("%d MiB resident, %d MiB before", got>>20, idle>>20)
			}
		})
	}
}

// unlimited writes a policies file that limits nothing.
func unlimited(t *testing.T) string {
	t.Helper()
	return testkit.Write(t, filepath.Join(t.TempDir(), "policies.yaml"),
		`[{name: "*", connection: {rate: 0}, publish: {rate: 0}, delivery: {max_inflight: 100000}}]`)
}

// flood publishes n events in batches and checks every answer.
func flood(t *testing.T, p *testkit.Sidecar, n, size int) {
	t.Helper()
	const batch = 500
	c, err := sluice.DialConn(t.Context(), p.URL(), nil)
	require.NoError(t, err)
	defer c.Close()
	ctx, fail := context.WithCancelCause(t.Context())
	defer fail(nil)
	payload := []byte(`"` + strings.Repeat("x", size-2) + `"`)
	events := make([]wire.Event, batch)
	for i := range events {
		events[i].Payload = payload
	}
	for range n / batch {
		err := c.PublishBatchAsync(ctx, "flood", events, func(results []wire.ResultItem, err error) {
			if err != nil {
				fail(err)
			}
			for _, r := range results {
				if r.Err != nil {
					fail(r.Err)
				}
			}
		})
		if err != nil {
			t.Fatal(context.Cause(ctx), err)
		}
	}
	if err := c.Flush(ctx); err != nil {
		t.Fatal(context.Cause(ctx), err)
	}
}

// resident is the process's memory in bytes.
func resident(t *testing.T, p *testkit.Sidecar) int {
	t.Helper()
	now, _, err := p.Memory()
	if err != nil {
		t.Skipf("this system does not tell a process's memory: %v", err)
	}
	return now
}

// TestHalfSentMessages sends only the beginnings of 30 messages of nearly the longest length that
// is allowed.
func TestHalfSentMessages(t *testing.T) {
	p := testkit.StartSidecar(t, t.TempDir(), "--policies", unlimited(t))
	idle := resident(t, p)
	const size = 16 << 20
	for range 30 {
		c, err := net.Dial("tcp", p.Listen)
		require.NoError(t, err)
		defer c.Close()
		upgradeByHand(t, c, p.Listen)
		// One masked text frame; the mask is 0.
		head := append([]byte{0x81, 0x80 | 127}, binary.BigEndian.AppendUint64(nil, size)...)
		if _, err := c.Write(append(head, make([]byte, 4)...)); err != nil {
			t.Fatal(err)
		}
		rest := bytes.Repeat([]byte(" "), size-1<<10)
		if _, err := c.Write(rest); err != nil {
			t.Fatal(err)
		}
	}
	atMost(t, p, idle, 256<<20)
	// All other clients go on.
	res, err := http.Post(p.URL()+"/v1/topics/t/events", "application/json", strings.NewReader("1"))
	require.NoError(t, err)
	res.Body.Close()
	if res.StatusCode != http.StatusCreated {
		t.Errorf("a small publish beside: %s", res.Status)
	}
}

// upgradeByHand makes a WebSocket of a connection.
func upgradeByHand(t *testing.T, c net.Conn, host string) {
	t.Helper()
	if _, err := fmt.Fprintf(c, "GET /ws HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: "+
		"websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", host); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", res, err)
	}
}

// TestManyGroupsThatNeverAck has 40 groups, whose one client reads events and never acks them.
func TestManyGroupsThatNeverAck(t *testing.T) {
	p := testkit.StartSidecar(t, t.TempDir(), "--policies", unlimited(t))
	idle := resident(t, p)
	const groups, events, size = 40, 120, 256 << 10
	payload := `"` + strings.Repeat("x", size-2) + `"`
	for range events {
		res, err := http.Post(p.URL()+"/v1/topics/large/events", "application/json", strings.NewReader(payload))
		require.NoError(t, err)
		res.Body.Close()
		if res.StatusCode != http.StatusCreated {
			t.Fatal(res.Status)
		}
	}
	c, _, err := websocket.Dial(t.Context(), "ws://"+p.Listen+"/ws", nil)
	require.NoError(t, err)
	defer c.CloseNow()
	c.SetReadLimit(-1)
	var reading sync.WaitGroup
	defer reading.Wait()
	delivered := make(map[string]bool)
	all := make(chan struct{})
	reading.Go(func() {
		for {
			_, frame, err := c.Read(t.Context())
			if err != nil {
				return
			}
			if at := bytes.Index(frame, []byte(`"group":"`)); at >= 0 && bytes.Contains(frame[:at], []byte("EVENT")) {
				if delivered[string(frame[at:at+13])] = true; len(delivered) == groups {
					close(all)
					delivered["all"] = true
				}
			}
		}
	})
	defer c.CloseNow()
	for i := range groups {
		op := fmt.Sprintf(`{"op":"SUBSCRIBE","topic":"large","group":"g%02d","opts":{"from":"earliest","maxInflight":100}}`, i)
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(op)))
	}
	atMost(t, p, idle, 400<<20) // the collector lets the memory of one second's events double
	select {
	case <-all: // however little memory there is, no group stands still
	case <-time.After(testkit.Patience):
		t.Error("some group was sent nothing")
	}
}

// atMost checks that the process stays below so many bytes for a while.
func atMost(t *testing.T, p *testkit.Sidecar, idle, most int) {
	t.Helper()
	highest := 0
	for range 30 {
		highest = max(highest, resident(t, p))
		time.Sleep(100 * time.Millisecond)
	}
	if highest > most {
		t.Errorf("%d MiB resident, want at most %d MiB", highest>>20, most>>20)
	} else {
		t.Logf("%d MiB resident, %d MiB before", highest>>20, idle>>20)
	}
}

// TestConnectionsAreBounded: connections beyond the bound are refused for any request, and the
// other listeners go on; idle ones keep nobody out of the ops listener.
func TestConnectionsAreBounded(t *testing.T) {
	p := testkit.StartSidecar(t, t.TempDir(), "--max-connections", "3")
	for range 3 {
		c, _, err := websocket.Dial(t.Context(), "ws://"+p.Listen+"/ws", nil)
		require.NoError(t, err)
		defer c.CloseNow()
	}
	_, res, err := websocket.Dial(t.Context(), "ws://"+p.Listen+"/ws", nil)
	if err == nil || res == nil || res.StatusCode != http.StatusServiceUnavailable || res.Header.Get("Retry-After") != "1" {
		t.Fatalf("a fourth connection: %+v, %v", res, err)
	}
	for range 20 {
		idle, err := net.Dial("tcp", strings.TrimPrefix(p.OpsURL(), "http://"))
		require.NoError(t, err)
		defer idle.Close()
	}
	res, err = http.Get(p.OpsURL() + "/metrics")
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(text), `sluice_connections_refused_total{listener="listen"} 1`) {
		t.Errorf("the metrics do not tell of it: %v", err)
	}
}

// TestOneIdentityLeavesConnections: however one identity, or somebody without any, connects, another identity connects and publishes; and
// however many topics the one has, those of the other have series.
func TestOneIdentityLeavesConnections(t *testing.T) {
	dir := t.TempDir()
	auth := testkit.Write(t, filepath.Join(dir, "auth.yaml"), `
tokens:
  - {name: greedy, token_file: greedy, publish: ["*"], subscribe: ["*"]}
  - {name: other, token_file: other, publish: ["*"], ops: true}
`)
	testkit.Write(t, filepath.Join(dir, "greedy"), "greedy-0123456789abcdef\n")
	testkit.Write(t, filepath.Join(dir, "other"), "other-0123456789abcdef\n")
	p := testkit.StartSidecar(t, filepath.Join(dir, "data"), "--max-connections", "12", "--max-topic-labels", "4", "--auth-config", auth)
	open := func(token string) (*websocket.Conn, *http.Response, error) {
		c, res, err := websocket.Dial(t.Context(), "ws://"+p.Listen+"/ws", &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
			HTTPHeader: http.Header{"Authorization": {"Bearer " + token + "-0123456789abcdef"}},
		})
		if err == nil {
			t.Cleanup(func() { c.CloseNow() })
		}
		return c, res, err
	}
	publish := func(c *websocket.Conn, topic string) {
		t.Helper()
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, fmt.Appendf(nil, `{"op":"PUBLISH","topic":%q,"payload":1}`, topic)))
		if _, reply, err := c.Read(t.Context()); err != nil || !strings.Contains(string(reply), `"OK"`) {
			t.Errorf("a publish to %s: %s, %v", topic, reply, err)
		}
	}
	mine := 0
	for range 30 {
		c, res, err := open("greedy")
		if err == nil {
			mine++
			publish(c, fmt.Sprint("greedy.", 2*mine))
			publish(c, fmt.Sprint("greedy.", 2*mine+1))
			continue
		}
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != 503 || !strings.Contains(string(body), `identity \"greedy\" together may have 3 connections`) {
			t.Fatalf("a connection too many: %s %s", res.Status, body)
		}
	}
	late, _, err := websocket.Dial(t.Context(), "ws://"+p.Listen+"/ws", nil)
	require.NoError(t, err)
	defer late.CloseNow()
	require.NoError(t, late.Write(t.Context(), websocket.MessageText, []byte(`{"op":"AUTH","token":"greedy-0123456789abcdef"}`)))
	_, reply, err := late.Read(t.Context())
	if err != nil || !strings.Contains(string(reply), `"overloaded"`) || mine != 3 {
		t.Errorf("it has %d connections, and another AUTH is answered with %s, %v", mine, reply, err)
	}
	for range 100 { // by nobody, with half a request
		c, err := net.Dial("tcp", p.Listen)
		require.NoError(t, err)
		defer c.Close()
		_, _ = io.WriteString(c, "GET /v1/topics HTTP/1.1\r\n") // it may be closed already
	}
	kept, _, err := open("other")
	require.NoError(t, err)
	for range 100 {
		c, err := net.Dial("tcp", p.Listen)
		require.NoError(t, err)
		defer c.Close()
	}
	publish(kept, "t")
	answer := testkit.Call(t, "POST", p.URL()+"/v1/topics/t/events", "1", "Authorization: Bearer other-0123456789abcdef")
	if answer.Status != 201 {
		t.Errorf("the other's publish over HTTP: %d %s", answer.Status, answer.Body)
	}
	answer = testkit.Call(t, "GET", p.OpsURL()+"/metrics", "", "Authorization: Bearer other-0123456789abcdef")
	if n := strings.Count(string(answer.Body), `sluice_events_published_total{topic="greedy.`); n != 3 ||
		!strings.Contains(string(answer.Body), `sluice_events_published_total{topic="t"} 2`) {
		t.Errorf("%d series are the one's: %s", n, answer.Body)
	}
}
