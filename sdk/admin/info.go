package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// TopicInfo is a topic with its partitions.
type TopicInfo struct {
	Topic      string      `json:"topic"`
	Partitions []Partition `json:"partitions"`
	// Events and Bytes are its size, estimated for a large topic.
	Events int64 `json:"events,omitempty"`
	Bytes  int64 `json:"bytes,omitempty"`
	// FirstTS and LastTS are those of its events, nil where there are none.
	FirstTS *int64   `json:"first_ts,omitempty"`
	LastTS  *int64   `json:"last_ts,omitempty"`
	Groups  []string `json:"groups,omitempty"`
}

// Partition tells which seqs of a partition there are.
type Partition struct {
	Partition int    `json:"partition"`
	First     uint64 `json:"first"` // the lowest
	Head      uint64 `json:"head"`  // the highest; 0: there never was an event
}

// A group, and the effect that moving it would have.
type (
	GroupInfo      = wire.GroupInfo
	GroupPartition = wire.GroupPartition
	GroupMember    = wire.GroupMember
	SeekPlan       = wire.SeekPlan
	PartitionMove  = wire.PartitionMove
)

// Status is the state of a sidecar.
type Status struct {
	Version       string         `json:"version"`
	NodeID        string         `json:"node_id"`
	Store         StoreStatus    `json:"store"`
	Policies      []PolicyStatus `json:"policies"` // those in force
	Connections   int64          `json:"connections"`
	Queues        Backlog        `json:"queues"` // publishes on their way to the store
	Subscriptions int64          `json:"subscriptions"`
	Spool         Backlog        `json:"spool"` // durable, and not in the store yet
}

// StoreStatus tells where the events are kept, without secrets, and the state of that store.
type StoreStatus struct {
	URL   string `json:"url"`
	State string `json:"state"`
	// Since is when the store went away, came back, failed or was opened, in milliseconds since the epoch.
	Since  int64  `json:"since"`
	Detail string `json:"detail,omitempty"` // what is the matter, where State is not "ok"
	Error  string `json:"error,omitempty"`  // the last one, of a store that is away or has failed
	// UnmetConcerns are, by topic, the write concerns of policies that the store does not meet: it acknowledges with fewer
	// members, and events of these topics are refused.
	UnmetConcerns map[string]string `json:"unmet_concerns,omitempty"`
}

// PolicyStatus is one policy in force and where it came from.
type PolicyStatus struct {
	Name string `json:"name"`
	// Version is the number that the control plane gave it, or a hash of its text in a file.
	Version string `json:"version"`
	Source  string `json:"source"`
}

// UnmarshalJSON reads a version that is a number or a text.
func (p *PolicyStatus) UnmarshalJSON(data []byte) error {
	type plain PolicyStatus
	in := struct {
		*plain
		Version json.RawMessage `json:"version"`
	}{plain: (*plain)(p)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	p.Version = strings.Trim(string(in.Version), `"`)
	return nil
}

// Backlog is the number and the size of the events that wait.
type Backlog struct {
	Events int64 `json:"events"`
	Bytes  int64 `json:"bytes"`
}

// Topics returns the topics of the sidecar's store.
func (h *HTTP) Topics(ctx context.Context) ([]TopicInfo, error) {
	return h.TopicsWithPrefix(ctx, "")
}

// Topic returns one topic, with closer numbers than Topics has.
func (h *HTTP) Topic(ctx context.Context, topic string) (TopicInfo, error) {
	return ask[TopicInfo](ctx, h, http.MethodGet, h.AppURL, topicPath(topic), nil)
}

// TopicsWithPrefix returns those whose names begin with prefix.
func (h *HTTP) TopicsWithPrefix(ctx context.Context, prefix string) ([]TopicInfo, error) {
	type page struct {
		Topics []TopicInfo
		Next   string
	}
	var all []TopicInfo
	for topic, err := range pages("", func(cursor string) ([]TopicInfo, string, error) {
		path := "/v1/topics" + query("limit", "1000", "prefix", prefix, "cursor", cursor)
		p, err := ask[page](ctx, h, http.MethodGet, h.AppURL, path, nil)
		return p.Topics, p.Next, err
	}) {
		if err != nil {
			return nil, err
		}
		all = append(all, topic)
	}
	return all, nil
}

// Groups returns the names of a topic's groups.
func (h *HTTP) Groups(ctx context.Context, topic string) ([]string, error) {
	body, err := ask[struct{ Groups []string }](ctx, h, http.MethodGet, h.AppURL, topicPath(topic, "groups"), nil)
	return body.Groups, err
}

// GroupInfo describes a group; the code not_found means that nobody ever subscribed to it.
func (h *HTTP) GroupInfo(ctx context.Context, topic, group string) (GroupInfo, error) {
	return ask[GroupInfo](ctx, h, http.MethodGet, h.AppURL, topicPath(topic, "groups", group), nil)
}

// Status returns the sidecar's state.
func (h *HTTP) Status(ctx context.Context) (Status, error) {
	at, err := h.ops(ctx)
	if err != nil {
		return Status{}, err
	}
	return ask[Status](ctx, h, http.MethodGet, at, "/v1/status", nil)
}

// StatusJSON is Status as the sidecar sent it, with members that Status does not know.
func (h *HTTP) StatusJSON(ctx context.Context) ([]byte, error) {
	at, err := h.ops(ctx)
	if err != nil {
		return nil, err
	}
	return h.get(ctx, at, "/v1/status")
}

// Ready returns the readiness of the server of the ops listener in words. A sidecar is ready if it accepts
// publishes. The error says why the server is not ready. Ready needs no token.
func (h *HTTP) Ready(ctx context.Context) (string, error) {
	at, err := h.ops(ctx)
	if err != nil {
		return "", err
	}
	body, err := h.get(ctx, at, "/readyz")
	return strings.TrimSpace(string(body)), err
}
