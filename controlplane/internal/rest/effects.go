package rest

import (
	"cmp"
	"context"
	"math"
	"net/http"
	"slices"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/effect"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// maxEffects bounds the topics of an answer.
const maxEffects = 100

// effectsRoute says what a policy would have refused.
func (h *handler) effectsRoute() httpapi.Route {
	return httpapi.Route{
		Pattern: "POST /v1/policies/{name}/effects", Summary: "how many publishes of the last hour a policy would have refused",
		Body:    httpapi.JSON(httpapi.Ref("PolicyBody")),
		Answers: []httpapi.Answer{ok[effectsBody]("the topics whose limits of publishes would be others")},
		Errors:  []wire.Code{wire.InvalidPolicy, wire.PayloadTooLarge, wire.Overloaded, wire.StoreUnavailable}, Serve: h.known(h.effects),
	}
}

// effectsBody is what a policy would have done to the last hour.
type effectsBody struct {
	Since    catalog.Time `json:"since"`
	Complete bool         `json:"complete"` // false: topics, or sidecars, were left out
	Sidecars coveredBody  `json:"sidecars"`
	Topics   []topicBody  `json:"topics"` // the most changed first
	More     int          `json:"more,omitempty"`
}

// coveredBody says whose events are counted: of the sidecars that are connected, those of this control plane.
type coveredBody struct {
	Counted int `json:"counted"`
	Live    int `json:"live"`
}

// topicBody is what a policy would have done to a topic. RefusedBefore is what the policies in force would
// have refused; null: nobody counts by tenant.
type topicBody struct {
	Topic         string `json:"topic"`
	Events        int64  `json:"events"`
	RefusedBefore *int64 `json:"refused_before"`
	RefusedAfter  *int64 `json:"refused_after"`
}

// change is how many events more or less are refused, as far as that is known.
func (t *topicBody) change() int64 {
	if t.RefusedBefore == nil || t.RefusedAfter == nil {
		return 0
	}
	return max(*t.RefusedAfter-*t.RefusedBefore, *t.RefusedBefore-*t.RefusedAfter)
}

// effects answers as a dry run of the change is checked.
func (h *handler) effects(w http.ResponseWriter, r *request) error {
	leave, err := r.enterDocument()
	if err != nil {
		return err
	}
	defer leave()
	_, body, err := readChange(w, r, true)
	if err != nil {
		return err
	}
	var done catalog.Applied
	err = h.inTurn(r.Context(), true, func(ctx context.Context) error {
		p, err := namedPolicy(r.PathValue("name"), body)
		if err == nil {
			done, err = h.Catalog.Put(ctx, r.sender.author(), p, nil, true)
		}
		return err
	})
	if err != nil {
		return err
	}
	answer := effectsOf(done.Before.Snapshot, done.After.Snapshot, h.Registry)
	for _, s := range h.Registry.Sidecars() {
		if s.Connected {
			answer.Sidecars.Live++
			if s.ControlPlane == h.Name {
				answer.Sidecars.Counted++
			}
		}
	}
	return h.answer(w, r, http.StatusOK, answer)
}

// effectsOf compares two sets of policies.
func effectsOf(before, after *policy.Snapshot, registry Registry) effectsBody {
	hours := registry.Hours(func(topic string) bool {
		was, is := before.Topic(topic), after.Topic(topic)
		return was != is && (was.Publish != is.Publish || was.Paused != is.Paused)
	})
	answer := effectsBody{Since: catalog.Time{Time: hours.Since}, Complete: hours.Complete, Topics: make([]topicBody, 0, len(hours.Topics))}
	for topic, sidecars := range hours.Topics {
		answer.Topics = append(answer.Topics, topicBody{
			topic, int64(math.Round(effect.Events(sidecars))), refusedBy(before, topic, sidecars), refusedBy(after, topic, sidecars),
		})
	}
	slices.SortFunc(answer.Topics, func(a, b topicBody) int {
		return cmp.Or(cmp.Compare(b.change(), a.change()), cmp.Compare(b.Events, a.Events), cmp.Compare(a.Topic, b.Topic))
	})
	if all := answer.Topics; len(all) > maxEffects {
		answer.Topics, answer.More = all[:maxEffects], len(all)-maxEffects
	}
	return answer
}

func refusedBy(s *policy.Snapshot, topic string, sidecars []fleet.Hour) *int64 {
	n, known := effect.Refused(s.Topic(topic), sidecars)
	if !known {
		return nil
	}
	return new(int64(math.Round(n)))
}
