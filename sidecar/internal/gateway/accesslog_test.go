package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/ingest"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/test/openapitest"
	"github.com/sluice-bus/sluice/test/require"
)

// accessLine is a line of the access log.
type accessLine struct {
	Action, Topic, Identity, From, Code string
	Status                              int
	Events, Refused                     *int
}

// accessLines keeps the lines of an access log, by the address that they are about.
type accessLines struct {
	mu     sync.Mutex
	byFrom map[string][]accessLine
}

func (l *accessLines) Write(text []byte) (int, error) {
	var line accessLine
	if err := json.Unmarshal(text, &line); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.byFrom[line.From] = append(l.byFrom[line.From], line)
	return len(text), nil
}

func (l *accessLines) of(from string) []accessLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.byFrom[from])
}

// forget lets another request come from the address.
func (l *accessLines) forget(from string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byFrom, from)
}

// accessed is a request that was made.
type accessed struct {
	token, pattern, topic, from string
	text                        string
	status                      int // 0: the client did not wait for it
}

// drawAccess draws a request of any route about a topic.
func drawAccess(t *rapid.T, routes []string) (a accessed, early bool) {
	a.token = rapid.SampledFrom([]string{"app", "app", "less", "wrong", ""}).Draw(t, "token")
	a.pattern = rapid.SampledFrom(routes).Draw(t, "route")
	a.topic = rapid.SampledFrom([]string{"t", "u", "none", "t.dlq"}).Draw(t, "topic")
	method, path, _ := strings.Cut(a.pattern, " ")
	path = strings.NewReplacer("{topic}", a.topic, "{group}", "g", "{id}", "e1", "{pubsub}", "p", "{$}", "").Replace(path)
	path += rapid.SampledFrom([]string{"", "", "?dry_run=1", "?from=earliest", "?id=e1", "?limit=x", "?nonsense=1"}).Draw(t, "query")
	body := rapid.SampledFrom([]string{
		"", "1", "{", "{}", `{"max":1,"wait_ms":1}`, `{"from":"earliest"}`, `{"leases":["x"]}`,
		`{"payload":1}` + "\n" + `{"payload":2}`,
		`{"group":"g","dlq_ids":["x"]}`, `[{"entryId":"1","event":1,"contentType":"application/json"}]`, strings.Repeat("x", 2<<20),
	}).Draw(t, "body")
	kinds := []string{"application/json", "application/x-ndjson", "text/plain", "application/cloudevents+json"}
	kind := rapid.SampledFrom(kinds).Draw(t, "type")
	if method == "GET" {
		body = "" // while a body waits to be read, the end of its client is not seen
	}
	length := len(body)
	if method != "GET" && rapid.IntRange(0, 4).Draw(t, "not whole") == 0 {
		length, early = length+10, true
	}
	a.text = fmt.Sprintf("%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: %s\r\nContent-Length: %d\r\n",
		method, path, kind, length)
	if a.token != "" {
		a.text += "Authorization: Bearer " + a.token + "\r\n"
	}
	a.text += "\r\n" + body
	return a, rapid.Bool().Draw(t, "closes early") || early || strings.HasSuffix(a.pattern, "/stream")
}

// make sends the request, and reads the status unless its client closes before.
func (a *accessed) make(t *rapid.T, addr string, early bool) {
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	a.from = c.LocalAddr().String()
	sent := make(chan struct{})
	go func() { defer close(sent); _, _ = io.WriteString(c, a.text) }()
	if early {
		<-sent
		return
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	require.NoError(t, err)
	defer res.Body.Close()
	a.status = res.StatusCode
	_, _ = io.Copy(io.Discard, res.Body)
}

// wrong says what is wrong with the lines of a request; "": nothing.
func (a *accessed) wrong(lines []accessLine, publishes bool) string {
	if len(lines) != 1 {
		return fmt.Sprintf("it has %d lines: %+v", len(lines), lines)
	}
	line, action := lines[0], a.pattern
	if publishes {
		action = audit.Publish
	}
	switch {
	case line.Action != action || line.Topic != a.topic || line.Identity != a.token:
		return "it is not that of the request"
	case !publishes && (line.Status == 0 || a.status != 0 && line.Status != a.status):
		return fmt.Sprintf("the answer was %d", a.status)
	case publishes && a.status >= 400 && line.Code == "" && line.Status != a.status:
		return fmt.Sprintf("the answer was %d, and it names no code", a.status)
	case publishes && a.status/100 == 2 && line.Code != "" && (line.Refused == nil || *line.Refused == 0):
		return "it has a code, and the answer none"
	}
	return ""
}

// TestEachAccessHasItsLine: requests of any route, with any rights, body and end, have exactly one line each, and it is true. Those of
// nobody have none.
func TestEachAccessHasItsLine(t *testing.T) {
	lines := &accessLines{byFrom: map[string][]accessLine{}}
	log, err := audit.Open([]string{"*"}, "", slog.New(slog.NewJSONHandler(lines, nil)))
	require.NoError(t, err)
	auth := "tokens:\n" + gatewaytest.Entry("app", "publish: [t], subscribe: [t, u], admin: [t]") + gatewaytest.Entry("less", "subscribe: [u]")
	s := gatewaytest.Start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t, auth).Access, Audit: log})
	var routes []string
	for _, op := range openapitest.Of(gatewaytest.Start(t, gatewaytest.Setup{}).Gateway.Handler()).Operations {
		if strings.Contains(op.Path, "{topic}") {
			routes = append(routes, op.Method+" "+op.Path)
		}
	}
	publishes := func(pattern string) bool {
		return slices.ContainsFunc(ingest.Routes(s.Gateway.Publish), func(r session.Route) bool { return r.Pattern == pattern })
	}
	if len(routes) < 20 {
		t.Fatalf("the routes are %q", routes)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, early := drawAccess(t, routes)
		a.make(t, s.Addr, early)
		defer lines.forget(a.from)
		known := a.token == "app" || a.token == "less"
		for deadline := time.Now().Add(3 * time.Second); known && len(lines.of(a.from)) == 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		got := lines.of(a.from)
		if !known {
			if len(got) > 0 {
				t.Fatalf("%.300q\nof nobody has the lines %+v", a.text, got)
			}
			return
		}
		if wrong := a.wrong(got, publishes(a.pattern)); wrong != "" {
			t.Fatalf("%.300q\nhas the lines %+v: %s", a.text, got, wrong)
		}
	})
}
