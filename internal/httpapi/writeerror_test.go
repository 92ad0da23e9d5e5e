package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
)

type reply struct {
	Error        string            `json:"error"`
	Code         string            `json:"code"`
	RetryAfterMS int64             `json:"retry_after_ms"`
	Scope        string            `json:"scope"`
	Fields       []wire.FieldError `json:"fields"`
	Missing      []string          `json:"missing"`
}

func readReply(t *testing.T, w *httptest.ResponseRecorder) reply {
	t.Helper()
	if ct := w.Header().Get("Content-Type"); ct != "application/json" {
		t.Errorf("Content-Type %q", ct)
	}
	var r reply
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil {
		t.Fatalf("body %q: %v", w.Body, err)
	}
	return r
}

func TestWriteError(t *testing.T) {
	for _, tc := range []struct {
		name       string
		err        error
		status     int
		retryAfter string
		want       reply
	}{
		{"plain", wire.Errorf(wire.BadRequest, "ts is wrong"), 400, "", reply{Error: "ts is wrong", Code: "bad_request"}},
		{"wrapped", fmt.Errorf("reading: %w", wire.Errorf(wire.NotFound, "none")), 404, "", reply{Error: "none", Code: "not_found"}},
		{"retry rounds up", &wire.Error{Code: wire.RateLimited, Msg: "slow down", RetryAfter: 1001 * time.Millisecond, Scope: "topic"}, 429, "2",
			reply{Error: "slow down", Code: "rate_limited", RetryAfterMS: 1001, Scope: "topic"}},
		{"retry at least a second", &wire.Error{Code: wire.Overloaded, Msg: "full", RetryAfter: time.Microsecond}, 503, "1",
			reply{Error: "full", Code: "overloaded", RetryAfterMS: 1}},
		{"fields", &wire.Error{Code: wire.InvalidPolicy, Msg: "bad", Fields: []wire.FieldError{{Field: "a.b", Message: "no"}}}, 422, "",
			reply{Error: "bad", Code: "invalid_policy", Fields: []wire.FieldError{{Field: "a.b", Message: "no"}}}},
		{"missing", &wire.Error{Code: wire.PartialFleet, Msg: "part", Missing: []string{"n1"}}, 502, "",
			reply{Error: "part", Code: "partial_fleet", Missing: []string{"n1"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var log bytes.Buffer
			w := httptest.NewRecorder()
			WriteError(w, httptest.NewRequest("GET", "/x", nil), tc.err, slog.New(slog.NewTextHandler(&log, nil)))
			if w.Code != tc.status || w.Header().Get("Retry-After") != tc.retryAfter {
				t.Errorf("status %d, Retry-After %q; want %d, %q", w.Code, w.Header().Get("Retry-After"), tc.status, tc.retryAfter)
			}
			if got := readReply(t, w); fmt.Sprint(got) != fmt.Sprint(tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if log.Len() > 0 {
				t.Errorf("a refusal is no defect, yet it was logged: %s", &log)
			}
		})
	}
}

func TestWriteErrorKeepsDetailInTheLog(t *testing.T) {
	var log bytes.Buffer
	w := httptest.NewRecorder()
	WriteError(w, httptest.NewRequest("GET", "/x", nil), errors.New("disk on fire"), slog.New(slog.NewTextHandler(&log, nil)))
	if r := readReply(t, w); w.Code != 500 || r.Code != "internal" || strings.Contains(w.Body.String(), "fire") {
		t.Errorf("status %d, body %s", w.Code, w.Body)
	}
	if !strings.Contains(log.String(), "disk on fire") {
		t.Errorf("log lacks the detail: %s", &log)
	}
}

func TestWriteErrorOfAClientThatLeftIsNoDefect(t *testing.T) {
	var log bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest("GET", "/x", nil).WithContext(ctx)
	WriteError(httptest.NewRecorder(), r, fmt.Errorf("scan: %w", ctx.Err()), slog.New(slog.NewTextHandler(&log, nil)))
	if log.Len() > 0 {
		t.Errorf("logged: %s", &log)
	}
}
