package fleet

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
)

// TestEveryChangeIsInForceEverywhere makes every kind of change, and waits for each of three
// sidecars to enforce it, for used topics and for a new one.
func TestEveryChangeIsInForceEverywhere(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	const used, globbed = "orders.used", "orders.globbed"
	for _, m := range f.sidecars {
		for _, topic := range []string{used, globbed} {
			require.NoError(t, m.publish(t.Context(), topic))
		}
	}
	bursts := func(what, topic string, want int, change func()) {
		t.Helper()
		begin := time.Now()
		change()
		everywhere(t, f.sidecars, what, begin, func(m *member) bool { return m.burst(t, topic) == want })
	}
	bursts("a policy of a topic in use", used, 7, func() { f.put(t, used, `{"publish":{"rate":100,"burst":7}}`) })
	bursts("a policy of a new topic", "orders.new", 8, func() { f.put(t, "orders.new", `{"publish":{"rate":100,"burst":8}}`) })
	bursts("a glob", globbed, 9, func() { f.put(t, "orders.*", `{"publish":{"rate":100,"burst":9}}`) })
	bursts("a glob, for a new topic", "orders.another", 9, func() {})
	for _, m := range f.sidecars {
		if got := m.burst(t, used); got != 7 {
			t.Errorf("%s: burst %d of a topic with a policy of its own under a glob; want 7", m.name, got)
		}
	}
	bursts("another version", used, 10, func() { f.put(t, used, `{"publish":{"rate":100,"burst":10}}`) })
	bursts("a rollback", used, 7, func() {
		if _, err := f.api.RollbackPolicy(t.Context(), used, 1); err != nil {
			t.Fatal(err)
		}
	})
	bursts("a deletion under a glob", used, 9, func() { f.remove(t, used) })
	bursts("a rollback of a deletion", used, 10, func() {
		if _, err := f.api.RollbackPolicy(t.Context(), used, 2); err != nil {
			t.Fatal(err)
		}
	})
	for _, pause := range []bool{true, false} {
		begin := time.Now()
		f.put(t, globbed, map[bool]string{true: `{"paused":true}`, false: `{}`}[pause])
		everywhere(t, f.sidecars, map[bool]string{true: "a pause", false: "its end"}[pause], begin,
			func(m *member) bool { return m.paused(t, globbed) == pause })
	}
	bursts("an apply that prunes", used, 11, func() {
		_, err := f.api.ApplyPolicies(t.Context(), admin.ApplyRequest{
			Policies: []json.RawMessage{
				[]byte(`{"name":"*",` + unlimited[1:]), []byte(`{"name":"orders.used","publish":{"rate":100,"burst":11}}`),
			}, Prune: true,
		})
		require.NoError(t, err)
	})
	// Without any policy the default burst of a connection is the least.
	bursts("no policy at all", used, 200, func() {
		f.remove(t, used)
		f.remove(t, "*")
	})
	everywhere(t, f.sidecars, "nothing in force", time.Now(), func(m *member) bool { return len(m.inForce(t)) == 0 })
}

// TestFirstPublishIsJudgedByTheTopicsOwnPolicy publishes to topics that a sidecar has never heard
// of, and that have policies.
func TestFirstPublishIsJudgedByTheTopicsOwnPolicy(t *testing.T) {
	t.Parallel()
	p := startPlane(t)
	p.put(t, "*", unlimited)
	for _, via := range []string{"http", "ws"} {
		p.put(t, "paused."+via, `{"paused":true}`)
		p.put(t, "one."+via, `{"publish":{"rate":0.001,"burst":1}}`)
		p.put(t, "fleet."+via, `{"publish":{"rate":1,"burst":1,"scope":"fleet"}}`)
	}
	m := startSidecar(t, "fresh", "--control-plane", p.XDS())
	conn, err := sluice.DialConn(t.Context(), m.URL(), nil)
	require.NoError(t, err)
	defer conn.Close()
	for via, publish := range map[string]func(topic string) error{
		"http": func(topic string) error { return m.publish(t.Context(), topic) },
		"ws": func(topic string) error {
			_, err := conn.Publish(t.Context(), &wire.Event{Topic: topic, Payload: []byte("1")})
			return err
		},
	} {
		for _, c := range []struct {
			topic string
			want  []wire.Code
		}{
			{"paused.", []wire.Code{wire.TopicPaused}},
			{"one.", []wire.Code{"", wire.RateLimited, wire.RateLimited}},
			{"none.", []wire.Code{"", "", ""}},
		} {
			for i, want := range c.want {
				if got := code(t, publish(c.topic+via)); got != want {
					t.Errorf("publish %d to %s: %q, want %q", i+1, c.topic+via, got, want)
				}
			}
		}
		// A control plane that has just started hands out nothing for a moment.
		for _, want := range []wire.Code{"", wire.RateLimited, ""} {
			eventually(t, fmt.Sprintf("%q to fleet.%s", want, via), func() bool { return code(t, publish("fleet."+via)) == want })
		}
	}
}

// TestInvalidChangesChangeNothing tries changes that must be refused whole.
func TestInvalidChangesChangeNothing(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	f.put(t, "a", `{"publish":{"rate":100,"burst":7}}`)
	f.put(t, "b.*", `{"publish":{"rate":100,"burst":8}}`)
	everywhere(t, f.sidecars, "two policies", time.Now(), func(m *member) bool { return m.burst(t, "a") == 7 && m.burst(t, "b.c") == 8 })
	before := make([]map[string]admin.PolicyStatus, len(f.sidecars))
	for i, m := range f.sidecars {
		before[i] = m.inForce(t)
	}
	policies, err := f.api.Policies(t.Context())
	require.NoError(t, err)

	const bad = `"publish":{"rate":-1,"burst":1.5,"brust":5,"scope":"galaxy"},"delivery":{"ack_timeout":"soon"},"paused":"maybe"`
	_, err = f.api.PutPolicy(t.Context(), "a", json.RawMessage(`{`+bad+`}`), admin.Condition{})
	refused(t, "PUT", err, "publish.rate", "publish.burst", "publish.brust", "publish.scope", "delivery.ack_timeout", "paused")
	_, err = f.api.ApplyPolicies(t.Context(), admin.ApplyRequest{Prune: true, Policies: []json.RawMessage{
		[]byte(`{"name":"a","publish":{"burst":99}}`), []byte(`{"name":"b.*","publish":{"rate":-1}}`), []byte(`{"name":"c d","paused":1}`),
	}})
	refused(t, "apply", err, "policies[1].publish.rate", "policies[2].name", "policies[2].paused")
	_, err = f.api.PutPolicy(t.Context(), "b.c", json.RawMessage(`{"publish":{"burst":0}}`), admin.Condition{})
	refused(t, "a burst that the glob's rate forbids", err, "publish.burst")

	after, err := f.api.Policies(t.Context())
	require.NoError(t, err)
	if after.Revision != policies.Revision || len(after.Policies) != len(policies.Policies) {
		t.Errorf("revision %d with %d policies became %d with %d", policies.Revision, len(policies.Policies), after.Revision, len(after.Policies))
	}
	for _, name := range []string{"a", "b.*"} {
		if versions, err := f.api.PolicyHistory(t.Context(), name); err != nil || len(versions) != 1 {
			t.Errorf("%s: %d versions, %v", name, len(versions), err)
		}
	}
	// Anything sent to sidecars earlier would have come before this.
	f.put(t, "marker.*", `{"publish":{"rate":100,"burst":9}}`)
	everywhere(t, f.sidecars, "a valid change after them", time.Now(), func(m *member) bool { return m.burst(t, "marker.x") == 9 })
	for i, m := range f.sidecars {
		got := m.inForce(t)
		delete(got, "marker.*")
		if !maps.Equal(got, before[i]) {
			t.Errorf("%s had %v in force, and now %v", m.name, before[i], got)
		}
		if a, b := m.burst(t, "a"), m.burst(t, "b.c"); a != 7 || b != 8 {
			t.Errorf("%s: bursts %d and %d; want 7 and 8", m.name, a, b)
		}
	}
	sidecars, err := f.api.Sidecars(t.Context())
	if err != nil || len(sidecars) != 3 {
		t.Fatalf("%d sidecars, %v", len(sidecars), err)
	}
	for _, s := range sidecars {
		if s.Rejected != nil {
			t.Errorf("%s was sent something that it had to refuse: %+v", s.NodeID, s.Rejected)
		}
	}
}

// refused checks that the policy is invalid, with these fields and a reason for each.
func refused(t *testing.T, what string, err error, fields ...string) {
	t.Helper()
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok || refusal.Code != wire.InvalidPolicy {
		t.Fatalf("%s: %v", what, err)
	}
	var got []string
	for _, field := range refusal.Fields {
		got = append(got, field.Field)
		if field.Message == "" {
			t.Errorf("%s: %s without a reason", what, field.Field)
		}
	}
	slices.Sort(got)
	slices.Sort(fields)
	if !slices.Equal(got, fields) {
		t.Errorf("%s names %q; want %q", what, got, fields)
	}
}
