package sidecar

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestFullDisk fills the disk of a sidecar, with events and then with something else to the last
// byte, and frees it again.
func TestFullDisk(t *testing.T) {
	dir := testkit.SmallDisk(t, 192<<20)
	data := filepath.Join(dir, "data")
	p := testkit.StartSidecar(t, data, "--policies", unlimited(t))
	publishHere := func() (int, string) { return exchange(t, "POST", p.URL()+"/v1/topics/t/events", payloadOf(100<<10)) }
	published := 0
	var status int
	var body string
	// Pebble removes files when it likes. Where that has made room, the sidecar lets publishes in
	// again, and there are more events.
	var untold []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); {
		if status, body = publishHere(); status == http.StatusCreated {
			published++
			continue
		}
		if status != http.StatusServiceUnavailable || !strings.Contains(body, `"code":"overloaded"`) ||
			!strings.Contains(body, `"reason":"disk"`) || !strings.Contains(body, `"retry_after_ms":`) {
			t.Fatalf("after %d events: %d %s", published, status, body)
		}
		if untold = unsaid(t, p.OpsURL()); len(untold) == 0 {
			break
		}
	}
	if status == http.StatusCreated || len(untold) > 0 {
		t.Errorf("after %d events: %d %s; %q", published, status, body, untold)
	}
	consumeOne(t, p)

	// Now the disk is full to the last byte.
	filler := filepath.Join(dir, "filler")
	testkit.Fill(t, filler)
	if status, body := publishHere(); status != http.StatusServiceUnavailable || !strings.Contains(body, `"reason":"disk"`) {
		t.Errorf("with no byte left: %d %s", status, body)
	}
	if status, body := exchange(t, "GET", p.ReplayURL()+"/replay?topic=t&limit=1", ""); status != http.StatusOK ||
		!strings.Contains(body, `"count":1`) {
		t.Errorf("a replay with no byte left: %d %.100s", status, body)
	}
	stopSoon(t, p)

	// A start on a disk that is full waits for room, and can be stopped.
	more := filepath.Join(dir, "more")
	testkit.Fill(t, more) // fill the room that the stop has made
	waitsForRoom(t, data, filepath.Join(t.TempDir(), "ops"))
	for _, path := range []string{filler, more} {
		require.NoError(t, os.Remove(path))
	}
	p = testkit.StartSidecar(t, data, "--disk-low-water", "0")
	if status, body := publishHere(); status != http.StatusCreated {
		t.Errorf("with room again: %d %s", status, body)
	}
	if _, body := exchange(t, "GET", p.ReplayURL()+"/export?topic=t", ""); strings.Count(body, "\n") != published+1 {
		t.Errorf("%d events are exported, of %d", strings.Count(body, "\n"), published+1)
	}
	// The disk fills to the last byte while the sidecar runs, without a mark: the sidecar survives
	// that.
	testkit.Fill(t, filler)
	for range 100 {
		if status, body = publishHere(); status != http.StatusCreated {
			break
		}
		published++
	}
	if status != http.StatusServiceUnavailable || !strings.Contains(body, `"reason":"disk"`) {
		t.Errorf("with no byte left, and no mark: %d %s", status, body)
	}
	require.NoError(t, os.Remove(filler))
	for deadline := time.Now().Add(testkit.Patience); ; {
		if status, body = publishHere(); status == http.StatusCreated {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it does not go on by itself: %d %s", status, body)
		}
		time.Sleep(50 * time.Millisecond)
	}
	stopSoon(t, p)
}

// unsaid returns the answers that do not say that a sidecar has too little room.
func unsaid(t *testing.T, ops string) (untold []string) {
	t.Helper()
	status, ready := exchange(t, "GET", ops+"/readyz", "")
	if status != http.StatusServiceUnavailable || !strings.Contains(ready, `"reason":"disk"`) {
		untold = append(untold, fmt.Sprintf("readyz: %d %s", status, ready))
	}
	if _, body := exchange(t, "GET", ops+"/v1/status", ""); !strings.Contains(body, `"state": "disk_full"`) ||
		!strings.Contains(body, `"short": true`) {
		untold = append(untold, "status: "+body)
	}
	if _, body := exchange(t, "GET", ops+"/metrics", ""); !strings.Contains(body, "sluice_disk_short 1") {
		untold = append(untold, "the metrics do not tell")
	}
	return untold
}

// waitsForRoom starts a sidecar that finds no room, asks its ops socket for its state, and stops
// it.
func waitsForRoom(t *testing.T, data, socket string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, testkit.SidecarProgram.Binary(t), "--data-dir", data, "--listen", "127.0.0.1:0", "--replay-listen",
		"127.0.0.1:0", "--ops-listen", "unix:"+socket)
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	for lines := bufio.NewScanner(stderr); lines.Scan(); {
		if strings.Contains(lines.Text(), "no room is left on the disk") {
			for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/v1/status": 503, "/metrics": 503} {
				if status, body := askSocket(t, socket, path); status != want || want == 503 &&
					(!strings.Contains(body, "room") || !strings.Contains(body, `"code":"store_unavailable"`)) {
					t.Errorf("%s while the start waits for room: %d %s; want %d", path, status, body, want)
				}
			}
			_ = cmd.Process.Signal(syscall.SIGTERM)
			_, _ = io.Copy(io.Discard, stderr)
			if err := cmd.Wait(); err != nil || ctx.Err() != nil {
				t.Errorf("a start that was told to stop: %v, %v", err, ctx.Err())
			}
			if stdout.Len() > 0 {
				t.Errorf("it says that it is ready: %s", &stdout)
			}
			return
		}
	}
	t.Errorf("the start on a full disk does not wait: %v", cmd.Wait())
}

func payloadOf(n int) string {
	random := make([]byte, n/2) // or else it takes longer to fill the disk, since the log compresses it
	_, _ = rand.Read(random)
	return `"` + hex.EncodeToString(random) + `"`
}

func exchange(t *testing.T, method, url, body string) (int, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(text)
}

// askSocket sends a request to a server that listens on a socket.
func askSocket(t *testing.T, socket, path string) (int, string) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	res, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).Get("http://localhost" + path)
	if err != nil {
		t.Errorf("%s: %v", path, err)
		return 0, ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Error(err)
	}
	return res.StatusCode, string(body)
}

// consumeOne pulls an event and acks it.
func consumeOne(t *testing.T, p *testkit.Sidecar) {
	t.Helper()
	group := p.URL() + "/v1/topics/t/groups/g"
	status, body := exchange(t, "POST", group+"/pull", `{"max":1,"wait_ms":5000,"opts":{"from":"earliest"}}`)
	var pulled struct {
		Events []struct{ Ctx struct{ Lease string } }
	}
	if err := json.Unmarshal([]byte(body), &pulled); err != nil || status != http.StatusOK || len(pulled.Events) != 1 {
		t.Fatalf("pull: %d %.200s", status, body)
	}
	if status, body := exchange(t, "POST", group+"/ack",
		fmt.Sprintf(`{"leases":[%q]}`, pulled.Events[0].Ctx.Lease)); status != http.StatusOK || !strings.Contains(body, `"ok":true`) {
		t.Errorf("ack: %d %s", status, body)
	}
}

// stopSoon tells the sidecar to stop, and checks that it does so soon.
func stopSoon(t *testing.T, p *testkit.Sidecar) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
	defer cancel()
	_ = p.Stop(ctx) // it may say what it could not write
	if ctx.Err() != nil {
		t.Error("it does not stop")
	}
}
