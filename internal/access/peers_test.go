package access

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
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

// asker lets in whom PeerMayAsk does, and then those that may replay a topic.
func asker(a *Access, key *PeerKey) http.Handler {
	return a.AuthenticatePeers(key, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := a.PeerMayAsk(r); err != nil {
			w.WriteHeader(wire.AsError(err).Code.HTTPStatus())
			return
		}
		id := a.From(r.Context())
		if err := id.May(Replay, "orders", ""); err != nil {
			w.WriteHeader(http.StatusForbidden)
		}
		if a.Authenticates() && id.Name == "peer" && (id.May(Publish, "orders", "") == nil || id.May(Operate, "", "") == nil ||
			id.May(Join, "", "") == nil) {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
}

const peersSection = "peers: {token_file: peers}\n"

func TestWhoMayAskForParts(t *testing.T) {
	f := newFolder(t)
	f.writef("peers", "first-token-of-peers\nsecond-token-of-peers\n")
	open := func(document string) *Access {
		f.writef("auth.yaml", "%s", document)
		a, _ := f.open(Sidecar)
		return a
	}
	clients := "tokens:\n - {name: audit, sha256: " + sumOf("audit") + ", replay: [orders]}\n - {name: app, sha256: " + sumOf("app") +
		", publish: ['*']}\n"
	peers := open(peersSection)
	for _, tc := range []struct {
		name string
		auth *Access
		want map[string]int
	}{
		{"nobody is asked", nil, map[string]int{"": 200, "audit": 200}},
		{"nobody authenticates", open("control_plane: {tls: true}"), map[string]int{"": 200, "audit": 200}},
		{"peers alone", peers, map[string]int{"": 401, "audit": 401, "first-token-of-peers": 200, "second-token-of-peers": 200,
			"first-token-of-peers ": 200, "first": 401}},
		{"the file alone", open(clients), map[string]int{"": 401, "audit": 200, "app": 403, "first-token-of-peers": 401}},
		{"both", open(clients + peersSection), map[string]int{"": 401, "audit": 200, "app": 403, "first-token-of-peers": 200,
			"second-token-of-peers": 200, "third": 401}},
	} {
		for token, want := range tc.want {
			if got := as(asker(tc.auth, nil), token); got != want {
				t.Errorf("%s, as %q: %d, want %d", tc.name, token, got, want)
			}
		}
	}
	r := httptest.NewRequest("GET", "/", nil)
	peers.AuthorizePeer(r, "", nil)
	if got := r.Header.Get("Authorization"); got != "Bearer first-token-of-peers" {
		t.Errorf("shown: %q", got)
	}
	r.Header.Del("Authorization")
	if (*Access)(nil).AuthorizePeer(r, "", nil); r.Header.Get("Authorization") != "" {
		t.Error("a token without a file")
	}
}

func TestPeerTokenFilesThatAreRefused(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", peersSection)
	open := func() error {
		_, err := Open(f.path("auth.yaml"), Sidecar, slog.New(slog.DiscardHandler))
		return err
	}
	if err := open(); err == nil || !strings.Contains(err.Error(), "peers.token_file") {
		t.Errorf("no file: %v", err)
	}
	for text, says := range map[string]string{
		"":                           "0 tokens",
		"\n \n":                      "0 tokens",
		"one\ntwo\nthree\n":          "3 tokens",
		"tök\n":                      "token 1",
		strings.Repeat("x", 65_537):  "token 1",
		"good\n\x01" + "bad-in-it\n": "token 2",
		"two words\n":                "token 1",
	} {
		f.write("peers", []byte(text))
		if err := open(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v, want it to say %q", text, err, says)
		}
	}
}

// TestPeerTokensRotate takes the file through a rotation, and through mistakes.
func TestPeerTokensRotate(t *testing.T) {
	f := newFolder(t)
	f.writef("auth.yaml", peersSection)
	f.writef("peers", "old-old-old-old-old\n")
	synctest.Test(t, func(t *testing.T) {
		a, _ := f.open(Sidecar)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- a.Run(ctx) }()
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
			f.write("peers", []byte(step.text))
			time.Sleep(3 * pollEvery)
			synctest.Wait()
			h := asker(a, nil)
			if old, new := as(h, "old-old-old-old-old"), as(h, "new-new-new-new-new"); old != step.old || new != step.new {
				t.Errorf("%q: old %d, new %d", step.text, old, new)
			}
			if shown := a.peerTokens().shown; !strings.HasPrefix(shown, step.shown) {
				t.Errorf("%q: shown is %q", step.text, shown)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
