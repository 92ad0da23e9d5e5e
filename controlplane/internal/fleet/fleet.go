// Package fleet has the control plane's knowledge of its sidecars: their
// identities, when they were last seen, which policies they run or refuse,
// their rates by topic, and their shares of fleet-wide limits. It must not know
// xDS, quotas or REST, which write and read it.
package fleet

import "time"

// Sidecar is one sidecar as it is shown.
type Sidecar struct {
	NodeID   string    `json:"node_id"`
	Address  string    `json:"address"` // of its replay API, host:port
	LastSeen time.Time `json:"last_seen"`
	// Versions are the acked versions, by policy.
	Versions map[string]int64 `json:"versions"`
	// Rejected is the policy that it refused last and has not accepted since;
	// nil: none.
	Rejected *Rejection `json:"rejected"`
	// UnmetConcerns are the write concerns that its store does not meet, by
	// topic: it refuses their events. The map is never changed.
	UnmetConcerns map[string]string `json:"unmet_concerns,omitempty"`

	Connected bool `json:"connected"`
	// RefusedSessions are the recent refused sessions of other processes under
	// its node id; nil: none.
	RefusedSessions *Refusals `json:"refused_sessions,omitempty"`
	// Drained says that it left without events that a replay of the fleet would
	// miss: its store has others, its spool is empty.
	Drained bool `json:"drained,omitempty"`
	// Missing says that it is gone, and may have events that no other has:
	// replays of the fleet name it until it is back, or forgotten.
	Missing bool   `json:"missing,omitempty"`
	Version string `json:"version"`  // of the program
	StoreID string `json:"store_id"` // which store it is on
	// ControlPlane is the control plane that it is connected to.
	ControlPlane string `json:"control_plane"`
}

// Rejection is a policy that a sidecar refused.
type Rejection struct {
	Policy  string `json:"policy"`
	Version int64  `json:"version"`
	Reason  string `json:"reason"`
}

// Refusals are the sessions refused because another process uses their node id.
type Refusals struct {
	Count   int64     `json:"count"`
	Last    time.Time `json:"last"`
	Address string    `json:"address"` // the replay API of the last one
}

// Topic is the use of one topic by all sidecars.
type Topic struct {
	Topic            string   `json:"topic"`
	AllowedPerSecond float64  `json:"allowed_per_second"`
	DeniedPerSecond  float64  `json:"denied_per_second"`
	Sidecars         []string `json:"sidecars"` // node ids, ascending
	BySidecar        []Usage  `json:"by_sidecar"`
	// History has the last 60 s, one element a second, the latest last; nil
	// unless requested.
	History []Point `json:"history,omitempty"`
}

// Usage is the use of a topic by one sidecar.
type Usage struct {
	NodeID           string  `json:"node_id"`
	AllowedPerSecond float64 `json:"allowed_per_second"`
	DeniedPerSecond  float64 `json:"denied_per_second"`
	// SharePerSecond is its share of a fleet-wide rate; nil: the topic has none.
	SharePerSecond *float64 `json:"share_per_second"`
}

// Point has the allowed and the denied events of one second.
type Point struct {
	Allowed float64 `json:"allowed"`
	Denied  float64 `json:"denied"`
}
