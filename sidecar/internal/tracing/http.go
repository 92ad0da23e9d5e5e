package tracing

import (
	"cmp"
	"context"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/internal/httpapi"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// Handler makes a server span of each request to one of the paths, which serve history. The
// handler's own requests to other sidecars continue its trace, through Transport.
func (t *Tracing) Handler(next http.Handler, paths ...string) http.Handler {
	if t == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !slices.Contains(paths, r.URL.Path) {
			next.ServeHTTP(w, r)
			return
		}
		t.serve(next, w, r)
	})
}

func (t *Tracing) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	topic := query.Get("topic")
	if codec.CheckReadTopic(topic) != nil {
		topic = "" // the answer has it; a span must not hold text that any client can invent
	}
	headers := traceHeaders(r.Header)
	origin, yes := t.records(topic, contextOf(headers))
	origin = withState(origin, headers)
	if !yes {
		next.ServeHTTP(w, r.WithContext(trace.ContextWithSpanContext(r.Context(), unrecorded(origin))))
		return
	}
	attrs := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(methodOf(r.Method)), semconv.HTTPRoute(r.URL.Path), semconv.URLPath(r.URL.Path), system,
	}
	if topic != "" {
		attrs = append(attrs, semconv.MessagingDestinationName(topic))
	}
	if scope := query.Get("scope"); scope == "store" || scope == "fleet" {
		attrs = append(attrs, keyScope.String(scope))
	}
	ctx, span := t.tracer.Start(trace.ContextWithSpanContext(r.Context(), origin), methodOf(r.Method)+" "+r.URL.Path,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attrs...))
	answer := &httpapi.Recorder{ResponseWriter: w}
	defer func() {
		aborted := recover()
		span.SetAttributes(semconv.HTTPResponseStatusCode(answer.Status()))
		if aborted != nil {
			failed(span, "aborted", "the answer broke off")
		} else if answer.Status() >= http.StatusInternalServerError {
			failed(span, strconv.Itoa(answer.Status()), "")
		}
		span.End()
		if aborted != nil {
			panic(aborted) // the server then ends the connection
		}
	}()
	next.ServeHTTP(answer, r.WithContext(ctx))
}

// unrecorded is the context of a trace that is not recorded. Other sidecars that receive it do not
// begin a trace of their own.
func unrecorded(origin trace.SpanContext) trace.SpanContext {
	if origin.SpanID().IsValid() {
		return origin
	}
	if !origin.TraceID().IsValid() {
		origin = origin.WithTraceID(newTraceID())
	}
	var id trace.SpanID
	for !id.IsValid() {
		binary.NativeEndian.PutUint64(id[:], rand.Uint64())
	}
	return origin.WithSpanID(id)
}

// methodOf is a request's method if it is a known one.
func methodOf(m string) string {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodPatch:
		return m
	}
	return "_OTHER"
}

func traceHeaders(h http.Header) (out wire.Headers) {
	if values := h["Traceparent"]; len(values) == 1 {
		out = append(out, wire.Header{Name: headerParent, Value: values[0]})
		if states := h["Tracestate"]; len(states) > 0 {
			out = append(out, wire.Header{Name: headerState, Value: strings.Join(states, ",")})
		}
	}
	return out
}

// Transport makes a client span of each request whose context has a recorded trace, until its
// answer is read, and passes every trace on. With a nil base it uses http.DefaultTransport.
func (t *Tracing) Transport(base http.RoundTripper) http.RoundTripper {
	if base == nil {
		base = http.DefaultTransport
	}
	if t == nil {
		return base
	}
	return &transport{t, base}
}

type transport struct {
	tracing *Tracing
	base    http.RoundTripper
}

// CloseIdleConnections is for http.Client's method of that name.
func (x *transport) CloseIdleConnections() {
	if base, ok := x.base.(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (x *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return x.base.RoundTrip(r)
	}
	var span trace.Span
	if trace.SpanFromContext(ctx).IsRecording() || ctx.Value(deliverKey{}) != nil {
		span = x.tracing.ask(ctx, r)
	}
	if span != nil {
		sc = span.SpanContext()
	}
	r = r.Clone(ctx)
	x.tracing.propagation.replace(r.Header.Set, sc)
	resp, err := x.base.RoundTrip(r)
	if span == nil {
		return resp, err
	}
	if err != nil {
		failed(span, "network", "")
		span.End()
		return resp, err
	}
	span.SetAttributes(semconv.HTTPResponseStatusCode(resp.StatusCode))
	if resp.StatusCode >= http.StatusBadRequest {
		failed(span, strconv.Itoa(resp.StatusCode), "")
	}
	resp.Body = &reading{ReadCloser: resp.Body, span: span}
	return resp, nil
}

func (t *Tracing) ask(ctx context.Context, r *http.Request) trace.Span {
	attrs := []attribute.KeyValue{
		semconv.HTTPRequestMethodKey.String(methodOf(r.Method)), semconv.URLPath(r.URL.Path),
	}
	host := cmp.Or(r.Host, r.URL.Host)
	if name, text, err := net.SplitHostPort(host); err == nil {
		port, _ := strconv.Atoi(text)
		attrs = append(attrs, semconv.ServerAddress(name), semconv.ServerPort(port))
	} else {
		attrs = append(attrs, semconv.ServerAddress(host))
	}
	return t.client(ctx, methodOf(r.Method)+" "+r.URL.Path, attrs)
}

// reading is the body of an answer; the span ends with it.
type reading struct {
	io.ReadCloser
	span trace.Span
	once sync.Once
}

func (b *reading) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case err == io.EOF:
		b.end("")
	case err != nil:
		b.end("aborted")
	}
	return n, err
}

func (b *reading) Close() error {
	b.end("")
	return b.ReadCloser.Close()
}

func (b *reading) end(failure string) {
	b.once.Do(func() {
		if failure != "" {
			failed(b.span, failure, "the answer broke off")
		}
		b.span.End()
	})
}
