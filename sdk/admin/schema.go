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
	Compatible bool     `json:"compatible"`
	Reasons    []string `json:"reasons"`
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

// CheckSchema says whether a schema could become that of a policy; "" is the compatibility in
// force. It changes nothing.
func (c *ControlPlane) CheckSchema(ctx context.Context, policy string, schema json.RawMessage, compatibility string) (SchemaCheck, error) {
	body, err := json.Marshal(struct {
		JSONSchema    json.RawMessage `json:"json_schema"`
		Compatibility string          `json:"compatibility,omitempty"`
	}{schema, compatibility})
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
