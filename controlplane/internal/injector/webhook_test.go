package injector

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/require"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const serverName = "sluice-injector.sluice.svc"

// certify writes a certificate for 127.0.0.1 into the files, and returns it as its own authority.
func certify(t *testing.T, c Config) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<60))
	require.NoError(t, err)
	template := x509.Certificate{SerialNumber: serial, DNSNames: []string{serverName}, NotAfter: time.Now().Add(time.Hour)}
	cert, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert})
	require.NoError(t, os.WriteFile(c.TLSCert, text, 0o600))
	require.NoError(t, os.WriteFile(c.TLSKey, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	return pool
}

// webhook is an injector that runs.
type webhook struct {
	Config
	url string
}

func start(t *testing.T) (w webhook, authority *x509.CertPool) {
	t.Helper()
	w.Config = config
	w.TLSCert, w.TLSKey = filepath.Join(t.TempDir(), "tls.crt"), filepath.Join(t.TempDir(), "tls.key")
	authority = certify(t, w.Config)
	ctx, cancel := context.WithCancel(context.Background())
	bound, done := make(chan string, 1), make(chan error, 1)
	go func() {
		done <- w.Run(ctx, func(address string) error { bound <- address; return nil })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	w.url = "https://" + <-bound
	return w, authority
}

// call is the API server's: it verifies the certificate by the service's name, and appends its timeout.
func (w webhook) call(t *testing.T, authority *x509.CertPool, body string) (status int, answer []byte, err error) {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority, ServerName: serverName}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), "POST", w.url+"/inject?timeout=5s", strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	a, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer a.Body.Close()
	answer, err = io.ReadAll(a.Body)
	return a.StatusCode, answer, err
}

func question(t *testing.T, p object) string {
	t.Helper()
	text, err := json.Marshal(p)
	require.NoError(t, err)
	return fmt.Sprintf(`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","kind":{"group":"","version":"v1",
		"kind":"Pod"},"resource":{"group":"","version":"v1","resource":"pods"},"namespace":"shop","operation":"CREATE","object":%s,"dryRun":true}}`,
		text)
}

func TestWebhook(t *testing.T) {
	w, authority := start(t)
	for name, test := range map[string]struct {
		ask     string
		status  int
		answers []string
	}{
		"injected": {question(t, podOf(t, "")), 200, []string{
			`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"u-1","allowed":true,` +
				`"patchType":"JSONPatch","patch":"`,
			`"warnings":["sluice: the pod has no volume`,
		}},
		"refused": {question(t, podOf(t, "", "lease: x")), 200, []string{`"allowed":false`,
			`"status":{"code":422,"reason":"Invalid","message":"sluice: annotation sluice.dev/lease: must be a duration`}},
		"left alone": {question(t, object{"spec": object{}}), 200, []string{`"response":{"uid":"u-1","allowed":true}}`}},
		"no JSON":    {"{", 400, []string{`"code":"bad_json"`}},
		"v1beta1":    {strings.Replace(question(t, object{}), "k8s.io/v1", "k8s.io/v1beta1", 1), 400, []string{"must be admission"}},
		"no request": {`{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}`, 400, []string{"request.uid: is missing"}},
		"an update":  {strings.Replace(question(t, object{}), "CREATE", "UPDATE", 1), 400, []string{"must be the CREATE of a Pod"}},
		"no pod":     {strings.Replace(question(t, object{}), `"object":{}`, `"object":[]`, 1), 400, []string{"request.object: is no pod"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, answer, err := w.call(t, authority, test.ask)
			require.NoError(t, err)
			for _, want := range test.answers {
				if status != test.status || !bytes.Contains(answer, []byte(want)) {
					t.Errorf("%d %s does not have %s", status, answer, want)
				}
			}
		})
	}
}

// TestRenewedCertificate: the next connection has it.
func TestRenewedCertificate(t *testing.T) {
	w, old := start(t)
	renewed := certify(t, w.Config)
	if _, _, err := w.call(t, old, "{"); err == nil {
		t.Error("the old certificate is still shown")
	}
	_, _, err := w.call(t, renewed, "{")
	require.NoError(t, err)
}
