package contract

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/sluice-bus/sluice/test/require"
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

// HTTP/2 by prior knowledge: a thousand requests at a time on one connection, which share its bucket.
func TestHTTP2(t *testing.T) {
	t.Parallel()
	s := own(t, `[{name: "*", publish: {rate: 0}, connection: {rate: 0.01, burst: 1010}}]`)
	var dialled atomic.Int32
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled.Add(1)
		return new(net.Dialer).DialContext(ctx, network, addr)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	client := http.Client{Transport: transport}
	publish := func() (status int, body string) {
		res, err := client.Post(s.URL()+"/v1/topics/t/events", "application/json", strings.NewReader("1"))
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
	for range 1000 {
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
	if !strings.Contains(refused, `"scope":"connection"`) || dialled.Load() != 1 {
		t.Errorf("%d connections have one bucket: %s", dialled.Load(), refused)
	}
}
