package rest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/sdk/wire"
)

func TestTheHealthOfASidecar(t *testing.T) {
	at, reg := time.UnixMilli(1_800_000_000_000), &registry{}
	a := newAPI(t, func(c *Config) { c.Registry = reg })
	refused(t, a.send("GET", "/v1/sidecars/a", ""), wire.NotFound)
	reg.sidecars = []fleet.Sidecar{{NodeID: "a", StoreID: "s", LastSeen: at}}
	const head = `{"node_id":"a","address":"","versions":{},"rejected":null,"connected":false,"version":"",` +
		`"store_id":"s","control_plane":"","last_seen":"T","topics":["orders"]`
	want(t, a.send("GET", "/v1/sidecars/a", ""), http.StatusOK, head+"}")

	group, now := health.Group{Topic: "orders", Group: "billing"}, time.Now()
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() + 500 }
	reg.health = &fleet.Health{At: at, Skew: -time.Hour, State: &health.State{
		Process: health.Process{
			Started: ago(3 * time.Hour), StoreKind: "mongodb", StoreState: "away", StoreSince: 1, StoreError: "no primary",
			SpoolEvents: 2, SpoolBytes: 30, SpoolOldest: 5, MemoryUsed: 6, MemoryBound: 7, DiskFree: 8, DiskLow: 9, Connections: 10,
		},
		Groups: map[health.Group]health.GroupState{group: {Lag: 3, InFlight: 1, Members: 2, Oldest: ago(2 * time.Hour), StuckSince: 7,
			BlockedBy: "key_order"}},
		DeadLetters: map[health.Group]health.DeadLetters{group: {Count: 4, Oldest: 1, Newest: 2}},
		Sources:     map[health.SourceName]health.Source{{Kind: "outbox", Name: "d.c"}: {State: "ok", Failed: 5}},
		Log:         []string{"level=WARN msg=oh"},
	}}
	body := a.send("GET", "/v1/sidecars/a", "").Body.String()
	got := strings.TrimSpace(timestamp.ReplaceAllString(body, `"T"`))
	// What has passed is by the sidecar's clock, which is an hour behind.
	wanted := head + `,"reported_at":"T","uptime_s":7199,"clock_skew_ms":-3600000,` +
		`"store":{"kind":"mongodb","state":"away","since":"T","error":"no primary"},"spool":{"events":2,"bytes":30,"oldest":"T"},` +
		`"memory":{"used":6,"bound":7},"disk":{"free":8,"low_water":9},"connections":10,` +
		`"groups":[{"topic":"orders","group":"billing","lag":3,"inflight":1,"members":2,"oldest_unacked_s":3599,` +
		`"paused":false,"stuck_since":"T","blocked_by":"key_order"}],` +
		`"dead_letters":[{"topic":"orders","group":"billing","count":4,"oldest":"T","newest":"T"}],` +
		`"sources":[{"kind":"outbox","name":"d.c","state":"ok","failing":false,"stopped":false,"failed":5}],"log":["level=WARN msg=oh"]}`
	if got != wanted {
		t.Errorf("got  %s\nwant %s", got, wanted)
	}
}

func TestOverviewOfNothing(t *testing.T) {
	a := newAPI(t)
	want(t, a.send("GET", "/v1/overview?history=1", ""), http.StatusOK, `{"incidents":[],"sidecars":{"live":0,"missing":0},"versions":[],`+
		`"stores":0,"topics":0,"published_per_second":0,"delivered_per_second":0,"refused_per_second":0,"dead_per_second":0}`)
	want(t, a.send("GET", "/v1/stores", ""), http.StatusOK, `{"stores":[]}`)
}
