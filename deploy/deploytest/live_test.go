package deploytest

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// authorities are those that secrets.sh has made; web believes them, and asks without connections
// that outlive the request.
var (
	authorities = x509.NewCertPool()
	web         = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12}}}
)

// ask sends a request with a token and returns status and body.
func ask(t *testing.T, method, url, token, body string, headers ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	resp, err := web.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return resp.StatusCode, string(data)
}

// deployment is a control plane and a sidecar that are set up as compose has them, with TLS, on the
// log embedded and on loopback.
type deployment struct {
	folder       string // Prometheus's
	sidecar      *testkit.Sidecar
	controlPlane *testkit.ControlPlane
}

func (d *deployment) secret(name string) string { return filepath.Join(d.folder, "secrets", name) }

func (d *deployment) token(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(d.secret(name))
	require.NoError(t, err)
	return strings.TrimSpace(string(data))
}

func deploy(t *testing.T) *deployment {
	t.Helper()
	d := &deployment{folder: prometheusFolder(t)}
	if ca, err := os.ReadFile(d.secret("ca.pem")); err != nil || !authorities.AppendCertsFromPEM(ca) {
		t.Fatalf("the authority: %v", err)
	}
	controlPlane := d.mounted(t, "controlplane")
	d.controlPlane = testkit.StartControlPlane(t, "--auth-config", filepath.Join(controlPlane, "auth.yaml"), "--policies",
		"../compose/policies.yaml")
	d.sidecar = d.start(t, "sidecar-a", "sidecar-a")
	return d
}

// start starts a sidecar under a node id, with what compose gives to a service.
func (d *deployment) start(t *testing.T, service, node string) *testkit.Sidecar {
	t.Helper()
	secrets := d.mounted(t, service)
	return testkit.StartSidecar(t, t.TempDir(), "--node-id", node, "--auth-config", filepath.Join(secrets, "auth.yaml"),
		"--control-plane", d.controlPlane.XDS())
}

// mounted is /run/secrets of a service of compose.
func (d *deployment) mounted(t *testing.T, service string) string {
	t.Helper()
	dir := t.TempDir()
	for target, file := range composeSecrets(documents(t, read(t, "compose/compose.yaml"))[0], composeServices(t)[service]) {
		data, err := os.ReadFile(filepath.Join(d.folder, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, target), data, 0o600)
		}
		require.NoError(t, err)
	}
	return dir
}

// secured is a URL of a listener with TLS.
func secured(url string) string { return strings.Replace(url, "http://", "https://", 1) }

// TestTokens shows that what secrets.sh makes lets everybody do what they have to, and not what
// others do.
func TestTokens(t *testing.T) {
	d := deploy(t)
	for _, test := range []struct {
		method, url, token string
		want               int
	}{
		{"POST", secured(d.sidecar.URL()) + "/v1/topics/orders.created/events", "sidecar-a-app", 201},
		{"POST", secured(d.sidecar.URL()) + "/v1/topics/orders.created/events", "sidecar-b-app", 401},
		{"POST", secured(d.sidecar.URL()) + "/v1/topics/orders.created/events", "", 401},
		{"GET", secured(d.sidecar.ReplayURL()) + "/replay?topic=orders.created", "sidecar-a-app", 200},
		{"GET", secured(d.sidecar.ReplayURL()) + "/replay?topic=orders.created", "monitoring", 403},
		{"GET", secured(d.sidecar.OpsURL()) + "/metrics", "monitoring", 200},
		{"GET", secured(d.sidecar.OpsURL()) + "/metrics", "sidecar-a-app", 403},
		{"GET", secured(d.sidecar.OpsURL()) + "/readyz", "", 200},
		{"GET", secured(d.controlPlane.URL()) + "/metrics", "monitoring", 200},
		{"GET", secured(d.controlPlane.URL()) + "/metrics", "sidecar-a-sidecar", 403},
		{"GET", secured(d.controlPlane.URL()) + "/readyz", "", 200},
		{"DELETE", secured(d.controlPlane.URL()) + "/v1/policies/heartbeat.%2A", "monitoring", 403},
		{"DELETE", secured(d.controlPlane.URL()) + "/v1/policies/heartbeat.%2A", "admin", 204},
	} {
		token := test.token
		if token != "" {
			token = d.token(t, token)
		}
		body := ""
		if test.method == "POST" {
			body = "1"
		}
		if got, body := ask(t, test.method, test.url, token, body); got != test.want {
			t.Errorf("%s %s with the token %s: %d, want %d: %s", test.method, test.url, test.token, got, test.want, body)
		}
	}
	// The two sidecars know each other by what the control plane says of them.
	other := d.start(t, "sidecar-b", "sidecar-b")
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		status, body := ask(t, "GET", secured(other.ReplayURL())+"/replay?topic=orders.created&scope=fleet", d.token(t, "sidecar-b-app"), "")
		if status == 200 && strings.Contains(body, `"count":1`) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a replay of the fleet: %d: %s", status, body)
		}
	}
	// A credential is for its own sidecar.
	thief := d.start(t, "sidecar-b", "sidecar-c")
	for deadline := time.Now().Add(time.Minute); !strings.Contains(thief.Log(), "allowed are sidecar-b"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("sidecar-c with the token of sidecar-b: %s", thief.Log())
		}
	}
	// Run again, it keeps the tokens.
	before := d.token(t, "sidecar-a-app")
	run(t, "..", "bash", "secrets.sh", filepath.Join(d.folder, "secrets"), "sidecar-a", "sidecar-b")
	if d.token(t, "sidecar-a-app") != before {
		t.Error("secrets.sh has replaced a token")
	}
}

// TestPrometheusSeesEverything runs a Prometheus with the configuration of compose on a sidecar and
// a control plane that have something to show, and wants an answer to every query of the dashboard.
func TestPrometheusSeesEverything(t *testing.T) {
	prometheus := testkit.Need(t, testkit.Prometheus)
	d := deploy(t)
	base := startPrometheus(t, prometheus, d)
	// Of an outbox, and of a captured collection, there is nothing to show without a database, and of pushes without an endpoint.
	waiting := map[string]string{}
	for _, q := range dashboard(t) {
		if !regexp.MustCompile("sluice_(outbox|capture|push)_").MatchString(q.expr) {
			waiting[filled(q.expr)] = q.where
		}
	}
	token := d.token(t, "sidecar-a-app")
	events := secured(d.sidecar.URL()) + "/v1/topics/orders.created/events"
	group := secured(d.sidecar.URL()) + "/v1/topics/orders.created/groups/billing"
	later := secured(d.sidecar.URL()) + "/v1.0/publish/any/orders.created?metadata.deliverAfter="
	ask(t, "PUT", secured(d.controlPlane.URL())+"/v1/policies/orders.created", d.token(t, "admin"), `{"publish":{"per":"header:tenant"}}`)
	ask(t, "POST", events, token, "not JSON")
	ask(t, "POST", later+"1h", token, "1")
	for deadline := time.Now().Add(2 * time.Minute); len(waiting) > 0; {
		if time.Now().After(deadline) {
			for expr, where := range waiting {
				t.Errorf("%s: no data for %s", where, expr)
			}
			return
		}
		// Rates need a counter that moves from one scrape to the next.
		ask(t, "POST", events, token, `{"n": 1}`, "Sluice-Header-Tenant: acme")
		ask(t, "POST", later+"1ms", token, "1")
		consume(t, group, token)
		for expr := range waiting {
			if answered(t, base, expr) {
				delete(waiting, expr)
			}
		}
	}
	// A machine that has other things to do may miss a scrape, which makes an alert pending.
	for deadline := time.Now().Add(time.Minute); !answered(t, base, `up{job="sluice-controlplane"} == 1`); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the control plane is not seen")
		}
	}
	if answered(t, base, `ALERTS{alertname="SluiceControlPlaneDown",alertstate="firing"}`) {
		t.Error("an alert says that the control plane is down")
	}
}

// consume pulls what there is and acks it.
func consume(t *testing.T, group, token string) {
	t.Helper()
	_, body := ask(t, "POST", group+"/pull", token, `{"max": 100, "wait_ms": 100, "opts": {"from": "earliest"}}`)
	var pulled struct {
		Events []struct{ Ctx struct{ Lease string } }
	}
	if err := json.Unmarshal([]byte(body), &pulled); err != nil {
		t.Fatalf("pull: %v: %s", err, body)
	}
	for _, e := range pulled.Events {
		if status, body := ask(t, "POST", group+"/ack", token, fmt.Sprintf(`{"leases": [%q]}`, e.Ctx.Lease)); status != 200 {
			t.Fatalf("ack: %d: %s", status, body)
		}
	}
}

// startPrometheus runs the program with the configuration as it is, except for the addresses and
// the pace, and returns its URL.
func startPrometheus(t *testing.T, bin string, d *deployment) string {
	t.Helper()
	config := filepath.Join(d.folder, "prometheus.yml")
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	write(config, strings.NewReplacer(": 15s", ": 1s").Replace(read(t, "prometheus/prometheus.yml")))
	write(filepath.Join(d.folder, "targets/sidecars.yaml"), "- targets: ["+d.sidecar.Ops+"]\n")
	write(filepath.Join(d.folder, "targets/controlplanes.yaml"), "- targets: ["+strings.TrimPrefix(d.controlPlane.URL(), "http://")+"]\n")
	write(filepath.Join(d.folder, "targets/collectors.yaml"), "[]\n")

	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := free.Addr().String()
	free.Close()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	cmd := exec.Command(bin, "--config.file="+config, "--storage.tsdb.path="+t.TempDir(), "--web.listen-address="+addr)
	cmd.Stderr = log // a file, so that nobody has to copy
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGKILL) // an error says that it has ended already
		_ = cmd.Wait()
		log.Close()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("Prometheus's log:\n%s", text[max(0, len(text)-4096):])
		}
	})
	return "http://" + addr
}

// answered says whether the query has a result.
func answered(t *testing.T, base, expr string) bool {
	t.Helper()
	status, body := ask(t, "GET", base+"/api/v1/query?query="+url.QueryEscape(expr), "", "")
	if status != 200 {
		return false // it is starting
	}
	var answer struct {
		Data struct{ Result []json.RawMessage }
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return len(answer.Data.Result) > 0
}
