package controlplane

import (
	"net/http"
	"strconv"
	"strings"

	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/internal/httpapi"
)

// traced makes a span of each API request, which continues the request's trace. Requests for the
// console's files and for liveness and readiness have none.
func (c *ControlPlane) traced(next http.Handler) http.Handler {
	tracer := c.cfg.Exports.Tracer()
	if tracer == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/v1/") {
			next.ServeHTTP(w, r)
			return
		}
		ctx := propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
		method := knownMethod(r.Method)
		ctx, span := tracer.Start(ctx, method, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			semconv.HTTPRequestMethodKey.String(method), semconv.URLPath(r.URL.Path), semconv.URLScheme(scheme(r))))
		defer span.End()
		answer := &httpapi.Recorder{ResponseWriter: w}
		r = r.WithContext(ctx)
		next.ServeHTTP(answer, r)
		if _, route, ok := strings.Cut(r.Pattern, " "); ok {
			span.SetName(method + " " + route)
			span.SetAttributes(semconv.HTTPRoute(route))
		}
		span.SetAttributes(semconv.HTTPResponseStatusCode(answer.Status()))
		if answer.Status() >= http.StatusInternalServerError {
			span.SetStatus(otelcodes.Error, "")
			span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(answer.Status())))
		}
	})
}

// knownMethod keeps invented methods out of the spans' names.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPatch:
		return method
	}
	return "_OTHER"
}

func scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}
