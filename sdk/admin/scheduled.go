package admin

import (
	"context"
	"iter"
	"net/http"
)

// ScheduledEvent is one that is put into the log later.
type ScheduledEvent struct {
	ID        string `json:"id"`
	Key       string `json:"key,omitempty"`
	DeliverAt int64  `json:"deliver_at"` // in milliseconds since the epoch
}

// ScheduledPage is a page of a topic's scheduled events, by time.
type ScheduledPage struct {
	Total     int              `json:"total"` // on all pages
	Scheduled []ScheduledEvent `json:"scheduled"`
	Next      string           `json:"next"` // the cursor of the next page; "": this is the last
}

// Scheduled lists the scheduled events of a topic; limit bounds a page (0: 100), and cursor is the
// Next of the page before.
func (h *HTTP) Scheduled(ctx context.Context, topic string, limit int, cursor string) (ScheduledPage, error) {
	path := topicPath(topic, "scheduled") + query("limit", number(max(limit, 0)), "cursor", cursor)
	return ask[ScheduledPage](ctx, h, http.MethodGet, h.AppURL, path, nil)
}

// AllScheduled yields what Scheduled does, page after page; an error is the last that is yielded.
func (h *HTTP) AllScheduled(ctx context.Context, topic string) iter.Seq2[ScheduledEvent, error] {
	return pages("", func(cursor string) ([]ScheduledEvent, string, error) {
		page, err := h.Scheduled(ctx, topic, 1000, cursor)
		return page.Scheduled, page.Next, err
	})
}

// CancelScheduled cancels a scheduled event and frees its id. The code not_found means that the
// event is in the log already, or that there is no such event.
func (h *HTTP) CancelScheduled(ctx context.Context, topic, id string) error {
	_, err := h.change(ctx, http.MethodDelete, topicPath(topic, "scheduled", id), nil)
	return err
}
