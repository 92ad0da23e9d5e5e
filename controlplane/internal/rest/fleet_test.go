package rest

import (
	"testing"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
)

func TestSidecars(t *testing.T) {
	reg := &registry{}
	a := newAPI(t, func(c *Config) { c.Registry = reg })
	want(t, a.send("GET", "/v1/sidecars", ""), 200, `{"sidecars":[]}`)

	seen := time.Date(2025, 3, 1, 12, 0, 0, 1_900_000, time.FixedZone("", 3600))
	reg.sidecars = []fleet.Sidecar{
		{NodeID: "a", Address: "10.0.0.1:8083", LastSeen: seen, Versions: map[string]int64{"orders.*": 4, "*": 2},
			Connected: true, Version: "1.0", StoreID: "s", ControlPlane: "cp"},
		{NodeID: "b", Address: "10.0.0.2:8083", LastSeen: seen, Rejected: &fleet.Rejection{Policy: "*", Version: 3, Reason: `no "x"`},
			UnmetConcerns: map[string]string{"orders": "w:3"}},
	}
	w := a.send("GET", "/v1/sidecars", "")
	const body = `{"sidecars":[` +
		`{"node_id":"a","address":"10.0.0.1:8083","versions":{"*":2,"orders.*":4},"rejected":null,"connected":true,` +
		`"version":"1.0","store_id":"s","control_plane":"cp","last_seen":"2025-03-01T11:00:00.001Z"},` +
		`{"node_id":"b","address":"10.0.0.2:8083","versions":{},"rejected":{"policy":"*","version":3,"reason":"no \"x\""},` +
		`"unmet_concerns":{"orders":"w:3"},"connected":false,` +
		`"version":"","store_id":"","control_plane":"","last_seen":"2025-03-01T11:00:00.001Z"}]}` + "\n"
	if w.Code != 200 || w.Body.String() != body {
		t.Errorf("got  %d %s\nwant %s", w.Code, w.Body, body)
	}
}

func TestTopics(t *testing.T) {
	reg := &registry{}
	a := newAPI(t, func(c *Config) { c.Registry = reg })
	want(t, a.send("GET", "/v1/topics", ""), 200, `{"topics":[]}`)

	for name, body := range map[string]string{
		"orders.*":    `{"publish":{"rate":10,"scope":"fleet"}}`,
		"orders.paid": `{"paused":true}`,
		"quiet":       `{"publish":{"rate":0}}`,
	} {
		a.send("PUT", "/v1/policies/"+name, body)
	}
	share := 7.5
	reg.topics = []fleet.Topic{
		{Topic: "orders.paid", AllowedPerSecond: 7.25, DeniedPerSecond: 1, Sidecars: []string{"a"},
			BySidecar: []fleet.Usage{{NodeID: "a", AllowedPerSecond: 7.25, DeniedPerSecond: 1, SharePerSecond: &share}}},
		{Topic: "logs", AllowedPerSecond: 3, Sidecars: []string{"a", "b"},
			BySidecar: []fleet.Usage{{NodeID: "a", AllowedPerSecond: 3}, {NodeID: "b"}}},
		{Topic: "orders.new", History: []fleet.Point{{Allowed: 1, Denied: 2}}},
	}
	want(t, a.send("GET", "/v1/topics?history=1", ""), 200, `{"topics":[`+
		`{"topic":"logs","allowed_per_second":3,"denied_per_second":0,"sidecars":["a","b"],"by_sidecar":[`+
		`{"node_id":"a","allowed_per_second":3,"denied_per_second":0,"share_per_second":null},`+
		`{"node_id":"b","allowed_per_second":0,"denied_per_second":0,"share_per_second":null}],`+
		`"rate":1000,"scope":"sidecar","paused":false,"policy":"","groups":0,"lag":0,"dead_letters":0},`+
		`{"topic":"orders.new","allowed_per_second":0,"denied_per_second":0,"sidecars":[],"by_sidecar":[],"history":[{"allowed":1,"denied":2}],`+
		`"rate":10,"scope":"fleet","paused":false,"policy":"orders.*","groups":0,"lag":0,"dead_letters":0},`+
		`{"topic":"orders.paid","allowed_per_second":7.25,"denied_per_second":1,"sidecars":["a"],"by_sidecar":[`+
		`{"node_id":"a","allowed_per_second":7.25,"denied_per_second":1,"share_per_second":7.5}],`+
		`"rate":10,"scope":"fleet","paused":true,"policy":"orders.paid","groups":0,"lag":0,"dead_letters":0},`+
		`{"topic":"quiet","allowed_per_second":0,"denied_per_second":0,"sidecars":[],"by_sidecar":[],`+
		`"rate":0,"scope":"sidecar","paused":false,"policy":"quiet","groups":0,"lag":0,"dead_letters":0}]}`)
	if !reg.history {
		t.Error("the history was not asked for")
	}
	if a.send("GET", "/v1/topics?history=0", ""); reg.history {
		t.Error("the history was asked for")
	}
	a.send("PUT", "/v1/policies/*", `{"publish":{"rate":5}}`)
	reg.topics = reg.topics[1:2]
	a.send("DELETE", "/v1/policies/quiet", "")
	a.send("DELETE", "/v1/policies/orders.paid", "")
	want(t, a.send("GET", "/v1/topics", ""), 200, `{"topics":[`+
		`{"topic":"logs","allowed_per_second":3,"denied_per_second":0,"sidecars":["a","b"],"by_sidecar":[`+
		`{"node_id":"a","allowed_per_second":3,"denied_per_second":0,"share_per_second":null},`+
		`{"node_id":"b","allowed_per_second":0,"denied_per_second":0,"share_per_second":null}],`+
		`"rate":5,"scope":"sidecar","paused":false,"policy":"*","groups":0,"lag":0,"dead_letters":0}]}`)
}
