package admin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// answering is a client of a server that answers everything so, and notes what it was asked.
func answering(t *testing.T, status int, body string) (*admin.HTTP, *[]string) {
	asked := &[]string{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		*asked = append(*asked, r.Method+" "+r.URL.String()+" "+string(text))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	h := &admin.HTTP{AppURL: server.URL}
	t.Cleanup(func() { h.CloseIdle(); server.Close() })
	return h, asked
}

func TestHTTPPull(t *testing.T) {
	h, asked := answering(t, 200,
		`{"events":[{"event":{"id":"a","ts":1,"topic":"orders","partition":2,"seq":3,"payload":{"n":1}},`+
			`"ctx":{"attempt":2,"ack_deadline_ms":900,"lease":"L1"}}]}`)
	window := 7
	q := admin.PullQuery{Topic: "orders", Group: "a/b", Wait: time.Second,
		Options: wire.SubscribeOptions{MaxInflight: &window, From: wire.FromEarliest}}
	ds, err := h.Pull(t.Context(), q)
	if err != nil || len(ds) != 1 {
		t.Fatalf("%+v, %v", ds, err)
	}
	if d := ds[0]; d.Event.ID != "a" || d.Attempt != 2 || d.AckDeadlineMS != 900 || d.Lease != "L1" {
		t.Errorf("%+v", d)
	}
	want := `[POST /v1/topics/orders/groups/a%2Fb/pull {"max":100,"wait_ms":1000,"opts":{"from":"earliest","maxInflight":7}}]`
	if got := fmt.Sprint(*asked); got != want {
		t.Errorf("asked %s\n want %s", got, want)
	}
}

func TestHTTPSettle(t *testing.T) {
	h, asked := answering(t, 200, `{"results":[{"ok":true},{"code":"stale_lease","error":"it is over"}]}`)
	delay := int64(5)
	for _, settle := range []func() ([]*wire.Error, error){
		func() ([]*wire.Error, error) { return h.Ack(t.Context(), "t", "g", "x", "y") },
		func() ([]*wire.Error, error) {
			return h.Nack(t.Context(), "t", "g", wire.Nack{Reason: "no", DelayMS: &delay}, "x", "y")
		},
		func() ([]*wire.Error, error) { return h.Modack(t.Context(), "t", "g", time.Minute, "x", "y") },
	} {
		results, err := settle()
		if err != nil || len(results) != 2 || results[0] != nil || !errors.Is(results[1], &wire.Error{Code: wire.StaleLease}) ||
			results[1].Msg != "it is over" {
			t.Errorf("%v, %v", results, err)
		}
	}
	want := `[POST /v1/topics/t/groups/g/ack {"leases":["x","y"]}` +
		` POST /v1/topics/t/groups/g/nack {"leases":["x","y"],"reason":"no","delay_ms":5}` +
		` POST /v1/topics/t/groups/g/modack {"leases":["x","y"],"extend_ms":60000}]`
	if got := fmt.Sprint(*asked); got != want {
		t.Errorf("asked %s\n want %s", got, want)
	}
	if _, err := h.Ack(t.Context(), "t", "g", "x"); err == nil || !strings.Contains(err.Error(), "2 results for 1") {
		t.Errorf("too many results: %v", err)
	}
	if results, err := h.Ack(t.Context(), "t", "g"); results != nil || err != nil {
		t.Errorf("no leases: %v, %v", results, err)
	}
}

func TestHTTPStream(t *testing.T) {
	text := "retry: 1000\n\n:\n\nid: a\ndata: {\"id\":\"a\",\"ts\":1,\"topic\":\"t\",\"payload\":1}\n\n:\n\n" +
		"id: b\ndata: {\"id\":\"b\",\"ts\":1,\"topic\":\"t\",\"payload\":\"" +
		strings.Repeat("x", 1<<20) + "\"}\n\nid: c\ndata: {\"id\":\"c\",\"to"
	h, asked := answering(t, 200, text)
	ts := int64(7)
	var got []string
	var last error
	for e, err := range h.Stream(t.Context(), admin.StreamQuery{Topic: "t", Group: "g", From: wire.FromTS, TS: &ts, AfterID: "é"}) {
		if last = err; err == nil {
			got = append(got, e.ID)
		}
	}
	if fmt.Sprint(got) != "[a b]" || !errors.Is(last, admin.ErrStreamEnded) {
		t.Errorf("%v, then %v", got, last)
	}
	if want := "[GET /v1/topics/t/stream?afterId=%C3%A9&from=ts&group=g&ts=7 ]"; fmt.Sprint(*asked) != want {
		t.Errorf("asked %v", *asked)
	}
	for range h.Stream(t.Context(), admin.StreamQuery{Topic: "t"}) {
		break // closes the connection
	}
}

func TestHTTPStreamRefused(t *testing.T) {
	h, _ := answering(t, 404, `{"error":"no such event","code":"not_found"}`)
	var last error
	for _, err := range h.Stream(t.Context(), admin.StreamQuery{Topic: "t"}) {
		last = err
	}
	if !errors.Is(last, &wire.Error{Code: wire.NotFound}) {
		t.Error(last)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range h.Stream(ctx, admin.StreamQuery{Topic: "t"}) {
		last = err
	}
	if !errors.Is(last, context.Canceled) {
		t.Error(last)
	}
	if _, err := h.Pull(t.Context(), admin.PullQuery{Topic: "t", Group: "g"}); !errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		t.Error(err)
	}
}
