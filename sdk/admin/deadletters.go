package admin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// The states of a dead letter.
const (
	StateDead     = "dead"
	StateRedriven = "redriven" // it is delivered again, and not acked yet
)

// ListedDeadLetter is an event that a group could not process.
type ListedDeadLetter struct {
	DLQID    string `json:"dlq_id"` // stays the same when it is redriven and fails again
	ID       string `json:"id"`     // of the event
	Group    string `json:"group"`  // "" if the event was never in its topic
	Reason   string `json:"reason"`
	Attempts int    `json:"attempts"`
	DiedAt   int64  `json:"died_at"` // in milliseconds since the epoch
	State    string `json:"state"`
	// Event is the event as JSON; [codec.ParseEvent] reads it.
	Event json.RawMessage `json:"event"`
}

// DeadLetterPage is a page of a topic's dead letters.
type DeadLetterPage struct {
	Total       int                `json:"total"` // that the query selects, on all pages
	DeadLetters []ListedDeadLetter `json:"dead_letters"`
	Next        string             `json:"next"` // the cursor of the next page; "": this is the last
}

// DeadLetterQuery selects dead letters; the zero value selects all, the latest first.
type DeadLetterQuery struct {
	Group, Reason string
	Ascending     bool   // the earliest first
	Limit         int    // of a page; 0: 100
	Cursor        string // Next of the page before
}

// DeadLetters lists dead letters of a topic that the caller may see.
func (h *HTTP) DeadLetters(ctx context.Context, topic string, q DeadLetterQuery) (DeadLetterPage, error) {
	path := topicPath(topic, "dlq") + query("group", q.Group, "reason", q.Reason, "cursor", q.Cursor,
		"order", onlyIf(q.Ascending, "asc"), "limit", number(max(q.Limit, 0)))
	return ask[DeadLetterPage](ctx, h, http.MethodGet, h.AppURL, path, nil)
}

// AllDeadLetters yields what DeadLetters does, page after page; an error is the last that is
// yielded.
func (h *HTTP) AllDeadLetters(ctx context.Context, topic string, q DeadLetterQuery) iter.Seq2[ListedDeadLetter, error] {
	return pages(q.Cursor, func(cursor string) ([]ListedDeadLetter, string, error) {
		q.Cursor = cursor
		page, err := h.DeadLetters(ctx, topic, q)
		return page.DeadLetters, page.Next, err
	})
}

// DeadLetterSelection says which dead letters are redriven or discarded: those of these ids, or
// those of a group.
type DeadLetterSelection struct {
	DLQIDs []string `json:"dlq_ids,omitempty"`

	Group  string `json:"group,omitempty"`
	Reason string `json:"reason,omitempty"` // "": any
	Before int64  `json:"before,omitempty"` // that died earlier than that; 0: any

	Rate float64 `json:"rate,omitempty"` // a second; 0: 100 for a redrive, and no bound for a discard
}

// Redrive delivers dead letters again, to the groups that failed to process them. It returns once
// all are on their way. It calls progress, if not nil, with their number so far. After an error,
// the same call again does the rest.
func (h *HTTP) Redrive(ctx context.Context, topic string, s DeadLetterSelection, progress func(done, of int)) (of int, err error) {
	return h.changeDead(ctx, topicPath(topic, "dlq", "redrive"), s, progress)
}

// Discard removes dead letters. Its progress and its errors are as those of Redrive.
func (h *HTTP) Discard(ctx context.Context, topic string, s DeadLetterSelection, progress func(done, of int)) (of int, err error) {
	return h.changeDead(ctx, topicPath(topic, "dlq", "discard"), s, progress)
}

// ErrBrokenOff is matched by the error of a change whose answer ended before it reported the end of
// the change.
var ErrBrokenOff = errors.New("sluice: the answer broke off before all was done; repeat the call to do the rest")

func (h *HTTP) changeDead(ctx context.Context, path string, s DeadLetterSelection, progress func(done, of int)) (of int, err error) {
	body, err := json.Marshal(s)
	if err != nil {
		return 0, err
	}
	err = h.follow(ctx, http.MethodPost, path, body, func(done, all int) {
		of = all
		if progress != nil {
			progress(done, all)
		}
	})
	return of, err
}

// follow makes a change whose answer reports the progress line by line, and waits for its end.
func (h *HTTP) follow(ctx context.Context, method, path string, body []byte, progress func(done, of int)) error {
	header := http.Header{}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	resp, err := h.call(ctx, method, h.AppURL, path, body, header)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		var line struct {
			Done, Of int
			OK       bool
			Code     wire.Code
			Error    string
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("sluice: a line of progress cannot be read: %w", err)
		}
		if line.Code != "" {
			return &wire.Error{Code: line.Code, Msg: line.Error}
		}
		progress(line.Done, line.Of)
		if line.OK {
			return nil
		}
	}
	if err := lines.Err(); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.Join(ErrBrokenOff, err)
	}
	return ErrBrokenOff
}
