package replay

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

func TestReplayByTopic(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.yaml")
	text := fmt.Sprintf("tokens:\n - {name: audit, sha256: %x, replay: [orders]}\n - {name: peer, sha256: %x, replay: ['*']}",
		sha256.Sum256([]byte("audit")), sha256.Sum256([]byte("peer")))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	a, err := access.Open(file, access.Sidecar, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	store := newMemory(record(1, "a", ""), record(2, "b", ""), record(3, "c", ""))
	h := New(Config{Store: store, Access: a, Logger: slog.New(slog.DiscardHandler), Now: now})
	ask := func(target, token string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", target, nil)
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	elsewhere := url.QueryEscape(cursor{view: view{topic: "payments", scope: scopeStore, from: "earliest"}}.encode())
	for _, tc := range []struct {
		target string
		audit  int
		peer   int
	}{
		{"/replay?topic=orders", 200, 200},
		{"/export?topic=orders", 200, 200},
		{"/replay?topic=orders&from=afterId&afterId=b", 200, 200},
		{"/replay?topic=payments", 403, 200},
		{"/export?topic=payments", 403, 200},
		{"/replay?topic=payments&scope=fleet", 403, 200},
		{"/replay?topic=payments&from=afterId&afterId=nothing", 403, 404}, // not even whether an event is there
		{"/replay?cursor=" + elsewhere, 403, 200},                         // the cursor's topic counts
		{"/replay?topic=", 400, 400},
		{"/nowhere", 404, 404},
	} {
		for token, want := range map[string]int{"audit": tc.audit, "peer": tc.peer, "": 401, "wrong": 401} {
			w := ask(tc.target, token)
			if w.Code != want || want == http.StatusForbidden && !strings.Contains(w.Body.String(), `\"payments\"`) ||
				want == 401 && w.Header().Get("WWW-Authenticate") == "" {
				t.Errorf("%s as %q: %d %s, want %d", tc.target, token, w.Code, w.Body, want)
			}
		}
	}
}

// revoking takes the rights of its reader away at the third scan, which lasts until the reader is ended.
type revoking struct {
	*memory
	revoke func()
}

func (r revoking) Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error) {
	if r.scans == 2 {
		r.revoke()
		select {
		case <-ctx.Done():
		case <-time.After(testkit.Patience):
		}
	}
	return r.memory.Scan(ctx, topic, q, b)
}

// An export ends when the one who asked for it may not have it any more, and not as if it were
// whole.
func TestRevokedExportEnds(t *testing.T) {
	file := filepath.Join(t.TempDir(), "auth.yaml")
	rights := func(topics string) {
		text := fmt.Sprintf("tokens: [{name: audit, sha256: %x, replay: [%s]}]", sha256.Sum256([]byte("audit")), topics)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	rights("orders")
	a, err := access.Open(file, access.Sidecar, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { _ = a.Run(ctx) }) // it returns none
	defer following.Wait()
	defer cancel()

	store := revoking{newMemory(many(20*pageEvents, 100)...), func() { rights("payments") }}
	server := httptest.NewServer(New(Config{Store: store, Access: a, Logger: slog.New(slog.DiscardHandler), Now: now}))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/export?topic=orders", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer audit")
	res, err := server.Client().Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if got := strings.Count(string(body), "\n"); err == nil || got >= 5*pageEvents {
		t.Errorf("%d of %d events came, and then %v", got, 20*pageEvents, err)
	}
}
