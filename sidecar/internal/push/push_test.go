package push

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/test/lockedbuffer"
	"github.com/sluice-bus/sluice/test/require"
)

const policies = `[{"name":"*","publish":{"rate":0},"connection":{"rate":0},"partitions":1,` +
	`"delivery":{"max_attempts":3,"ack_timeout":"1m","backoff":{"min":"1ms","max":"1ms"}}}]`

// request is one that waits for its answer.
type request struct {
	*http.Request
	body   string
	answer chan func(http.ResponseWriter)
}

func (r *request) say(status int, headers ...string) {
	r.answer <- func(w http.ResponseWriter) {
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
	}
}

// receiver is an endpoint whose answers the test gives.
type receiver struct {
	*httptest.Server
	requests chan *request
}

// listen starts one at an address; ":0" picks a port.
func listen(t testing.TB, addr string) *receiver {
	t.Helper()
	r := &receiver{requests: make(chan *request, 100)}
	ln, err := net.Listen("tcp", addr)
	require.NoError(t, err)
	r.Server = &httptest.Server{Listener: ln, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		x := &request{q, string(body), make(chan func(http.ResponseWriter), 1)}
		r.requests <- x
		select {
		case answer := <-x.answer:
			answer(w)
		case <-q.Context().Done():
		}
	})}}
	r.Start()
	t.Cleanup(r.stop)
	return r
}

// stop cuts off what is under way.
func (r *receiver) stop() {
	r.CloseClientConnections()
	r.Close()
}

// next is the next request, which must bring the event of that id.
func (r *receiver) next(t testing.TB, id string) *request {
	t.Helper()
	select {
	case q := <-r.requests:
		if got := q.Header.Get("sluice-id"); got != id {
			t.Fatalf("the endpoint gets %s, want %s", got, id)
		}
		return q
	case <-time.After(gatewaytest.Patience):
		t.Fatalf("the endpoint gets nothing, want %s", id)
		return nil
	}
}

// fixture is a sidecar that pushes the topic t to the group g.
type fixture struct {
	*gatewaytest.Sidecar
	*Push
	logged *lockedbuffer.Buffer
	stop   func()
}

// start pushes by a file.
func start(t testing.TB, file string) *fixture {
	t.Helper()
	f := &fixture{Sidecar: gatewaytest.Start(t, gatewaytest.Setup{Policies: policies}), logged: &lockedbuffer.Buffer{}}
	path := filepath.Join(t.TempDir(), "push.yaml")
	require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
	var err error
	f.Push, err = Open(Config{
		Path: path, Groups: f.Groups, Policies: f.Policies, Metrics: telemetry.Discard(), Logger: slog.New(slog.NewTextHandler(f.logged, nil)),
		Known: func(string) error { return nil }, Share: func(string) *budget.Share { return nil },
		May: func(identity, topic, _ string) error {
			if identity == "limited" && topic != "t" {
				return wire.Errorf(wire.Forbidden, "not yours")
			}
			return nil
		},
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.Run(ctx) })
	f.stop = sync.OnceFunc(func() {
		cancel()
		soon, done := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer done()
		f.Push.Shutdown(soon)
		running.Wait()
	})
	t.Cleanup(f.stop)
	f.joined(t)
	return f
}

// change changes the file.
func (f *fixture) change(t testing.TB, file string) {
	t.Helper()
	require.NoError(t, os.WriteFile(f.cfg.Path, []byte(file), 0o600))
	f.Reread()
}

func (f *fixture) joined(t testing.TB) {
	t.Helper()
	f.eventually(t, "all endpoints have joined", func() bool {
		stats := fmt.Sprint(f.Stats())
		return stats != "[]" && !strings.Contains(stats, stateJoining)
	})
}

func (f *fixture) eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(gatewaytest.Patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still not: %s; %v\n%s", what, f.Stats(), f.logged)
		}
	}
}

func (f *fixture) publish(t *testing.T, id string, headers ...string) {
	t.Helper()
	f.Want(t, http.StatusCreated, "", "POST", "/v1/topics/t/events", `{"n":1}`, append(headers, "Sluice-Id: "+id)...)
}

func (f *fixture) settled(t testing.TB) {
	t.Helper()
	f.eventually(t, "all events are settled", func() bool {
		info, err := f.Groups.Info(t.Context(), "t", "g")
		return err == nil && info.Lag == 0
	})
}

func (f *fixture) state() string { return f.Stats()[0].State }

func TestFormats(t *testing.T) {
	r := listen(t, "127.0.0.1:0")
	for _, tc := range []struct {
		format, contentType, body string
		headers                   map[string]string
	}{
		{string(FormatEvent), "application/json",
			`{"id":"ä%","ts":1500,"topic":"t","partition":0,"seq":1,"headers":{"a":"b"},"payload":{"n":1}}`, nil},
		{string(FormatPayload), "application/json", `{"n":1}`, nil},
		{string(FormatCloudEvents), "application/json", `{"n":1}`, map[string]string{"ce-specversion": "1.0", "ce-id": "%C3%A4%25",
			"ce-source": "/topics/t", "ce-type": "t", "ce-time": "1970-01-01T00:00:01.500Z"}},
		{string(FormatStructured), "application/cloudevents+json", `{"specversion":"1.0","id":"ä%","source":"/topics/t","type":"t",` +
			`"time":"1970-01-01T00:00:01.500Z","datacontenttype":"application/json","data":{"n":1}}`, nil},
	} {
		t.Run(tc.format, func(t *testing.T) {
			f := start(t, fmt.Sprintf("- {topic: t, group: g, url: '%s/in?x=1', format: %s, headers: {X-Team: a b}}", r.URL, tc.format))
			f.Want(t, http.StatusOK, `"results":[{"id"`, "POST", "/v1/topics/t/events",
				`{"payload":{"n":1},"opts":{"id":"ä%","ts":1500,"headers":{"a":"b"}}}`, "Content-Type: application/x-ndjson")
			q := r.next(t, "%C3%A4%25")
			q.say(204)
			f.settled(t)
			if q.body != tc.body || q.Header.Get("Content-Type") != tc.contentType || q.RequestURI != "/in?x=1" {
				t.Errorf("%s %v %s", q.RequestURI, q.Header, q.body)
			}
			for name, value := range map[string]string{"sluice-topic": "t", "sluice-attempt": "1", "x-team": "a b",
				"webhook-id": webhookID(&wire.Event{Topic: "t", ID: "ä%"}), "webhook-signature": ""} {
				if got := q.Header.Get(name); got != value {
					t.Errorf("%s is %q, want %q", name, got, value)
				}
			}
			for name, value := range tc.headers {
				if got := q.Header.Get(name); got != value {
					t.Errorf("%s is %q, want %q", name, got, value)
				}
			}
		})
	}
}

// Answers settle events. Each attempt has the same webhook-id.
func TestAnswers(t *testing.T) {
	r := listen(t, "127.0.0.1:0")
	f := start(t, fmt.Sprintf("- {topic: t, group: g, url: '%s', timeout: 5s}", r.URL))
	f.publish(t, "a")
	first := r.next(t, "a")
	first.say(302, "Location: "+r.URL+"/elsewhere")
	second := r.next(t, "a")
	same := first.Header.Get("webhook-id") == second.Header.Get("webhook-id")
	if !same || second.Header.Get("sluice-attempt") != "2" || second.URL.Path != "/" {
		t.Errorf("%v, %v", first.Header, second.Header)
	}
	second.say(500)
	r.next(t, "a").say(503) // the last attempt
	f.settled(t)
	f.Want(t, http.StatusOK, "503 Service Unavailable", "GET", "/v1/topics/t/dlq", "")
	f.publish(t, "b")
	for range 5 { // more than there are attempts
		r.next(t, "b").say(429, "Retry-After: 0")
	}
	q := r.next(t, "b")
	if q.Header.Get("sluice-attempt") != "1" {
		t.Errorf("held events count attempts: %v", q.Header)
	}
	q.say(503, "Retry-After: 60")
	f.eventually(t, "it is held", func() bool { return f.state() == stateHeld })
}

func TestSlowAnswer(t *testing.T) {
	r := listen(t, "127.0.0.1:0")
	f := start(t, fmt.Sprintf("- {topic: t, group: g, url: '%s', timeout: 20ms}", r.URL))
	f.publish(t, "a")
	for range 3 {
		r.next(t, "a")
	}
	f.settled(t)
	f.Want(t, http.StatusOK, "does not answer", "GET", "/v1/topics/t/dlq", "")
}

// While nothing listens events wait, and no attempt counts.
func TestAway(t *testing.T) {
	r := listen(t, "127.0.0.1:0")
	f := start(t, fmt.Sprintf("- {topic: t, group: g, url: '%s'}", r.URL))
	r.stop()
	f.publish(t, "a", "Sluice-Key: k")
	f.publish(t, "b", "Sluice-Key: k")
	f.eventually(t, "it is away", func() bool { return f.state() == stateAway })
	r = listen(t, r.Listener.Addr().String())
	for _, id := range []string{"a", "b"} {
		q := r.next(t, id)
		if q.Header.Get("sluice-attempt") != "1" {
			t.Errorf("an attempt counts: %v", q.Header)
		}
		q.say(200)
	}
	f.settled(t)
	f.eventually(t, "it is there", func() bool { return f.state() == stateDelivering })
}

// 410 pauses an endpoint, and the next change of the file lets it have its events.
func TestGone(t *testing.T) {
	r := listen(t, "127.0.0.1:0")
	file := fmt.Sprintf("- {topic: t, group: g, url: '%s'}\n", r.URL)
	f := start(t, file)
	f.publish(t, "a")
	r.next(t, "a").say(410)
	f.eventually(t, "it is paused", func() bool { return f.state() == statePaused && strings.Contains(f.logged.String(), "410 Gone") })
	f.change(t, file+"# seen to\n")
	q := r.next(t, "a")
	if q.Header.Get("sluice-attempt") != "1" {
		t.Errorf("an attempt counts: %v", q.Header)
	}
	q.say(200)
	f.settled(t)
}

// A changed file takes effect without a lost event; what is wrong in it changes nothing.
func TestChangedFile(t *testing.T) {
	before, after := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	f := start(t, fmt.Sprintf("- {topic: t, group: g, url: '%s'}\n", before.URL)+
		fmt.Sprintf("- {topic: u, group: g, url: '%s', identity: limited}\n", before.URL))
	if len(f.Stats()) != 1 || !strings.Contains(f.logged.String(), "not yours") {
		t.Errorf("%v are served; %s", f.Stats(), f.logged)
	}
	f.publish(t, "a", "Sluice-Key: k")
	answered := before.next(t, "a")
	f.publish(t, "b", "Sluice-Key: k")
	f.change(t, "- {topic: t, gruop: g}\n")
	f.eventually(t, "the log says what is wrong", func() bool { return strings.Contains(f.logged.String(), `did you mean`) })
	f.change(t, fmt.Sprintf("- {topic: t, group: g, url: '%s'}\n", after.URL))
	f.eventually(t, "the endpoint is another", func() bool { return strings.Contains(fmt.Sprint(f.Stats()), after.URL) })
	if len(after.requests) > 0 {
		t.Error("the order of the key is broken")
	}
	answered.say(200)
	after.next(t, "b").say(200)
	f.settled(t)
	f.change(t, "")
	f.eventually(t, "nobody is served", func() bool { return len(f.Stats()) == 0 })
}

// A slow endpoint slows itself alone, and a stop gives back what it does not answer for.
func TestASlowEndpoint(t *testing.T) {
	slow, quick := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	f := start(t, fmt.Sprintf("- {topic: t, group: slow, url: '%s', max_inflight: 1}\n", slow.URL)+
		fmt.Sprintf("- {topic: t, group: g, url: '%s'}\n", quick.URL))
	f.eventually(t, "both have joined", func() bool { return len(f.Stats()) == 2 && f.Stats()[1].State == stateDelivering })
	for _, id := range []string{"a", "b", "c"} {
		f.publish(t, id)
		quick.next(t, id).say(200)
	}
	f.settled(t)
	slow.next(t, "a")
	if len(slow.requests) > 0 {
		t.Error("it has more than its window")
	}
	f.stop()
	info, err := f.Groups.Info(t.Context(), "t", "slow")
	if err != nil || info.Lag != 3 || info.Inflight != 0 {
		t.Errorf("after the stop: %+v %v", info, err)
	}
}

// Signatures are those of all secrets of the file, which may change.
func TestSecretsChange(t *testing.T) {
	r := listen(t, "127.0.0.1:0")
	secrets := filepath.Join(t.TempDir(), "secrets")
	whsec := func(c string) string {
		return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(c, 24))) + "\n"
	}
	require.NoError(t, os.WriteFile(secrets, []byte(whsec("a")), 0o600))
	f := start(t, fmt.Sprintf("- {topic: t, group: g, url: '%s', secret_file: %s}", r.URL, secrets))
	f.publish(t, "a")
	q := r.next(t, "a")
	q.say(200)
	require.NoError(t, os.WriteFile(secrets, []byte(whsec("b")+whsec("a")), 0o600))
	f.Reread()
	one, two := strings.Fields(q.Header.Get("webhook-signature")), []string{}
	n := 0
	f.eventually(t, "there are two signatures", func() bool {
		n++
		f.publish(t, fmt.Sprint("b", n))
		both := r.next(t, fmt.Sprint("b", n))
		both.say(200)
		two = strings.Fields(both.Header.Get("webhook-signature"))
		return len(two) == 2
	})
	if len(one) != 1 || two[0] == two[1] {
		t.Errorf("%v, %v", one, two)
	}
}
