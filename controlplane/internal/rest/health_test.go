package rest

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	cphealth "github.com/sluice-bus/sluice/controlplane/internal/health"
	"github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
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
	want(t, a.send("GET", "/v1/groups", ""), http.StatusOK, `{"groups":[],"lag_every_s":30}`)
}

// reportedHealth has made-up groups.
type reportedHealth struct {
	Health
	groups []cphealth.Group
}

func (r reportedHealth) Groups() []cphealth.Group { return slices.Clone(r.groups) }

func TestTheGroupsOfAllStores(t *testing.T) {
	one := func(store, topic, group string, lag int64) cphealth.Group {
		return cphealth.Group{Store: store, Group: health.Group{Topic: topic, Group: group}, GroupState: health.GroupState{Lag: lag},
			OldestFor: time.Duration(lag) * time.Second, Lags: []int64{1, lag}}
	}
	groups := []cphealth.Group{
		one("s", "a", "x", 5), one("s", "a", "y", 30), one("s", "b", "x", 7), one("t", "b", "x", 1), one("t", "b", "", 0),
	}
	groups[3].StuckSince, groups[4].Dead = 4, health.DeadLetters{Count: 2, Oldest: 1, Newest: 2}
	a := newAPI(t, func(c *Config) { c.Health = reportedHealth{c.Health, groups} })
	for query, order := range map[string]string{
		"": "s a x, s a y, t b , s b x, t b x", "?sort=-lag": "s a y, s b x, s a x, t b x, t b ",
		"?sort=-trouble": "t b x, s a y, s b x, s a x, t b ", "?prefix=a": "s a x, s a y", "?topic=b&group=x": "s b x, t b x",
		"?store=t": "t b , t b x", "?dead_letters=1": "t b ", "?sort=-oldest_unacked_s&limit=2": "s a y, s b x",
	} {
		var body struct {
			Groups []struct{ Store, Topic, Group string }
		}
		require.NoError(t, json.Unmarshal(a.send("GET", "/v1/groups"+query, "").Body.Bytes(), &body))
		var got []string
		for _, g := range body.Groups {
			got = append(got, g.Store+" "+g.Topic+" "+g.Group)
		}
		if strings.Join(got, ", ") != order {
			t.Errorf("%s: %q, want %q", query, got, order)
		}
	}
	want(t, a.send("GET", "/v1/groups?history=1&topic=a&limit=1", ""), http.StatusOK,
		`{"groups":[{"store":"s","topic":"a","group":"x","lag":5,`+
			`"inflight":0,"members":0,"oldest_unacked_s":5,"paused":false,"dead_letters":0,"lags":[1,5]}],"lag_every_s":30,`+
			`"next":"eyJzIjoidG9waWMiLCJ0IjoiIiwibiI6ImFcdTAwMDB4XHUwMDAwcyJ9"}`)
	want(t, a.send("GET", "/v1/groups?dead_letters=1", ""), http.StatusOK, `{"groups":[{"store":"t","topic":"b","group":"","lag":0,`+
		`"inflight":0,"members":0,"oldest_unacked_s":0,"paused":false,"dead_letters":2,"oldest_dead_letter":"T","newest_dead_letter":"T"}],`+
		`"lag_every_s":30}`)
}
