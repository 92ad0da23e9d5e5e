package gateway_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sidecar/internal/audit"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/ingest"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/test/openapitest"
	"github.com/sluice-bus/sluice/test/require"
)

// accessLine is a line of the access log.
type accessLine struct {
	Action, Topic, Group, Identity, From, Code, Role string
	Status                                           int
	Events, Refused                                  *int
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

// listener is one of the sidecar's, with its routes about a topic.
type listener struct {
	name, addr string
	routes     []string
}

// all are the lines about any address.
func (l *accessLines) all() []accessLine {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Concat(slices.Collect(maps.Values(l.byFrom))...)
}

func (l *accessLines) forgetAll() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.byFrom)
}

// accessed is a request that was made.
type accessed struct {
	who, role            string // of whom a line must be, "": nobody's
	pattern, topic, from string // topic "": it cannot be known
	text                 string
	status               int // 0: the client did not wait for it
}

// drawAccess draws a request of any listener's routes about a topic. cursors are those of topics that have one.
func drawAccess(t *rapid.T, listeners []listener, cursors map[string]string) (a accessed, addr string, early bool) {
	at := rapid.SampledFrom(listeners).Draw(t, "listener")
	a.pattern = rapid.SampledFrom(at.routes).Draw(t, "route")
	a.topic = rapid.SampledFrom([]string{"t", "u", "none", "t.dlq"}).Draw(t, "topic")
	method, path, _ := strings.Cut(a.pattern, " ")
	path = strings.NewReplacer("{topic}", a.topic, "{group}", "g", "{id}", "e1", "{pubsub}", "p", "{$}", "").Replace(path)
	query := rapid.SampledFrom([]string{"", "", "dry_run=1", "from=earliest", "id=e1", "limit=x", "nonsense=1"}).Draw(t, "query")
	path += "?" + query
	switch {
	case strings.Contains(a.pattern, "{topic}"):
	case rapid.Bool().Draw(t, "by cursor alone"):
		path += "&cursor=" + cursors[a.topic]
		if cursors[a.topic] == "" {
			a.topic = ""
		}
	default:
		path += "&topic=" + a.topic
	}
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
	var sender http.Header
	a.who, a.role, sender = drawSender(t, at.name == "people")
	var headers strings.Builder
	_ = sender.Write(&headers) // into memory
	a.text += headers.String() + "\r\n" + body
	return a, at.addr, rapid.Bool().Draw(t, "closes early") || early || strings.HasSuffix(a.pattern, "/stream")
}

// drawSender draws the headers by which a request is somebody's; who is "" where it is nobody's.
func drawSender(t *rapid.T, person bool) (who, role string, sender http.Header) {
	sender = http.Header{}
	if person {
		role := rapid.SampledFrom(everyRole).Draw(t, "role")
		access.SetPerson(sender, "ann", role, rapid.SampledFrom([][]string{nil, {"u"}}).Draw(t, "topics"))
		return "ann", string(role), sender
	}
	token := rapid.SampledFrom([]string{"app", "app", "less", "wrong", ""}).Draw(t, "token")
	if token != "" {
		sender.Set("Authorization", "Bearer "+token)
	}
	if token != "wrong" {
		who = token
	}
	return who, "", sender
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
	case line.Action != action || line.Topic != a.topic || line.Identity != a.who || line.Role != a.role:
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

// accessListeners starts a sidecar that writes an access log of all topics, and serves all that its clients, and the control plane,
// reach. cursors continue replays of the topics t and u.
func accessListeners(t *testing.T, lines *accessLines) (s *gatewaytest.Sidecar, all []listener, cursors map[string]string) {
	log, err := audit.Open([]string{"*"}, "", slog.New(slog.NewJSONHandler(lines, nil)))
	require.NoError(t, err)
	auth := "tokens:\n" + gatewaytest.Entry("app", "publish: [t, u], subscribe: [t, u], admin: [t], replay: [t, u]") +
		gatewaytest.Entry("less", "subscribe: [u]") + "control_plane: {read: true}\n"
	setup := gatewaytest.Setup{Access: gatewaytest.AuthOf(t, auth).Access, Audit: log}
	s = gatewaytest.Start(t, setup)
	history := replay.Config{Store: s.Log, Access: setup.Access, Audit: log, Logger: slog.New(slog.DiscardHandler)}
	app := listener{name: "app", addr: s.Addr}
	for _, op := range openapitest.Of(gatewaytest.Start(t, gatewaytest.Setup{}).Gateway.Handler()).Operations {
		if strings.Contains(op.Path, "{topic}") {
			app.routes = append(app.routes, op.Method+" "+op.Path)
		}
	}
	serve := func(name string, h http.Handler, routes ...string) listener {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return listener{name, server.Listener.Addr().String(), routes}
	}
	var peoples []string
	for pattern := range leastRoles {
		if pattern != "GET /v1/topics" {
			peoples = append(peoples, pattern)
		}
	}
	slices.Sort(peoples)
	all = []listener{
		app, serve("replay", replay.New(history), "GET /replay", "GET /export", "POST /peer/ids"),
		serve("people", s.Gateway.ForPeople(replay.Routes(history), replay.TopicOf), peoples...),
	}
	cursors = map[string]string{}
	for _, topic := range []string{"t", "u"} {
		for range 2 {
			s.Want(t, http.StatusCreated, "", "POST", "/v1/topics/"+topic+"/events", "1", "Authorization: Bearer app")
		}
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://"+all[1].addr+"/replay?limit=1&topic="+topic, nil)
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer app")
		res, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		var page struct{ Next string }
		require.NoError(t, json.NewDecoder(res.Body).Decode(&page))
		cursors[topic] = page.Next
	}
	return s, all, cursors
}

// TestEachAccessHasItsLine: requests to any listener, of any route, with any rights, body and end, have exactly one line each, and it
// is true. Those of nobody have none.
func TestEachAccessHasItsLine(t *testing.T) {
	lines := &accessLines{byFrom: map[string][]accessLine{}}
	s, listeners, cursors := accessListeners(t, lines)
	if len(listeners[0].routes) < 20 {
		t.Fatalf("the routes are %q", listeners[0].routes)
	}
	publishes := func(pattern string) bool {
		return slices.ContainsFunc(ingest.Routes(s.Gateway.Publish), func(r session.Route) bool { return r.Pattern == pattern })
	}
	rapid.Check(t, func(t *rapid.T) {
		a, addr, early := drawAccess(t, listeners, cursors)
		a.make(t, addr, early)
		defer lines.forget(a.from)
		noted := a.who != "" && a.topic != ""
		for deadline := time.Now().Add(3 * time.Second); noted && len(lines.of(a.from)) == 0 && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
		got := lines.of(a.from)
		if !noted {
			if len(got) > 0 {
				t.Fatalf("%.300q\nof nobody, or of no topic, has the lines %+v", a.text, got)
			}
			return
		}
		if wrong := a.wrong(got, publishes(a.pattern)); wrong != "" {
			t.Fatalf("%.300q\nhas the lines %+v: %s", a.text, got, wrong)
		}
	})
}
