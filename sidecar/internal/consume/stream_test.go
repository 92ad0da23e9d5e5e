package consume_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/gateway/gatewaytest"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
	"github.com/sluice-bus/sluice/test/require"
)

// source is an open stream, as EventSource reads it.
type source struct {
	t      testing.TB
	res    *http.Response
	lines  *bufio.Scanner
	cancel context.CancelFunc
	retry  string
	gone   string // the comment about an event that is gone
}

// listen opens a stream of the topic "t"; headers are "Name: value".
func (s *sidecar) listen(t testing.TB, query string, headers ...string) *source {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.Addr+"/v1/topics/t/stream"+query, nil)
	require.NoError(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	tr := &http.Transport{DialContext: gatewaytest.DialTight}
	res, err := tr.RoundTrip(req)
	require.NoError(t, err)
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
func (k *source) next() (id string, e gatewaytest.Event) {
	k.t.Helper()
	limit := time.AfterFunc(gatewaytest.Patience, k.cancel)
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
		case field == "" && strings.HasPrefix(value, "event "):
			k.gone = value
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
	limit := time.AfterFunc(gatewaytest.Patience, k.cancel)
	defer limit.Stop()
	for k.lines.Scan() {
	}
	return k.lines.Err()
}

func TestStream(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	live := s.listen(t, "")
	var ids []string
	for i := range 20 {
		ids = append(ids, fmt.Sprintf("e%02d", i))
		s.Publish(t, "t", ids[i], "")
		live.wants(ids[i])
	}
	if live.retry != "1000" || live.res.Header.Get("Content-Encoding") != "" {
		t.Errorf("retry %q, %v", live.retry, live.res.Header)
	}
	all := s.listen(t, "?from=earliest")
	all.wants(ids...)
	s.Publish(t, "t", "new", "k")
	if _, e := all.next(); e.ID != "new" || e.Key != "k" || string(e.Payload) != `{"n":1}` {
		t.Errorf("%+v", e)
	}
	s.listen(t, "?from=afterId&afterId=e17").wants("e18", "e19", "new")
	s.listen(t, "?from=earliest", "Last-Event-ID: e17").wants("e18", "e19", "new") // the header wins over the query
	s.listen(t, "?from=ts&ts=9007199254740991")                                    // and nothing else
	gatewaytest.Eventually(t, "five streams are open", func() bool { return s.Gateway.Stats().Subscriptions == 5 })
}

// Wherever a stream of many partitions breaks, Last-Event-ID goes on there.
func TestStreamResumes(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	const n = 30
	for i := range n {
		s.Publish(t, "t", fmt.Sprintf("e%02d", i), fmt.Sprint(i%11))
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
	s := start(t, gatewaytest.Setup{})
	post := func(ts int, ids ...string) {
		t.Helper()
		for _, id := range ids {
			if res, body := s.Do(t, "POST", "/v1/topics/t/events", "1", "Sluice-Id: "+id, fmt.Sprint("Sluice-Ts: ", ts)); res.StatusCode != 201 {
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

// Where the last event is gone, a stream goes on with the earliest event behind it, and says so:
// right behind its place while that is remembered, then with the earliest that is left.
func TestStreamResumesBehindWhatIsGone(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	for _, id := range []string{"a", "b", "other", "old", "new", "last"} {
		s.Publish(t, "t", id, map[string]string{"old": "k", "new": "k"}[id])
	}
	resumes := func(last, want string) {
		t.Helper()
		for _, how := range [][]string{
			{"", "Last-Event-ID: " + last}, {"?lastEventId=" + last}, {"?lastEventId=last", "Last-Event-ID: " + last},
		} {
			k := s.listen(t, how[0], how[1:]...)
			k.wants(want)
			if !strings.Contains(k.gone, strconv.Quote(last)) {
				t.Errorf("after %s: comment %q", last, k.gone)
			}
			k.close()
		}
	}
	sweep := func(keep eventlog.Retention) {
		t.Helper()
		if _, _, err := s.Log.Sweep(t.Context(), "t", keep, time.Now().UnixMilli()+1, 100); err != nil {
			t.Fatal(err)
		}
	}
	if _, n, err := s.Log.Compact(t.Context(), "t", 0, 1, eventlog.Compaction{Limit: 100}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	resumes("old", "new")
	keep := eventlog.Retention{UpTo: []uint64{2}}
	sweep(keep)
	resumes("a", "other")
	resumes("b", "other")
	resumes("old", "new")
	keep.DedupeWindowMS = 1
	sweep(keep)
	resumes("old", "other")
	resumes("never", "other")
	if res, body := s.Do(t, "GET", "/v1/topics/t/stream?from=afterId&afterId=a", ""); res.StatusCode != 404 {
		t.Errorf("afterId: %s %s", res.Status, body)
	}
}

func TestStreamWithGroup(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Publish(t, "t", "a", "")
	s.Publish(t, "t", "b", "")
	k := s.listen(t, "?group=g&from=earliest")
	k.wants("a", "b")
	settled := func(lag string) func() bool {
		return func() bool {
			_, body := s.Do(t, "GET", "/v1/topics/t/groups/g", "")
			return strings.Contains(body, `"lag":`+lag+`,"inflight":0`)
		}
	}
	gatewaytest.Eventually(t, "what was written is acked", settled("0"))
	k.close()
	gatewaytest.Eventually(t, "the member has left", func() bool { return s.Gateway.Stats().Subscriptions == 0 })
	s.Publish(t, "t", "c", "")
	again := s.listen(t, "?group=g&from=earliest", "Last-Event-ID: b") // the group knows where it is
	again.wants("c")
	gatewaytest.Eventually(t, "that is acked", settled("0"))
}

// A group's stream wrote events that its client never read. They come again after Last-Event-ID,
// and later events follow.
func TestStreamWithGroupResumes(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	var ids []string
	for i := range 30 {
		ids = append(ids, fmt.Sprintf("e%02d", i))
		s.Publish(t, "t", ids[i], "")
	}
	k := s.listen(t, "?group=g&from=earliest")
	k.wants(ids[:3]...)
	acked := func() bool {
		_, body := s.Do(t, "GET", "/v1/topics/t/groups/g", "")
		return strings.Contains(body, `"lag":0,"inflight":0`)
	}
	gatewaytest.Eventually(t, "all is written", acked)
	for range 2 { // the first time while its stream is open
		again := s.listen(t, "?group=g", "Last-Event-ID: e02")
		again.wants(ids[3:10]...)
		k.close()
		again.close()
	}
	s.Publish(t, "t", "new", "")
	last := s.listen(t, "?group=g", "Last-Event-ID: e09")
	last.wants(append(ids[10:], "new")...)
	gatewaytest.Eventually(t, "the old streams have ended", func() bool { return s.Gateway.Stats().Subscriptions == 1 })
	gatewaytest.Eventually(t, "that is acked", acked)
	last.close()
	s.listen(t, "?group=g", "Last-Event-ID: e28").wants("e29", "new")
}

func TestStreamBadInput(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	s.Publish(t, "t", "a", "")
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
		res, body := s.Do(t, "GET", c.path, "", c.header)
		if res.StatusCode != c.status || !strings.Contains(body, c.says) {
			t.Errorf("%s with %s: %s %s", c.path, c.header, res.Status, body)
		}
	}
	if res, body := s.Do(t, "HEAD", "/v1/topics/t/stream", ""); res.StatusCode != 200 || body != "" ||
		!strings.HasPrefix(res.Header.Get("Content-Type"), "text/event-stream") {
		t.Errorf("HEAD: %s %v %s", res.Status, res.Header, body)
	}
	if res, _ := s.Do(t, "POST", "/v1/topics/t/stream", "{}"); res.StatusCode != 405 || res.Header.Get("Allow") != "GET, HEAD" {
		t.Errorf("POST: %s %v", res.Status, res.Header)
	}
	if n := s.Gateway.Stats().Subscriptions; n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

func TestStreamForPagesOfAllowedOrigins(t *testing.T) {
	s := start(t, gatewaytest.Setup{Origins: []string{"http://page.example"}})
	k := s.listen(t, "", "Origin: http://page.example")
	if got := k.res.Header.Get("Access-Control-Allow-Origin"); got != "http://page.example" {
		t.Errorf("allowed is %q", got)
	}
}

// A client that does not read slows only itself, and is cut off in the end.
func TestStreamSlowReader(t *testing.T) {
	t.Parallel()
	bounds := session.DefaultBounds()
	bounds.SlowClientTimeout = 3 * time.Second // longer than a loaded machine keeps the fast one from reading
	s := start(t, gatewaytest.Setup{Bounds: &bounds})
	slow, fast := s.listen(t, "?group=slow"), s.listen(t, "")
	gatewaytest.Eventually(t, "both listen", func() bool { return s.Gateway.Stats().Subscriptions == 2 })
	payload := `"` + strings.Repeat("x", 500<<10) + `"`
	for i := range 8 {
		id := fmt.Sprint(i)
		if res, body := s.Do(t, "POST", "/v1/topics/t/events", payload, "Sluice-Id: "+id); res.StatusCode != 201 {
			t.Fatal(body)
		}
		fast.wants(id)
	}
	gatewaytest.Eventually(t, "the slow one is gone", func() bool { return s.Gateway.Stats().Subscriptions == 1 })
	if err := slow.ended(); err == nil {
		t.Error("the slow one's stream ends as if it were whole")
	}
	s.Publish(t, "t", "last", "")
	fast.wants("last")
}

// slowAnswer is an answer whose client reads no more once it has read an event with the id "0".
type slowAnswer struct {
	*httptest.ResponseRecorder
	stuck chan struct{} // closed once the client reads no more
	late  chan struct{} // closed once the deadline has passed
	once  sync.Once
}

func (w *slowAnswer) Write(p []byte) (int, error) {
	if !strings.Contains(string(p), "id: 1\n") {
		return w.ResponseRecorder.Write(p)
	}
	close(w.stuck)
	<-w.late
	return 0, os.ErrDeadlineExceeded
}

func (w *slowAnswer) SetWriteDeadline(deadline time.Time) error {
	if !deadline.IsZero() && !deadline.After(time.Now()) {
		w.once.Do(func() { close(w.late) })
	}
	return nil
}

// An event that a stream never wrote counts no attempt. An event that it may have written in part
// counts one.
func TestStreamThatBreaksCountsLittle(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	s.Publish(t, "t", "0", "")
	w := &slowAnswer{ResponseRecorder: httptest.NewRecorder(), stuck: make(chan struct{}), late: make(chan struct{})}
	ctx, leave := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, "GET", "/v1/topics/t/stream?group=g&from=earliest", nil)
	var serving sync.WaitGroup
	serving.Go(func() { s.Gateway.Handler().ServeHTTP(w, r) })
	inflight := func(n int) func() bool {
		return func() bool {
			_, body := s.Do(t, "GET", "/v1/topics/t/groups/g", "")
			return strings.Contains(body, fmt.Sprintf(`"inflight":%d`, n))
		}
	}
	gatewaytest.Eventually(t, "the first event is acked", func() bool {
		_, body := s.Do(t, "GET", "/v1/topics/t/groups/g", "")
		return strings.Contains(body, `"lag":0,"inflight":0`)
	})
	s.Publish(t, "t", "1", "")
	<-w.stuck
	s.Publish(t, "t", "2", "")
	gatewaytest.Eventually(t, "another waits to be written", inflight(2))
	leave() // while the second event is written
	serving.Wait()
	p := s.Pull(t, `{}`)
	if got := p.Names(); got != "1/2 2/1" && got != "2/1 1/2" {
		t.Errorf("pulled %s", got)
	}
}

func TestStreamRate(t *testing.T) {
	t.Parallel()
	s := start(t, gatewaytest.Setup{Policies: `[{"name":"*","partitions":1,"delivery":{"rate":20}}]`})
	var ids []string
	for i := range 30 {
		ids = append(ids, fmt.Sprint(i))
		s.Publish(t, "t", ids[i], "")
	}
	began := time.Now()
	s.listen(t, "?from=earliest").wants(ids...)
	if took := time.Since(began); took < 400*time.Millisecond {
		t.Errorf("30 events came in %v", took)
	}
}

func TestShutdownEndsStreams(t *testing.T) {
	s := start(t, gatewaytest.Setup{Policies: gatewaytest.OnePartition})
	alone, grouped := s.listen(t, ""), s.listen(t, "?group=g")
	s.Publish(t, "t", "a", "")
	alone.wants("a")
	grouped.wants("a")
	s.Stop()
	if err := alone.ended(); err != nil {
		t.Errorf("alone: %v", err)
	}
	if err := grouped.ended(); err != nil {
		t.Errorf("with a group: %v", err)
	}
	if res, body := s.Do(t, "GET", "/v1/topics/t/stream", ""); res.StatusCode != 503 {
		t.Errorf("%s %s", res.Status, body)
	}
}

func TestChangedRightsEndStreams(t *testing.T) {
	t.Parallel()
	a := gatewaytest.AuthOf(t, "tokens:\n"+gatewaytest.Entry("app", "subscribe: [t, u]")+gatewaytest.Entry("kept", "subscribe: [t]"))
	s := start(t, gatewaytest.Setup{Access: a.Access})
	a.Follow(t)
	if res, _ := s.Do(t, "GET", "/v1/topics/t/stream", ""); res.StatusCode != 401 {
		t.Errorf("without a token: %s", res.Status)
	}
	if res, _ := s.Do(t, "GET", "/v1/topics/v/stream", "", "Authorization: Bearer app"); res.StatusCode != 403 {
		t.Errorf("another topic: %s", res.Status)
	}
	gone, kept := s.listen(t, "", "Authorization: Bearer app"), s.listen(t, "?group=g", "Authorization: Bearer kept")
	a.Write(t, "tokens:\n"+gatewaytest.Entry("app", "subscribe: [u]")+gatewaytest.Entry("kept", "subscribe: [t]"))
	if err := gone.ended(); err != nil {
		t.Error(err)
	}
	if n := s.Gateway.Stats().Subscriptions; n != 1 {
		t.Errorf("%d streams are left", n)
	}
	kept.close()
}

// A link that a user is led to follow in a browser drains no group. A page without a group has no
// effect, and an EventSource is no navigation.
func TestStreamIsNoPageToOpen(t *testing.T) {
	s := start(t, gatewaytest.Setup{})
	for _, tc := range []struct {
		query  string
		header http.Header
		status int
	}{
		{"?group=g", http.Header{"Sec-Fetch-Site": {"none"}, "Sec-Fetch-Mode": {"navigate"}}, 403},
		{"", http.Header{"Sec-Fetch-Site": {"none"}, "Sec-Fetch-Mode": {"navigate"}}, 200},
		{"?group=g", http.Header{"Sec-Fetch-Site": {"none"}, "Sec-Fetch-Mode": {"cors"}}, 200},
		{"?group=g", http.Header{"Referer": {"http://evil.example/"}}, 403}, // an image of a page, in an old browser
		{"?group=g", http.Header{"Referer": {""}}, 403},
		{"", http.Header{"Referer": {"http://evil.example/"}}, 200},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+s.Addr+"/v1/topics/t/stream"+tc.query, nil)
		require.NoError(t, err)
		req.Header = tc.header
		res, err := (&http.Transport{DialContext: gatewaytest.DialTight, DisableKeepAlives: true}).RoundTrip(req)
		require.NoError(t, err)
		if res.StatusCode != tc.status {
			t.Errorf("%q, %s: %s", tc.query, tc.header, res.Status)
		}
		cancel()
		res.Body.Close()
	}
}
