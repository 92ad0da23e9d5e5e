package ws_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/sidecar/internal/ws"
	"github.com/sluice-bus/sluice/test/require"
)

// closedWith reads until the connection ends, and checks the status of its end.
func closedWith(c *gatewaytest.Client, want websocket.StatusCode) {
	c.T.Helper()
	for {
		_, err := c.Read()
		if err == nil {
			continue
		}
		if got := websocket.CloseStatus(err); got != want {
			c.T.Errorf("closed with %v, want %v", err, want)
		}
		return
	}
}

// everyOp has each op once; they are about a topic and a group.
var everyOp = []string{
	`{"op":"PUBLISH","corr":"c","topic":"%s","payload":1}`,
	`{"op":"SUBSCRIBE","corr":"c","topic":"%s","group":"%s"}`,
	`{"op":"ACK","corr":"c","topic":"%s","group":"%s","id":"x"}`,
	`{"op":"NACK","corr":"c","topic":"%s","group":"%s","id":"x"}`,
	`{"op":"PAUSE","corr":"c","topic":"%s","group":"%s"}`,
	`{"op":"RESUME","corr":"c","topic":"%s","group":"%s"}`,
	`{"op":"MODACK","corr":"c","topic":"%s","group":"%s","id":"x","extend_ms":5}`,
	`{"op":"UNSUBSCRIBE","corr":"c","topic":"%s","group":"%s"}`,
}

// of fills the topic and the group in.
func of(op, topic, group string) string {
	return strings.Replace(strings.Replace(op, "%s", topic, 1), "%s", group, 1)
}

func TestUnauthenticatedMayDoNothing(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", gatewaytest.Rights)).Access})
	c := s.Dial(t)
	for _, op := range append(everyOp, `{"op":"PING","corr":"c"}`) {
		c.Send("%s", of(op, "orders", "billing"))
		if f := c.Want("ERR/unauthorized"); f.Corr != "c" || !strings.Contains(f.Msg, "AUTH") {
			t.Errorf("%s: %+v", op, f)
		}
	}
	c.Send(`{"op":"NOPE"}`)
	c.Want("ERR/unknown_op")
	c.Ask(`{"op":"AUTH","token":"app"}`)
	c.Alive()
}

func TestEveryOpWithAndWithoutRights(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", gatewaytest.Rights)).Access})
	c := s.Dial(t)
	c.Ask(`{"op":"AUTH","token":"app"}`)
	for _, op := range everyOp {
		publish := strings.Contains(op, "PUBLISH")
		c.Send("%s", of(op, "payments", "billing"))
		if f := c.Want("ERR/forbidden"); f.Corr != "c" || !strings.Contains(f.Msg, `"payments"`) || !strings.Contains(f.Msg, "orders, in.*") {
			t.Errorf("%s: %+v", op, f)
		}
		if publish {
			continue
		}
		c.Send("%s", of(op, "orders", "audit"))
		if f := c.Want("ERR/forbidden"); !strings.Contains(f.Msg, `group "audit"`) {
			t.Errorf("%s: %+v", op, f)
		}
	}
	for _, op := range everyOp {
		c.Send("%s", of(op, "orders", "b-7"))
		if f := c.Next(); f.Code != "" && !(strings.Contains(op, "MODACK") && f.Code == "unknown_id") {
			t.Errorf("%s: %+v", op, f)
		}
	}
	c.Ask(`{"op":"SUBSCRIBE","topic":"in.x"}`) // a subscription without a group needs no right to groups
	c.Alive()
}

func TestBatchIsAuthorizedByEvent(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", gatewaytest.Rights)).Access})
	c := s.Dial(t)
	c.Ask(`{"op":"AUTH","token":"app"}`)
	f := c.Ask(`{"op":"PUBLISH","topic":"orders","events":[{"payload":1},{"topic":"payments","payload":2},` +
		`{"topic":"_x","payload":1},{"topic":"in.a","payload":3}]}`)
	var codes []string
	for _, r := range f.Results {
		codes = append(codes, r.Code)
	}
	if got := strings.Join(codes, ","); got != ",forbidden,bad_request," {
		t.Errorf("%s", got)
	}
	if f.Results[0].Seq == 0 || f.Results[3].Seq == 0 || !strings.Contains(f.Results[1].Msg, `"payments"`) {
		t.Errorf("%+v", f.Results)
	}
}

func TestForbiddenTakesNoToken(t *testing.T) {
	s := start(t, gatewaytest.Setup{
		Access:   gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", gatewaytest.Rights)).Access,
		Policies: `[{"name":"*","connection":{"rate":0.001,"burst":1}}]`,
	})
	c := s.Dial(t)
	c.Ask(`{"op":"AUTH","token":"app"}`)
	for range 3 {
		c.Send(`{"op":"PUBLISH","topic":"payments","payload":1}`)
		c.Want("ERR/forbidden")
	}
	c.Ask(`{"op":"PUBLISH","topic":"orders","payload":1}`)
	c.Send(`{"op":"PUBLISH","topic":"orders","payload":1}`)
	c.Want("ERR/rate_limited")
}

func TestFailedAuthCloses(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t,
		"tokens:\n"+gatewaytest.Entry("app", gatewaytest.Rights)+gatewaytest.Entry("less", "publish: [orders]")).Access})
	c := s.Dial(t)
	c.Send(`{"op":"AUTH","token":"apq","corr":"c"}`)
	if f := c.Want("ERR/unauthorized"); f.Corr != "c" || strings.Contains(f.Msg, "apq") {
		t.Errorf("%+v", f)
	}
	closedWith(c, websocket.StatusPolicyViolation)

	again := s.Dial(t)
	again.Ask(`{"op":"AUTH","token":"app"}`)
	again.Ask(`{"op":"AUTH","token":"less"}`)
	again.Ask(`{"op":"PUBLISH","topic":"orders","payload":1}`)
	again.Send(`{"op":"SUBSCRIBE","topic":"orders"}`)
	again.Want("ERR/forbidden")
	again.Ask(`{"op":"AUTH","token":"app"}`)
	again.Ask(`{"op":"SUBSCRIBE","topic":"orders"}`)
	again.Send(`{"op":"AUTH","token":"less"}`) // it has no right to the subscribed topic
	again.Want("ERR/forbidden")
	closedWith(again, websocket.StatusPolicyViolation)
}

func TestAuthHasToComeInTime(t *testing.T) {
	bounds := session.DefaultBounds()
	bounds.AuthTimeout = 50 * time.Millisecond
	s := start(t, gatewaytest.Setup{Bounds: &bounds,
		Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", gatewaytest.Rights)).Access})
	late, inTime := s.Dial(t), s.DialAs(t, "app")
	closedWith(late, websocket.StatusPolicyViolation)
	inTime.Alive()
}

func TestUnauthenticatedSendShortFrames(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", gatewaytest.Rights)).Access})
	payload := `{"op":"PUBLISH","topic":"orders","payload":"` + strings.Repeat("x", ws.UnauthenticatedFrameBytes) + `"}`
	c := s.Dial(t)
	c.Ask(`{"op":"AUTH","token":"app"}`)
	c.Ask("%s", payload)
	stranger := s.Dial(t)
	if err := stranger.Write(websocket.MessageText, []byte(payload)); err == nil {
		closedWith(stranger, websocket.StatusMessageTooBig)
	}
}

func TestUpgradeWithToken(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", gatewaytest.Rights)).Access})
	s.DialAs(t, "app").Ask(`{"op":"PUBLISH","topic":"orders","payload":1}`)
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="}
	res, body := s.Do(t, "GET", "/ws", "", append(upgrade, "Authorization: Bearer apq")...)
	if res.StatusCode != 401 || !strings.Contains(body, `"unauthorized"`) || res.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("%s %s %v", res.Status, body, res.Header)
	}
}

func TestHTTPWithAndWithoutRights(t *testing.T) {
	s := start(t, gatewaytest.Setup{Access: gatewaytest.AuthOf(t,
		"tokens:\n"+gatewaytest.Entry("app", gatewaytest.Rights)+gatewaytest.Entry("all", `publish: ["*"], subscribe: ["*"]`)).Access})
	for _, topic := range []string{"orders", "payments"} {
		c := s.DialAs(t, "all")
		c.Ask(`{"op":"PUBLISH","topic":"%s","payload":1}`, topic)
		for _, group := range []string{"billing", "audit"} {
			c.Ask(`{"op":"SUBSCRIBE","topic":"%s","group":"%s"}`, topic, group)
		}
	}
	for _, tc := range []struct {
		method, path, body string
		allowed            int // status for the token "app"
		says               string
	}{
		{"POST", "/v1/topics/orders/events", "1", 201, ""},
		{"POST", "/v1/topics/payments/events", "1", 403, `topic \"payments\"`},
		{"POST", "/v1/topics/payments/events", "{", 400, "bad_json"}, // shape comes first
		{"GET", "/v1/topics", "", 200, `"orders"`},
		{"GET", "/v1/topics/orders/groups", "", 200, `{"groups":["billing"]}`},
		{"GET", "/v1/topics/payments/groups", "", 403, "payments"},
		{"GET", "/v1/topics/orders/groups/billing", "", 200, ""},
		{"GET", "/v1/topics/orders/groups/audit", "", 403, "audit"},
		{"GET", "/v1/topics/nowhere/groups/audit", "", 403, "nowhere"},
		{"PUT", "/v1/topics/orders/groups/billing/cursor", `{"from":"latest"}`, 204, ""},
		{"PUT", "/v1/topics/orders/groups/audit/cursor", `{"from":"latest"}`, 403, "audit"},
	} {
		for header, want := range map[string]int{"Authorization: Bearer app": tc.allowed, "Authorization: Bearer no": 401, "X-Nothing: 1": 401} {
			res, body := s.Do(t, tc.method, tc.path, tc.body, header)
			if res.StatusCode != want || want == tc.allowed && !strings.Contains(body, tc.says) || want == 401 &&
				res.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s with %q: %s %s", tc.method, tc.path, header, res.Status, body)
			}
		}
	}
	if _, body := s.Do(t, "GET", "/v1/topics", "", "Authorization: Bearer app"); strings.Contains(body, "payments") {
		t.Errorf("a topic that is nobody's business is listed: %s", body)
	}
	if res, _ := s.Do(t, "GET", "/v1/topics?access_token=app", ""); res.StatusCode != 401 {
		t.Errorf("a token in the URL: %s", res.Status)
	}
	res, body := s.Do(t, "POST", "/v1/topics/payments/events", "{\"payload\":1}\n{\"payload\":2}", "Authorization: Bearer app",
		"Content-Type: application/x-ndjson")
	if res.StatusCode != 403 {
		t.Errorf("a batch: %s %s", res.Status, body)
	}
}

func TestChangedRightsActOnConnections(t *testing.T) {
	t.Parallel()
	a := gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("gone", gatewaytest.Rights)+gatewaytest.Entry("kept",
		gatewaytest.Rights)+gatewaytest.Entry("less", gatewaytest.Rights))
	s := start(t, gatewaytest.Setup{Access: a.Access})
	gone, kept, less, idle, stranger := s.DialAs(t, "gone"), s.DialAs(t, "kept"), s.DialAs(t, "less"), s.DialAs(t, "gone"), s.Dial(t)
	kept.Ask(`{"op":"SUBSCRIBE","topic":"orders","group":"billing"}`)
	less.Ask(`{"op":"SUBSCRIBE","topic":"in.x","group":"billing"}`)
	gone.Ask(`{"op":"SUBSCRIBE","topic":"orders","group":"b-1"}`)
	s.publish2(t, "kept", "orders", "e1")
	gone.WantEvent("e1") // and holds on to it
	kept.WantEvent("e1")

	a.Follow(t)
	a.Write(t, "tokens:\n"+gatewaytest.Entry("kept", "publish: [orders], subscribe: [orders]")+gatewaytest.Entry("less",
		"subscribe: [orders]"))
	closedWith(gone, websocket.StatusPolicyViolation)
	closedWith(idle, websocket.StatusPolicyViolation)
	closedWith(less, websocket.StatusPolicyViolation) // it may not have its subscription
	kept.Ask(`{"op":"ACK","topic":"orders","group":"billing","id":"e1"}`)
	kept.Send(`{"op":"PUBLISH","topic":"in.x","payload":1}`)
	kept.Want("ERR/forbidden")
	stranger.Ask(`{"op":"AUTH","token":"kept"}`)

	// Events in flight to a client that is gone come to others.
	heir := s.DialAs(t, "kept")
	heir.Ask(`{"op":"SUBSCRIBE","topic":"orders","group":"b-1"}`)
	heir.WantEvent("e1")
}

// publish2 publishes one event over HTTP with a token.
func (s *sidecar) publish2(t testing.TB, token, topic, id string) {
	t.Helper()
	res, body := s.Do(t, "POST", "/v1/topics/"+topic+"/events", "1", "Sluice-Id: "+id, "Authorization: Bearer "+token)
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("publish: %s %s", res.Status, body)
	}
}

func TestSocketOverTLS(t *testing.T) {
	dir := t.TempDir()
	roots := selfSigned(t, dir)
	a := gatewaytest.AuthOf(t, fmt.Sprintf("tokens:\n%stls: {cert: %s/cert.pem, key: %s/key.pem}",
		gatewaytest.Entry("app", gatewaytest.Rights), dir, dir))
	s := start(t, gatewaytest.Setup{Access: a.Access})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(context.Background(), gatewaytest.Patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "wss://"+s.Addr+"/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	require.NoError(t, err)
	t.Cleanup(func() { ws.CloseNow() })
	ws.SetReadLimit(-1)
	c := &gatewaytest.Client{T: t, WS: ws}
	c.Ask(`{"op":"AUTH","token":"app"}`)
	c.Ask(`{"op":"SUBSCRIBE","topic":"orders","group":"billing"}`)
	payload := strings.Repeat("x", 500<<10) // many records of TLS
	c.Send(`{"op":"PUBLISH","topic":"orders","payload":"%s"}`, payload)
	for range 2 { // the OK and the event, in whatever order
		if f := c.Next(); f.Op == "EVENT" && string(f.Event.Payload) != `"`+payload+`"` {
			t.Error("the payload is another one")
		}
	}
	req, err := http.NewRequestWithContext(ctx, "GET", "https://"+s.Addr+"/v1/topics", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer app")
	res, err := transport.RoundTrip(req)
	require.NoError(t, err)
	res.Body.Close()
	if res.StatusCode != 200 || res.Proto != "HTTP/2.0" {
		t.Errorf("%s %s", res.Proto, res.Status)
	}
}

// selfSigned writes a certificate for loopback and its key.
func selfSigned(t testing.TB, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(720 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert},
		"key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600))
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	return pool
}

func BenchmarkAuthorize(b *testing.B) {
	for name, text := range map[string]string{"off": "", "on": "tokens:\n" + gatewaytest.Entry("app", gatewaytest.Rights)} {
		b.Run(name, func(b *testing.B) {
			var a *access.Access
			if text != "" {
				a = gatewaytest.AuthOf(b, text).Access
			}
			id, err := a.Token(b.Context(), "app", "")
			require.NoError(b, err)
			policies := policy.NewCurrent(gatewaytest.Snapshot(b, gatewaytest.Unlimited))
			sessions := &session.Sessions{Access: a, Publisher: admit.New(admit.Config{Policies: policies}), Policies: policies}
			caller := sessions.Unknown(new(http.Request))
			caller.Become(&id)
			items := []wire.PublishItem{{Event: wire.Event{Topic: "in.created"}}}
			b.ReportAllocs()
			for b.Loop() {
				require.NoError(b, ws.Authorize(sessions, caller, items))
			}
		})
	}
}
