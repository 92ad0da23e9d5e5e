package rest

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

func (h *handler) schemas(w http.ResponseWriter, r *request) error {
	versions, err := h.Catalog.Schemas(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	return h.answer(w, r, http.StatusOK, schemasBody{versions})
}

// schemasBody has the versions of a policy's schema.
type schemasBody struct {
	Versions []catalog.Schema `json:"versions"`
}

// checkSchema compares a schema with the versions of a policy's schema, for senders that may read.
func (h *handler) checkSchema(w http.ResponseWriter, r *request) error {
	leave, err := r.enterDocument()
	if err != nil {
		return err
	}
	defer leave()
	body, err := readBody(w, r, maxBodyBytes)
	if err != nil {
		return err
	}
	fields, err := members(body, "json_schema", "compatibility", "events")
	if err != nil {
		return err
	}
	of, err := readSample(fields)
	if err != nil {
		return err
	}
	if fields["json_schema"] == nil {
		return wire.Errorf(wire.BadRequest, `field "json_schema" is missing; it is the schema to check`)
	}
	document, err := json.Marshal(map[string]any{"schema": fields})
	if err != nil {
		return err
	}
	var reasons []string
	var text string
	err = h.inTurn(r.Context(), true, func(ctx context.Context) error {
		p, err := policy.ParsePolicy(document)
		if err != nil {
			return err
		}
		text = p.JSONSchema()
		found, err := h.Catalog.CheckSchema(ctx, r.PathValue("name"), text, p.Compatibility())
		reasons = append([]string{}, found...)
		return err
	})
	if err != nil {
		return err
	}
	verdict := verdictBody{Compatible: len(reasons) == 0, Reasons: reasons}
	if of != nil {
		if verdict.Events, err = h.sample(r, text, *of); err != nil {
			return err
		}
	}
	return h.answer(w, r, http.StatusOK, verdict)
}

// verdictBody says whether a schema is compatible.
type verdictBody struct {
	Compatible bool     `json:"compatible"`
	Reasons    []string `json:"reasons"`
	// Events are stored ones, if they were to be looked at.
	Events *sampledBody `json:"events,omitempty"`
}
