package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// retryAfter is when to look again whether the control plane is ready.
const retryAfter = time.Second

// answer writes v as JSON, whole or not at all.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, status int, v any) error {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode the answer to %s %s: %w", r.Method, r.URL.Path, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
	// A client that does not take its answer must not hold it for ever; a
	// writer that has no deadlines, as in tests, cannot be held up.
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(bodyTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(body.Bytes()) // the client went away
	_ = control.Flush()
	_ = control.SetWriteDeadline(time.Time{})
	return nil
}

// fail answers with an error. What is none of the contract's is a defect.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var told *wire.Error
	if !errors.As(err, &told) {
		err = fmt.Errorf("%w: %w", wire.Errorf(wire.Internal, "internal error; the control plane's log has the detail"), err)
	}
	httpapi.WriteError(w, r, err, h.Logger)
}

// instant writes a time as every answer does: UTC, whole milliseconds.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
