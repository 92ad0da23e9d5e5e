package fleet

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// way leads to control planes in turn, like a name that resolves to several addresses.
type way struct {
	addr string

	mu    sync.Mutex
	to    []string
	next  int
	conns map[net.Conn]bool
}

func newWay(t *testing.T, to ...string) *way {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	w := &way{addr: l.Addr().String(), to: to, conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { w.lead(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		w.cut()
		running.Wait()
	})
	return w
}

// leads makes the way lead to other addresses from now on; none: to no address.
func (w *way) leads(to ...string) {
	w.mu.Lock()
	w.to, w.next = to, 0
	w.mu.Unlock()
	w.cut()
}

// cut cuts all connections.
func (w *way) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.conns {
		c.Close()
	}
}

func (w *way) lead(c net.Conn) {
	defer c.Close()
	w.mu.Lock()
	if len(w.to) == 0 {
		w.mu.Unlock()
		return
	}
	target := w.to[w.next%len(w.to)]
	w.next++
	w.conns[c] = true
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.conns, c)
		w.mu.Unlock()
	}()
	up, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		_, _ = io.Copy(up, c) // until either ends
		up.Close()
	}()
	_, _ = io.Copy(c, up)
}

func (p *plane) ready(t *testing.T) (ok bool, why string) {
	t.Helper()
	r, err := http.Get(p.URL() + "/readyz")
	require.NoError(t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return r.StatusCode == http.StatusOK, string(text)
}

// TestAControlPlaneThatIsCutOff cuts one of two control planes off from their store, and leads a
// sidecar of the other to it.
func TestAControlPlaneThatIsCutOff(t *testing.T) {
	t.Parallel()
	db := mongotest.Shared(t)
	name := db.NewDatabase(t)
	toStore := faultproxy.New(t, db.Addr())
	right := startPlane(t, "--store", db.URI(name), "--name", "right")
	right.put(t, "*", unlimited)
	right.put(t, "a", `{"publish":{"rate":100,"burst":5}}`)
	left := startPlane(t, "--store", db.URIVia(toStore.Addr(), name), "--name", "left")
	w := newWay(t, right.XDS())
	m := startSidecar(t, "m", "--control-plane", w.addr)
	atLeft := startSidecar(t, "at-left", "--control-plane", left.XDS())
	burst := func(m *member, want int) {
		t.Helper()
		eventually(t, m.name+" has the policy", func() bool { return m.burst(t, "a") == want })
	}
	burst(m, 5)
	burst(atLeft, 5)

	toStore.Pause(faultproxy.Both)
	cut := time.Now()
	right.put(t, "a", `{"publish":{"rate":100,"burst":6}}`)
	burst(m, 6)
	w.leads(left.XDS())
	eventually(t, "a refusal", func() bool { return strings.Contains(m.Log(), "of revision 0/2, below 0/3") })
	if got := m.burst(t, "a"); got != 6 {
		t.Errorf("burst %d; a control plane that was cut off has brought back what was", got)
	}
	eventually(t, "the one that is cut off is not ready", func() bool {
		ok, why := left.ready(t)
		return !ok && strings.Contains(why, "has not been read for")
	})
	eventually(t, "its sidecar is sent away", func() bool { return !atLeft.connection(t).Connected })
	t.Logf("sidecars are sent away %v after the cut", time.Since(cut).Round(time.Millisecond))
	w.leads(left.XDS(), right.XDS())
	right.put(t, "a", `{"publish":{"rate":100,"burst":7}}`)
	burst(m, 7)
	m.Kill()
	w.leads()
	m.start(t)
	if got := m.burst(t, "a"); got != 7 || atLeft.burst(t, "a") != 5 {
		t.Errorf("bursts %d and %d without a control plane", got, atLeft.burst(t, "a"))
	}

	toStore.Resume(faultproxy.Both)
	eventually(t, "it is ready again", func() bool { ok, _ := left.ready(t); return ok })
	burst(atLeft, 7)
	w.leads(left.XDS())
	eventually(t, "a connection", func() bool { return m.inForce(t)["a"].Source == sourceLive })
}

// TestAStoreThatWasRestored takes a control plane's store back to a backup.
func TestAStoreThatWasRestored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startPlane(t, "--data-dir", dir)
	p.put(t, "*", unlimited)
	p.put(t, "a", `{"publish":{"rate":100,"burst":5}}`)
	m := startSidecar(t, "m", "--control-plane", p.XDS())
	file := filepath.Join(dir, "policies.db")
	p.Kill()
	backup, err := os.ReadFile(file)
	require.NoError(t, err)
	p.start(t)
	p.put(t, "a", `{"publish":{"rate":100,"burst":6}}`)
	eventually(t, "the change", func() bool { return m.burst(t, "a") == 6 })
	p.Kill()
	require.NoError(t, os.WriteFile(file, backup, 0o600))
	require.NoError(t, os.Remove(filepath.Join(dir, "policies.acked"))) // which would take the older file for a damage
	p.start(t)
	eventually(t, "the refusal at the control plane", func() bool {
		sidecars, err := p.api.Sidecars(t.Context())
		return err == nil && len(sidecars) == 1 && sidecars[0].Rejected != nil && strings.Contains(sidecars[0].Rejected.Reason, "below 0/3")
	})
	if m.burst(t, "a") != 6 {
		t.Error("the policies have gone back")
	}
	if _, err := p.api.NewSeries(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the policies of the backup", func() bool { return m.burst(t, "a") == 5 })
}
