package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"time"
)

// SchemaVersion is a schema that a policy has, or had.
type SchemaVersion struct {
	Version    int64           `json:"version"` // counts the schemas of the policy from 1 on
	At         time.Time       `json:"at"`
	By         string          `json:"by"`
	JSONSchema json.RawMessage `json:"json_schema"`
}

// SchemaCheck says whether a schema could become that of a policy, and why not.
type SchemaCheck struct {
	Compatible bool          `json:"compatible"`
	Reasons    []string      `json:"reasons"`
	Events     *SchemaEvents `json:"events,omitempty"` // nil: none were asked for
}

// SchemaEvents says which of a topic's latest events a schema refuses.
type SchemaEvents struct {
	Checked  int             `json:"checked"`
	Refused  int             `json:"refused"`
	Examples []SchemaExample `json:"examples"` // of refused events, at most ten
}

// SchemaExample is an event that a schema refuses.
type SchemaExample struct {
	ID      string `json:"id"`
	Pointer string `json:"pointer"` // of the value in the payload
	Reason  string `json:"reason"`
}

// SchemaCheckOptions say what else is checked.
type SchemaCheckOptions struct {
	Compatibility string // "": the one in force
	// Store and Topic name the events that are checked, too; "": none are.
	Store, Topic string
}

// TopicSchema is the schema that a topic's payloads must match.
type TopicSchema struct {
	Topic         string          `json:"topic"`
	Version       int64           `json:"version"`
	JSONSchema    json.RawMessage `json:"json_schema"`
	Compatibility string          `json:"compatibility"`
}

// Schemas returns the schemas that a policy of that name has had, newest first.
func (c *ControlPlane) Schemas(ctx context.Context, policy string) ([]SchemaVersion, error) {
	body, err := fetch[struct{ Versions []SchemaVersion }](ctx, c, policyPath(policy)+"/schemas")
	return body.Versions, err
}

// CheckSchema says whether a schema could become that of a policy. It changes nothing.
func (c *ControlPlane) CheckSchema(ctx context.Context, policy string, schema json.RawMessage,
	opts SchemaCheckOptions) (SchemaCheck, error) {
	type events struct {
		Store string `json:"store"`
		Topic string `json:"topic"`
	}
	body, err := json.Marshal(struct {
		JSONSchema    json.RawMessage `json:"json_schema"`
		Compatibility string          `json:"compatibility,omitempty"`
		Events        events          `json:"events,omitzero"`
	}{schema, opts.Compatibility, events{opts.Store, opts.Topic}})
	if err != nil {
		return SchemaCheck{}, err
	}
	return change[SchemaCheck](ctx, c, http.MethodPost, policyPath(policy)+"/schemas/check", body, Condition{})
}

// Schema returns the schema that a topic's payloads must match; the code not_found means that there
// is none.
func (h *HTTP) Schema(ctx context.Context, topic string) (TopicSchema, error) {
	return ask[TopicSchema](ctx, h, http.MethodGet, h.AppURL, topicPath(topic, "schema"), nil)
}
