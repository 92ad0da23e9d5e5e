package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// applyRequest is the body of POST /v1/apply.
type applyRequest struct {
	policies []policy.Policy
	prune    bool
	dryRun   bool
	by       catalog.Author
}

// needs returns the role that the request needs: a dry run only reads.
func (a applyRequest) needs() string {
	switch {
	case a.dryRun:
		return viewer
	case a.prune:
		return admin
	}
	return editor
}

// inTurn calls f once no other document is processed, changes first: so few documents are in memory as values. f must not
// wait for a client. Where it only checks, f may be called again.
func (h *handler) inTurn(ctx context.Context, checks bool, f func(context.Context) error) error {
	if checks {
		return h.turns.Check(ctx, f)
	}
	return h.turns.Change(ctx, func() error { return f(ctx) })
}

// enterDocument takes a place among the checks under way, or the applies, until leave is called.
func (r *request) enterDocument() (leave func(), _ error) {
	if r.sender.may(editor) != nil {
		return r.enter(budget.Checks)
	}
	return r.enter(budget.Applies)
}

func (h *handler) apply(w http.ResponseWriter, r *request) error {
	most := int64(maxApplyBytes)
	if r.sender.may(editor) != nil {
		most = maxBodyBytes
	}
	leave, err := r.enterDocument()
	if err != nil {
		return err
	}
	defer leave()
	body, err := readBody(w, r, most)
	if err != nil {
		return err
	}
	var req applyRequest
	var done catalog.Applied
	err = h.inTurn(r.Context(), r.sender.may(editor) != nil, func(ctx context.Context) error {
		if req, err = readApply(body, r.sender); err != nil {
			return err
		}
		for i := range req.policies {
			if req.dryRun {
				break
			}
			if err := r.sender.mayEdit(req.policies[i].Name); err != nil {
				return err
			}
		}
		done, err = h.Catalog.Apply(ctx, req.by, req.policies, req.prune, req.dryRun)
		return err
	})
	if err != nil {
		return err
	}
	return h.answerChanges(w, r, req.dryRun, done)
}

// answerChanges answers with the result of an apply or its dry run.
func (h *handler) answerChanges(w http.ResponseWriter, r *request, dryRun bool, done catalog.Applied) error {
	var events json.RawMessage
	if dryRun {
		events = json.RawMessage("null") // only the sidecars know how many would go
	}
	return h.answer(w, r, http.StatusOK, changesBody{dryRun, done.Revision, done.Changes, events})
}

// changesBody is what a request changed, or would change.
type changesBody struct {
	DryRun   bool             `json:"dry_run"`
	Revision int64            `json:"revision"`
	Changes  []catalog.Change `json:"changes"`
	Events   json.RawMessage  `json:"events,omitempty"`
}

// newSeries begins a new series, so that sidecars accept the policies in force regardless of their
// revision.
func (h *handler) newSeries(w http.ResponseWriter, r *request) error {
	if err := r.sender.may(admin); err != nil {
		return err
	}
	state, err := h.Catalog.NewSeries(r.Context(), r.sender.author())
	if err != nil {
		return err
	}
	h.Logger.Warn("a new series of policies begins: sidecars accept it regardless of their revision",
		"by", r.sender.Name, "series", state.Series, "revision", state.Revision)
	return h.answer(w, r, http.StatusOK, seriesBody{state.Series, state.Revision})
}

// seriesBody is a new series.
type seriesBody struct {
	Series   int64 `json:"series"`
	Revision int64 `json:"revision"`
}

// readApply reads the body of an apply. It checks the sender's rights before it parses the policies.
func readApply(body []byte, sender Identity) (req applyRequest, err error) {
	fields, err := members(body, "policies", "prune", "dry_run", "reason")
	if err != nil {
		return req, err
	}
	if req.prune, err = flag(fields, "prune"); err != nil {
		return req, err
	}
	if req.dryRun, err = flag(fields, "dry_run"); err != nil {
		return req, err
	}
	if err := sender.may(req.needs()); err != nil {
		return req, err
	}
	if req.by, err = sender.authorOf(fields); err != nil {
		return req, err
	}
	list, ok := fields["policies"]
	if !ok { // a missing list must not prune everything
		return req, wire.Errorf(wire.BadRequest, `field "policies" is missing; it is the list of policies, [] for none`)
	}
	if !bytes.HasPrefix(list, []byte("[")) {
		return req, wire.Errorf(wire.BadRequest, `field "policies" must be a list of policies, [] for none`)
	}
	req.policies, err = policy.ParseList(list, given...)
	return req, err
}
