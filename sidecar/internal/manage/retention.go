package manage

import (
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/retention"
	"github.com/sluice-bus/sluice/sidecar/internal/session"
)

// retentionPlan counts the events that a topic would lose.
type retentionPlan struct {
	Events  int64 `json:"events"`
	AtLeast bool  `json:"at_least,omitempty"`
}

// planRetention reports how many events of a topic another retention would remove.
func (m *handlers) planRetention(caller *session.Session, _ http.ResponseWriter, r *httpapi.Request) (any, error) {
	keep, err := m.retentionOf(caller, r)
	if err != nil {
		return nil, err
	}
	if err := caller.Share().Enter(budget.Plans); err != nil {
		return nil, err
	}
	defer caller.Share().Leave(budget.Plans)
	var plan retentionPlan
	plan.Events, plan.AtLeast, err = retention.Plan(r.Context(), m.Log, r.PathValue("topic"), keep, time.Now())
	return plan, err
}

// retentionOf is a topic's retention, with the parameters replacing its fields.
func (m *handlers) retentionOf(caller *session.Session, r *httpapi.Request) (keep policy.Retention, err error) {
	topic := r.PathValue("topic")
	keep = m.Policies.Load().Topic(topic).Retention
	if r.Has("ttl") {
		if keep.TTL, err = time.ParseDuration(r.Text("ttl")); err != nil || keep.TTL < 0 {
			return keep, httpapi.BadParam("ttl", "%q is not a duration such as 24h, or 0s for ever", r.Text("ttl"))
		}
	}
	if r.Has("max_bytes") {
		keep.MaxBytes = r.Whole("max_bytes")
	}
	if r.Has("compact") {
		keep.Compact = r.Text("compact") == "1"
	}
	return keep, caller.MayRead(topic)
}
