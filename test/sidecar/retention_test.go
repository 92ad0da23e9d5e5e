package sidecar

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// startSweepers starts two sidecars that sweep often, with partitions enough for both. change puts
// other policies into force at both of them.
func startSweepers(t *testing.T) (two []*testkit.Sidecar, change func(policies string)) {
	t.Helper()
	const always = "- {name: '*', partitions: 2}\n"
	db := newDatabase(t)
	dir := t.TempDir()
	file := testkit.Write(t, filepath.Join(dir, "policies.yaml"), always)
	for _, node := range []string{"a", "b"} {
		two = append(two, startShared(t, dir, node, db, "--policies", file, "--retention-interval", "200ms"))
	}
	changes := 0
	return two, func(policies string) {
		t.Helper()
		testkit.Write(t, file, always+policies)
		changes++
		for _, p := range two {
			await(t, func() string {
				if strings.Count(p.Log(), "policies changed") >= changes {
					return ""
				}
				return "the changed policies are not in force"
			})
		}
	}
}

func publish(t *testing.T, h *admin.HTTP, events ...wire.Event) []wire.ResultItem {
	t.Helper()
	results, err := h.PublishBatch(t.Context(), events[0].Topic, events)
	require.NoError(t, err)
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("publish %s: %v", events[i].ID, r.Err)
		}
	}
	return results
}

// TestRetentionOfASharedStore lets events expire before a group has got to them.
func TestRetentionOfASharedStore(t *testing.T) {
	const topic, group = "telemetry", "slow"
	two, change := startSweepers(t)
	h, other := client(t, two[0]), client(t, two[1])
	var events []wire.Event
	for n := range 40 {
		events = append(events, wire.Event{ID: fmt.Sprintf("e-%d", n), Topic: topic, Key: fmt.Sprintf("k-%d", n%5), Payload: []byte(`{"n":1}`)})
	}
	receipts := publish(t, h, events...)
	readOne(t, two[1], topic, group)
	change("- {name: " + topic + ", retention: {ttl: 2s}, dedupe: {window: 1h}}\n")
	await(t, func() string {
		page, err := other.Replay(t.Context(), sluice.ReplayQuery{Topic: topic})
		require.NoError(t, err)
		if len(page.Events) == 0 {
			return ""
		}
		return fmt.Sprintf("%d events are still there", len(page.Events))
	})
	change("- {name: " + topic + ", retention: {ttl: 1h}, dedupe: {window: 1h}}\n") // new events stay
	continues(t, two, topic, group, len(events))
	again := publish(t, other, events...)
	for i, r := range again {
		was := receipts[i].Receipt
		if is := r.Receipt; !is.Duplicate || is.Seq != was.Seq || is.Partition != was.Partition {
			t.Errorf("%s was answered as %+v, and again after it had expired as %+v", events[i].ID, was, is)
		}
	}
	changed := events[0]
	changed.Payload = []byte(`{"n":2}`)
	if r, err := other.Publish(t.Context(), &changed); !r.Duplicate && !errors.Is(err, &wire.Error{Code: wire.Conflict}) {
		t.Errorf("its id with other content was answered as %+v, %v", r, err)
	}
	for _, p := range two {
		quiet(t, p)
	}
}

// continues publishes an event of each key, through the other sidecar, to a group that has missed
// events. The group gets the new ones, and the sidecars count those that it missed.
func continues(t *testing.T, two []*testkit.Sidecar, topic, group string, missed int) {
	t.Helper()
	got := subscribe(t, two[0], topic, group, &wire.SubscribeOptions{From: wire.FromEarliest, AutoAck: true})
	var fresh []wire.Event
	for n := range 5 {
		fresh = append(fresh, wire.Event{ID: fmt.Sprintf("fresh-%d", n), Topic: topic, Key: fmt.Sprintf("k-%d", n), Payload: []byte("1")})
	}
	publish(t, client(t, two[1]), fresh...)
	seen := map[string]bool{}
	await(t, func() string {
		for len(got) > 0 {
			d := <-got
			if !strings.HasPrefix(d.Event.ID, "fresh-") {
				t.Errorf("the group got %s, which had expired", d.Event.ID)
			}
			seen[d.Event.ID] = true
		}
		if len(seen) == len(fresh) {
			return ""
		}
		return fmt.Sprintf("the group got %d of %d fresh events", len(seen), len(fresh))
	})
	// One event was acked before.
	passed := 0.0
	await(t, func() string {
		passed = 0
		for _, p := range two {
			passed += metric(t, p, "sluice_events_passed_over_total", `topic="`+topic+`"`, `group="`+group+`"`)
		}
		if passed >= float64(missed-1) {
			return ""
		}
		return fmt.Sprintf("%v events are counted as passed over, of %d", passed, missed-1)
	})
	if passed != float64(missed-1) {
		t.Errorf("%v events are counted as passed over, of %d", passed, missed-1)
	}
}

// subscribe passes on a group's events. The connection ends with the test.
func subscribe(t *testing.T, p *testkit.Sidecar, topic, group string, o *wire.SubscribeOptions) <-chan wire.Delivery {
	t.Helper()
	c, err := sluice.DialConn(t.Context(), p.URL(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	got := make(chan wire.Delivery, 1000)
	if _, err := c.Subscribe(t.Context(), topic, group, o, func(ds []wire.Delivery) {
		for _, d := range ds {
			got <- d
		}
	}); err != nil {
		t.Fatal(err)
	}
	return got
}

// readOne makes a group that has settled one event, and is gone.
func readOne(t *testing.T, p *testkit.Sidecar, topic, group string) {
	t.Helper()
	c, err := sluice.DialConn(t.Context(), p.URL(), nil)
	require.NoError(t, err)
	defer c.Close()
	one := 1
	got := make(chan wire.Delivery, 10)
	sub, err := c.Subscribe(t.Context(), topic, group, &wire.SubscribeOptions{From: wire.FromEarliest, MaxInflight: &one},
		func(ds []wire.Delivery) {
			for _, d := range ds {
				got <- d
			}
		})
	require.NoError(t, err)
	await(t, func() string {
		if len(got) > 0 {
			return ""
		}
		return "the group has got nothing"
	})
	if err := sub.Pause(t.Context()); err != nil { // or the next comes with the ack
		t.Fatal(err)
	}
	require.NoError(t, sub.Ack(t.Context(), (<-got).Event.ID))
	require.NoError(t, sub.Unsubscribe(t.Context()))
}

// TestCompactionOfASharedStore has two sidecars compact a topic as soon as its policy says so.
func TestCompactionOfASharedStore(t *testing.T) {
	const topic = "customers"
	two, change := startSweepers(t)
	h, other := client(t, two[0]), client(t, two[1])
	latest := map[string]bool{}
	var events []wire.Event
	for n := range 60 {
		e := wire.Event{ID: fmt.Sprintf("e-%d", n), Topic: topic, Payload: fmt.Appendf(nil, `{"n":%d}`, n)}
		switch {
		case n%12 == 0: // no key: it stays
			latest[e.ID] = true
		default:
			e.Key = fmt.Sprintf("customer-%d", n%6)
			latest[e.ID] = n >= 54
		}
		if n == 59 { // a tombstone stays for a day
			e.Payload = []byte("null")
		}
		events = append(events, e)
	}
	publish(t, h, events...)
	compacted := func(h *admin.HTTP) string {
		seen := map[string]bool{}
		superseded := 0
		for _, e := range exportTopic(t, h, topic) {
			seen[e.ID] = true
			if !latest[e.ID] {
				superseded++
			}
		}
		for id, keep := range latest {
			if keep && !seen[id] {
				t.Fatalf("%s is gone, which is its key's latest", id)
			}
		}
		if superseded == 0 {
			return ""
		}
		return fmt.Sprintf("%d superseded events are still there", superseded)
	}
	if compacted(h) == "" {
		t.Error("it is compacted without a policy that wants it")
	}
	change("- {name: " + topic + ", retention: {compact: true}}\n")
	await(t, func() string { return compacted(h) })
	await(t, func() string { return compacted(other) })

	if r := publish(t, h, events[1])[0].Receipt; !r.Duplicate {
		t.Errorf("the id of a superseded event was answered as %+v", r)
	}
	for _, p := range two {
		quiet(t, p)
	}
}
