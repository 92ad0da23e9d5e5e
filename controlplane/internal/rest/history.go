package rest

import (
	"encoding/json"
	"net/http"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/sdk/wire"
)

func (h *handler) history(w http.ResponseWriter, r *request) error {
	versions, err := h.Catalog.History(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	return h.answer(w, r, http.StatusOK, historyBody{versions})
}

// historyBody has the versions of a policy.
type historyBody struct {
	Versions []catalog.Version `json:"versions"`
}

func (h *handler) rollback(w http.ResponseWriter, r *request) error {
	asked, body, err := readChange(w, r, false)
	if err != nil {
		return err
	}
	fields, err := members(body, "version", "reason")
	if err != nil {
		return err
	}
	by, err := r.sender.authorOf(fields)
	if err != nil {
		return err
	}
	var version int64
	if err := json.Unmarshal(fields["version"], &version); err != nil || version < 1 {
		return wire.Errorf(wire.BadRequest, `field "version" must be a whole number of at least 1: the version to restore`)
	}
	entry, err := h.Catalog.Rollback(r.Context(), by, r.PathValue("name"), version, asked.permits)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", etag(entry.Version))
	return h.answer(w, r, http.StatusOK, entry)
}

const (
	defaultAudit = 100
	maxAudit     = 1000
	maxRevision  = 1<<53 - 1 // the largest that every JSON reader keeps exact
)

func (h *handler) audit(w http.ResponseWriter, r *request) error {
	entries, next, err := h.Catalog.Audit(r.Context(), r.Whole("before"), int(r.Whole("limit")))
	if err != nil {
		return err
	}
	return h.answer(w, r, http.StatusOK, auditBody{entries, next})
}

// auditBody is a page of the audit log.
type auditBody struct {
	Entries []catalog.Record `json:"entries"`
	Next    int64            `json:"next,omitempty"`
}
