package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// replayed is a replay of the fleet through one sidecar: the ids of the events, or the missing
// sidecars.
func (m *member) replayed(t *testing.T, topic string) (ids, missing []string) {
	t.Helper()
	r, err := http.Get(m.ReplayURL() + "/replay?scope=fleet&topic=" + url.QueryEscape(topic))
	require.NoError(t, err)
	defer r.Body.Close()
	var body struct {
		Events  []struct{ ID string }
		Code    wire.Code
		Missing []string
	}
	require.NoError(t, json.NewDecoder(r.Body).Decode(&body))
	switch {
	case r.StatusCode == http.StatusOK:
		ids = []string{}
	case body.Code != wire.PartialFleet:
		t.Fatalf("%d %s", r.StatusCode, body.Code)
	}
	for _, e := range body.Events {
		ids = append(ids, e.ID)
	}
	slices.Sort(ids)
	return ids, body.Missing
}

// whole waits until a replay is not refused, and checks that it has these events.
func (m *member) whole(t *testing.T, what, topic string, want ...string) {
	t.Helper()
	var ids []string
	eventually(t, what, func() bool { ids, _ = m.replayed(t, topic); return ids != nil })
	if !slices.Equal(ids, want) {
		t.Errorf("%s: replayed %q, want %q", what, ids, want)
	}
}

// misses waits until a replay names these sidecars as missing.
func (m *member) misses(t *testing.T, what, topic string, want ...string) {
	t.Helper()
	eventually(t, what, func() bool {
		_, missing := m.replayed(t, topic)
		return slices.EqualFunc(missing, want, strings.HasPrefix)
	})
}

// TestAGoneSidecarIsMissedUntilItIsBackOrForgotten kills sidecars that have events of their own,
// and all control planes.
func TestAGoneSidecarIsMissedUntilItIsBackOrForgotten(t *testing.T) {
	t.Parallel()
	db := mongotest.Shared(t)
	control, events := db.NewDatabase(t), db.NewDatabase(t)
	var planes []*plane
	for _, name := range []string{"left", "right"} {
		planes = append(planes, startPlane(t, "--store", db.URI(control), "--name", name))
	}
	planes[0].put(t, "*", unlimited)
	toEvents := faultproxy.New(t, db.Addr())
	spooling := startSidecar(t, "spooling", "--control-plane", planes[0].XDS(), "--store", db.URIVia(toEvents.Addr(), events),
		"--store-timeout", "1s")
	alone := startSidecar(t, "alone", "--control-plane", planes[0].XDS())
	publish := func(m *member, id string) {
		t.Helper()
		eventually(t, "a publish of "+id, func() bool {
			_, err := m.api.Publish(t.Context(), &wire.Event{Topic: "t", ID: id, Payload: []byte("1")})
			return err == nil
		})
	}
	publish(alone, "a")
	publish(spooling, "stored")
	toEvents.Down()
	publish(spooling, "spooled")
	eventually(t, "all sidecars in the store", func() bool { return missingAt(t, planes[0]) == "" && len(sidecarsAt(t, planes[1])) == 2 })
	pause.For(t.Context(), time.Second) // and their entries
	for _, kill := range []func(){spooling.Kill, alone.Kill, planes[0].Kill, planes[1].Kill} {
		kill()
	}

	// No control plane remembers them any more; the store does.
	for _, p := range planes {
		p.start(t)
	}
	for i, p := range planes {
		// The entries of the earlier control planes count as connected until they are too old.
		// Until then these sidecars are asked in vain.
		eventually(t, fmt.Sprintf("control plane %d misses both", i), func() bool { return missingAt(t, p) == "alone spooling" })
		m := startSidecar(t, fmt.Sprint("asked", i), "--control-plane", p.XDS(), "--store", db.URI(events))
		m.misses(t, "both are missing", "t", "alone", "spooling")
		if err := m.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}
	eventually(t, "one is forgotten", func() bool { return planes[1].api.ForgetSidecar(t.Context(), "alone") == nil })
	if err := planes[1].api.ForgetSidecar(t.Context(), "alone"); !isCode(err, wire.NotFound) {
		t.Errorf("forgotten twice: %v", err)
	}
	m := startSidecar(t, "asked", "--control-plane", planes[0].XDS(), "--store", db.URI(events))
	m.misses(t, "one is missing", "t", "spooling")
	toEvents.Up()
	spooling.start(t)
	m.whole(t, "it is back", "t", "spooled", "stored")
	alone.start(t)
	eventually(t, "what was forgotten, and is back", func() bool { ids, _ := m.replayed(t, "t"); return len(ids) == 3 })
	if err := spooling.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	eventually(t, "nobody misses who has said goodbye", func() bool { return missingAt(t, planes[0])+missingAt(t, planes[1]) == "" })
	m.whole(t, "without it", "t", "a", "spooled", "stored")
	if err := alone.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	m.misses(t, "an embedded log that is gone", "t", "alone")
}

// A sidecar that is back under its name, on an empty disk, has lost what it had spooled: replays say so until an admin
// forgets that, also its own.
func TestALostSpoolIsMissed(t *testing.T) {
	t.Parallel()
	db := mongotest.Shared(t)
	events := db.NewDatabase(t)
	p := startPlane(t)
	p.put(t, "*", unlimited)
	toEvents := faultproxy.New(t, db.Addr())
	spooling := startSidecar(t, "spooling", "--control-plane", p.XDS(), "--store", db.URIVia(toEvents.Addr(), events), "--store-timeout", "1s")
	asked := startSidecar(t, "asked", "--control-plane", p.XDS(), "--store", db.URI(events))
	for _, id := range []string{"stored", "spooled"} {
		eventually(t, "a publish of "+id, func() bool {
			_, err := spooling.api.Publish(t.Context(), &wire.Event{Topic: "t", ID: id, Payload: []byte("1")})
			return err == nil
		})
		toEvents.Down()
	}
	spooling.Kill()
	kept := spooling.dir
	spooling.dir = t.TempDir()
	toEvents.Up()
	spooling.start(t)
	eventually(t, "it is there again, and its folder is not", func() bool { return missingAt(t, p) == "spooling" })
	asked.misses(t, "what it had spooled", "t", "spooling")
	spooling.misses(t, "what it had spooled itself", "t", "spooling")
	spooling.Kill()
	fresh := spooling.dir
	spooling.dir = kept
	spooling.start(t)
	eventually(t, "what it had spooled is in the store", func() bool {
		_, body := asked.history(t, "/replay?topic=t", "")
		return strings.Contains(body, `"spooled"`)
	})
	spooling.Kill()
	spooling.dir = fresh
	spooling.start(t)
	eventually(t, "it is forgotten", func() bool { return p.api.ForgetSidecar(t.Context(), "spooling") == nil })
	asked.whole(t, "without it", "t", "spooled", "stored")
}

func sidecarsAt(t *testing.T, p *plane) (names []string) {
	t.Helper()
	list, err := p.api.Sidecars(t.Context())
	require.NoError(t, err)
	for _, s := range list {
		names = append(names, s.NodeID)
	}
	return names
}

func missingAt(t *testing.T, p *plane) string {
	t.Helper()
	list, err := p.api.Sidecars(t.Context())
	require.NoError(t, err)
	var names []string
	for _, s := range list {
		if s.Missing {
			names = append(names, s.NodeID)
		}
	}
	return strings.Join(names, " ")
}
