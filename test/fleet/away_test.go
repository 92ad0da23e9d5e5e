package fleet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	sourceLive   = "control-plane"
	sourceCached = "control-plane (cached)"
)

// The policy of the topic limited. Each sidecar allows its own part of the load.
const limitedRate, limitedBurst = 2, 5

// TestBadDayOfTheControlPlane kills the control plane under load, restarts sidecars meanwhile, and
// brings it back.
func TestBadDayOfTheControlPlane(t *testing.T) {
	t.Parallel()
	p := startPlane(t)
	p.put(t, "*", unlimited)
	p.put(t, "limited", fmt.Sprintf(`{"publish":{"rate":%d,"burst":%d}}`, limitedRate, limitedBurst))
	p.put(t, "exact", `{"publish":{"rate":100,"burst":7}}`)
	p.put(t, "glob.*", `{"publish":{"rate":100,"burst":8}}`)
	p.put(t, "unused", `{"publish":{"rate":100,"burst":6}}`)
	p.put(t, "paused.*", `{"paused":true}`)
	p.put(t, "paused.not", `{"paused":false}`)
	var proxies []*faultproxy.Proxy
	var sidecars []*member
	for i := range 3 {
		proxies = append(proxies, faultproxy.New(t, p.XDS()))
		sidecars = append(sidecars, startSidecar(t, fmt.Sprint("s", i), "--control-plane", proxies[i].Addr()))
	}
	lastSaid := func(m *member) bool {
		return m.burst(t, "exact") == 7 && m.burst(t, "glob.x") == 8 && m.paused(t, "paused.x") && !m.paused(t, "paused.not")
	}
	everywhere(t, sidecars, "the policies", time.Now(), lastSaid)
	for _, m := range sidecars {
		awaitCache(t, m, "exact", "paused.not", "glob.*", "unused")
	}

	var loads []*load
	for _, m := range sidecars {
		loads = append(loads, startLoad(t, m))
	}
	phase(t, "before", loads...)
	p.Kill()
	begin := time.Now()
	for _, m := range sidecars {
		eventually(t, m.name+" has noticed", func() bool { return !m.connection(t).Connected })
	}
	phase(t, "away", loads...)

	loads[0].end()
	sidecars[0].Kill()
	sidecars[0].start(t)
	if !lastSaid(sidecars[0]) {
		t.Errorf("a sidecar that was restarted goes by other policies than before: %v", sidecars[0].inForce(t))
	}
	for name, policy := range sidecars[0].inForce(t) {
		if policy.Source != sourceCached {
			t.Errorf("a sidecar without control plane has %s from %q", name, policy.Source)
		}
	}
	for _, m := range sidecars { // one was restarted meanwhile
		if got := m.burst(t, "unused"); got != 6 {
			t.Errorf("%s: a topic that is used for the first time has burst %d, want that of its own policy", m.name, got)
		}
	}
	strangers := startWithout(t, p)
	others := append(slices.Clone(sidecars), strangers...)
	if !lastSaid(sidecars[1]) || !lastSaid(sidecars[2]) {
		t.Error("the policies are not what they were when the control plane went")
	}

	gone, began := time.Since(begin), time.Now()
	p.start(t)
	tries := connections(proxies)
	p.put(t, "exact", `{"publish":{"rate":100,"burst":70}}`)
	everywhere(t, others, "a change right after the return", began, func(m *member) bool { return m.burst(t, "exact") == 70 })
	everywhere(t, others, "the rest", began, func(m *member) bool {
		return m.inForce(t)["exact"].Source == sourceLive && m.burst(t, "glob.x") == 8 && m.paused(t, "paused.x")
	})
	phase(t, "back", loads[1:]...)
	for _, l := range loads {
		l.end()
	}
	noStorm(t, proxies, tries, gone)
}

// noStorm bounds the connections that sidecars have made since the control plane went away. tries
// is how many of them they made while it was away.
func noStorm(t *testing.T, proxies []*faultproxy.Proxy, tries []int, gone time.Duration) {
	t.Helper()
	for i, n := range connections(proxies) {
		// Tries are 100 ms apart at first, and later further; a sidecar that is restarted starts
		// over.
		t.Logf("sidecar %d made %d connections while the control plane was away, for %v, and %d when it was back",
			i, tries[i]-1, gone.Round(time.Millisecond), n-tries[i])
		if tries[i] > 50 || n-tries[i] > 2 {
			t.Errorf("sidecar %d: that are too many", i)
		}
	}
}

// connections is how many each proxy has seen so far.
func connections(proxies []*faultproxy.Proxy) []int {
	var out []int
	for _, proxy := range proxies {
		out = append(out, proxy.Stats().Connections)
	}
	return out
}

// TestControlPlaneThatHangs leaves connections open that carry nothing any more, and later lets
// everything through at once.
func TestControlPlaneThatHangs(t *testing.T) {
	t.Parallel()
	p := startPlane(t)
	p.put(t, "*", unlimited)
	p.put(t, "limited", fmt.Sprintf(`{"publish":{"rate":%d,"burst":%d}}`, limitedRate, limitedBurst))
	p.put(t, "shared", fleetPolicy)
	proxy := faultproxy.New(t, p.XDS())
	m := startSidecar(t, "s", "--control-plane", proxy.Addr())
	l := startLoad(t, m)
	phase(t, "before", l)
	proxy.Pause(faultproxy.Both)
	phase(t, "hanging", l)
	for _, topic := range []string{"unknown", "shared"} {
		var took []time.Duration
		for range 5 {
			begin := time.Now()
			if err := m.publish(t.Context(), topic); err != nil {
				t.Errorf("%s: %v", topic, err)
			}
			took = append(took, time.Since(begin).Round(time.Millisecond))
			pause.For(t.Context(), 20*time.Millisecond) // a fallback begins with one token
		}
		t.Logf("first publishes to %s while the control plane hangs took %v", topic, took)
	}
	p.put(t, "unknown", `{"publish":{"rate":100,"burst":7}}`)
	begin := time.Now()
	proxy.Resume(faultproxy.Both)
	everywhere(t, []*member{m}, "a change of meanwhile", begin, func(m *member) bool { return m.burst(t, "unknown") == 7 })
	phase(t, "back", l)
	l.end()
	if n := proxy.Stats().Connections; n != 1 {
		t.Errorf("%d connections, where the first one was only slow", n)
	}
}

// awaitCache waits until the sidecar has saved the policies that it was told last, which it does a
// quarter of a second later.
func awaitCache(t *testing.T, m *member, names ...string) {
	t.Helper()
	eventually(t, m.name+" has kept its policies", func() bool {
		text, err := os.ReadFile(filepath.Join(m.dir, "control-plane.cache"))
		if err != nil {
			return false
		}
		return !slices.ContainsFunc(names, func(name string) bool { return !contains(text, name) })
	})
}

// startWithout starts two sidecars that have never heard of any control plane, while there is none.
// One of them has a file of policies.
func startWithout(t *testing.T, p *plane) []*member {
	t.Helper()
	file := testkit.Write(t, filepath.Join(t.TempDir(), "policies.yaml"),
		`[{name: "*", connection: {rate: 0}}, {name: exact, publish: {burst: 9}}, {name: "paused.*", paused: true}]`)
	var out []*member
	for _, c := range []struct {
		name  string
		args  []string
		burst int
	}{{"s-new", nil, 200}, {"s-file", []string{"--policies", file}, 9}} {
		begin := time.Now()
		m := startSidecar(t, c.name, append([]string{"--control-plane", p.XDS()}, c.args...)...)
		t.Logf("%s was ready after %v without a control plane", c.name, time.Since(begin).Round(time.Millisecond))
		if got := m.burst(t, "exact"); got != c.burst {
			t.Errorf("%s: burst %d, want %d", c.name, got, c.burst)
		}
		if err := m.publish(t.Context(), "exact"); err != nil {
			t.Errorf("%s serves nothing: %v", c.name, err)
		}
		out = append(out, m)
	}
	if !out[1].paused(t, "paused.x") {
		t.Error("a policy of the file does not hold")
	}
	return out
}

// load publishes to a sidecar, steadily: to a topic without limits, where nothing may be refused,
// and to the topic limited.
type load struct {
	m       *member
	cancel  context.CancelFunc
	running sync.WaitGroup
	began   time.Time

	mu       sync.Mutex
	took     []time.Duration // since the last phase
	accepted int             // of limited
	refused  int
	wrong    []error
}

func startLoad(t *testing.T, m *member) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{m: m, cancel: cancel, began: time.Now()}
	t.Cleanup(cancel)
	l.running.Go(func() {
		for ctx.Err() == nil {
			l.publish(ctx)
			select {
			case <-time.After(10 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	t.Cleanup(func() { l.end() })
	return l
}

func (l *load) publish(ctx context.Context) {
	begin := time.Now()
	steady := l.m.publish(ctx, "steady")
	took := time.Since(begin)
	limited := l.m.publish(ctx, "limited")
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.took = append(l.took, took)
	if steady != nil {
		l.wrong = append(l.wrong, steady)
	}
	switch {
	case limited == nil:
		l.accepted++
	case isCode(limited, wire.RateLimited):
		l.refused++
	default:
		l.wrong = append(l.wrong, limited)
	}
}

// phase lets loads go on for a hundred publishes more each, and says how these went.
func phase(t *testing.T, name string, loads ...*load) {
	t.Helper()
	for _, l := range loads {
		l.mu.Lock()
		l.took = nil
		l.mu.Unlock()
	}
	for _, l := range loads {
		eventually(t, l.m.name+": a hundred publishes", func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.took) >= 100
		})
		l.report(t, name)
	}
}

// report says how the publishes of a phase went.
func (l *load) report(t *testing.T, phase string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, err := range l.wrong {
		t.Errorf("%s: control plane %s: %v", l.m.name, phase, err)
	}
	l.wrong = nil
	if most := limitedBurst + limitedRate*time.Since(l.began).Seconds(); float64(l.accepted) > most {
		t.Errorf("%s: control plane %s: %d publishes passed the limit, which allows %.2f", l.m.name, phase, l.accepted, most)
	}
	if l.refused == 0 {
		t.Errorf("%s: control plane %s: nothing was refused", l.m.name, phase)
	}
	slices.Sort(l.took)
	n := len(l.took)
	t.Logf("%s: control plane %s: publishes took p50 %v, p99 %v", l.m.name, phase, l.took[n/2], l.took[n*99/100])
}

func (l *load) end() {
	l.cancel()
	l.running.Wait()
}
