package contract

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// given is a request that the application of TestDaprApplication got.
type given struct {
	path, contentType string
	event             object
}

// "see the project's docs for the Dapr subscription forms": the application tells its subscriptions
// and is given their events, which its answers settle.
func TestDaprApplication(t *testing.T) {
	t.Parallel()
	events := make(chan given, 100)
	answers := make(chan string, 100) // "status body"
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path == "/dapr/subscribe" {
			_, _ = io.WriteString(w, `[{"pubsubname":"shop","topic":"orders","route":"/on-order","metadata":{}}]`)
			return
		}
		var e map[string]any
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			t.Error(err)
		}
		events <- given{r.URL.Path, r.Header.Get("Content-Type"), e}
		status, body, _ := strings.Cut(<-answers, " ")
		w.WriteHeader(map[string]int{"200": 200, "404": 404, "500": 500}[status])
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(app.Close)
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0}, partitions: 1, delivery: {max_attempts: 2, `+
		`backoff: {min: 1ms, max: 2ms}}}]`,
		"--dapr-app", app.URL, "--dapr-app-id", "billing")
	testkit.Eventually(t, "the application is a member", func() bool { return len(s.group(t, "orders", "billing.shop").List("members")) == 1 })
	next := func() given {
		t.Helper()
		select {
		case g := <-events:
			return g
		case <-time.After(testkit.Patience):
			t.Fatal("the application is given nothing")
			return given{}
		}
	}
	settled := func() {
		t.Helper()
		testkit.Eventually(t, "all is settled", func() bool { return s.group(t, "orders", "billing.shop").Number(t, "lag") == 0 })
	}

	s.post(t, "orders", `{"n":1}`, "ce-specversion: 1.0", "ce-id: a", "ce-source: /s", "ce-type: com.example", "ce-subject: x",
		"Content-Type: application/json")
	answers <- `200 {"status":"RETRY"}`
	answers <- `200 {"status":"SUCCESS"}`
	for range 2 {
		g := next()
		whole := g.event.Has(testkit.Members{"id": "a", "specversion": "1.0", "source": "/s", "type": "com.example", "subject": "x",
			"topic": "orders", "pubsubname": "shop"})
		if g.path != "/on-order" || g.contentType != "application/cloudevents+json" || !whole || g.event.At("data") == nil {
			t.Errorf("%+v", g)
		}
	}
	settled()

	k := s.dial(t)
	k.ok(`{"op":"SUBSCRIBE","topic":"orders.dlq"}`)
	s.put(t, "orders", "dropped", "1")
	answers <- `404 `
	next()
	settled()
	s.put(t, "orders", "dead", "1")
	answers <- `500 `
	answers <- `500 `
	next()
	next()
	if e := k.event(); e.Text("event.headers.sluice-dlq-id") != "dead" || !strings.Contains(e.Text("event.headers.sluice-dlq-reason"), "500") {
		t.Errorf("%v", e)
	}
	settled()
}

// "calls with dapr-api-token from --dapr-app-token-file or APP_API_TOKEN".
func TestDaprApplicationIsShownAToken(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("of-the-file\n"), 0o600))
	for want, args := range map[string][]string{"of-the-file": {"--dapr-app-token-file", file}, "of-the-environment": nil} {
		shown := make(chan string, 100)
		app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/dapr/subscribe" {
				shown <- r.Header.Get("dapr-api-token")
			}
			_, _ = io.WriteString(w, "[]")
		}))
		t.Cleanup(app.Close)
		testkit.SidecarProgram.Launch(t, []string{"APP_API_TOKEN=of-the-environment"}, append(args, "--data-dir", t.TempDir(),
			"--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
			"--dapr-app", app.URL, "--dapr-app-id", "shop")...)
		select {
		case got := <-shown:
			if got != want {
				t.Errorf("the application is shown %q, want %q", got, want)
			}
		case <-time.After(testkit.Patience):
			t.Fatal("the application is asked nothing")
		}
	}
}

// The application is on this machine.
func TestDaprApplicationElsewhere(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--dapr-app", "http://10.1.2.3:3000"}, {"--dapr-app", "https://127.0.0.1:3000"}, {"--dapr-app-id", "x"}} {
		_, log, status := testkit.SidecarProgram.Launch(t, nil, append(args, "--data-dir", t.TempDir(), "--listen", "127.0.0.1:0")...).Ended(t)
		if status != 2 || !strings.Contains(log, "dapr-app") {
			t.Errorf("%v: exit status %d: %s", args, status, log)
		}
	}
}
