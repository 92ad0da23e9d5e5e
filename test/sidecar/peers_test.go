package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// pair is two sidecars with a log each, that know each other by name and token.
type pair struct {
	files [2]string // of their tokens
	asked [2]*admin.HTTP
	procs [2]*testkit.Sidecar
}

// startPair starts both, with their replay listeners on sockets: a peer's address must be known
// before it runs. clients are the clients' entries of --auth-config.
func startPair(t *testing.T, token, clients string) *pair {
	t.Helper()
	dir, err := os.MkdirTemp("", "sluice") // a socket's path must be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	sockets := [2]string{"unix:" + filepath.Join(dir, "0"), "unix:" + filepath.Join(dir, "1")}
	p := &pair{}
	for i, name := range []string{"one", "two"} {
		p.files[i] = testkit.Write(t, filepath.Join(dir, name+".token"), token+"\n")
		auth := testkit.Write(t, filepath.Join(dir, name+".yaml"), "peers: {token_file: "+name+".token}\n"+clients)
		p.procs[i] = testkit.StartSidecar(t, filepath.Join(t.TempDir(), name),
			"--node-id", name, "--replay-listen", sockets[i], "--peers", sockets[0]+","+sockets[1], "--auth-config", auth)
		p.asked[i] = &admin.HTTP{AppURL: p.procs[i].URL(), ReplayURL: sockets[i], Token: "audit-audit-audit-audit"}
		t.Cleanup(p.asked[i].CloseIdle)
		event := &wire.Event{ID: name, Topic: "orders", Payload: []byte("1")}
		if _, err := p.asked[i].Publish(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// fleet asks one of them for the history of both.
func (p *pair) fleet(ctx context.Context, i int) (ids []string, err error) {
	for e, err := range p.asked[i].Export(ctx, sluice.ExportQuery{Topic: "orders", Scope: "fleet"}) {
		if err != nil {
			return nil, err
		}
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids, nil
}

// wantBoth asks either for both histories.
func (p *pair) wantBoth(t *testing.T, when string) {
	t.Helper()
	for i := range p.asked {
		if ids, err := p.fleet(t.Context(), i); err != nil || !slices.Equal(ids, []string{"one", "two"}) {
			t.Fatalf("%s, from %d: %q, %v\n%s", when, i, ids, err, p.procs[i].Log())
		}
	}
}

// taken waits until a sidecar has taken a changed file up.
func (p *pair) taken(t *testing.T, i, times int) {
	t.Helper()
	eventually(t, func() bool {
		return strings.Count(p.procs[i].Log(), "the authorization file has changed") == times
	})
}

// TestPeersRotateTheirToken follows the steps of deploy/security.md. Whenever it asks for the
// history of both, one of the sidecars is a step behind the other.
func TestPeersRotateTheirToken(t *testing.T) {
	t.Parallel()
	const before, after = "before-before-before", "after-after-after"
	p := startPair(t, before, "")
	p.wantBoth(t, "at the start")
	step := func(i int, text string) {
		require.NoError(t, os.Rename(testkit.Write(t, p.files[i]+".new", text+"\n"), p.files[i]))
	}
	steps := []string{before + "\n" + after, after + "\n" + before, after}
	for n := range len(steps) + 1 {
		if n < len(steps) {
			step(0, steps[n])
		}
		if n > 0 {
			step(1, steps[n-1])
			p.taken(t, 1, n)
		}
		p.taken(t, 0, min(n+1, len(steps)))
		p.wantBoth(t, fmt.Sprintf("step %d", n))
	}
	testkit.Write(t, p.files[0], "somebody-elses-token\n")
	p.taken(t, 0, 4)
	_, err := p.fleet(t.Context(), 0)
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.PartialFleet || len(e.Missing) != 1 ||
		!strings.Contains(e.Missing[0], "unix:") {
		t.Errorf("with another token: %v", err)
	}
	peers, err := p.asked[0].Peers(t.Context())
	if err != nil || len(peers) != 2 || !peers[0].Self || peers[1].Reachable || peers[1].Reason == "" {
		t.Errorf("%+v, %v", peers, err)
	}
}

// TestPeersBesideAuthConfig: a peer's token opens the history, and nothing else.
func TestPeersBesideAuthConfig(t *testing.T) {
	audit := testkit.Write(t, filepath.Join(t.TempDir(), "audit"), "audit-audit-audit-audit\n")
	const token = "token-of-the-peers"
	p := startPair(t, token, "tokens:\n - {name: audit, token_file: "+audit+", publish: ['*'], replay: [orders], ops: true}\n")
	p.wantBoth(t, "with tokens of two kinds")
	ask := func(method, url, token string) int {
		req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("1"))
		require.NoError(t, err)
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		defer http.DefaultClient.CloseIdleConnections()
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if got := ask("POST", p.procs[0].URL()+"/v1/topics/orders/events", token); got != http.StatusUnauthorized {
		t.Errorf("a peer publishes: %d", got)
	}
	if got := ask("GET", p.procs[0].OpsURL()+"/metrics", token); got != http.StatusUnauthorized {
		t.Errorf("a peer sees the metrics: %d", got)
	}
	h := &admin.HTTP{ReplayURL: p.asked[0].ReplayURL, OpsURL: p.procs[0].OpsURL(), Token: token}
	defer h.CloseIdle()
	if _, err := h.Replay(t.Context(), sluice.ReplayQuery{Topic: "anything"}); err != nil {
		t.Errorf("a peer replays: %v", err)
	}
	status, err := p.firstStatus(t)
	if err != nil || len(status.Peers) != 1 || !strings.HasPrefix(status.Peers[0].Address, "unix:") {
		t.Errorf("status: %+v, %v", status, err)
	}
}

type peersStatus struct {
	Peers []struct {
		NodeID  string `json:"node_id"`
		StoreID string `json:"store_id"`
		Address string `json:"address"`
	} `json:"peers"`
}

func (p *pair) firstStatus(t *testing.T) (status peersStatus, err error) {
	t.Helper()
	h := &admin.HTTP{OpsURL: p.procs[0].OpsURL(), Token: "audit-audit-audit-audit"}
	defer h.CloseIdle()
	body, err := h.StatusJSON(t.Context())
	if err != nil {
		return status, err
	}
	return status, json.Unmarshal(body, &status)
}
