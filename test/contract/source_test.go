package contract

import (
	"bufio"
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// source reads a stream of server-sent events, as EventSource would.
type source struct {
	t     testing.TB
	end   context.CancelFunc
	lines *bufio.Scanner
}

func (s *server) stream(t testing.TB, topic, query string, headers ...string) *source {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", s.URL()+"/v1/topics/"+topic+"/stream"+query, nil)
	require.NoError(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { cancel(); res.Body.Close() })
	if media := res.Header.Get("Content-Type"); res.StatusCode != 200 || !strings.HasPrefix(media, "text/event-stream") {
		t.Fatalf("stream: %s %s", res.Status, media)
	}
	k := &source{t, cancel, bufio.NewScanner(res.Body)}
	k.lines.Buffer(nil, 4<<20)
	return k
}

// event is the next event.
func (k *source) event() object {
	k.t.Helper()
	late := time.AfterFunc(testkit.Patience, k.end)
	defer late.Stop()
	var id, data string
	for k.lines.Scan() {
		name, value, _ := strings.Cut(k.lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case name == "id":
			id = value
		case name == "data":
			data += value
		case k.lines.Text() == "" && data != "":
			e := testkit.ParseObject(k.t, []byte(data))
			if e.Text("id") != id {
				k.t.Errorf("id: %s, data: %s", id, data)
			}
			return e
		}
	}
	k.t.Fatalf("the stream has ended: %v", k.lines.Err())
	return nil
}

// ended reads on, and reports whether the stream ends in order.
func (k *source) ended() bool {
	late := time.AfterFunc(testkit.Patience, k.end)
	defer late.Stop()
	for k.lines.Scan() {
	}
	return k.lines.Err() == nil
}
