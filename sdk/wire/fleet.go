package wire

import "time"

// Sidecar is a control plane's knowledge of one sidecar.
type Sidecar struct {
	NodeID   string    `json:"node_id"`
	Address  string    `json:"address"` // of its replay API, host:port
	LastSeen time.Time `json:"last_seen"`
	// Versions are the acked versions, by policy.
	Versions map[string]int64 `json:"versions"`
	// Rejected is the policy that it refused last and has not accepted since; nil: none.
	Rejected *Rejection `json:"rejected"`
	// UnmetConcerns are the write concerns that its store does not meet, by topic: it refuses their
	// events.
	UnmetConcerns map[string]string `json:"unmet_concerns,omitempty"`

	Connected bool `json:"connected"`
	// RefusedSessions are the sessions of other processes under its node id that were refused in
	// the last minute; nil: none.
	RefusedSessions *RefusedSessions `json:"refused_sessions,omitempty"`
	// Drained says that the sidecar left, and that a replay of the fleet misses no events of it:
	// other sidecars use its store, and its spool is empty.
	Drained bool `json:"drained,omitempty"`
	// Missing says that the sidecar is gone, and may have events that no other sidecar has. Replays
	// of the fleet name it until it is back, or forgotten.
	Missing bool   `json:"missing,omitempty"`
	Version string `json:"version"`  // of the program
	StoreID string `json:"store_id"` // equal for sidecars that share a store
	// ControlPlane is the control plane that it is connected to.
	ControlPlane string `json:"control_plane"`
}

// Rejection is a policy that a sidecar refused.
type Rejection struct {
	Policy  string `json:"policy"`
	Version int64  `json:"version"`
	Reason  string `json:"reason"`
}

// RefusedSessions are the sessions that were refused because another process uses their node id.
type RefusedSessions struct {
	Count   int64     `json:"count"`
	Last    time.Time `json:"last"`
	Address string    `json:"address"` // the replay API of the last one
}

// FleetTopic is the use of one topic by all sidecars, and its limits.
type FleetTopic struct {
	Topic            string         `json:"topic"`
	AllowedPerSecond float64        `json:"allowed_per_second"`
	DeniedPerSecond  float64        `json:"denied_per_second"`
	Sidecars         []string       `json:"sidecars"` // node ids, ascending
	BySidecar        []SidecarUsage `json:"by_sidecar"`
	// History has the last 60 s, one element a second, the latest last; nil unless requested.
	History []UsagePoint `json:"history,omitempty"`
	Rate    float64      `json:"rate"`          // of its policy; 0: no limit
	Scope   string       `json:"scope"`         // of the rate: sidecar or fleet
	Per     string       `json:"per,omitempty"` // header:NAME: each value of it has the rate for itself
	Paused  bool         `json:"paused"`
	Policy  string       `json:"policy"` // the one that matches best; "": the defaults
	// Refusals are the events that were refused in the last hour, by error code.
	Refusals map[string]int64 `json:"refusals,omitempty"`
	TopicGroups
}

// TopicGroups are the consumer groups of a topic in all stores, as sidecars report them.
type TopicGroups struct {
	Groups      int   `json:"groups"`
	Lag         int64 `json:"lag"` // of the group that is furthest behind
	DeadLetters int64 `json:"dead_letters"`
}

// SidecarUsage is the use of a topic by one sidecar.
type SidecarUsage struct {
	NodeID           string  `json:"node_id"`
	AllowedPerSecond float64 `json:"allowed_per_second"`
	DeniedPerSecond  float64 `json:"denied_per_second"`
	// SharePerSecond is its share of a fleet-wide rate; nil: the topic has none.
	SharePerSecond *float64 `json:"share_per_second"`
}

// UsagePoint has the allowed and the denied events of one second.
type UsagePoint struct {
	Allowed float64 `json:"allowed"`
	Denied  float64 `json:"denied"`
}
