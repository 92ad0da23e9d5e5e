package rest

import (
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/controlplane/internal/health"
	reported "github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Health has the incidents and rates of the fleet. Nobody changes its results. It is safe for
// concurrent use.
type Health interface {
	Overview() health.Overview
	// Stores are the worst first.
	Stores() []health.Store
	// TopicGroups are by topic.
	TopicGroups() map[string]wire.TopicGroups
	// Groups are by topic, group and store.
	Groups() []health.Group
	// History has the last hour, the latest last.
	History() []health.Point
}

// healthRoutes have what is wrong with the fleet.
func (h *handler) healthRoutes() []httpapi.Route {
	return []httpapi.Route{{
		Pattern: "GET /v1/overview", Summary: "the incidents of the fleet, and its rates",
		Query:   []httpapi.Param{httpapi.OneOf("history", "1 adds the rates of the last hour", "0", "1").Or("0")},
		Answers: []httpapi.Answer{ok[overviewBody]("the overview")}, Serve: h.known(h.overview),
	}, {
		Pattern: "GET /v1/stores", Summary: "the stores of the connected sidecars, the worst first",
		Answers: []httpapi.Answer{ok[storesBody]("the stores")}, Serve: h.known(h.stores),
	}, {
		Pattern: "GET /v1/sidecars/{node_id}", Summary: "one sidecar with its health",
		Answers: []httpapi.Answer{ok[detailBody]("the sidecar")}, Errors: []wire.Code{wire.NotFound}, Serve: h.known(h.sidecar),
	}, h.groupsRoute(), h.watchRoute()}
}

// overviewBody is an overview, with the rates of the last hour if asked for.
type overviewBody struct {
	health.Overview
	History []health.Point `json:"history,omitempty"`
}

func (h *handler) overview(w http.ResponseWriter, r *request) error {
	body := overviewBody{Overview: h.Health.Overview()}
	if r.Text("history") == "1" {
		body.History = h.Health.History()
	}
	return h.answer(w, r, http.StatusOK, body)
}

type storesBody struct {
	Stores []health.Store `json:"stores"`
}

func (h *handler) stores(w http.ResponseWriter, r *request) error {
	return h.answer(w, r, http.StatusOK, storesBody{h.Health.Stores()})
}

// detailBody is a sidecar with its health, which is left out where it has reported none.
type detailBody struct {
	sidecarBody
	Topics []string `json:"topics"`
	*healthBody
}

// healthBody is what a sidecar has reported.
type healthBody struct {
	ReportedAt  catalog.Time      `json:"reported_at"`
	UptimeS     int64             `json:"uptime_s"`
	ClockSkewMS int64             `json:"clock_skew_ms"`
	Store       storeBody         `json:"store"`
	Spool       spoolBody         `json:"spool"`
	Memory      memoryBody        `json:"memory"`
	Disk        diskBody          `json:"disk"`
	Connections int               `json:"connections"`
	Groups      []groupBody       `json:"groups"`
	DeadLetters []deadLettersBody `json:"dead_letters"`
	Sources     []sourceBody      `json:"sources"`
	Log         []string          `json:"log"`
}

type storeBody struct {
	Kind  string       `json:"kind"`
	State string       `json:"state"`
	Since catalog.Time `json:"since"`
	Error string       `json:"error,omitempty"`
}

type spoolBody struct {
	Events int64         `json:"events"`
	Bytes  int64         `json:"bytes"`
	Oldest *catalog.Time `json:"oldest"` // null: nothing waits
}

type memoryBody struct {
	Used  int64 `json:"used"`
	Bound int64 `json:"bound"`
}

type diskBody struct {
	Free     int64 `json:"free"`
	LowWater int64 `json:"low_water"`
}

// groupBody is a sidecar's part of a group.
type groupBody struct {
	reported.Group
	Lag            int64         `json:"lag"`
	InFlight       int64         `json:"inflight"`
	Members        int           `json:"members"`
	OldestUnackedS int64         `json:"oldest_unacked_s"`
	Paused         bool          `json:"paused"`
	StuckSince     *catalog.Time `json:"stuck_since,omitempty"`
	BlockedBy      string        `json:"blocked_by,omitempty"`
}

type deadLettersBody struct {
	reported.Group
	Count  int64        `json:"count"`
	Oldest catalog.Time `json:"oldest"`
	Newest catalog.Time `json:"newest"`
}

type sourceBody struct {
	reported.SourceName
	State   string `json:"state"`
	Failing bool   `json:"failing"`
	Stopped bool   `json:"stopped"`
	Failed  int64  `json:"failed"`
}

func (h *handler) sidecar(w http.ResponseWriter, r *request) error {
	m, topics, found := h.Registry.Find(r.PathValue("node_id"))
	if !found {
		return wire.Errorf(wire.NotFound, "no sidecar %q is known", r.PathValue("node_id"))
	}
	body := detailBody{showSidecar(m.Sidecar), append([]string{}, topics...), showHealth(m.Health, time.Now())}
	return h.answer(w, r, http.StatusOK, body)
}

func showHealth(s *fleet.Health, now time.Time) *healthBody {
	if s == nil {
		return nil
	}
	p := &s.Process
	body := &healthBody{
		ReportedAt: catalog.Time{Time: s.At}, ClockSkewMS: s.Skew.Milliseconds(), Connections: p.Connections,
		Store:  storeBody{p.StoreKind, p.StoreState, catalog.Time{Time: time.UnixMilli(p.StoreSince)}, p.StoreError},
		Spool:  spoolBody{p.SpoolEvents, p.SpoolBytes, when(p.SpoolOldest)},
		Memory: memoryBody{p.MemoryUsed, p.MemoryBound}, Disk: diskBody{p.DiskFree, p.DiskLow},
		// [] rather than null
		Groups: []groupBody{}, DeadLetters: []deadLettersBody{}, Sources: []sourceBody{}, Log: append([]string{}, s.Log...),
	}
	// Times of the sidecar's clock: what has passed is by the sidecar's clock, too.
	passed := func(ms int64) int64 { return max(int64(now.Add(s.Skew).Sub(time.UnixMilli(ms)).Seconds()), 0) }
	body.UptimeS = passed(p.Started)
	for _, name := range sorted(s.Groups) {
		g := s.Groups[name]
		var oldest int64
		if g.Oldest != 0 {
			oldest = passed(g.Oldest)
		}
		body.Groups = append(body.Groups, showGroup(name, &g, oldest))
	}
	for _, name := range sorted(s.DeadLetters) {
		d := s.DeadLetters[name]
		body.DeadLetters = append(body.DeadLetters, deadLettersBody{name, d.Count,
			catalog.Time{Time: time.UnixMilli(d.Oldest)}, catalog.Time{Time: time.UnixMilli(d.Newest)}})
	}
	names := slices.SortedFunc(maps.Keys(s.Sources), reported.SourceName.Compare)
	for _, name := range names {
		x := s.Sources[name]
		body.Sources = append(body.Sources, sourceBody{name, x.State, x.Failing, x.Stopped, x.Failed})
	}
	return body
}

func sorted[V any](groups map[reported.Group]V) []reported.Group {
	return slices.SortedFunc(maps.Keys(groups), reported.Group.Compare)
}

// when is a time in milliseconds; nil: 0, none.
func when(ms int64) *catalog.Time {
	if ms == 0 {
		return nil
	}
	return &catalog.Time{Time: time.UnixMilli(ms)}
}
