package federation

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/sdk/wire/codec"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/test/require"
)

// serveReally serves the node's parts by the handler that sidecars have.
func serveReally(t *testing.T, n *node) Peer {
	t.Helper()
	s := httptest.NewServer(replay.New(replay.Config{
		Store: n, Parts: n.parts(), Self: n.local().self, Logger: slog.New(slog.DiscardHandler),
	}))
	t.Cleanup(s.Close)
	return Peer{NodeID: n.who.NodeID, Instance: n.who.Instance, StoreID: n.who.StoreID, Address: strings.TrimPrefix(s.URL, "http://")}
}

// TestWithTheHandler: peers and the sidecar that is asked behind the handler that sidecars have; an
// export, and pages by their cursors, are the same.
func TestWithTheHandler(t *testing.T) {
	self, a := edge("self", 700, 1, 7), edge("a", 900, 2, 5)
	region := newMemory(series(800, 3, 6, "region")...)
	b := newNode("b", "region", region, newMemory(series(10, 4000, 1, "spool-b")...))
	c := newNode("c", "region", region, newMemory())
	for i, r := range self.log.events[:300] { // a has them, too, at the same or a later place
		copied := *r
		copied.TS += int64(i % 3)
		a.log.events = append(a.log.events, &copied)
	}
	a.log = newMemory(a.log.events...)
	for _, r := range b.spool.events {
		r.Spooled = true
	}

	dead := Peer{Address: "127.0.0.1:1"}
	peers := []Peer{serveReally(t, a), serveReally(t, b), serveReally(t, c)}
	cfg := soon(config(self))
	cfg.Peers = func() []Peer { return peers }
	f := newFleet(t, cfg)
	front := replay.New(replay.Config{Store: self, Parts: self.parts(), Self: cfg.Self, Fleet: f, Logger: cfg.Logger})
	ask := func(target string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		front.ServeHTTP(w, httptest.NewRequest(http.MethodGet, target, nil))
		return w
	}

	exported := ask("/export?topic=orders&scope=fleet")
	var ids []string
	for line := range strings.Lines(exported.Body.String()) {
		e, err := codec.ParseEvent([]byte(line))
		require.NoError(t, err)
		ids = append(ids, e.ID)
	}
	all := slices.Compact(slices.Sorted(slices.Values(merged(self, a, b, c))))
	if !slices.Equal(slices.Sorted(slices.Values(ids)), all) {
		t.Fatalf("status %d, %d ids exported, want %d", exported.Code, len(ids), len(all))
	}

	for _, partial := range []string{"", "&partial=ok"} {
		if partial != "" {
			peers = append(peers, dead)
		}
		var paged []string
		for next, pages := "", 0; pages == 0 || next != ""; pages++ {
			w := ask(fmt.Sprintf("/replay?topic=orders&scope=fleet&limit=97%s&cursor=%s", partial, url.QueryEscape(next)))
			if next == "" {
				w = ask("/replay?topic=orders&scope=fleet&limit=97" + partial)
			}
			var page struct {
				Events  []struct{ ID string }
				Next    string
				Partial bool
				Missing []string
			}
			if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil || w.Code != http.StatusOK {
				t.Fatalf("status %d, %v, %.200s", w.Code, err, w.Body)
			}
			if page.Partial != (partial != "") || page.Partial && !slices.Equal(page.Missing, []string{dead.Address}) {
				t.Fatalf("partial %v, missing %q", page.Partial, page.Missing)
			}
			for _, e := range page.Events {
				paged = append(paged, e.ID)
			}
			next = page.Next
		}
		if !slices.Equal(paged, ids) {
			t.Errorf("%d ids in pages, %d exported", len(paged), len(ids))
		}
	}
	if w := ask("/export?topic=orders&scope=fleet"); w.Code != http.StatusBadGateway || !strings.Contains(w.Body.String(), dead.Address) {
		t.Errorf("status %d, %.200s", w.Code, w.Body)
	}
}
