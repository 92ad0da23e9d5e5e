package rest

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/health"
	reported "github.com/sluice-bus/sluice/internal/health"
	"github.com/sluice-bus/sluice/internal/httpapi"
)

// groupList has the groups of all stores.
var groupList = list[health.Group]{
	name: func(g *health.Group) string { return g.Topic + "\x00" + g.Group.Group + "\x00" + g.Store },
	sorts: []sorting[health.Group]{
		{"topic", func(*health.Group) string { return "" }}, // names decide
		{"trouble", func(g *health.Group) string { return fmt.Sprintf("%t%020d", g.StuckSince != 0 && !g.Paused, g.Lag) }},
		{"lag", func(g *health.Group) string { return wholeText(g.Lag) }},
		{"inflight", func(g *health.Group) string { return wholeText(g.InFlight) }},
		{"members", func(g *health.Group) string { return wholeText(int64(g.Members)) }},
		{"oldest_unacked_s", func(g *health.Group) string { return wholeText(seconds(g.OldestFor)) }},
		{"dead_letters", func(g *health.Group) string { return wholeText(g.Dead.Count) }},
	},
}

// wholeText is a whole number in a text in the order of numbers.
func wholeText(n int64) string { return fmt.Sprintf("%020d", n) }

func seconds(d time.Duration) int64 { return int64(max(d, 0).Seconds()) }

func (h *handler) groupsRoute() httpapi.Route {
	return httpapi.Route{
		Pattern: "GET /v1/groups", Summary: "the consumer groups of all stores, as sidecars report them", Query: append(groupList.params(),
			httpapi.Text("topic", "only groups of this topic"), httpapi.Text("group", "only groups of this name"),
			httpapi.Text("store", "only groups of this store"),
			httpapi.OneOf("dead_letters", "1 selects groups that have some", "0", "1").Or("0"),
			httpapi.OneOf("history", "1 adds the lags of the last hour", "0", "1").Or("0")),
		Answers: []httpapi.Answer{ok[groupsBody]("a page of groups")}, Serve: h.known(h.groups),
	}
}

// groupsBody is a page of groups. Lags are LagEveryS apart.
type groupsBody struct {
	Groups    []fleetGroupBody `json:"groups"`
	LagEveryS int              `json:"lag_every_s"`
	Next      string           `json:"next,omitempty"`
}

// fleetGroupBody is a group over all sidecars of its store. One without a name has the dead letters of no group.
type fleetGroupBody struct {
	Store string `json:"store"`
	groupBody
	DeadLetters int64         `json:"dead_letters"`
	OldestDead  *catalog.Time `json:"oldest_dead_letter,omitempty"`
	NewestDead  *catalog.Time `json:"newest_dead_letter,omitempty"`
	Lags        []int64       `json:"lags,omitempty"` // the latest last
}

func (h *handler) groups(w http.ResponseWriter, r *request) error {
	all := slices.DeleteFunc(h.Health.Groups(), func(g health.Group) bool {
		for name, value := range map[string]string{"topic": g.Topic, "group": g.Group.Group, "store": g.Store} {
			if wanted := r.Text(name); wanted != "" && wanted != value {
				return true
			}
		}
		return r.Text("dead_letters") == "1" && g.Dead.Count == 0
	})
	page, next, err := groupList.page(r, all)
	if err != nil {
		return err
	}
	body := groupsBody{make([]fleetGroupBody, len(page)), int(health.LagEvery.Seconds()), next}
	for i := range page {
		g := &page[i]
		body.Groups[i] = fleetGroupBody{
			Store: g.Store, groupBody: showGroup(g.Group, &g.GroupState, seconds(g.OldestFor)),
			DeadLetters: g.Dead.Count, OldestDead: when(g.Dead.Oldest), NewestDead: when(g.Dead.Newest),
		}
		if r.Text("history") == "1" {
			body.Groups[i].Lags = g.Lags
		}
	}
	return h.answer(w, r, http.StatusOK, body)
}

func showGroup(name reported.Group, g *reported.GroupState, oldestS int64) groupBody {
	return groupBody{Group: name, Lag: g.Lag, InFlight: g.InFlight, Members: g.Members, OldestUnackedS: oldestS, Paused: g.Paused,
		StuckSince: when(g.StuckSince), BlockedBy: g.BlockedBy}
}
