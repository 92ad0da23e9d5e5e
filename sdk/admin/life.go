package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// EventLife is an event, the place where it is kept, and its state in each group of its topic.
type EventLife struct {
	Event      wire.Event  `json:"-"` // as it is stored
	AcceptedAt time.Time   `json:"accepted_at"`
	Stored     *StoredAt   `json:"stored"`  // nil: it is spooled
	Spooled    *SpooledAt  `json:"spooled"` // nil: it is stored
	Groups     []EventFate `json:"groups"`
	TraceID    string      `json:"trace_id"` // "" if it belongs to no trace
}

// StoredAt is the store that has an event.
type StoredAt struct {
	StoreID   string `json:"store_id"`
	NodeID    string `json:"node_id"` // the sidecar that was asked
	Partition int    `json:"partition"`
	Seq       uint64 `json:"seq"`
}

// SpooledAt is the sidecar that has an event until its store is back. No group gets it from there.
type SpooledAt struct {
	NodeID string `json:"node_id"`
}

// The states of an EventFate.
const (
	FateAcked    = wire.FateAcked
	FateSettled  = wire.FateSettled
	FateInflight = wire.FateInflight
	FateWaiting  = wire.FateWaiting
	FateDead     = wire.FateDead
)

// EventFate is the state of an event in one group.
type EventFate = wire.EventFate

// EventDeadLetter is the dead letter of an event that a group could not process.
type EventDeadLetter = wire.EventDeadLetter

// UnmarshalJSON reads the life of an event as the sidecar tells it.
func (l *EventLife) UnmarshalJSON(data []byte) error {
	type plain EventLife
	in := struct {
		*plain
		Event json.RawMessage `json:"event"`
	}{plain: (*plain)(l)}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	event, err := codec.ParseEvent(in.Event)
	if err != nil {
		return fmt.Errorf("event: %w", err)
	}
	l.Event = event
	return nil
}

// EventLife returns the state of an event; the code not_found means that the topic does not have
// it, or not any more.
func (h *HTTP) EventLife(ctx context.Context, topic, id string) (EventLife, error) {
	return ask[EventLife](ctx, h, http.MethodGet, h.AppURL, topicPath(topic, "events", id), nil)
}
