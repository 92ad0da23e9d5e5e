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
	"github.com/sluice-bus/sluice/test/require"
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
	changed := make(chan struct{})
	a.OnChange(func() { close(changed) })
	ctx, cancel := context.WithCancel(t.Context())
	var following sync.WaitGroup
	following.Go(func() { _ = a.Run(ctx) }) // it returns none
	defer following.Wait()
	defer cancel()

	store := newMemory(many(20*pageEvents, 100)...)
	store.onScan = func(n int) error {
		if n == 3 {
			rights("payments")
			<-changed
		}
		if n > 3 {
			time.Sleep(10 * time.Millisecond) // the export is ended beside the scan, which is quicker here than any store
		}
		return nil
	}
	server := httptest.NewServer(New(Config{Store: store, Access: a, Logger: slog.New(slog.DiscardHandler), Now: now}))
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/export?topic=orders", nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer audit")
	res, err := server.Client().Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if got := strings.Count(string(body), "\n"); err == nil || got >= 20*pageEvents {
		t.Errorf("%d of %d events came, and then %v", got, 20*pageEvents, err)
	}
}
