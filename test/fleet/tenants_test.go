package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// TestTenantsOfAFleet gives each tenant a burst over three sidecars together, by a policy of the
// control plane.
func TestTenantsOfAFleet(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	for _, m := range f.sidecars {
		eventually(t, m.name+" knows all others", func() bool { return len(peersOf(t, m)) == 2 })
	}
	const burst = 9
	f.put(t, "shared", `{"publish":{"rate":0.001,"burst":9,"scope":"fleet","per":"header:tenant"}}`)
	// Elsewhere a large batch finds the burst. Here it would ask for tokens of publishers without
	// the header.
	everywhere(t, f.sidecars, "the policy", time.Now(), func(m *member) bool { return m.inForce(t)["shared"].Source == sourceLive })
	for _, tenant := range []string{"a", "b", ""} {
		accepted := 0
		for range 2 * burst {
			for _, m := range f.sidecars {
				switch err := m.publishFor(t.Context(), "shared", tenant); code(t, err) {
				case "":
					accepted++
				case wire.RateLimited:
					if e, ok := errors.AsType[*wire.Error](err); !ok || e.Scope != "tenant" || e.RetryAfter <= 0 {
						t.Errorf("tenant %q: %+v", tenant, err)
					}
				default:
					t.Fatal(err)
				}
			}
		}
		// On a busy machine a sidecar's question may not be answered in time. It then uses its
		// fallback, which is a third of the burst.
		if accepted < burst || accepted > 2*burst+1 {
			t.Errorf("tenant %q published %d events over three sidecars with a burst of %d", tenant, accepted, burst)
		}
		t.Logf("tenant %q published %d events", tenant, accepted)
	}
}

func (m *member) publishFor(ctx context.Context, topic, tenant string) error {
	e := &wire.Event{Topic: topic, Payload: []byte("1")}
	if tenant != "" {
		e.Headers = wire.Headers{{Name: "tenant", Value: tenant}}
	}
	_, err := m.api.Publish(ctx, e)
	return err
}

// TestGroupsAreHeldByThePlane pauses a group at the control plane, and lets it go on. An error in
// the limits of a group names its field.
func TestGroupsAreHeldByThePlane(t *testing.T) {
	t.Parallel()
	p := startPlane(t)
	p.put(t, "*", unlimited)
	m := startSidecar(t, "s", "--control-plane", p.XDS())
	pull := func() int {
		ds, err := m.api.Pull(t.Context(), admin.PullQuery{Topic: "orders", Group: "audit", Max: 1,
			Options: wire.SubscribeOptions{From: wire.FromEarliest}})
		require.NoError(t, err)
		for _, d := range ds {
			if _, err := m.api.Ack(t.Context(), "orders", "audit", d.Lease); err != nil {
				t.Fatal(err)
			}
		}
		return len(ds)
	}
	for range 20 {
		require.NoError(t, m.publish(t.Context(), "orders"))
	}
	eventually(t, "an event", func() bool { return pull() == 1 })
	paused := func() bool {
		info, err := m.api.GroupInfo(t.Context(), "orders", "audit")
		require.NoError(t, err)
		return info.Paused
	}
	p.put(t, "orders", `{"groups":{"audit":{"paused":true}}}`)
	eventually(t, "the pause", paused)
	for range 10 {
		if pull() != 0 {
			t.Fatal("a paused group is given an event")
		}
	}
	_, err := p.api.PutPolicy(t.Context(), "orders", json.RawMessage(`{"groups":{"audit":{"paused":false,"rate":-1}}}`), admin.Condition{})
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.InvalidPolicy || len(e.Fields) != 1 ||
		e.Fields[0].Field != "groups.audit.rate" {
		t.Errorf("got %+v", err)
	}
	p.put(t, "orders", `{"groups":{"audit":{"paused":false}}}`)
	eventually(t, "an event after the pause", func() bool { return pull() == 1 })
	if paused() {
		t.Error("it is said to be paused still")
	}
}

// TestRefusalsAndTenantsOfASidecar refuses events for several reasons and of several tenants, whose limit is the sidecar's own. The
// control plane says the same as the sidecar's metrics.
func TestRefusalsAndTenantsOfASidecar(t *testing.T) {
	t.Parallel()
	p := startPlane(t)
	p.put(t, "*", `{"connection":{"rate":0}}`)
	p.put(t, "shared", `{"publish":{"rate":0.001,"burst":3,"per":"header:tenant"},"schema":{"json_schema":{"type":"integer"}}}`)
	m := startSidecar(t, "s", "--control-plane", p.XDS())
	everywhere(t, []*member{m}, "the policy", time.Now(), func(m *member) bool { return m.inForce(t)["shared"].Source == sourceLive })
	for range 5 {
		for _, tenant := range []string{"acme", "bolt"} {
			if c := code(t, m.publishFor(t.Context(), "shared", tenant)); c != "" && c != wire.RateLimited {
				t.Fatal(c)
			}
		}
		_, err := m.api.Publish(t.Context(), &wire.Event{Topic: "shared", Payload: []byte(`"text"`)})
		if c := code(t, err); c != wire.SchemaViolation && c != wire.RateLimited {
			t.Fatal(c)
		}
	}
	want := map[string]int64{"rate_limited": 4, "schema_violation": 5}
	metrics := string(testkit.Call(t, "GET", m.OpsURL()+"/metrics", "").Body)
	for code, n := range want {
		line := regexp.MustCompile(fmt.Sprintf(`sluice_events_rejected_total\{code="%s",.*topic="shared"[^}]*\} %d\n`, code, n))
		if !line.MatchString(metrics) {
			t.Errorf("the sidecar does not count %d events with %s", n, code)
		}
	}
	eventually(t, "the topic has its refusals by code", func() bool {
		topics, err := p.api.FleetTopics(t.Context(), false)
		require.NoError(t, err)
		i := slices.IndexFunc(topics, func(t admin.FleetTopic) bool { return t.Topic == "shared" })
		return i >= 0 && maps.Equal(topics[i].Refusals, want)
	})
	eventually(t, "the day has them, and the tenants", func() bool {
		rows, err := p.api.Usage(t.Context(), admin.UsageQuery{Prefix: "shared", Tenants: true})
		require.NoError(t, err)
		used := map[string][2]int64{}
		for _, r := range rows {
			used[r.Tenant] = [2]int64{r.Accepted, r.Refused}
		}
		return len(rows) == 3 && maps.Equal(rows[0].Refusals, want) && used["acme"] == [2]int64{3, 2} && used["bolt"] == [2]int64{3, 2} &&
			used[""][1] == 9
	})
}
