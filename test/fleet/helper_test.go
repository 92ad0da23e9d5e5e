package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// patience is how long a busy machine may take for a change that has to be there within 2 s.
const patience = testkit.Patience

// unlimited lets a test's one connection publish as fast as it likes.
const unlimited = `{"connection":{"rate":0},"publish":{"rate":0}}`

// plane is a control plane that keeps its ports and its data through all its lives.
type plane struct {
	*testkit.ControlPlane
	api  *admin.ControlPlane
	args []string
}

func startPlane(t *testing.T, args ...string) *plane {
	t.Helper()
	p := &plane{args: append([]string{
		"--data-dir", t.TempDir(), "--xds-listen", testkit.FreeAddress(t), "--http-listen", testkit.FreeAddress(t),
	}, args...)}
	p.start(t)
	p.api = &admin.ControlPlane{URL: p.URL(), User: "operator"}
	t.Cleanup(p.api.CloseIdle)
	return p
}

func (p *plane) start(t *testing.T) {
	t.Helper()
	p.ControlPlane = testkit.StartControlPlane(t, p.args...)
}

func (p *plane) put(t *testing.T, name, document string) admin.Policy {
	t.Helper()
	out, err := p.api.PutPolicy(t.Context(), name, json.RawMessage(document), admin.Condition{})
	if err != nil {
		t.Fatalf("PUT %s %s: %v", name, document, err)
	}
	return out
}

func (p *plane) remove(t *testing.T, name string) {
	t.Helper()
	if err := p.api.DeletePolicy(t.Context(), name, admin.Condition{}); err != nil {
		t.Fatalf("DELETE %s: %v", name, err)
	}
}

// member is a sidecar that keeps its name, its settings and its data folder through all its lives.
type member struct {
	*testkit.Sidecar
	api  *admin.HTTP
	name string
	dir  string
	args []string
}

func startSidecar(t *testing.T, name string, args ...string) *member {
	t.Helper()
	m := &member{name: name, dir: filepath.Join(t.TempDir(), "data"), args: append([]string{"--node-id", name}, args...)}
	m.start(t)
	return m
}

func (m *member) start(t *testing.T) {
	t.Helper()
	m.Sidecar = testkit.StartSidecar(t, m.dir, m.args...)
	m.api = &admin.HTTP{AppURL: m.URL(), ReplayURL: m.ReplayURL(), OpsURL: m.OpsURL()}
	t.Cleanup(m.api.CloseIdle)
}

// fleet is one control plane and three sidecars that are connected to it.
type fleet struct {
	*plane
	sidecars []*member
}

func startFleet(t *testing.T, args ...string) *fleet {
	t.Helper()
	f := &fleet{plane: startPlane(t)}
	f.put(t, "*", unlimited)
	for i := range 3 {
		f.sidecars = append(f.sidecars, startSidecar(t, fmt.Sprint("s", i), append([]string{"--control-plane", f.XDS()}, args...)...))
	}
	return f
}

// everywhere waits until each sidecar is as it should be, and logs how long that took since begin.
func everywhere(t *testing.T, sidecars []*member, what string, begin time.Time, is func(*member) bool) {
	t.Helper()
	for _, m := range sidecars {
		eventually(t, m.name+": "+what, func() bool { return is(m) })
	}
	t.Logf("%s: everywhere after %v", what, time.Since(begin).Round(time.Millisecond))
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	within(t, patience, what, is)
}

func within(t *testing.T, most time.Duration, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(most); !is(); pause.For(t.Context(), 5*time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", most, what)
		}
	}
}

// code is the code that refused a publish; "" if it was accepted.
func code(t testing.TB, err error) wire.Code {
	if err == nil {
		return ""
	}
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok {
		t.Errorf("a publish that was not answered: %v", err)
		return wire.Internal
	}
	return refusal.Code
}

// publish publishes one event.
func (m *member) publish(ctx context.Context, topic string) error {
	_, err := m.api.Publish(ctx, &wire.Event{Topic: topic, Payload: []byte("1")})
	return err
}

func (m *member) paused(t *testing.T, topic string) bool {
	return code(t, m.publish(t.Context(), topic)) == wire.TopicPaused
}

// overBurst is the refusal of a batch that no wait would let through.
var overBurst = regexp.MustCompile(`is larger than the burst of .+, which is (\d+)`)

// burst is the most events that may be published to a topic at once, as the refusal of a large
// batch says; 0 if there is no bound. It takes no tokens.
func (m *member) burst(t *testing.T, topic string) int {
	t.Helper()
	batch := slices.Repeat([]wire.Event{{Topic: topic, Payload: []byte("1")}}, 1000)
	_, err := m.api.PublishBatch(t.Context(), topic, batch)
	if code(t, err) != wire.BadRequest {
		return 0
	}
	found := overBurst.FindStringSubmatch(err.Error())
	if found == nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(found[1])
	require.NoError(t, err)
	return n
}

// inForce is a sidecar's answer about its policies.
func (m *member) inForce(t *testing.T) map[string]admin.PolicyStatus {
	t.Helper()
	status, err := m.api.Status(t.Context())
	require.NoError(t, err)
	out := map[string]admin.PolicyStatus{}
	for _, p := range status.Policies {
		out[p.Name] = p
	}
	return out
}

// connection is the state of a sidecar's connection to its control plane.
type connection struct {
	Connected bool
	Since     time.Time
	Error     string
}

func (m *member) connection(t *testing.T) connection {
	t.Helper()
	var status struct {
		ControlPlane connection `json:"control_plane"`
	}
	m.status(t, &status)
	return status.ControlPlane
}

// status reads the sidecar's status.
func (m *member) status(t *testing.T, into any) {
	t.Helper()
	text, err := m.api.StatusJSON(t.Context())
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}

func isCode(err error, code wire.Code) bool { return errors.Is(err, &wire.Error{Code: code}) }

func contains(text []byte, part string) bool { return bytes.Contains(text, []byte(part)) }
