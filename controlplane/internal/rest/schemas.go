package rest

import (
	"encoding/json"
	"net/http"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// schemaBody is one version of a policy's schema.
type schemaBody struct {
	Version    int64           `json:"version"`
	At         string          `json:"at"`
	By         string          `json:"by"`
	JSONSchema json.RawMessage `json:"json_schema"`
}

func (h *handler) schemas(w http.ResponseWriter, r *request) error {
	versions, err := h.Catalog.Schemas(r.Context(), r.PathValue("name"))
	if err != nil {
		return err
	}
	list := make([]schemaBody, len(versions))
	for i, v := range versions {
		list[i] = schemaBody{v.Version, instant(v.At), v.By, json.RawMessage(v.Text)}
	}
	return h.answer(w, r.Request, http.StatusOK, map[string]any{"versions": list})
}

// checkSchema compares a schema with the versions of a policy's schema, for
// senders that may read.
func (h *handler) checkSchema(w http.ResponseWriter, r *request) error {
	leave, err := h.gate.enter(r.sender)
	if err != nil {
		return err
	}
	defer leave()
	body, err := readBody(w, r.Request, maxBodyBytes)
	if err != nil {
		return err
	}
	fields, err := members(body, "json_schema", "compatibility")
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
	reasons := []string{}
	err = h.gate.inTurn(r.Context(), func() error {
		p, err := policy.ParsePolicy(document)
		if err != nil {
			return err
		}
		found, err := h.Catalog.CheckSchema(r.Context(), r.PathValue("name"), p.JSONSchema(), p.Compatibility())
		reasons = append(reasons, found...)
		return err
	})
	if err != nil {
		return err
	}
	return h.answer(w, r.Request, http.StatusOK, struct {
		Compatible bool     `json:"compatible"`
		Reasons    []string `json:"reasons"`
	}{len(reasons) == 0, reasons})
}
