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
