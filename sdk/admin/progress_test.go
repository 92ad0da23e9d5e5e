package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// TestProgress: all changes that tell of their progress end in the same three ways.
func TestProgress(t *testing.T) {
	changes := map[string]func(context.Context, *HTTP) (int, error){
		"redrive": func(ctx context.Context, h *HTTP) (int, error) {
			return h.Redrive(ctx, "orders", DeadLetterSelection{Group: "g"}, nil)
		},
		"discard": func(ctx context.Context, h *HTTP) (int, error) {
			return h.Discard(ctx, "orders", DeadLetterSelection{Group: "g"}, nil)
		},
		"event": func(ctx context.Context, h *HTTP) (int, error) { return h.DeleteEvent(ctx, "orders", "1") },
		"key":   func(ctx context.Context, h *HTTP) (int, error) { return h.DeleteKey(ctx, "orders", "a") },
	}
	answers := map[string]struct {
		body string
		err  error
	}{
		"done":       {"{\"done\":1,\"of\":2}\n{\"done\":2,\"of\":2,\"ok\":true}\n", nil},
		"broken off": {"{\"done\":2,\"of\":2}\n", ErrBrokenOff},
		"empty":      {"", ErrBrokenOff},
		"refused":    {"{\"done\":2,\"of\":2}\n{\"error\":\"gone\",\"code\":\"store_unavailable\"}\n", &wire.Error{Code: wire.StoreUnavailable}},
	}
	for name, answer := range answers {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, answer.body)
		}))
		h := &HTTP{AppURL: server.URL}
		for what, change := range changes {
			n, err := change(t.Context(), h)
			if !errors.Is(err, answer.err) {
				t.Errorf("%s, %s: %v, want %v", what, name, err, answer.err)
			}
			if answer.body != "" && n != 2 {
				t.Errorf("%s, %s: %d", what, name, n)
			}
		}
		h.CloseIdle()
		server.Close()
	}
}
