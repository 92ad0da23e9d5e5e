package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
)

// source is an open stream, as EventSource reads it.
type source struct {
	t      testing.TB
	res    *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
	retry  string
}

// listen opens a stream of the topic "t"; headers are "Name: value".
func (s *sidecar) listen(t testing.TB, query string, headers ...string) *source {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.addr+"/v1/topics/t/stream"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	tr := &http.Transport{DialContext: dialTight}
	res, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	k := &source{t: t, res: res, lines: bufio.NewScanner(res.Body), cancel: cancel}
	k.lines.Buffer(nil, 4<<20)
	t.Cleanup(func() { k.close(); tr.CloseIdleConnections() })
	if res.StatusCode != 200 || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		body, _ := io.ReadAll(res.Body)
		t.Fatalf("%s %s", res.Status, body)
	}
	return k
}

func (k *source) close() {
	k.cancel()
	k.res.Body.Close()
}

// next reads the next event.
func (k *source) next() (id string, e event) {
	k.t.Helper()
	limit := time.AfterFunc(patience, k.cancel)
	defer limit.Stop()
	var data string
	for k.lines.Scan() {
		field, value, _ := strings.Cut(k.lines.Text(), ": ")
		switch {
		case field == "" && data != "":
			if err := json.Unmarshal([]byte(data), &e); err != nil || e.ID != id {
				k.t.Fatalf("id %s, data %s: %v", id, data, err)
			}
			return id, e
		case field == "id":
			id = value
		case field == "data":
			data += value
		case field == "retry":
			k.retry = value
		}
	}
	k.t.Fatalf("the stream ended: %v", k.lines.Err())
	return "", e
}

// wants reads the next events, which must be these.
func (k *source) wants(ids ...string) {
	k.t.Helper()
	for _, want := range ids {
		if got, _ := k.next(); got != want {
			k.t.Fatalf("got %s, want %s", got, want)
		}
	}
}

// ended reads the stream to its end.
func (k *source) ended() error {
	limit := time.AfterFunc(patience, k.cancel)
	defer limit.Stop()
	for k.lines.Scan() {
	}
	return k.lines.Err()
}

func TestStream(t *testing.T) {
	s := start(t, setup{})
	live := s.listen(t, "")
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("e%02d", i))
		s.publish(t, "t", ids[i], "")
		live.wants(ids[i])
	}
	if live.retry != "1000" || live.res.Header.Get("Content-Encoding") != "" {
		t.Errorf("retry %q, %v", live.retry, live.res.Header)
	}
	all := s.listen(t, "?from=earliest")
	all.wants(ids...)
	s.publish(t, "t", "new", "k")
	if _, e := all.next(); e.ID != "new" || e.Key != "k" || string(e.Payload) != `{"n":1}` {
		t.Errorf("%+v", e)
	}
	s.listen(t, "?from=afterId&afterId=e17").wants("e18", "e19", "new")
	s.listen(t, "?from=earliest", "Last-Event-ID: e17").wants("e18", "e19", "new") // the header wins over the query
	s.listen(t, "?from=ts&ts=9007199254740991")                                    // and nothing else
	eventually(t, "five streams are open", func() bool { return s.gateway.Stats().Subscriptions == 5 })
}

// Wherever a stream of many partitions breaks, Last-Event-ID goes on there.
func TestStreamResumes(t *testing.T) {
	s := start(t, setup{})
	const n = 30
	for i := range n {
		s.publish(t, "t", fmt.Sprintf("e%02d", i), fmt.Sprint(i%11))
	}
	var got []string
	for len(got) < n {
		var k *source
		if len(got) == 0 {
			k = s.listen(t, "?from=earliest")
		} else {
			k = s.listen(t, "?from=earliest", "Last-Event-ID: "+got[len(got)-1])
		}
		for range min(7, n-len(got)) {
			id, _ := k.next()
			got = append(got, id)
		}
		k.close()
	}
	slices.Sort(got)
	if len(slices.Compact(got)) != n {
		t.Errorf("got %v", got)
	}
}

// A stream that resumes sends the events that its client has not seen, also those that were stored
// later in other partitions with a lower ts, or the same.
func TestStreamResumesBehindWhatItSent(t *testing.T) {
	s := start(t, setup{})
	post := func(ts int, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if res, body := s.do(t, "POST", "/v1/topics/t/events", "1", "Sluice-Id: "+id, fmt.Sprint("Sluice-Ts: ", ts)); res.StatusCode != 201 {
				t.Fatal(body)
			}
		}
	}
	k := s.listen(t, "")
	post(2000, "m")
	k.wants("m")
	k.close()
	late := []string{"a", "b", "c", "d", "e", "f", "g", "h"} // in every partition, all but surely
	post(1000, late[:4]...)
	post(2000, late[4:]...)
	for range 2 { // the second time by the trail of a stream that is open
		again := s.listen(t, "", "Last-Event-ID: m")
		var got []string
		for range late {
			id, _ := again.next()
			got = append(got, id)
		}
		if slices.Sort(got); !slices.Equal(got, late) {
			t.Fatalf("got %v", got)
		}
		s.listen(t, "", "Last-Event-ID: "+got[0])
	}
	post(500, "last")
	again := s.listen(t, "", "Last-Event-ID: m")
	seen := make(map[string]bool)
	for range len(late) + 1 {
		id, _ := again.next()
		seen[id] = true
	}
	if !seen["last"] || seen["m"] {
		t.Errorf("got %v", seen)
	}
}

func TestStreamWithGroup(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	s.publish(t, "t", "a", "")
	s.publish(t, "t", "b", "")
	k := s.listen(t, "?group=g&from=earliest")
	k.wants("a", "b")
	settled := func(lag string) func() bool {
		return func() bool {
			_, body := s.do(t, "GET", "/v1/topics/t/groups/g", "")
			return strings.Contains(body, `"lag":`+lag+`,"inflight":0`)
		}
	}
	eventually(t, "what was written is acked", settled("0"))
	k.close()
	eventually(t, "the member has left", func() bool { return s.gateway.Stats().Subscriptions == 0 })
	s.publish(t, "t", "c", "")
	again := s.listen(t, "?group=g&from=earliest", "Last-Event-ID: b") // the group knows where it is
	again.wants("c")
	eventually(t, "that is acked", settled("0"))
}

// A group's stream wrote events that its client never read. They come again after Last-Event-ID,
// and later events follow.
func TestStreamWithGroupResumes(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	var ids []string
	for i := range 30 {
		ids = append(ids, fmt.Sprintf("e%02d", i))
		s.publish(t, "t", ids[i], "")
	}
	k := s.listen(t, "?group=g&from=earliest")
	k.wants(ids[:3]...)
	acked := func() bool {
		_, body := s.do(t, "GET", "/v1/topics/t/groups/g", "")
		return strings.Contains(body, `"lag":0,"inflight":0`)
	}
	eventually(t, "all is written", acked)
	for range 2 { // the first time while its stream is open
		again := s.listen(t, "?group=g", "Last-Event-ID: e02")
		again.wants(ids[3:10]...)
		k.close()
		again.close()
	}
	s.publish(t, "t", "new", "")
	last := s.listen(t, "?group=g", "Last-Event-ID: e09")
	last.wants(append(ids[10:], "new")...)
	eventually(t, "the old streams have ended", func() bool { return s.gateway.Stats().Subscriptions == 1 })
	eventually(t, "that is acked", acked)
	last.close()
	s.listen(t, "?group=g", "Last-Event-ID: e28").wants("e29", "new")
}

func TestStreamBadInput(t *testing.T) {
	s := start(t, setup{})
	s.publish(t, "t", "a", "")
	for _, c := range []struct {
		path, header string
		status       int
		says         string
	}{
		{"/v1/topics/a$/stream", "X: 1", 400, "topic"},
		{"/v1/topics/t/stream?group=", "X: 1", 400, `\"group\"`},
		{"/v1/topics/t/stream?group=a%20b", "X: 1", 400, `\"group\"`},
		{"/v1/topics/t/stream?from=middle", "X: 1", 400, `\"from\"`},
		{"/v1/topics/t/stream?from=ts", "X: 1", 400, "ts is missing"},
		{"/v1/topics/t/stream?from=ts&ts=x", "X: 1", 400, `\"ts\"`},
		{"/v1/topics/t/stream?from=afterId", "X: 1", 400, "afterId is missing"},
		{"/v1/topics/t/stream?from=latest&from=latest", "X: 1", 400, "twice"},
		{"/v1/topics/t/stream?from=afterId&afterId=none", "X: 1", 404, "none"},
		{"/v1/topics/t/stream", "Last-Event-ID: none", 404, "none"},
		{"/v1/topics/t/stream?group=new", "Last-Event-ID: none", 404, "none"},
		{"/v1/topics/t/stream", "Last-Event-ID: a b", 400, "Last-Event-ID"},
		{"/v1/topics/t/stream", "Origin: http://evil.example", 403, "Origin"},
	} {
		res, body := s.do(t, "GET", c.path, "", c.header)
		if res.StatusCode != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s with %s: %s %s", c.path, c.header, res.Status, body)
		}
	}
	if res, body := s.do(t, "HEAD", "/v1/topics/t/stream", ""); res.StatusCode != 200 || body != "" || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		t.Errorf("HEAD: %s %v %s", res.Status, res.Header, body)
	}
	if res, _ := s.do(t, "POST", "/v1/topics/t/stream", "{}"); res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %s %v", res.Status, res.Header)
	}
	if n := s.gateway.Stats().Subscriptions; n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

func TestStreamForPagesOfAllowedOrigins(t *testing.T) {
	s := start(t, setup{origins: []string{"http://page.example"}})
	k := s.listen(t, "", "Origin: http://page.example")
	if got := k.res.Header.Get("Access-Control-Allow-Origin"); got != "http://page.example" {
		t.Errorf("allowed is %q", got)
	}
}

// A client that does not read slows only itself, and is cut off in the end.
func TestStreamSlowReader(t *testing.T) {
	t.Parallel()
	bounds := DefaultBounds()
	bounds.SlowClientTimeout = 300 * time.Millisecond
	s := start(t, setup{bounds: &bounds})
	slow, fast := s.listen(t, "?group=slow"), s.listen(t, "")
	eventually(t, "both listen", func() bool { return s.gateway.Stats().Subscriptions == 2 })
	payload := `"` + strings.Repeat("x", 500<<10) + `"`
	for i := range 8 {
		id := fmt.Sprint(i)
		if res, body := s.do(t, "POST", "/v1/topics/t/events", payload, "Sluice-Id: "+id); res.StatusCode != 201 {
			t.Fatal(body)
		}
		fast.wants(id)
	}
	eventually(t, "the slow one is gone", func() bool { return s.gateway.Stats().Subscriptions == 1 })
	if err := slow.ended(); err == nil {
		t.Error("the slow one's stream ends as if it were whole")
	}
	s.publish(t, "t", "last", "")
	fast.wants("last")
}

// An event that a stream never wrote counts no attempt. An event that it may have written in part
// counts one.
func TestStreamThatBreaksCountsLittle(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	for i := range 3 {
		s.publish(t, "t", fmt.Sprint(i), "")
	}
	k := &stream{
		subKey: subKey{"t", "g"}, caller: s.gateway.sessions.Unknown(new(http.Request)), groups: s.gateway.cfg.Groups, bound: 1 << 20,
		ready: make(chan struct{}, 1), over: t.Context(), out: http.NewResponseController(httptest.NewRecorder()), how: group.Disconnected,
	}
	first := wire.SubscribeOptions{From: wire.FromEarliest, MaxInflight: new(int)}
	*first.MaxInflight = 2
	if err := k.join(t.Context(), s.gateway, first); err != nil {
		t.Fatal(err)
	}
	k.Start()
	waiting := func() int { k.mu.Lock(); defer k.mu.Unlock(); return len(k.leases) }
	eventually(t, "two events wait to be written", func() bool { return waiting() == 2 })
	text, leases := k.swap(nil)
	k.groups.AckLeases("t", "g", leases[:1], func(error) {})
	eventually(t, "one more waits", func() bool { return waiting() == 1 })
	k.finish() // while the second one is written
	if len(text) == 0 {
		t.Error("nothing was to be written")
	}
	p := s.pull(t, `{}`)
	if got := p.names(); got != "1/2 2/1" && got != "2/1 1/2" {
		t.Errorf("pulled %s", got)
	}
}

// An idle stream says every 15 s that it is alive.
func TestStreamHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 46*time.Second)
		defer cancel()
		w := httptest.NewRecorder()
		s := &stream{ready: make(chan struct{}, 1), over: t.Context(), out: http.NewResponseController(w)}
		_ = s.serve(w, httptest.NewRequestWithContext(ctx, "GET", "/", nil), time.Minute)
		if got := w.Body.String(); got != ":\n\n:\n\n:\n\n" || !w.Flushed {
			t.Errorf("%q", got)
		}
	})
}

func TestStreamRate(t *testing.T) {
	t.Parallel()
	s := start(t, setup{policies: `[{"name":"*","partitions":1,"delivery":{"rate":20}}]`})
	var ids []string
	for i := range 30 {
		ids = append(ids, fmt.Sprint(i))
		s.publish(t, "t", ids[i], "")
	}
	began := time.Now()
	s.listen(t, "?from=earliest").wants(ids...)
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("30 events came in %v", took)
	}
}

func TestShutdownEndsStreams(t *testing.T) {
	s := start(t, setup{policies: onePartition})
	alone, grouped := s.listen(t, ""), s.listen(t, "?group=g")
	s.publish(t, "t", "a", "")
	alone.wants("a")
	grouped.wants("a")
	s.stop()
	if err := alone.ended(); err != nil {
		t.Errorf("alone: %v", err)
	}
	if err := grouped.ended(); err != nil {
		t.Errorf("with a group: %v", err)
	}
	if res, body := s.do(t, "GET", "/v1/topics/t/stream", ""); res.StatusCode != 503 {
		t.Errorf("%s %s", res.Status, body)
	}
}

func TestChangedRightsEndStreams(t *testing.T) {
	t.Parallel()
	a := authOf(t, "tokens:\n"+entry("app", "subscribe: [t, u]")+entry("kept", "subscribe: [t]"))
	s := start(t, setup{access: a.Access})
	a.follow(t)
	if res, _ := s.do(t, "GET", "/v1/topics/t/stream", ""); res.StatusCode != 401 {
		t.Errorf("without a token: %s", res.Status)
	}
	if res, _ := s.do(t, "GET", "/v1/topics/v/stream", "", "Authorization: Bearer app"); res.StatusCode != 403 {
		t.Errorf("another topic: %s", res.Status)
	}
	gone, kept := s.listen(t, "", "Authorization: Bearer app"), s.listen(t, "?group=g", "Authorization: Bearer kept")
	a.write(t, "tokens:\n"+entry("app", "subscribe: [u]")+entry("kept", "subscribe: [t]"))
	if err := gone.ended(); err != nil {
		t.Error(err)
	}
	if n := s.gateway.Stats().Subscriptions; n != 1 {
		t.Errorf("%d streams are left", n)
	}
	kept.close()
}

// A link that a user is led to follow in a browser drains no group. A page without a group has no
// effect, and an EventSource is no navigation.
func TestStreamIsNoPageToOpen(t *testing.T) {
	s := start(t, setup{})
	for _, tc := range []struct {
		query, mode string
		status      int
	}{
		{"?group=g", "navigate", 403},
		{"", "navigate", 200},
		{"?group=g", "cors", 200},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.addr+"/v1/topics/t/stream"+tc.query, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Sec-Fetch-Site", "none")
		req.Header.Set("Sec-Fetch-Mode", tc.mode)
		res, err := (&http.Transport{DialContext: dialTight, DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if res.StatusCode != tc.status {
			t.Errorf("%q, %s: %s", tc.query, tc.mode, res.Status)
		}
		cancel()
		res.Body.Close()
	}
}
