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

// retryAfter is the retry time in errors while the control plane is not ready.
const retryAfter = time.Second

// answer writes v as JSON, completely or not at all.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return fmt.Errorf("encode the answer to %s %s: %w", r.Method, r.URL.Path, err)
	}
	write(w, status, body)
	return nil
}

func encode(v any) ([]byte, error) {
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return body.Bytes(), err
}

// write writes an answer, as long as the client reads it in time.
func write(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	// The deadline ends the wait for a client that does not read. A writer without deadlines, as in
	// tests, cannot block.
	control := http.NewResponseController(w)
	_ = control.SetWriteDeadline(time.Now().Add(answerTimeout))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client went away
	_ = control.Flush()
	_ = control.SetWriteDeadline(time.Time{})
}

// fail answers with an error. An error outside the contract is a defect.
func (h *handler) fail(w http.ResponseWriter, r *http.Request, err error) {
	var told *wire.Error
	if !errors.As(err, &told) {
		err = fmt.Errorf("%w: %w", wire.Errorf(wire.Internal, "internal error; the control plane's log has the detail"), err)
	}
	httpapi.WriteError(w, r, err, h.Logger)
}
