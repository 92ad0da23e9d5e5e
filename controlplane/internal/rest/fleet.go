package rest

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Registry has the state of the sidecars. Its results belong to the caller. It is safe for
// concurrent use.
type Registry interface {
	// Sidecars are ascending by node id.
	Sidecars() []fleet.Sidecar
	// Using returns those that have a policy or use the topic of its name.
	Using(policy string) []fleet.Sidecar
	// Topics returns the topics in use, with the history of each if asked for.
	Topics(history bool) []fleet.Topic
}

// sidecarBody is a sidecar with its times in the format of answers.
type sidecarBody struct {
	fleet.Sidecar
	LastSeen catalog.Time  `json:"last_seen"`
	Refused  *refusalsBody `json:"refused_sessions,omitempty"`
}

type refusalsBody struct {
	fleet.Refusals
	Last catalog.Time `json:"last"`
}

func (h *handler) sidecars(w http.ResponseWriter, r *request) error {
	name := r.Text("policy")
	var known []fleet.Sidecar
	if name == "" {
		known = h.Registry.Sidecars()
	} else {
		known = h.Registry.Using(name)
	}
	list := make([]sidecarBody, len(known))
	for i, s := range known {
		if s.Versions == nil {
			s.Versions = map[string]int64{} // {} rather than null
		}
		list[i] = sidecarBody{Sidecar: s, LastSeen: catalog.Time{Time: s.LastSeen}}
		if refused := s.RefusedSessions; refused != nil {
			list[i].Refused = &refusalsBody{*refused, catalog.Time{Time: refused.Last}}
		}
	}
	return h.answer(w, r.Request, http.StatusOK, map[string]any{"sidecars": list})
}

// forget removes a missing sidecar, so that replays of the fleet do not name it any more.
func (h *handler) forget(w http.ResponseWriter, r *request) error {
	if err := r.sender.may(admin); err != nil {
		return err
	}
	node := r.PathValue("node_id")
	switch found, err := h.Forget(r.Context(), node); {
	case err != nil:
		h.Logger.Error("cannot forget a sidecar", "node", node, "error", err)
		return &wire.Error{Code: wire.StoreUnavailable, RetryAfter: retryAfter, Msg: "the policy store cannot be reached; try again"}
	case !found:
		return wire.Errorf(wire.NotFound, "no sidecar %q is missing", node)
	}
	h.Logger.Warn("a missing sidecar was forgotten, together with the events that only it had", "node", node, "by", r.sender.Name)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// topics answers with the topics in use, and the topics with a policy of their own, by name.
func (h *handler) topics(w http.ResponseWriter, r *request) error {
	state := h.Catalog.State()
	list := append([]fleet.Topic{}, withPolicies(h.Registry.Topics(r.Text("history") == "1"), state)...) // [] rather than null
	for i := range list {
		t := &list[i]
		if t.Sidecars == nil {
			t.Sidecars = []string{} // [] rather than null
		}
		if t.BySidecar == nil {
			t.BySidecar = []fleet.Usage{}
		}
		e := state.Snapshot.Topic(t.Topic)
		t.Rate, t.Scope, t.Paused, t.Policy = e.Publish.Rate, string(e.Publish.Scope), e.Paused, state.Snapshot.Match(t.Topic)
	}
	return h.answer(w, r.Request, http.StatusOK, map[string]any{"topics": list})
}

// withPolicies adds the topics with a policy of their own, and sorts all.
func withPolicies(topics []fleet.Topic, state *catalog.State) []fleet.Topic {
	seen := make(map[string]bool, len(topics))
	for _, t := range topics {
		seen[t.Topic] = true
	}
	for i := range state.Entries {
		name := state.Entries[i].Policy.Name
		if !strings.HasSuffix(name, "*") && !seen[name] {
			topics = append(topics, fleet.Topic{Topic: name})
		}
	}
	slices.SortFunc(topics, func(a, b fleet.Topic) int { return cmp.Compare(a.Topic, b.Topic) })
	return topics
}

func (h *handler) whoami(w http.ResponseWriter, r *request) error {
	return h.answer(w, r.Request, http.StatusOK, struct {
		Name     string   `json:"name"`
		Role     string   `json:"role"`
		Auth     bool     `json:"auth"`
		Policies []string `json:"policies,omitempty"`
	}{r.sender.Name, r.sender.Role, r.sender.Verified, r.sender.Policies})
}

func (h *handler) status(w http.ResponseWriter, r *request) error {
	return h.answer(w, r.Request, http.StatusOK, h.Status())
}

func (h *handler) metrics(w http.ResponseWriter, r *request) error {
	h.Metrics.ServeHTTP(w, r.Request)
	return nil
}

// debug serves profiles of the process to admins: profiles contain names of policies, and take
// processor time.
func (h *handler) debug(w http.ResponseWriter, r *request) error {
	if err := r.sender.may(admin); err != nil {
		return err
	}
	h.Debug.ServeHTTP(w, r.Request)
	return nil
}

func (h *handler) healthz(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok\n") }

func (h *handler) readyz(w http.ResponseWriter, r *http.Request) {
	if err := h.Ready(); err != nil {
		h.fail(w, r, &wire.Error{Code: wire.StoreUnavailable, RetryAfter: retryAfter, Msg: err.Error()})
		return
	}
	writeText(w, "ready\n")
}

func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // the client went away
}
