package admin_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestEventLife(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.EscapedPath() {
		case "/v1/topics/orders/events/o%2F17":
			_, _ = io.WriteString(w, `{"event":{"id":"o/17","ts":7,"topic":"orders","partition":3,"seq":9,"payload":{"n":1e2}},
				"accepted_at":"2023-11-14T22:13:20.004Z","stored":{"store_id":"s","node_id":"n","partition":3,"seq":9},
				"groups":[{"group":"g","state":"in_flight","attempts":2,"owner":"n","cursor":9,"member":"n/1","due_ms":12}],"trace_id":"abc"}`)
		case "/v1/topics/orders/events/broken":
			_, _ = io.WriteString(w, `{"event":{"id":7}}`)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"error":"no such event","code":"not_found"}`)
		}
	}))
	defer server.Close()
	h := &admin.HTTP{AppURL: server.URL}
	defer h.CloseIdle()

	l, err := h.EventLife(t.Context(), "orders", "o/17")
	if err != nil {
		t.Fatal(err)
	}
	stored := l.Stored != nil && l.Stored.Seq == 9 && l.Spooled == nil
	if l.Event.ID != "o/17" || string(l.Event.Payload) != `{"n":1e2}` || l.TraceID != "abc" || !stored ||
		!l.AcceptedAt.Equal(time.UnixMilli(1_700_000_000_004)) {
		t.Errorf("life %+v", l)
	}
	if f := l.Groups[0]; f.State != admin.FateInflight || f.Attempts != 2 || f.Member != "n/1" || f.DueMS == nil || *f.DueMS != 12 {
		t.Errorf("fate %+v", f)
	}
	if _, err := h.EventLife(t.Context(), "orders", "none"); !errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		t.Errorf("no event: %v", err)
	}
	if _, err := h.EventLife(t.Context(), "orders", "broken"); err == nil {
		t.Error("a broken event is taken")
	}
}
