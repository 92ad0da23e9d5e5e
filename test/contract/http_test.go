package contract

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// compressed is a text in a content coding.
func compressed(t testing.TB, coding, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	if coding == "zstd" {
		var err error
		w, err = zstd.NewWriter(&b)
		require.NoError(t, err)
	}
	_, err := io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.String()
}

// Bodies come in gzip and zstd; the limits are those of what is in them.
func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.coding"
	for _, coding := range []string{"gzip", "zstd"} {
		small, large := compressed(t, coding, `{"n":1.50}`), compressed(t, coding, `"`+strings.Repeat("x", 4<<20)+`"`)
		if a := s.post(t, topic, small, "Content-Encoding: "+coding, "Sluice-Id: "+coding); a.Status != 201 {
			t.Errorf("%s: %d %s", coding, a.Status, a.Body)
		}
		if e := s.replayed(t, topic, coding); fmt.Sprint(e["payload"]) != "map[n:1.50]" {
			t.Errorf("%s: %v", coding, e)
		}
		if a := s.post(t, topic, large, "Content-Encoding: "+coding); a.Status != 413 {
			t.Errorf("%s that is too large: %d %s", coding, a.Status, a.Body)
		}
	}
	if a := s.post(t, topic, "1", "Content-Encoding: br"); a.Status != 415 || a.JSON(t)["code"] != "bad_request" {
		t.Errorf("br: %d %s", a.Status, a.Body)
	}
}

// Sluice-Key* and Sluice-Header-NAME* carry text beyond Latin-1.
func TestEncodedHeaders(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic = "one.encoded"
	s.put(t, topic, "a", "1", "Sluice-Key*: UTF-8''k%E2%82%AC", "Sluice-Header-Name*: utf-8'en'%c3%a4%20b", "Sluice-Header-Plain: UTF-8''x")
	e := s.replayed(t, topic, "a")
	if e.Text("key") != "k€" || e.Text("headers.name") != "ä b" || e.Text("headers.plain") != "UTF-8''x" {
		t.Errorf("%v", e)
	}
}

// HTTP/2 by prior knowledge, and over TLS: the streams of a connection share its bucket, and are as many as that lets in.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	const policies = `[{name: "*", publish: {rate: 0}, connection: {rate: 0.01, burst: 1010}}]`
	t.Run("by prior knowledge", func(t *testing.T) {
		t.Parallel()
		s := own(t, policies)
		protocols := new(http.Protocols)
		protocols.SetUnencryptedHTTP2(true)
		speakHTTP2(t, s.URL(), &http.Transport{Protocols: protocols}, "--http2-prior-knowledge")
	})
	t.Run("over TLS", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		trust := writeCertificate(t, dir)
		s := own(t, policies, "--auth-config", testkit.Write(t, filepath.Join(dir, "auth.yaml"), "tls: {cert: cert.pem, key: key.pem}"))
		protocols := new(http.Protocols)
		protocols.SetHTTP2(true)
		transport := &http.Transport{Protocols: protocols, TLSClientConfig: &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}}
		speakHTTP2(t, "https://"+s.Listen, transport, "--http2", "--cacert", filepath.Join(dir, "cert.pem"))
	})
}

// writeCertificate writes the certificate of httptest's servers, for 127.0.0.1, and its key.
func writeCertificate(t *testing.T, dir string) *x509.CertPool {
	t.Helper()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: server.Certificate().Raw}, "key.pem": {Type: "PRIVATE KEY", Bytes: key},
	} {
		testkit.Write(t, filepath.Join(dir, name), string(pem.EncodeToMemory(block)))
	}
	trust := x509.NewCertPool()
	trust.AddCert(server.Certificate())
	return trust
}

// speakHTTP2 publishes by 1,000 requests of one connection at a time until its bucket is empty, and then has 1,000 streams of events
// open, to each of which comes what curl publishes.
func speakHTTP2(t *testing.T, url string, transport *http.Transport, curl ...string) {
	const streams = 1000
	var dialled atomic.Int32
	transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	t.Cleanup(transport.CloseIdleConnections)
	client := http.Client{Transport: transport}
	publish := func() (status int, body string) {
		res, err := client.Post(url+"/v1/topics/t/events", "application/json", strings.NewReader("1"))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		if res.ProtoMajor != 2 {
			t.Errorf("%s", res.Proto)
		}
		return res.StatusCode, string(text)
	}
	publish()
	var calls sync.WaitGroup
	for range streams {
		calls.Go(func() {
			if status, text := publish(); status != 201 {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	calls.Wait()
	refused := ""
	for range 20 {
		if status, text := publish(); status == 429 {
			refused = text
		}
	}
	if !strings.Contains(refused, `"scope":"connection"`) {
		t.Errorf("the connection's bucket is not empty: %s", refused)
	}
	var open []io.Reader
	for range streams {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v1/topics/t/stream", nil)
		require.NoError(t, err)
		res, err := client.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		open = append(open, res.Body)
	}
	args := append(curl, "--no-progress-meter", "--json", "1", "--write-out", " %{http_version} %{http_code}", url+"/v1/topics/t/events")
	out, err := exec.CommandContext(t.Context(), testkit.Need(t, testkit.Curl), args...).CombinedOutput()
	if err != nil || !strings.HasSuffix(string(out), " 2 201") {
		t.Errorf("curl: %v %s", err, out)
	}
	for i, body := range open {
		lines := bufio.NewReader(body)
		for line := ""; !strings.HasPrefix(line, "data:"); {
			if line, err = lines.ReadString('\n'); err != nil {
				t.Fatalf("stream %d ends with %v", i, err)
			}
		}
	}
	if n := dialled.Load(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
}

// Events of a batch without a trace of their own continue the request's.
func TestTraceOfABatch(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const topic, trace = "one.traced", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	const own = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	lines := `{"payload":1,"opts":{"id":"a"}}` + "\n" + `{"payload":1,"opts":{"id":"b","headers":{"traceparent":"` + own + `"}}}`
	batch := `[{"specversion":"1.0","id":"c","source":"/s","type":"t","data":1}]`
	if a := s.post(t, topic, lines, "Content-Type: application/x-ndjson", "traceparent: "+trace); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	if a := s.post(t, topic, batch, "Content-Type: application/cloudevents-batch+json", "traceparent: "+trace); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	bulk := testkit.Call(t, "POST", s.URL()+"/v1.0/publish/bulk/p/"+topic, `[{"entryId":"d","event":1,"contentType":"application/json",`+
		`"metadata":{"cloudevent.id":"d"}}]`, "traceparent: "+trace)
	if bulk.Status >= 300 {
		t.Fatalf("%d %s", bulk.Status, bulk.Body)
	}
	k := s.dial(t)
	k.ok(`{"op":"PUBLISH","topic":%q,"opts":{"headers":{"traceparent":%q}},"events":[{"payload":1,"opts":{"id":"e"}},`+
		`{"payload":1,"opts":{"id":"b2","headers":{"traceparent":%q}}}]}`, topic, trace, own)
	for _, e := range s.replay(t, "topic="+topic).List("events") {
		want := trace
		if id := e.Text("id"); id == "b" || id == "b2" {
			want = own
		}
		if got := e.Text("headers.traceparent"); got != want {
			t.Errorf("%s: %s, want %s", e["id"], got, want)
		}
	}
}
