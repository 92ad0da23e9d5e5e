package admin

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
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

// Scheduled lists the scheduled events of a topic; limit is that of a page (0: 100), and
// cursor the Next of the page before.
func (h *HTTP) Scheduled(ctx context.Context, topic string, limit int, cursor string) (page ScheduledPage, err error) {
	v := url.Values{}
	if limit > 0 {
		v.Set("limit", strconv.Itoa(limit))
	}
	if cursor != "" {
		v.Set("cursor", cursor)
	}
	return page, h.decode(ctx, h.AppURL, topicPath(topic, "scheduled")+"?"+v.Encode(), &page)
}

// AllScheduled yields what Scheduled does, page after page; an error is the last that is
// yielded.
func (h *HTTP) AllScheduled(ctx context.Context, topic string) iter.Seq2[ScheduledEvent, error] {
	return func(yield func(ScheduledEvent, error) bool) {
		for cursor := ""; ; {
			page, err := h.Scheduled(ctx, topic, 1000, cursor)
			if err != nil {
				yield(ScheduledEvent{}, err)
				return
			}
			for _, e := range page.Scheduled {
				if !yield(e, nil) {
					return
				}
			}
			if cursor = page.Next; cursor == "" {
				return
			}
		}
	}
}

// CancelScheduled takes a scheduled event back, and frees its id; the code not_found
// says that it is in the log, or that there is none.
func (h *HTTP) CancelScheduled(ctx context.Context, topic, id string) error {
	_, err := h.change(ctx, http.MethodDelete, topicPath(topic, "scheduled", id), nil)
	return err
}
