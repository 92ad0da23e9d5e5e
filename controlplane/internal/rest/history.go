package rest

import (
	"encoding/json"
	"net/http"

	"github.com/sluice-bus/sluice/controlplane/internal/store"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// versionBody is one version of a policy in its history.
type versionBody struct {
	Version int64        `json:"version"`
	At      string       `json:"at"`
	By      string       `json:"by"`
	Policy  *policyBody  `json:"policy"` // null: this version is a deletion
	Action  store.Action `json:"action"`
	To      int64        `json:"to,omitempty"` // the version that a rollback brought back
}

func (h *handler) history(w http.ResponseWriter, r *request) error {
	versions, err := h.Catalog.History(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	list := make([]versionBody, len(versions))
	for i, v := range versions {
		list[i] = versionBody{Version: v.Version, At: instant(v.At), By: v.By, Policy: bodyOf(v.Entry), Action: v.Action, To: v.To}
	}
	return h.answer(w, r.Request, http.StatusOK, map[string]any{"versions": list})
}

func (h *handler) rollback(w http.ResponseWriter, r *request) error {
	asked, body, err := readChange(w, r, false)
	if err != nil {
		return err
	}
	fields, err := members(body, "version")
	if err != nil {
		return err
	}
	var version int64
	if err := json.Unmarshal(fields["version"], &version); err != nil || version < 1 {
		return wire.Errorf(wire.BadRequest, `field "version" must be a whole number of at least 1: the version to restore`)
	}
	entry, err := h.Catalog.Rollback(r.Context(), r.sender.author(), r.PathValue("name"), version, asked.permits)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", etag(entry.Version))
	return h.answer(w, r.Request, http.StatusOK, policyBody(entry))
}

// auditBody is the effect of a change on one policy.
type auditBody struct {
	Revision int64        `json:"revision"`
	At       string       `json:"at"`
	By       string       `json:"by"`
	Action   store.Action `json:"action"`
	Name     string       `json:"name"`
	Version  int64        `json:"version"`
	From     *policyBody  `json:"from"`
	To       *policyBody  `json:"to"`
}

const (
	defaultAudit = 100
	maxAudit     = 1000
	maxRevision  = 1<<53 - 1 // the largest that every JSON reader keeps exact
)

func (h *handler) audit(w http.ResponseWriter, r *request) error {
	limit, err := r.params.Whole("limit", defaultAudit, 1, maxAudit)
	if err != nil {
		return err
	}
	before, err := r.params.Whole("before", maxRevision, 1, maxRevision)
	if err != nil {
		return err
	}
	entries, next, err := h.Catalog.Audit(r.Context(), before, int(limit))
	if err != nil {
		return err
	}
	list := make([]auditBody, len(entries))
	for i, e := range entries {
		list[i] = auditBody{Revision: e.Revision, At: instant(e.At), By: e.By, Action: e.Action, Name: e.Name, Version: e.Version,
			From: bodyOf(e.From), To: bodyOf(e.To)}
	}
	return h.answer(w, r.Request, http.StatusOK, struct {
		Entries []auditBody `json:"entries"`
		Next    int64       `json:"next,omitempty"`
	}{list, next})
}
