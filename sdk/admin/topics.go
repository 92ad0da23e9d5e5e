package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Position is where a group is moved to. From is one of wire.FromLatest, FromEarliest, FromTS (with
// TS), FromAfterID (with AfterID) and FromPositions (with Positions, the seqs by partition that it
// goes on right after).
type Position struct {
	From      string         `json:"from"`
	TS        *int64         `json:"ts,omitempty"`
	AfterID   string         `json:"afterId,omitempty"`
	Positions map[int]uint64 `json:"positions,omitempty"`
}

// TopicDeletion is the data that is deleted with a topic.
type TopicDeletion struct {
	Events      int64    `json:"events"`
	Bytes       int64    `json:"bytes"`
	Groups      []string `json:"groups"`
	DeadLetters int64    `json:"dead_letters"`
	Scheduled   int64    `json:"scheduled"`
}

// Retention is what a topic keeps: events up to that age, up to that total size, or only the latest
// of each key. 0 is no bound.
type Retention struct {
	TTL      time.Duration
	MaxBytes int64
	Compact  bool
}

// RetentionPlan is how many events a topic would lose.
type RetentionPlan struct {
	Events  int64 `json:"events"`
	AtLeast bool  `json:"at_least,omitempty"` // there are too many keys to tell
}

// change makes a request and returns only the status of its answer.
func (h *HTTP) change(ctx context.Context, method, path string, body []byte) (status int, err error) {
	resp, err := h.call(ctx, method, h.AppURL, path, body, nil)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// MakeTopic makes a topic; made is false if the topic existed.
func (h *HTTP) MakeTopic(ctx context.Context, topic string) (made bool, err error) {
	status, err := h.change(ctx, http.MethodPut, topicPath(topic), nil)
	return status == http.StatusCreated, err
}

// DeleteTopic deletes a topic with its groups and dead letters; the code in_use says that somebody
// is subscribed.
func (h *HTTP) DeleteTopic(ctx context.Context, topic string) error {
	_, err := h.change(ctx, http.MethodDelete, topicPath(topic), nil)
	return err
}

// PlanTopicDeletion returns the data that DeleteTopic would delete.
func (h *HTTP) PlanTopicDeletion(ctx context.Context, topic string) (TopicDeletion, error) {
	return ask[TopicDeletion](ctx, h, http.MethodDelete, h.AppURL, topicPath(topic)+"?dry_run=1", nil)
}

// DeleteGroup deletes a group; the code in_use says that it has members.
func (h *HTTP) DeleteGroup(ctx context.Context, topic, group string) error {
	_, err := h.change(ctx, http.MethodDelete, topicPath(topic, "groups", group), nil)
	return err
}

// SeekGroup moves a group.
func (h *HTTP) SeekGroup(ctx context.Context, topic, group string, to Position) error {
	body, err := json.Marshal(to)
	if err == nil {
		_, err = h.change(ctx, http.MethodPut, topicPath(topic, "groups", group, "cursor"), body)
	}
	return err
}

// PlanSeek returns the effect that SeekGroup would have.
func (h *HTTP) PlanSeek(ctx context.Context, topic, group string, to Position) (SeekPlan, error) {
	body, err := json.Marshal(to)
	if err != nil {
		return SeekPlan{}, err
	}
	return ask[SeekPlan](ctx, h, http.MethodPut, h.AppURL, topicPath(topic, "groups", group, "cursor")+"?dry_run=1", body)
}

// PlanRetention tells how many events of the sidecar's store would go if the topic kept no more
// than that.
func (h *HTTP) PlanRetention(ctx context.Context, topic string, keep Retention) (RetentionPlan, error) {
	path := topicPath(topic, "retention") + query("ttl", keep.TTL.String(), "max_bytes", strconv.FormatInt(keep.MaxBytes, 10),
		"compact", cmp.Or(onlyIf(keep.Compact, "1"), "0"))
	return ask[RetentionPlan](ctx, h, http.MethodGet, h.AppURL, path, nil)
}

// DeleteEvent erases the event with that id, and its dead letters. It returns how many there were.
func (h *HTTP) DeleteEvent(ctx context.Context, topic, id string) (int, error) {
	return h.erase(ctx, topic, "id", id)
}

// DeleteKey erases all events with that key. After an error, the same call again erases the rest.
func (h *HTTP) DeleteKey(ctx context.Context, topic, key string) (int, error) {
	return h.erase(ctx, topic, "key", key)
}

func (h *HTTP) erase(ctx context.Context, topic, by, what string) (erased int, err error) {
	path := topicPath(topic, "events") + "?" + url.Values{by: {what}}.Encode()
	err = h.follow(ctx, http.MethodDelete, path, nil, func(done, _ int) { erased = done })
	return erased, err
}
