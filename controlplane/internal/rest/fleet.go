package rest

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-bus/sluice/controlplane/internal/catalog"
	"github.com/sluice-bus/sluice/controlplane/internal/fleet"
	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Registry has the state of the sidecars. Its results belong to the caller. It is safe for
// concurrent use.
type Registry interface {
	// Sidecars are ascending by node id.
	Sidecars() []fleet.Sidecar
	// Using returns those that have a policy or use the topic of its name.
	Using(policy string) []fleet.Sidecar
	// Find returns the sidecar of a node id, and the topics that it uses.
	Find(node string) (fleet.Member, []string, bool)
	// Topics returns the topics that exist or are in use, with the history of each if asked for.
	Topics(history bool) []fleet.Topic
	// Hours returns the last hour of the wanted topics, as this control plane's sidecars saw it.
	Hours(wanted func(topic string) bool) fleet.Hours
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

// sidecarList sorts by times as they are written: their texts are in the order of time.
var sidecarList = list[fleet.Sidecar]{
	// Two sidecars may have one node id: on two stores, or at two control planes.
	name: func(s *fleet.Sidecar) string { return s.NodeID + "\x00" + s.StoreID + "\x00" + s.ControlPlane },
	sorts: []sorting[fleet.Sidecar]{
		{"node_id", func(*fleet.Sidecar) string { return "" }}, // names decide
		{"last_seen", func(s *fleet.Sidecar) string { return s.LastSeen.UTC().Format("2006-01-02T15:04:05.000") }},
		{"address", func(s *fleet.Sidecar) string { return s.Address }},
		{"version", func(s *fleet.Sidecar) string { return s.Version }},
	},
}

// sidecarsBody is a page of sidecars.
type sidecarsBody struct {
	Sidecars []sidecarBody `json:"sidecars"`
	Next     string        `json:"next,omitempty"`
}

func (h *handler) sidecars(w http.ResponseWriter, r *request) error {
	var known []fleet.Sidecar
	if name := r.Text("policy"); name == "" {
		known = h.Registry.Sidecars()
	} else {
		known = h.Registry.Using(name)
	}
	page, next, err := sidecarList.page(r, known)
	if err != nil {
		return err
	}
	body := sidecarsBody{make([]sidecarBody, len(page)), next}
	for i := range page {
		body.Sidecars[i] = showSidecar(page[i])
	}
	return h.answer(w, r, http.StatusOK, body)
}

func showSidecar(s fleet.Sidecar) sidecarBody {
	if s.Versions == nil {
		s.Versions = map[string]int64{} // {} rather than null
	}
	body := sidecarBody{Sidecar: s, LastSeen: catalog.Time{Time: s.LastSeen}}
	if refused := s.RefusedSessions; refused != nil {
		body.Refused = &refusalsBody{*refused, catalog.Time{Time: refused.Last}}
	}
	return body
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

var topicList = list[fleet.Topic]{
	name: func(t *fleet.Topic) string { return t.Topic },
	sorts: []sorting[fleet.Topic]{
		{"topic", func(*fleet.Topic) string { return "" }}, // names decide
		{"allowed_per_second", func(t *fleet.Topic) string { return rateText(t.AllowedPerSecond) }},
		{"denied_per_second", func(t *fleet.Topic) string { return rateText(t.DeniedPerSecond) }},
		{"lag", func(t *fleet.Topic) string { return fmt.Sprintf("%020d", t.Lag) }},
		{"dead_letters", func(t *fleet.Topic) string { return fmt.Sprintf("%020d", t.DeadLetters) }},
	},
}

// rateText is a rate, which has two decimals, in a text in the order of rates.
func rateText(perSecond float64) string { return fmt.Sprintf("%020.2f", perSecond) }

// topicsBody is a page of topics.
type topicsBody struct {
	Topics []fleet.Topic `json:"topics"`
	Next   string        `json:"next,omitempty"`
}

// topics answers with the topics that exist or are in use, and those with a policy of their own.
func (h *handler) topics(w http.ResponseWriter, r *request) error {
	state := h.Catalog.State()
	page, next, err := topicList.page(r, h.knownTopics(r.Text("history") == "1", state))
	if err != nil {
		return err
	}
	for i := range page {
		showTopic(&page[i], state)
	}
	return h.answer(w, r, http.StatusOK, topicsBody{page, next})
}

// showTopic adds what is in force for a topic.
func showTopic(t *fleet.Topic, state *catalog.State) {
	if t.Sidecars == nil {
		t.Sidecars = []string{} // [] rather than null
	}
	if t.BySidecar == nil {
		t.BySidecar = []fleet.Usage{}
	}
	e := state.Snapshot.Topic(t.Topic)
	t.Rate, t.Scope, t.Per = e.Publish.Rate, string(e.Publish.Scope), string(e.Publish.Per)
	t.Paused, t.Policy = e.Paused, state.Snapshot.Match(t.Topic)
}

// knownTopics are the topics that exist or are in use, and those with a policy of their own.
func (h *handler) knownTopics(history bool, state *catalog.State) []fleet.Topic {
	topics := withPolicies(h.Registry.Topics(history), state)
	groups := h.Health.TopicGroups()
	for i := range topics {
		topics[i].TopicGroups = groups[topics[i].Topic]
	}
	return topics
}

// withPolicies adds the topics with a policy of their own.
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
	return topics
}

func (h *handler) whoami(w http.ResponseWriter, r *request) error {
	return h.answer(w, r, http.StatusOK, whoamiBody{
		r.sender.Name, r.sender.Role, r.sender.Verified, r.sender.Policies, r.sender.Topics, h.TraceURL,
	})
}

// whoamiBody is who a sender is.
type whoamiBody struct {
	Name     string   `json:"name"`
	Role     string   `json:"role"`
	Auth     bool     `json:"auth"`
	Policies []string `json:"policies,omitempty"`
	Topics   []string `json:"topics,omitempty"`
	TraceURL string   `json:"trace_url,omitempty"`
}

func (h *handler) status(w http.ResponseWriter, r *request) error {
	leave, err := r.enter(budget.Scrapes)
	if err != nil {
		return err
	}
	defer leave()
	return h.answer(w, r, http.StatusOK, h.Status())
}

func (h *handler) metrics(w http.ResponseWriter, r *request) error {
	return serveAt(budget.Scrapes, answerTimeout, h.Metrics, w, r)
}

// debug serves profiles of the process to admins: profiles contain names of policies, and take
// processor time.
func (h *handler) debug(w http.ResponseWriter, r *request) error {
	if err := r.sender.may(admin); err != nil {
		return err
	}
	return serveAt(budget.Profiles, profileTimeout, h.Debug, w, r)
}

// profileTimeout is how long a client may take for a profile.
const profileTimeout = 10 * time.Minute

// serveAt serves a request at a place of its sender, within a time.
func serveAt(p budget.Place, within time.Duration, by http.Handler, w http.ResponseWriter, r *request) error {
	leave, err := r.enter(p)
	if err != nil {
		return err
	}
	defer leave()
	conn := http.NewResponseController(w)
	_ = conn.SetWriteDeadline(time.Now().Add(within)) // a writer without deadlines, as in tests, cannot block
	by.ServeHTTP(w, r.Request)
	_ = conn.Flush()
	_ = conn.SetWriteDeadline(time.Time{}) // for the next answer on this connection
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
