package console_test

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/forward"
	"github.com/sluice-bus/sluice/controlplane/internal/health"
	"github.com/sluice-bus/sluice/controlplane/internal/usage"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// demand is how many events a second are published to each topic through each sidecar, about.
var demand = map[string]map[string]float64{
	"orders.created":   {"edge-eu-1": 140, "edge-eu-2": 90, "edge-us-1": 30},
	"orders.paid":      {"edge-eu-1": 60, "edge-eu-2": 45},
	"orders.cancelled": {"edge-eu-2": 4.5},
	"payments.settled": {"edge-eu-1": 120, "edge-us-1": 80},
	"telemetry.raw":    {"edge-eu-1": 700, "edge-eu-2": 650, "edge-us-1": 1100},
	"telemetry.errors": {"edge-us-1": 0.4},
	"audit.login":      {"edge-eu-1": 12},
	"legacy.import":    {"edge-us-1": 8},
}

// nodes are the sidecars, with the time that a change takes to each.
var nodes = []struct {
	id, address string
	delay       time.Duration
	away        bool
	refuses     string // a policy that it never takes
}{
	{id: "edge-eu-1", address: "10.0.4.1:8083", delay: 200 * time.Millisecond},
	{id: "edge-eu-2", address: "10.0.4.2:8083", delay: 500 * time.Millisecond},
	{id: "edge-us-1", address: "10.0.4.3:8083", delay: 900 * time.Millisecond, refuses: "telemetry.*"},
	{id: "edge-us-2", address: "10.0.4.4:8083", away: true},
}

const storeID = "0197c2ab-5f0e-7c11-9d55-3f1d8a2b6c01"

const remembered = 60 // seconds of history

// madeUpFleet is sidecars under a load that hardly changes. They take a change of policies after a
// moment, and let through what it allows.
type madeUpFleet struct {
	policies *catalog.Catalog
	begin    time.Time

	mu      sync.Mutex
	next    time.Time                           // the second that is not counted yet
	history map[string]map[string][]fleet.Point // by topic and sidecar
	seen    map[string]bool                     // names of policies
	forgot  map[string]bool                     // node ids
}

func newMadeUpFleet(policies *catalog.Catalog) *madeUpFleet {
	f := &madeUpFleet{policies: policies, begin: time.Now(), history: map[string]map[string][]fleet.Point{}, seen: map[string]bool{},
		forgot: map[string]bool{}}
	f.next = f.begin.Add(-remembered * time.Second)
	for topic := range demand {
		f.history[topic] = map[string][]fleet.Point{}
	}
	return f
}

// advance counts the seconds that have passed.
func (f *madeUpFleet) advance() {
	for ; !f.next.After(time.Now()); f.next = f.next.Add(time.Second) {
		for topic, wants := range demand {
			e := f.policies.State().Snapshot.Topic(topic)
			for node, want := range wants {
				phase := float64(f.next.Unix())/7 + float64(len(topic)) + float64(node[len(node)-1])
				want *= 1 + 0.18*math.Sin(phase) + 0.07*math.Sin(3.7*phase)
				allowed := min(want, limit(e, wants, node))
				points := append(f.history[topic][node], fleet.Point{Allowed: allowed, Denied: want - allowed})
				f.history[topic][node] = points[max(0, len(points)-remembered):]
			}
		}
	}
}

// limit is what a sidecar may let through: its part by demand, where the rate is for the fleet.
func limit(e *policy.Effective, wants map[string]float64, node string) float64 {
	switch {
	case e.Paused:
		return 0
	case e.Publish.Rate == 0:
		return math.Inf(1)
	case e.Publish.Scope != policy.ScopeFleet:
		return e.Publish.Rate
	}
	total := 0.0
	for _, w := range wants {
		total += w
	}
	return e.Publish.Rate * wants[node] / total
}

// Hours has an hour of the load, which is the same all the time.
func (f *madeUpFleet) Hours(wanted func(topic string) bool) fleet.Hours {
	out := fleet.Hours{Since: time.Now().Add(-time.Hour), Complete: true, Topics: map[string][]fleet.Hour{}}
	for topic, wants := range demand {
		if !wanted(topic) {
			continue
		}
		for _, perSecond := range wants {
			var hour fleet.Hour
			for i := range hour {
				hour[i] = fleet.Slot{Events: float32(perSecond * fleet.HourSlot.Seconds()), Peak: float32(perSecond)}
			}
			out.Topics[topic] = append(out.Topics[topic], hour)
		}
	}
	return out
}

func (f *madeUpFleet) Topics(history bool) []fleet.Topic {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.advance()
	var list []fleet.Topic
	for name, wants := range demand {
		e := f.policies.State().Snapshot.Topic(name)
		t := fleet.Topic{Topic: name}
		sum := make([]fleet.Point, remembered)
		for _, node := range slices.Sorted(maps.Keys(wants)) {
			points := f.history[name][node]
			for i, p := range points {
				sum[i].Allowed += p.Allowed
				sum[i].Denied += p.Denied
			}
			last := points[len(points)-1]
			usage := fleet.Usage{NodeID: node, AllowedPerSecond: last.Allowed, DeniedPerSecond: last.Denied}
			if e.Publish.Scope == policy.ScopeFleet {
				share := limit(e, wants, node)
				usage.SharePerSecond = &share
			}
			t.Sidecars = append(t.Sidecars, node)
			t.BySidecar = append(t.BySidecar, usage)
		}
		t.AllowedPerSecond, t.DeniedPerSecond = sum[remembered-1].Allowed, sum[remembered-1].Denied
		if t.DeniedPerSecond > 0 {
			t.Refusals = map[string]int64{"rate_limited": int64(t.DeniedPerSecond * 3600), "schema_violation": 3}
		}
		if history {
			t.History = sum
		}
		list = append(list, t)
	}
	return list
}

func (f *madeUpFleet) Sidecars() []fleet.Sidecar {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.policies.State().Entries {
		f.seen[e.Policy.Name] = true
	}
	var list []fleet.Sidecar
	for _, node := range nodes {
		if f.forgot[node.id] {
			continue
		}
		s := fleet.Sidecar{NodeID: node.id, Address: node.address, LastSeen: time.Now(), Connected: !node.away, Missing: node.away,
			Version: "v0.4.1",
			StoreID: storeID, ControlPlane: "here", Versions: map[string]int64{}}
		if node.away {
			s.LastSeen = f.begin.Add(-17 * time.Minute)
		}
		for name := range f.seen {
			version := f.versionAt(name, s.LastSeen.Add(-node.delay))
			if version > 0 && name == node.refuses {
				s.Rejected = &fleet.Rejection{Policy: name, Version: version, Reason: "durability.spool_max_bytes: this sidecar has no such disk"}
			} else if version > 0 {
				s.Versions[name] = version
			}
		}
		list = append(list, s)
	}
	return list
}

func (f *madeUpFleet) forget(_ context.Context, node string) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgot[node] = true
	return true, nil
}

// versionAt is the version of a policy that was in force at a time; 0: none.
func (f *madeUpFleet) versionAt(name string, at time.Time) int64 {
	versions, err := f.policies.History(context.Background(), name)
	if err != nil {
		return 0
	}
	for _, v := range versions {
		switch {
		case v.At.After(at):
		case v.Entry == nil:
			return 0
		default:
			return v.Version
		}
	}
	return 0
}

func (f *madeUpFleet) Using(policy string) []fleet.Sidecar {
	list := f.Sidecars()
	for i := range list {
		maps.DeleteFunc(list[i].Versions, func(name string, _ int64) bool { return name != policy })
	}
	return list
}

func (f *madeUpFleet) Find(node string) (fleet.Member, []string, bool) {
	for _, s := range f.Sidecars() {
		if s.NodeID == node {
			return fleet.Member{Sidecar: s}, nil, true
		}
	}
	return fleet.Member{}, nil, false
}

func (f *madeUpFleet) Overview() health.Overview {
	o := health.Overview{Incidents: []health.Incident{}, Totals: health.Totals{
		Sidecars: health.Sidecars{Live: 3, Missing: 1}, Stores: 1, Topics: len(demand),
		Versions: []health.Version{{Version: "v0.4.1", Sidecars: 3}}, DeliveredPerSecond: 1200,
	}}
	for _, t := range f.Topics(false) {
		o.PublishedPerSecond += t.AllowedPerSecond
		o.RefusedPerSecond += t.DeniedPerSecond
	}
	for _, s := range f.Sidecars() {
		if s.Missing {
			o.Incidents = append(o.Incidents, health.Incident{
				Kind: "sidecar_missing", Severity: "warning", Since: s.LastSeen,
				Text: s.NodeID + " is gone, and may have events of its own.", Remedy: "Start it again with its data folder, or forget it.",
				Subject: health.Subject{NodeID: s.NodeID},
			})
		}
	}
	return o
}

func (f *madeUpFleet) TopicGroups() map[string]wire.TopicGroups {
	return map[string]wire.TopicGroups{"orders.created": {Groups: 2, Lag: 1204, DeadLetters: 7}, "orders.paid": {Groups: 1}}
}

// Between has the load of each day.
func (f *madeUpFleet) Between(_ context.Context, from, _, prefix string, _ bool) (rows []usage.Row, _ error) {
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		if strings.HasPrefix(name, prefix) {
			rows = append(rows, usage.Row{Name: usage.Name{Topic: name}, Accepted: int64(len(from) * 1000 * len(name)), Refused: 17})
		}
	}
	return rows, nil
}

func (f *madeUpFleet) Groups() []health.Group { return nil }

func (f *madeUpFleet) Stores() []health.Store {
	sidecars := []string{"edge-eu-1", "edge-eu-2", "edge-us-1"}
	return []health.Store{{Store: storeID, Kind: "mongodb", State: "ok", Since: f.begin, Sidecars: sidecars}}
}

func (f *madeUpFleet) History() (points []health.Point) {
	for i := range 60 {
		wave := math.Sin(float64(i) / 5)
		points = append(points, health.Point{
			At: f.begin.Add(time.Duration(i-60) * 30 * time.Second), Published: 2000 + 300*wave, Delivered: 1200 + 200*wave, Refused: 300 - 100*wave,
		})
	}
	return points
}

// Serve answers for the sidecars of a store, which have a history of the topics.
func (f *madeUpFleet) Serve(w http.ResponseWriter, _ *http.Request, what forward.Request) error {
	if what.URL.Path == "/replay" {
		w.Header().Set("Content-Type", "application/json")
		_, err := w.Write([]byte(`{"events":[{"id":"e-1","payload":{"n":1}},{"id":"e-2","payload":{"id":2}}]}`))
		return err
	}
	if what.URL.Path != "/v1/topics" {
		return wire.Errorf(wire.NotFound, "a made-up sidecar has no %s", what.URL.Path)
	}
	list := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(demand)) {
		list = append(list, map[string]any{
			"topic": name, "partitions": []any{}, "events": 1200 * len(name), "bytes": 300_000 * len(name), "groups": []string{"audit"},
		})
	}
	w.Header().Set("Content-Type", "application/json")
	return json.NewEncoder(w).Encode(map[string]any{"topics": list})
}
