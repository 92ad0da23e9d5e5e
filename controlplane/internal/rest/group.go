package rest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/access"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// groupRoute changes what a policy says of one consumer group.
func (h *handler) groupRoute() httpapi.Route {
	return httpapi.Route{
		Pattern: "PUT /v1/policies/{name}/groups/{group}", Summary: "pauses, resumes or slows down a consumer group", Headers: conditions(),
		Body: httpapi.JSONOf[struct {
			Paused      *bool    `json:"paused,omitempty"`
			Rate        *float64 `json:"rate,omitempty"`
			MaxInflight *int     `json:"max_inflight,omitempty"`
			Reason      string   `json:"reason,omitempty"`
		}](),
		Answers: []httpapi.Answer{policyAnswer(http.StatusOK, "the policy"), policyAnswer(http.StatusCreated, "the policy, which is new")},
		Errors:  changeErrors, Serve: h.known(h.putGroup),
	}
}

func (h *handler) putGroup(w http.ResponseWriter, r *request) error {
	name := r.PathValue("name")
	if err := r.sender.mayOperate(name); err != nil {
		return err
	}
	asked, err := readCondition(r.Header)
	if err != nil {
		return err
	}
	body, err := readBody(w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	limits, err := members(body, "paused", "rate", "max_inflight", "reason")
	if err != nil {
		return err
	}
	by, err := r.sender.authorOf(limits)
	if err != nil {
		return err
	}
	text, err := json.Marshal(limits)
	if err != nil {
		return err
	}
	var done catalog.Applied
	err = h.inTurn(r.Context(), false, func(ctx context.Context) (err error) {
		done, err = h.Catalog.PutGroup(ctx, by, name, r.PathValue("group"), text, asked.permits)
		return err
	})
	if err != nil {
		return err
	}
	return h.answerPut(w, r, &done)
}

// mayOperate checks that the sender may change groups of the topics of a policy.
func (id Identity) mayOperate(policy string) error {
	if err := id.may(operator); err != nil {
		return err
	}
	if id.may(editor) == nil {
		return id.mayEdit(policy)
	}
	if id.Topics != nil && !access.Covers(id.Topics, policy) {
		return wire.Errorf(wire.Forbidden, "%s may not change groups in the policy %q; allowed are the topics %v", id.Name, policy, id.Topics)
	}
	return nil
}
