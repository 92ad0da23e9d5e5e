package admin

import (
	"context"
	"time"
)

// Overview is what is wrong with a fleet, and how much it does.
type Overview struct {
	Incidents []Incident `json:"incidents"` // the worst first
	More      int        `json:"more,omitempty"`
	Sidecars  struct {
		Live    int `json:"live"`
		Missing int `json:"missing"`
	} `json:"sidecars"`
	Versions []struct {
		Version  string `json:"version"`
		Sidecars int    `json:"sidecars"`
	} `json:"versions"`
	Stores             int     `json:"stores"`
	Topics             int     `json:"topics"`
	PublishedPerSecond float64 `json:"published_per_second"`
	DeliveredPerSecond float64 `json:"delivered_per_second"`
	RefusedPerSecond   float64 `json:"refused_per_second"`
	DeadPerSecond      float64 `json:"dead_per_second"`
}

// Incident is something that is wrong with a fleet. The names of what it is not about are "".
type Incident struct {
	Kind     string    `json:"kind"`
	Severity string    `json:"severity"` // critical, warning or info
	Since    time.Time `json:"since"`
	Text     string    `json:"text"`
	Remedy   string    `json:"remedy"`
	NodeID   string    `json:"node_id,omitempty"`
	Store    string    `json:"store,omitempty"`
	Topic    string    `json:"topic,omitempty"`
	Group    string    `json:"group,omitempty"`
	Value    float64   `json:"value,omitempty"` // the number in Text
}

// FleetStore is a store of the connected sidecars.
type FleetStore struct {
	Store    string    `json:"store"` // its id
	Kind     string    `json:"kind"`
	State    string    `json:"state"` // the worst that one of its sidecars reports
	Since    time.Time `json:"since"`
	Error    string    `json:"error,omitempty"`
	Sidecars []string  `json:"sidecars"`
	Spooled  int64     `json:"spooled"` // events in their spools
}

// SidecarHealth is a sidecar with what it has reported last; ReportedAt is zero where it has reported nothing yet.
type SidecarHealth struct {
	Sidecar
	Topics      []string  `json:"topics"`
	ReportedAt  time.Time `json:"reported_at"`
	UptimeS     int64     `json:"uptime_s"`
	ClockSkewMS int64     `json:"clock_skew_ms"`
	Store       struct {
		Kind  string    `json:"kind"`
		State string    `json:"state"`
		Since time.Time `json:"since"`
		Error string    `json:"error,omitempty"`
	} `json:"store"`
	Spool struct {
		Events int64      `json:"events"`
		Bytes  int64      `json:"bytes"`
		Oldest *time.Time `json:"oldest"`
	} `json:"spool"`
	Memory struct {
		Used  int64 `json:"used"`
		Bound int64 `json:"bound"`
	} `json:"memory"`
	Disk struct {
		Free     int64 `json:"free"`
		LowWater int64 `json:"low_water"`
	} `json:"disk"`
	Connections int `json:"connections"`
	Groups      []struct {
		Topic          string `json:"topic"`
		Group          string `json:"group"`
		Lag            int64  `json:"lag"`
		InFlight       int64  `json:"inflight"`
		Members        int    `json:"members"`
		OldestUnackedS int64  `json:"oldest_unacked_s"`
		Paused         bool   `json:"paused"`
		BlockedBy      string `json:"blocked_by,omitempty"`
	} `json:"groups"`
	DeadLetters []struct {
		Topic string `json:"topic"`
		Group string `json:"group"`
		Count int64  `json:"count"`
	} `json:"dead_letters"`
	Sources []struct {
		Kind   string `json:"kind"` // outbox or capture
		Name   string `json:"name"`
		State  string `json:"state"`
		Failed int64  `json:"failed"`
	} `json:"sources"`
	Log []string `json:"log"`
}

// FleetGroup is a consumer group over all sidecars of its store. One without a name has the dead letters of no group.
type FleetGroup struct {
	Store          string     `json:"store"`
	Topic          string     `json:"topic"`
	Group          string     `json:"group"`
	Lag            int64      `json:"lag"`
	InFlight       int64      `json:"inflight"`
	Members        int        `json:"members"`
	OldestUnackedS int64      `json:"oldest_unacked_s"`
	Paused         bool       `json:"paused"`
	StuckSince     *time.Time `json:"stuck_since,omitempty"`
	BlockedBy      string     `json:"blocked_by,omitempty"`
	DeadLetters    int64      `json:"dead_letters"`
}

// FleetGroups returns the groups of topics whose names begin with prefix, or those of them that have dead letters: stuck
// ones first, then those with the most lag.
func (c *ControlPlane) FleetGroups(ctx context.Context, prefix string, deadLetters bool) (all []FleetGroup, err error) {
	for next := ""; ; {
		page, err := fetch[struct {
			Groups []FleetGroup
			Next   string
		}](ctx, c, "/v1/groups"+query("sort", "-trouble", "prefix", prefix, "dead_letters", onlyIf(deadLetters, "1"),
			"limit", largestPage, "cursor", next))
		if all = append(all, page.Groups...); err != nil || page.Next == "" {
			return all, err
		}
		next = page.Next
	}
}

// Usage is how many events of a topic, or of a tenant of it, were accepted and refused in a period.
type Usage struct {
	Period   string `json:"period"` // 2026-01-31 or 2026-01
	Topic    string `json:"topic"`
	Tenant   string `json:"tenant,omitempty"`
	Accepted int64  `json:"accepted"`
	Refused  int64  `json:"refused"` // of a tenant: by its limit
	// Refusals are a topic's refused events by error code.
	Refusals map[string]int64 `json:"refusals,omitempty"`
}

// UsageQuery selects usage; what is left out is the control plane's default.
type UsageQuery struct {
	By       string // day or month
	From, To string // days, such as 2026-01-31
	Prefix   string // of topics
	Tenants  bool
}

// Usage returns the usage of topics, the latest first.
func (c *ControlPlane) Usage(ctx context.Context, q UsageQuery) (all []Usage, err error) {
	for next := ""; ; {
		page, err := fetch[struct {
			Usage []Usage
			Next  string
		}](ctx, c, "/v1/usage"+query("by", q.By, "from", q.From, "to", q.To, "prefix", q.Prefix, "tenants", onlyIf(q.Tenants, "1"),
			"limit", largestPage, "cursor", next))
		if all = append(all, page.Usage...); err != nil || page.Next == "" {
			return all, err
		}
		next = page.Next
	}
}

// Overview returns the incidents and the rates of the fleet.
func (c *ControlPlane) Overview(ctx context.Context) (Overview, error) {
	return fetch[Overview](ctx, c, "/v1/overview")
}

// Stores returns the stores of the connected sidecars, the worst first.
func (c *ControlPlane) Stores(ctx context.Context) ([]FleetStore, error) {
	body, err := fetch[struct{ Stores []FleetStore }](ctx, c, "/v1/stores")
	return body.Stores, err
}

// SidecarHealth returns a sidecar with its health. The error has the code not_found if none of that name is known.
func (c *ControlPlane) SidecarHealth(ctx context.Context, nodeID string) (SidecarHealth, error) {
	return fetch[SidecarHealth](ctx, c, "/v1/sidecars/"+pathPart(nodeID))
}

// BusiestTopics returns the limit topics of the fleet that rank first by sort, as the control plane's list takes it.
func (c *ControlPlane) BusiestTopics(ctx context.Context, sort string, limit int) ([]FleetTopic, error) {
	page, err := fetch[struct{ Topics []FleetTopic }](ctx, c, "/v1/topics"+query("sort", sort, "limit", number(limit)))
	return page.Topics, err
}
