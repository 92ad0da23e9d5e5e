package access

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// as asks a handler with a token; "" shows none.
func as(h http.Handler, token string) int {
	r := httptest.NewRequest("GET", "/", nil)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code
}

// asker lets in whom MayAsk does, and then those that may replay a topic.
func asker(p *PeerTokens, a *Access) http.Handler {
	log := slog.New(slog.DiscardHandler)
	return p.Authenticate(a, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := p.MayAsk(a, r); err != nil {
			p.Refuse(w, r, err, log)
			return
		}
		id := a.From(r.Context())
		if err := id.May(Replay, "orders", ""); err != nil {
			w.WriteHeader(http.StatusForbidden)
		}
		if a != nil && id.Name == "peer" && (id.May(Publish, "orders", "") == nil || id.May(Operate, "", "") == nil || id.May(Join, "", "") == nil) {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
}

func peerFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "peers")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWhoMayAskForParts(t *testing.T) {
	p, err := OpenPeerTokens(peerFile(t, "first-token-of-peers\nsecond-token-of-peers\n"), nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	file := peerFile(t, "tokens:\n - {name: audit, sha256: "+sumOf("audit")+", replay: [orders]}\n - {name: app, sha256: "+sumOf("app")+", publish: ['*']}\n")
	a, err := Open(file, Sidecar, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		peers *PeerTokens
		auth  *Access
		want  map[string]int
	}{
		{"nobody is asked", nil, nil, map[string]int{"": 200, "audit": 200}},
		{"peers alone", p, nil, map[string]int{"": 401, "audit": 401, "first-token-of-peers": 200, "second-token-of-peers": 200, "first-token-of-peers ": 200, "first": 401}},
		{"the file alone", nil, a, map[string]int{"": 401, "audit": 200, "app": 403, "first-token-of-peers": 401}},
		{"both", p, a, map[string]int{"": 401, "audit": 200, "app": 403, "first-token-of-peers": 200, "second-token-of-peers": 200, "third": 401}},
	} {
		for token, want := range tc.want {
			if got := as(asker(tc.peers, tc.auth), token); got != want {
				t.Errorf("%s, as %q: %d, want %d", tc.name, token, got, want)
			}
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	p.Authorize(r, "")
	if got := r.Header.Get("Authorization"); got != "Bearer first-token-of-peers" {
		t.Errorf("shown: %q", got)
	}
	r.Header.Del("Authorization")
	if (*PeerTokens)(nil).Authorize(r, ""); r.Header.Get("Authorization") != "" {
		t.Error("a token without a file")
	}
}

func TestPeerTokenFilesThatAreRefused(t *testing.T) {
	for text, says := range map[string]string{
		"":                           "0 tokens",
		"\n \n":                      "0 tokens",
		"one\ntwo\nthree\n":          "3 tokens",
		"tök\n":                      "line 1",
		strings.Repeat("x", 65_537):  "line 1",
		"good\n\x01" + "bad-in-it\n": "line 2",
	} {
		if _, err := OpenPeerTokens(peerFile(t, text), nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v, want it to say %q", text, err, says)
		}
	}
	if _, err := OpenPeerTokens(filepath.Join(t.TempDir(), "none"), nil, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "none") {
		t.Errorf("no file: %v", err)
	}
}

// TestPeerTokensRotate takes the file through a rotation, and through mistakes.
func TestPeerTokensRotate(t *testing.T) {
	path := peerFile(t, "old-old-old-old-old\n")
	synctest.Test(t, func(t *testing.T) {
		p, err := OpenPeerTokens(path, nil, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.Run(ctx) }()
		for _, step := range []struct {
			text     string
			old, new int
			shown    string
		}{
			{"old-old-old-old-old\nnew-new-new-new-new\n", 200, 200, "old"},
			{"new-new-new-new-new\nold-old-old-old-old\n", 200, 200, "new"},
			{"\n", 200, 200, "new"},
			{"new-new-new-new-new", 401, 200, "new"},
		} {
			if err := os.WriteFile(path, []byte(step.text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * pollEvery)
			synctest.Wait()
			h := asker(p, nil)
			if old, new := as(h, "old-old-old-old-old"), as(h, "new-new-new-new-new"); old != step.old || new != step.new {
				t.Errorf("%q: old %d, new %d", step.text, old, new)
			}
			if !strings.HasPrefix(p.now.Load().shown, step.shown) {
				t.Errorf("%q: shown is %q", step.text, p.now.Load().shown)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := (*PeerTokens)(nil).Run(t.Context()); err != nil {
		t.Error(err)
	}
}
