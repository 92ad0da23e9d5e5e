package contract

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
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

// pushed is a request that an endpoint got.
type pushed struct {
	header http.Header
	body   string
}

// "Each event is POSTed", signed, and the answer settles it; a changed file takes effect, and 410 pauses until it does.
func TestPush(t *testing.T) {
	t.Parallel()
	requests, answers := make(chan pushed, 100), make(chan string, 100) // "status Retry-After"
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- pushed{r.Header, string(body)}
		var status int
		var after string
		_, _ = fmt.Sscan(<-answers, &status, &after)
		w.Header().Set("Retry-After", after)
		w.WriteHeader(max(status, http.StatusOK))
	}))
	t.Cleanup(func() {
		close(answers)
		app.Close()
	})
	dir := t.TempDir()
	file := filepath.Join(dir, "push.yaml")
	entry := "- {topic: orders, group: mail, url: '" + app.URL + "', secret_file: secret, format: %s, from: earliest}\n"
	secret := []byte(strings.Repeat("s", 32))
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("secret", "whsec_"+base64.StdEncoding.EncodeToString(secret))
	write("push.yaml", fmt.Sprintf(entry, "event"))
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0}, partitions: 1, delivery: {max_attempts: 2, `+
		`backoff: {min: 1ms, max: 2ms}}}]`, "--push", file)
	next := func(attempt string) pushed {
		t.Helper()
		select {
		case p := <-requests:
			if got := p.header.Get("sluice-attempt"); got != attempt {
				t.Errorf("attempt %s, want %s", got, attempt)
			}
			return p
		case <-time.After(testkit.Patience):
			t.Fatal("nothing is pushed")
			return pushed{}
		}
	}
	settled := func() {
		t.Helper()
		testkit.Eventually(t, "all is settled", func() bool { return s.group(t, "orders", "mail").Number(t, "lag") == 0 })
	}

	s.put(t, "orders", "a", `{"n":1}`)
	p := next("1")
	id := sha256.Sum256([]byte("orders\na"))
	want := "evt_" + base64.RawURLEncoding.EncodeToString(id[:])
	if p.header.Get("webhook-id") != want || p.header.Get("sluice-topic") != "orders" {
		t.Errorf("%v, want the webhook-id %s", p.header, want)
	}
	mac := hmac.New(sha256.New, secret)
	_, _ = io.WriteString(mac, p.header.Get("webhook-id")+"."+p.header.Get("webhook-timestamp")+"."+p.body)
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); p.header.Get("webhook-signature") != want {
		t.Errorf("%v, want the signature %s", p.header, want)
	}
	if !strings.Contains(p.body, `"id":"a"`) || p.header.Get("Content-Type") != "application/json" {
		t.Errorf("%v %s", p.header, p.body)
	}
	for range 3 { // more than there are attempts
		answers <- "503 0"
		next("1")
	}
	answers <- "500"
	next("2")
	answers <- "503" // the last attempt
	settled()
	s.letters(t, "orders.dlq", 1)

	write("push.yaml", fmt.Sprintf(entry, "cloudevents"))
	testkit.Eventually(t, "the change is in force", func() bool {
		s.put(t, "orders", fmt.Sprint("b", time.Now().UnixNano()), `{"n":2}`)
		p := next("1")
		answers <- "204"
		return p.header.Get("ce-type") == "orders" && p.header.Get("ce-source") == "/topics/orders" && p.body == `{"n":2}`
	})
	s.put(t, "orders", "c", `{"n":3}`)
	next("1")
	answers <- "410"
	testkit.Eventually(t, "it is paused", func() bool {
		return testkit.Call(t, "GET", s.OpsURL()+"/v1/status", "").JSON(t).List("push")[0].Text("state") == "paused"
	})
	write("push.yaml", fmt.Sprintf(entry, "payload"))
	if p := next("1"); p.body != `{"n":3}` {
		t.Errorf("%v %s", p.header, p.body)
	}
	answers <- "200"
	settled()
	if s.metric(t, "sluice_push_requests_total", `topic="orders"`, `group="mail"`, `status="410"`) != 1 {
		t.Error("the metric does not count it")
	}
}
