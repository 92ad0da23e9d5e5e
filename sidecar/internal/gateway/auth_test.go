package gateway

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// rights are the rights that most tests give the token "app".
const rights = "publish: [orders, in.*], subscribe: [orders, in.*], groups: [billing, b-*]"

// auth is a file of tokens in force.
type auth struct {
	*access.Access
	file string
}

// entry is the entry of a token, which is also its name.
func entry(token, rights string) string {
	return fmt.Sprintf(" - {name: %s, sha256: %x, %s}\n", token, sha256.Sum256([]byte(token)), rights)
}

func authOf(t testing.TB, text string) auth {
	t.Helper()
	a := auth{file: filepath.Join(t.TempDir(), "auth.yaml")}
	a.write(t, text)
	var err error
	if a.Access, err = access.Open(a.file, access.Sidecar, slog.New(slog.NewTextHandler(t.Output(), nil))); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a auth) write(t testing.TB, text string) {
	t.Helper()
	if err := os.WriteFile(a.file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// follow takes changes of the file up until the test ends.
func (a auth) follow(t testing.TB) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := a.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
}

// closedWith reads until the connection ends, and checks the status of its end.
func (c *client) closedWith(want websocket.StatusCode) {
	c.t.Helper()
	for {
		_, err := c.read()
		if err == nil {
			continue
		}
		if got := websocket.CloseStatus(err); got != want {
			c.t.Errorf("closed with %v, want %v", err, want)
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

func TestStrangersMayDoNothing(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("app", rights)).Access})
	c := s.dial(t)
	for _, op := range append(everyOp, `{"op":"PING","corr":"c"}`) {
		c.send("%s", of(op, "orders", "billing"))
		if f := c.want("ERR/unauthorized"); f.Corr != "c" || !strings.Contains(f.Msg, "AUTH") {
			t.Errorf("%s: %+v", op, f)
		}
	}
	c.send(`{"op":"NOPE"}`)
	c.want("ERR/unknown_op")
	c.ask(`{"op":"AUTH","token":"app"}`)
	c.alive()
}

func TestEveryOpWithAndWithoutRights(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("app", rights)).Access})
	c := s.dial(t)
	c.ask(`{"op":"AUTH","token":"app"}`)
	for _, op := range everyOp {
		publish := strings.Contains(op, "PUBLISH")
		c.send("%s", of(op, "payments", "billing"))
		if f := c.want("ERR/forbidden"); f.Corr != "c" || !strings.Contains(f.Msg, `"payments"`) || !strings.Contains(f.Msg, "orders, in.*") {
			t.Errorf("%s: %+v", op, f)
		}
		if publish {
			continue
		}
		c.send("%s", of(op, "orders", "audit"))
		if f := c.want("ERR/forbidden"); !strings.Contains(f.Msg, `group "audit"`) {
			t.Errorf("%s: %+v", op, f)
		}
	}
	for _, op := range everyOp {
		c.send("%s", of(op, "orders", "b-7"))
		if f := c.next(); f.Code != "" && !(strings.Contains(op, "MODACK") && f.Code == "unknown_id") {
			t.Errorf("%s: %+v", op, f)
		}
	}
	c.ask(`{"op":"SUBSCRIBE","topic":"in.x"}`) // a subscription without a group needs no right to groups
	c.alive()
}

func TestBatchIsAuthorizedByEvent(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("app", rights)).Access})
	c := s.dial(t)
	c.ask(`{"op":"AUTH","token":"app"}`)
	f := c.ask(`{"op":"PUBLISH","topic":"orders","events":[{"payload":1},{"topic":"payments","payload":2},{"topic":"_x","payload":1},{"topic":"in.a","payload":3}]}`)
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
	s := start(t, setup{
		access:   authOf(t, "tokens:\n"+entry("app", rights)).Access,
		policies: `[{"name":"*","connection":{"rate":0.001,"burst":1}}]`,
	})
	c := s.dial(t)
	c.ask(`{"op":"AUTH","token":"app"}`)
	for range 3 {
		c.send(`{"op":"PUBLISH","topic":"payments","payload":1}`)
		c.want("ERR/forbidden")
	}
	c.ask(`{"op":"PUBLISH","topic":"orders","payload":1}`)
	c.send(`{"op":"PUBLISH","topic":"orders","payload":1}`)
	c.want("ERR/rate_limited")
}

func TestFailedAuthCloses(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("app", rights)+entry("less", "publish: [orders]")).Access})
	c := s.dial(t)
	c.send(`{"op":"AUTH","token":"apq","corr":"c"}`)
	if f := c.want("ERR/unauthorized"); f.Corr != "c" || strings.Contains(f.Msg, "apq") {
		t.Errorf("%+v", f)
	}
	c.closedWith(websocket.StatusPolicyViolation)

	again := s.dial(t)
	again.ask(`{"op":"AUTH","token":"app"}`)
	again.ask(`{"op":"AUTH","token":"less"}`)
	again.ask(`{"op":"PUBLISH","topic":"orders","payload":1}`)
	again.send(`{"op":"SUBSCRIBE","topic":"orders"}`)
	again.want("ERR/forbidden")
	again.ask(`{"op":"AUTH","token":"app"}`)
	again.ask(`{"op":"SUBSCRIBE","topic":"orders"}`)
	again.send(`{"op":"AUTH","token":"less"}`) // it has no right to the subscribed topic
	again.want("ERR/forbidden")
	again.closedWith(websocket.StatusPolicyViolation)
}

func TestAuthHasToComeInTime(t *testing.T) {
	bounds := DefaultBounds()
	bounds.AuthTimeout = 50 * time.Millisecond
	s := start(t, setup{bounds: &bounds, access: authOf(t, "tokens:\n"+entry("app", rights)).Access})
	late, inTime := s.dial(t), s.dialAs(t, "app")
	late.closedWith(websocket.StatusPolicyViolation)
	inTime.alive()
}

func TestStrangersSendShortFrames(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("app", rights)).Access})
	payload := `{"op":"PUBLISH","topic":"orders","payload":"` + strings.Repeat("x", strangerFrameBytes) + `"}`
	c := s.dial(t)
	c.ask(`{"op":"AUTH","token":"app"}`)
	c.ask("%s", payload)
	stranger := s.dial(t)
	if err := stranger.write(websocket.MessageText, []byte(payload)); err == nil {
		stranger.closedWith(websocket.StatusMessageTooBig)
	}
}

// dialAs connects with the token in the request.
func (s *sidecar) dialAs(t testing.TB, token string) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "ws://"+s.addr+"/ws", &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: &http.Transport{}},
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	return &client{t, ws}
}

func TestUpgradeWithToken(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("app", rights)).Access})
	s.dialAs(t, "app").ask(`{"op":"PUBLISH","topic":"orders","payload":1}`)
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA=="}
	res, body := s.do(t, "GET", "/ws", "", append(upgrade, "Authorization: Bearer apq")...)
	if res.StatusCode != 401 || !strings.Contains(body, `"unauthorized"`) || res.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("%s %s %v", res.Status, body, res.Header)
	}
}

func TestHTTPWithAndWithoutRights(t *testing.T) {
	s := start(t, setup{access: authOf(t, "tokens:\n"+entry("app", rights)+entry("all", `publish: ["*"], subscribe: ["*"]`)).Access})
	for _, topic := range []string{"orders", "payments"} {
		c := s.dialAs(t, "all")
		c.ask(`{"op":"PUBLISH","topic":"%s","payload":1}`, topic)
		for _, group := range []string{"billing", "audit"} {
			c.ask(`{"op":"SUBSCRIBE","topic":"%s","group":"%s"}`, topic, group)
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
			res, body := s.do(t, tc.method, tc.path, tc.body, header)
			if res.StatusCode != want || want == tc.allowed && !strings.Contains(body, tc.says) || want == 401 && res.Header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s with %q: %s %s", tc.method, tc.path, header, res.Status, body)
			}
		}
	}
	if _, body := s.do(t, "GET", "/v1/topics", "", "Authorization: Bearer app"); strings.Contains(body, "payments") {
		t.Errorf("a topic that is nobody's business is listed: %s", body)
	}
	if res, _ := s.do(t, "GET", "/v1/topics?access_token=app", ""); res.StatusCode != 401 {
		t.Errorf("a token in the URL: %s", res.Status)
	}
	res, body := s.do(t, "POST", "/v1/topics/payments/events", "{\"payload\":1}\n{\"payload\":2}", "Authorization: Bearer app", "Content-Type: application/x-ndjson")
	if res.StatusCode != 403 {
		t.Errorf("a batch: %s %s", res.Status, body)
	}
}

func TestChangedRightsActOnConnections(t *testing.T) {
	t.Parallel()
	a := authOf(t, "tokens:\n"+entry("gone", rights)+entry("kept", rights)+entry("less", rights))
	s := start(t, setup{access: a.Access})
	gone, kept, less, idle, stranger := s.dialAs(t, "gone"), s.dialAs(t, "kept"), s.dialAs(t, "less"), s.dialAs(t, "gone"), s.dial(t)
	kept.ask(`{"op":"SUBSCRIBE","topic":"orders","group":"billing"}`)
	less.ask(`{"op":"SUBSCRIBE","topic":"in.x","group":"billing"}`)
	gone.ask(`{"op":"SUBSCRIBE","topic":"orders","group":"b-1"}`)
	s.publish2(t, "kept", "orders", "e1")
	gone.wantEvent("e1") // and holds on to it
	kept.wantEvent("e1")

	a.follow(t)
	a.write(t, "tokens:\n"+entry("kept", "publish: [orders], subscribe: [orders]")+entry("less", "subscribe: [orders]"))
	gone.closedWith(websocket.StatusPolicyViolation)
	idle.closedWith(websocket.StatusPolicyViolation)
	less.closedWith(websocket.StatusPolicyViolation) // it may not have its subscription
	kept.ask(`{"op":"ACK","topic":"orders","group":"billing","id":"e1"}`)
	kept.send(`{"op":"PUBLISH","topic":"in.x","payload":1}`)
	kept.want("ERR/forbidden")
	stranger.ask(`{"op":"AUTH","token":"kept"}`)

	// Events in flight to a client that is gone come to others.
	heir := s.dialAs(t, "kept")
	heir.ask(`{"op":"SUBSCRIBE","topic":"orders","group":"b-1"}`)
	heir.wantEvent("e1")
}

// publish2 publishes one event over HTTP with a token.
func (s *sidecar) publish2(t testing.TB, token, topic, id string) {
	t.Helper()
	res, body := s.do(t, "POST", "/v1/topics/"+topic+"/events", "1", "Sluice-Id: "+id, "Authorization: Bearer "+token)
	if res.StatusCode != http.StatusCreated {
		t.Fatalf("publish: %s %s", res.Status, body)
	}
}

func TestSocketOverTLS(t *testing.T) {
	dir := t.TempDir()
	roots := selfSigned(t, dir)
	a := authOf(t, fmt.Sprintf("tokens:\n%stls: {cert: %s/cert.pem, key: %s/key.pem}", entry("app", rights), dir, dir))
	s := start(t, setup{access: a.Access})
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, "wss://"+s.addr+"/ws", &websocket.DialOptions{HTTPClient: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ws.CloseNow() })
	ws.SetReadLimit(-1)
	c := &client{t, ws}
	c.ask(`{"op":"AUTH","token":"app"}`)
	c.ask(`{"op":"SUBSCRIBE","topic":"orders","group":"billing"}`)
	payload := strings.Repeat("x", 500<<10) // many records of TLS
	c.send(`{"op":"PUBLISH","topic":"orders","payload":"%s"}`, payload)
	for range 2 { // the OK and the event, in whatever order
		if f := c.next(); f.Op == "EVENT" && string(f.Event.Payload) != `"`+payload+`"` {
			t.Error("the payload is another one")
		}
	}
	req, err := http.NewRequestWithContext(ctx, "GET", "https://"+s.addr+"/v1/topics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer app")
	res, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	if res.StatusCode != 200 || res.Proto != "HTTP/2.0" {
		t.Errorf("%s %s", res.Proto, res.Status)
	}
}

// selfSigned writes a certificate for loopback and its key.
func selfSigned(t testing.TB, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(720 * time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	return pool
}

func BenchmarkAuthorize(b *testing.B) {
	for name, text := range map[string]string{"off": "", "on": "tokens:\n" + entry("app", rights)} {
		b.Run(name, func(b *testing.B) {
			var a *access.Access
			if text != "" {
				a = authOf(b, text).Access
			}
			id, err := a.Token(b.Context(), "app", "")
			if err != nil {
				b.Fatal(err)
			}
			caller := start(b, setup{access: a}).gateway.sessions.Unknown(new(http.Request))
			caller.Become(&id)
			c := &conn{cfg: &Config{Access: a}, caller: caller}
			items := []wire.PublishItem{{Event: wire.Event{Topic: "in.created"}}}
			b.ReportAllocs()
			for b.Loop() {
				who, err := c.caller.Renew()
				if err != nil {
					b.Fatal(err)
				}
				c.authorize(who, items)
			}
		})
	}
}
