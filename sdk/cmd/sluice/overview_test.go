package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/test/sluicetest"
)

// troubled is the control plane of a fleet whose store is away.
func troubled(t *testing.T) planeTest {
	t.Helper()
	since := time.Now().Add(-3 * time.Minute)
	return startPlane(t, sluicetest.ControlPlaneOptions{
		Overview: func() admin.Overview {
			o := admin.Overview{Stores: 1, Topics: 2, PublishedPerSecond: 149.2, RefusedPerSecond: 0.5, More: 1,
				Incidents: []admin.Incident{{Kind: "store_away", Severity: "critical", Since: since, Text: "The store is\x1b[2J away.",
					Remedy: "Look at MongoDB.", Store: "s-1"}}}
			o.Sidecars.Live = 2
			return o
		},
		Stores: func() []admin.FleetStore {
			return []admin.FleetStore{{Store: "s-1", Kind: "mongodb", State: "away", Since: since, Error: "refused", Sidecars: []string{"a", "b"},
				Spooled: 7}}
		},
		Topics: func() []admin.FleetTopic {
			return []admin.FleetTopic{{Topic: "orders", AllowedPerSecond: 149, Scope: "sidecar"}}
		},
		Health: func(nodeID string) (admin.SidecarHealth, bool) {
			h := admin.SidecarHealth{Topics: []string{"orders"}, ReportedAt: time.Now(), UptimeS: 7200, Log: []string{"level=WARN msg=slow"}}
			h.NodeID, h.Connected, h.LastSeen = nodeID, true, time.Now()
			h.Store.Kind, h.Store.State, h.Store.Since, h.Store.Error = "mongodb", "away", since, "refused"
			h.Groups = append(h.Groups, struct {
				Topic          string `json:"topic"`
				Group          string `json:"group"`
				Lag            int64  `json:"lag"`
				InFlight       int64  `json:"inflight"`
				Members        int    `json:"members"`
				OldestUnackedS int64  `json:"oldest_unacked_s"`
				Paused         bool   `json:"paused"`
				BlockedBy      string `json:"blocked_by,omitempty"`
			}{Topic: "orders", Group: "billing", Lag: 3, BlockedBy: "key_order"})
			return h, nodeID == "a"
		},
	})
}

const troubledOverview = `critical  3m ago  "The store is\x1b[2J away."
                  Look at MongoDB.
and 1 more incidents

a second: 149 published, 0 delivered, 0.5 refused, 0 dead letters; 2 topics
sidecars: 2 connected, 0 missing; versions: none

STORE  KIND     STATE  SINCE   SPOOLED  SIDECARS  LAST ERROR
s-1    mongodb  away   3m ago  7        2         refused
`

func TestOverview(t *testing.T) {
	plane := troubled(t)
	want(t, plane.ok("overview"), troubledOverview)
	want(t, plane.ok("top"), troubledOverview+`
TOPIC   ALLOWED/S  DENIED/S  LIMIT/S  SCOPE    POLICY    SIDECARS  REFUSALS
orders  149        0         none     sidecar  defaults  0         -
`)
	if got := plane.ok("overview", "-o", "json"); strings.Count(got, "\n") != 2 || !strings.Contains(got, `"kind":"store_away"`) ||
		!strings.Contains(got, `"spooled":7`) {
		t.Errorf("as documents: %s", got)
	}
	calm := startPlane(t, sluicetest.ControlPlaneOptions{}).ok("overview")
	if !strings.HasPrefix(calm, "nothing is wrong\n") {
		t.Errorf("a calm fleet: %s", calm)
	}
}

func TestFleetShow(t *testing.T) {
	plane := troubled(t)
	got := plane.ok("fleet", "show", "a")
	for _, shown := range []string{"mongodb, away since 3m ago: refused", "uptime       2h", "orders  billing  3", "key_order",
		"level=WARN msg=slow"} {
		if !strings.Contains(got, shown) {
			t.Errorf("%s\nlacks %q", got, shown)
		}
	}
	plane.run("", "fleet", "show", "b").wantFailure(t, 3, `no sidecar "b" is known`)
}

func TestFleetGroups(t *testing.T) {
	since := time.Now().Add(-3 * time.Minute)
	plane := startPlane(t, sluicetest.ControlPlaneOptions{Groups: func() []admin.FleetGroup {
		return []admin.FleetGroup{
			{Topic: "orders", Group: "billing", Lag: 30, InFlight: 2, Members: 1, OldestUnackedS: 190, StuckSince: &since, BlockedBy: "key_order"},
			{Topic: "orders", Group: "audit", Lag: 7, Paused: true}, {Topic: "orders", DeadLetters: 3},
		}
	}})
	want(t, plane.ok("fleet", "groups"), `TOPIC   GROUP    LAG  INFLIGHT  MEMBERS  OLDEST  DEAD LETTERS  STATE
orders  billing  30   2         1        3m      0             stuck since 3m ago
orders  audit    7    0         0        0s      0             paused
orders  -        0    0         0        0s      3             -
`)
}

func TestUsage(t *testing.T) {
	const hour, at = 3600_000, 1767366245000
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"topics":[{"topic":"new","events":1,"bytes":10,"first_ts":%d,"last_ts":%d},
			{"topic":"old","events":100,"bytes":5000,"first_ts":%d,"last_ts":%d},{"topic":"void"}]}`, at, at, at, at+48*hour)
	}))
	t.Cleanup(server.Close)
	got := run(t, &sluicetest.Sidecar{}, "", "usage", "--url", server.URL).wantOK(t)
	want(t, got.stdout, `TOPIC  EVENTS  BYTES  EVENTS/DAY  BYTES/DAY
old    100     5000   50          2500
new    1       10     -           -
void   0       0      -           -
all    101     5010   -           -
`)
}

func TestUsageByDay(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{Usage: func() []admin.Usage {
		of := admin.Usage{Period: "2026-01-31", Topic: "orders", Accepted: 12, Refused: 3,
			Refusals: map[string]int64{"rate_limited": 1, "schema_violation": 2}}
		return []admin.Usage{of, {Period: of.Period, Topic: of.Topic, Tenant: "acme", Accepted: 5}}
	}})
	want(t, plane.ok("fleet", "usage", "--by", "day", "--tenants"), `PERIOD      TOPIC   TENANT  ACCEPTED  REFUSED  REFUSALS
2026-01-31  orders  -       12        3        schema_violation:2,rate_limited:1
2026-01-31  orders  acme    5         0        -
`)
	plane.run("", "fleet", "usage", "--by", "year").wantFailure(t, 2, "--by")
}

// The operator's route changes one group, keeps what it does not mention, and has the reason in the history.
func TestGroupLimits(t *testing.T) {
	plane := startPlane(t, sluicetest.ControlPlaneOptions{})
	want(t, plane.ok("groups", "slow", "orders", "billing", "--rate", "5", "--reason", "it floods"), `    groups: {"billing":{"rate":5}}
orders is now at version 1
`)
	want(t, plane.ok("groups", "pause", "orders", "billing"), `    groups: {"billing":{"rate":5}} -> {"billing":{"paused":true,"rate":5}}
orders is now at version 2
`)
	want(t, plane.ok("groups", "resume", "orders", "billing"), `    groups: {"billing":{"paused":true,"rate":5}} -> {"billing":{"paused":false,"rate":5}}
orders is now at version 3
`)
	plane.run("", "groups", "slow", "orders", "billing").wantFailure(t, 2, "--rate, --max-inflight")
	if history := plane.ok("policy", "history", "orders"); !strings.Contains(history, "groups={…} (it floods)") {
		t.Errorf("the reason is not in the history:\n%s", history)
	}
}

// TestEveryCommandHonoursItsTimeout: no command waits longer for a server that does not answer, and each says for what it has waited.
func TestEveryCommandHonoursItsTimeout(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	held := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select { // an answer that comes at last ends the commands that wait for it
		case <-held:
		case <-time.After(5 * time.Second):
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(held) })
	for command := range arguments {
		switch command {
		case "export", "latest", "events delete", "dlq redrive", "dlq discard":
			continue // they take as long as there is to do
		}
		args := append(words(t, command), "--url", server.URL, "--timeout", "20ms")
		for _, flag := range []string{"replay-url", "ops-url", "control-plane-url"} {
			if got := run(t, &sluicetest.Sidecar{}, "", append(args, "--"+flag, server.URL)...); got.status != 2 {
				args = append(args, "--"+flag, server.URL)
			}
		}
		got := run(t, &sluicetest.Sidecar{}, "", args...)
		if got.status == 0 || !strings.Contains(got.stderr, "did not answer within 20ms (--timeout)") {
			t.Errorf("sluice %s: status %d, %s", command, got.status, got.stderr)
		}
	}
}
