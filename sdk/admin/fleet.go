package admin

import "time"

// Sidecar is what the control plane knows of one sidecar.
type Sidecar struct {
	NodeID    string    `json:"node_id"`
	Address   string    `json:"address"` // of its replay API
	LastSeen  time.Time `json:"last_seen"`
	Connected bool      `json:"connected"`
	// Missing says that the sidecar is gone and may be the only one with some events. Replays of
	// the fleet name it until it is back or forgotten.
	Missing      bool   `json:"missing,omitempty"`
	Version      string `json:"version"`  // of the program
	StoreID      string `json:"store_id"` // tells which sidecars share a store
	ControlPlane string `json:"control_plane"`
	// Versions are the versions that it has acked, by policy: of all globs, and
	// of the topics that it uses.
	Versions map[string]int64 `json:"versions"`
	// Rejected is what it refused and has not taken since; nil: nothing.
	Rejected *Rejection `json:"rejected"`
	// RefusedSessions are those of other processes under its node id, in the last
	// minute; nil: none.
	RefusedSessions *RefusedSessions `json:"refused_sessions,omitempty"`
	// UnmetConcerns are the write concerns that its store does not meet, by topic:
	// it refuses their events.
	UnmetConcerns map[string]string `json:"unmet_concerns,omitempty"`
}

// Rejection is a version of a policy that a sidecar refused.
type Rejection struct {
	Policy  string `json:"policy"`
	Version int64  `json:"version"`
	Reason  string `json:"reason"`
}

// RefusedSessions are sessions that a control plane refused, since another process
// with their node id was connected.
type RefusedSessions struct {
	Count   int64     `json:"count"`
	Last    time.Time `json:"last"`
	Address string    `json:"address"` // the replay API of the last one
}

// FleetTopic is what passes through the fleet of one topic, and what limits it.
type FleetTopic struct {
	Topic            string         `json:"topic"`
	AllowedPerSecond float64        `json:"allowed_per_second"`
	DeniedPerSecond  float64        `json:"denied_per_second"`
	Sidecars         []string       `json:"sidecars"` // node ids of those that use it
	BySidecar        []SidecarUsage `json:"by_sidecar"`
	History          []UsagePoint   `json:"history,omitempty"` // one element a second, the latest last
	Rate             float64        `json:"rate"`              // of its policy; 0: no limit
	Scope            string         `json:"scope"`             // whom the rate is for: sidecar or fleet
	Paused           bool           `json:"paused"`
	Policy           string         `json:"policy"` // that matches it best; "": the defaults hold
}

// SidecarUsage is one sidecar's part of a topic.
type SidecarUsage struct {
	NodeID           string   `json:"node_id"`
	AllowedPerSecond float64  `json:"allowed_per_second"`
	DeniedPerSecond  float64  `json:"denied_per_second"`
	SharePerSecond   *float64 `json:"share_per_second"` // of a rate for the fleet; nil: there is none
}

// UsagePoint is how many events passed in a second, and how many did not.
type UsagePoint struct {
	Allowed float64 `json:"allowed"`
	Denied  float64 `json:"denied"`
}
