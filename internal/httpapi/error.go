package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"

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
	refuse(w, e)
}

// refuse writes e, which has nothing that the client may not know.
func refuse(w http.ResponseWriter, e *wire.Error) {
	refuseStatus(w, e, e.Code.HTTPStatus())
}

// refuseStatus is for statuses of HTTP itself without a code of their own, such as 405.
func refuseStatus(w http.ResponseWriter, e *wire.Error, status int) {
	body := append(codec.AppendErrorBody(nil, e), '\n')
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	if ms, ok := e.RetryAfterMS(); ok {
		h.Set("Retry-After", strconv.FormatInt((ms+999)/1000, 10))
	}
	w.WriteHeader(status)
	// A client that does not read its error has gone: nothing is left to do.
	_, _ = w.Write(body)
}
