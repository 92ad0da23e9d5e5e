package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// A control plane whose disk is full answers no change with OK, says why, since when and what to do, and goes on by itself.
func TestFullDisk(t *testing.T) {
	dir := testkit.SmallDisk(t, 48<<20)
	p := plane{testkit.StartControlPlane(t, "--data-dir", filepath.Join(dir, "data"))}
	p.put(t, "before", `{}`)
	began := time.Now()
	filler := filepath.Join(dir, "filler")
	testkit.Fill(t, filler)
	weights := `{"delivery":{"fairness":{"weights":{"` + strings.Repeat("w", 20_000) + `":2}}}}`
	n, refused := 0, testkit.Answer{}
	for ; refused.Status != 503 && n < 200; n++ { // the file has room of its own
		refused = p.call(t, "PUT", fmt.Sprint("/v1/policies/p", n), weights)
	}
	if body := string(refused.Body); refused.Status != 503 || !strings.Contains(body, "store_unavailable") ||
		!strings.Contains(body, "no room is left on the disk of the control plane's --data-dir: make room there") {
		t.Fatalf("after %d policies: %d %s", n, refused.Status, body)
	}
	status := p.get(t, "/v1/status")
	if status.Text("store.state") != "away" || status.Number(t, "store.since") < began.UnixMilli() ||
		!strings.Contains(status.Text("store.error"), "no space left") {
		t.Errorf("the status says %v", status.At("store"))
	}
	if a := p.call(t, "GET", "/readyz", ""); a.Status != 503 || !strings.Contains(string(a.Body), "no space left") {
		t.Errorf("readyz: %d %s", a.Status, a.Body)
	}
	if a := p.call(t, "GET", "/v1/policies/before", ""); a.Status != 200 {
		t.Errorf("a read: %d %s", a.Status, a.Body)
	}
	require.NoError(t, os.Remove(filler))
	testkit.Eventually(t, "it is ready again", func() bool { return p.call(t, "GET", "/readyz", "").Status == 200 })
	p.put(t, "after", `{}`)
	if state := p.get(t, "/v1/status").Text("store.state"); state != "ok" {
		t.Errorf("with room again the store is %q", state)
	}
}
