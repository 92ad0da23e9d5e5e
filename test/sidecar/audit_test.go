package sidecar

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestAccessLog does things that the access log has to show, and things that it must not show.
func TestAccessLog(t *testing.T) {
	dir := t.TempDir()
	auth := testkit.Write(t, filepath.Join(dir, "auth.yaml"), `
tokens:
  - {name: shop, token_file: shop, publish: ["orders.*", greetings], subscribe: ["*"], replay: ["*"]}
  - {name: guest, token_file: guest, publish: [greetings]}
`)
	testkit.Write(t, filepath.Join(dir, "shop"), "shop-0123456789abcdef\n")
	testkit.Write(t, filepath.Join(dir, "guest"), "guest-0123456789abcdef\n")
	file := filepath.Join(dir, "audit.log")
	s := testkit.StartSidecar(t, filepath.Join(dir, "data"), "--auth-config", auth, "--audit-topics", "orders.*,payments", "--audit-file",
		file)

	ask := func(token, method, url, body string) (answer string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+token+"-0123456789abcdef")
		res, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		require.NoError(t, err)
		return string(text)
	}
	ask("shop", "POST", s.URL()+"/v1/topics/greetings/events", `1`) // not audited
	ask("shop", "POST", s.URL()+"/v1/topics/orders.created/events", `1`)
	ask("guest", "POST", s.URL()+"/v1/topics/orders.created/events", `1`)
	ask("shop", "POST", s.URL()+"/v1/topics/orders.created/groups/g/pull", `{"wait_ms":0}`)
	ask("shop", "PUT", s.URL()+"/v1/topics/orders.created/groups/g/cursor", `{"from":"earliest"}`)
	ask("guest", "GET", s.ReplayURL()+"/replay?topic=payments", "")
	ask("shop", "POST", s.URL()+"/v1/topics/orders.created/events", `{`)
	ask("shop", "POST", s.URL()+"/v1/topics/orders.created/events", `2`)
	var page struct{ Next string }
	require.NoError(t, json.Unmarshal([]byte(ask("shop", "GET", s.ReplayURL()+"/replay?topic=orders.created&limit=1", "")), &page))
	ask("shop", "GET", s.ReplayURL()+"/replay?cursor="+page.Next, "")
	ask("guest", "GET", s.ReplayURL()+"/replay?cursor="+page.Next, "")
	ask("shop", "GET", s.ReplayURL()+"/export?topic=orders.created", "")

	c, _, err := websocket.Dial(t.Context(), s.URL()+"/ws",
		&websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer shop-0123456789abcdef"}}})
	require.NoError(t, err)
	defer func() { _ = c.CloseNow() }()
	for _, frame := range []string{
		`{"op":"SUBSCRIBE","topic":"payments","group":"g"}`,
		`{"op":"PUBLISH","events":[{"topic":"orders.paid","payload":1,"opts":{"id":"a"}},{"topic":"orders.paid","payload":2},` +
			`{"topic":"payments","payload":3}]}`,
	} {
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(frame)))
		for {
			_, reply, err := c.Read(t.Context())
			require.NoError(t, err)
			if !strings.Contains(string(reply), `"EVENT"`) {
				break
			}
		}
	}
	require.NoError(t, c.Close(websocket.StatusNormalClosure, ""))
	var lines []string
	testkit.Eventually(t, "the access log lacks the end of the subscription", func() bool {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		lines = strings.Split(strings.TrimSpace(string(content)), "\n")
		return strings.Contains(string(content), `"unsubscribe"`) && strings.Contains(string(content), `"GET /export"`)
	})
	want := []string{
		`publish orders.created shop 1 events 0 refused `,
		`publish orders.created shop 1 events 0 refused `,
		`publish orders.created shop 0 events 1 refused bad_json`,
		`GET /replay orders.created shop 200 `,
		`GET /replay orders.created shop 200 `,
		`GET /replay orders.created guest 403 `,
		`publish orders.created guest 0 events 1 refused forbidden`,
		`POST /v1/topics/{topic}/groups/{group}/pull orders.created shop g 200 `,
		`PUT /v1/topics/{topic}/groups/{group}/cursor orders.created shop g 204 `,
		`GET /replay payments guest 403 `,
		`GET /export orders.created shop 200 `,
		`subscribe payments shop g `,
		`publish orders.paid shop 2 events 0 refused `,
		`publish payments shop 0 events 1 refused forbidden`,
		`unsubscribe payments shop g `,
	}
	var got []string
	for _, line := range lines {
		var l struct {
			Msg, Action, Topic, Identity, From, Group, Code string
			Status                                          int
			Events, Refused                                 *int
		}
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		is := l.Action + " " + l.Topic + " " + l.Identity + " "
		if l.Group != "" {
			is += l.Group + " "
		}
		if l.Status != 0 {
			is += fmt.Sprintf("%d ", l.Status)
		}
		if l.Events != nil {
			is += fmt.Sprintf("%d events %d refused ", *l.Events, *l.Refused)
		}
		got = append(got, is+l.Code)
		if l.Msg != "access" || !strings.HasPrefix(l.From, "127.0.0.1:") {
			t.Errorf("a line is %s", line)
		}
	}
	slices.Sort(got) // the line of an HTTP request follows its answer
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
