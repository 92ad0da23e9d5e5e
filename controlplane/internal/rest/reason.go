package rest

import (
	"encoding/json"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// maxReasonBytes bounds the reason of a change.
const maxReasonBytes = 1024

func reasonSchema() httpapi.Schema {
	return httpapi.Schema{"type": "string", "description": "why, for the history and the audit log"}
}

// authorOf returns the sender as the author of a change, with the reason, which it takes out of the members
// of the change's body.
func (id Identity) authorOf(fields map[string]json.RawMessage) (catalog.Author, error) {
	by := id.author()
	text, given := fields["reason"]
	if !given {
		return by, nil
	}
	delete(fields, "reason")
	if err := json.Unmarshal(text, &by.Reason); err != nil || by.Reason == "" || len(by.Reason) > maxReasonBytes {
		return by, badReason("field")
	}
	return by, nil
}

func badReason(what string) error {
	return wire.Errorf(wire.BadRequest, "%s \"reason\" must be a text of 1 to %d bytes, for the audit log", what, maxReasonBytes)
}
