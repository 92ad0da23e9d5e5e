package rest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/test/require"
)

// serve runs a handler on a listener of its own until the test ends; it returns its address and a
// client.
func serve(t *testing.T, change ...func(*Config)) (string, *http.Client) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	a := newAPI(t, append(change, func(c *Config) { c.Addr = ln.Addr() })...)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	server := &httpapi.Server{Handler: a, Logger: slog.New(slog.DiscardHandler), DrainTimeout: time.Second}
	go func() { done <- server.Serve(ctx, ln) }()
	client := &http.Client{Transport: &http.Transport{}, Timeout: time.Minute}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + ln.Addr().String(), client
}

// call makes one request; header is names and values in turn.
func call(t *testing.T, c *http.Client, method, url, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w, err := c.Do(r)
	if err != nil {
		t.Error(err)
		return 0, nil, ""
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Error(err)
	}
	return w.StatusCode, w.Header, string(text)
}

// Of editors who have read the same version, one wins each round and the others learn that somebody
// was faster.
func TestEditorsDoNotOverwriteEachOther(t *testing.T) {
	const editors, rounds = 4, 5
	url, client := serve(t)
	url += "/v1/policies/orders.*"
	tag := "none yet"
	for round := range rounds {
		condition := []string{"If-Match", tag}
		if round == 0 {
			condition = []string{"If-None-Match", "*"}
		}
		var mu sync.Mutex
		var winner string
		status := map[int]int{}
		start := make(chan struct{})
		var all sync.WaitGroup
		for e := range editors {
			all.Go(func() {
				<-start
				body := fmt.Sprintf(`{"partitions":%d}`, round*editors+e+1)
				code, header, text := call(t, client, "PUT", url, body, condition...)
				mu.Lock()
				defer mu.Unlock()
				status[code]++
				if code < 300 {
					winner, tag = text, header.Get("ETag")
				}
			})
		}
		close(start)
		all.Wait()
		if status[200]+status[201] != 1 || status[412] != editors-1 {
			t.Fatalf("round %d: %v", round, status)
		}
		code, header, text := call(t, client, "GET", url, "")
		if code != 200 || text != winner || header.Get("ETag") != tag {
			t.Fatalf("round %d: the winner put %s, and now there is %s", round, winner, text)
		}
	}
	_, _, text := call(t, client, "GET", url+"/history", "")
	var history struct{ Versions []struct{ Version int64 } }
	if err := json.Unmarshal([]byte(text), &history); err != nil || len(history.Versions) != rounds {
		t.Errorf("%s: %v", text, err)
	}
}

// Editors who set no condition all get through, one after the other.
func TestPutsWithoutConditionAllCount(t *testing.T) {
	const editors, puts = 4, 5
	url, client := serve(t)
	var all sync.WaitGroup
	for e := range editors {
		all.Go(func() {
			for i := range puts {
				if code, _, text := call(t, client, "PUT", url+"/v1/policies/a", fmt.Sprintf(`{"partitions":%d}`, e*puts+i+1)); code >= 300 {
					t.Errorf("%d %s", code, text)
				}
			}
		})
	}
	all.Wait()
	if _, header, _ := call(t, client, "GET", url+"/v1/policies/a", ""); header.Get("ETag") != etag(editors*puts) {
		t.Errorf("ETag %s", header.Get("ETag"))
	}
}

func TestOverARealConnection(t *testing.T) {
	url, client := serve(t)
	code, header, text := call(t, client, "PUT", url+"/v1/policies/orders.*", `{}`)
	if code != 201 || header.Get("Content-Length") != fmt.Sprint(len(text)) {
		t.Errorf("%d %v %s", code, header, text)
	}
	if code, header, text = call(t, client, "GET", url+"/v1/policies/orders.%2A", "", "If-None-Match",
		header.Get("ETag")); code != 304 || text != "" {
		t.Errorf("%d %v %s", code, header, text)
	}
	if code, header, text = call(t, client, "HEAD", url+"/v1/policies/%2A", ""); code != 404 || text != "" {
		t.Errorf("%d %v %s", code, header, text)
	}
	if code, header, text = call(t, client, "PUT", url+"/v1/policies/a", strings.Repeat(" ", maxBodyBytes+1)); code != 413 {
		t.Errorf("%d %v %s", code, header, text)
	}
	if code, header, text = call(t, client, "DELETE", url+"/v1/policies/orders.*", ""); code != 204 || text != "" ||
		header.Get("Content-Length") != "" {
		t.Errorf("%d %v %s", code, header, text)
	}
}

// Half a body changes nothing, and its sender is told.
func TestHalfABody(t *testing.T) {
	url, client := serve(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	if _, err := io.WriteString(conn, "PUT /v1/policies/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 20\r\n\r\n{}"); err != nil {
		t.Fatal(err)
	}
	require.NoError(t, conn.(*net.TCPConn).CloseWrite())
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 400 ") || !strings.Contains(string(answer), "bad_request") {
		t.Errorf("%q, %v", answer, err)
	}
	if code, _, text := call(t, client, "GET", url+"/v1/policies", ""); code != 200 || !strings.HasPrefix(text, `{"policies":[],`) {
		t.Errorf("%d %s", code, text)
	}
}
