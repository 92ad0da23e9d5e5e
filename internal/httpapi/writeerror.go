package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// WriteError answers r with err: the status, the JSON body and, if the error has a retry time,
// Retry-After in whole seconds rounded up. An error that is not a *wire.Error is internal: logger
// gets its detail, the client does not. Nothing may have been written to w before.
//
// An error that only says that the client went away is neither sent nor logged as a defect.
func WriteError(w http.ResponseWriter, r *http.Request, err error, logger *slog.Logger) {
	e := wire.AsError(err)
	if e.Code == wire.Internal {
		if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
			logger.DebugContext(r.Context(), "the client cancelled the request", "method", r.Method, "path", r.URL.Path)
		} else {
			logger.ErrorContext(r.Context(), "request failed", "method", r.Method, "path", r.URL.Path, "error", err)
		}
	}
	status := e.Code.HTTPStatus()
	if e.Code == wire.BadRequest && isForeign(r.Header) {
		status = http.StatusUnsupportedMediaType
	}
	refuseStatus(w, r, e, status)
}

// refuse writes e, which has nothing that the client may not know.
func refuse(w http.ResponseWriter, r *http.Request, e *wire.Error) {
	refuseStatus(w, r, e, e.Code.HTTPStatus())
}

// daprPaths begins the paths of Dapr's API, whose clients read other members of an error's body.
const daprPaths = "/v1.0"

// refuseStatus is for statuses of HTTP itself without a code of their own, such as 405.
func refuseStatus(w http.ResponseWriter, r *http.Request, e *wire.Error, status int) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	if ms, ok := e.RetryAfterMS(); ok {
		h.Set("Retry-After", strconv.FormatInt((ms+999)/1000, 10))
	}
	body := codec.AppendErrorBody(nil, e)
	if strings.HasPrefix(r.URL.Path, daprPaths) {
		body = codec.AppendString(append(body[:len(body)-1], `,"errorCode":`...), strings.ToUpper(string(e.Code)))
		body = append(codec.AppendString(append(body, `,"message":`...), e.Msg), '}')
	}
	WriteJSON(w, status, body)
}

// WriteJSON answers with a JSON text, which it may append to, and a newline.
func WriteJSON(w http.ResponseWriter, status int, text []byte) {
	if !bytes.HasSuffix(text, []byte("\n")) {
		text = append(text, '\n')
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text) // a client that does not read its answer has gone
}

// WriteValue answers with the JSON text of a value.
func WriteValue(w http.ResponseWriter, status int, v any) error {
	text, err := json.Marshal(v)
	if err == nil {
		WriteJSON(w, status, text)
	}
	return err
}
