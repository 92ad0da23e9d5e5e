package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Propagation is the formats in which requests and calls carry the contexts of traces. Events always carry W3C's; requests
// have other formats where the environment asks for them. nil: W3C's, trace context and baggage.
type Propagation struct{ formats propagation.TextMapPropagator }

// w3c are the formats of events.
var w3c = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})

// w3cHeaders are the headers of these formats.
var w3cHeaders = []string{headerParent, headerState, headerBaggage}

// NewPropagation makes a Propagation; nil of nil.
func NewPropagation(formats propagation.TextMapPropagator) *Propagation {
	if formats == nil {
		return nil
	}
	return &Propagation{formats}
}

// Handler gives the requests to next with W3C's headers in place of those of the formats. A header of a format that the
// environment does not name is removed: it is not meant for this program.
func (p *Propagation) Handler(next http.Handler) http.Handler {
	if p == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.Translate(r.Header)
		next.ServeHTTP(w, r)
	})
}

// Translate sets W3C's headers by those of the formats, as Handler does.
func (p *Propagation) Translate(h http.Header) {
	if p == nil {
		return
	}
	ctx := p.formats.Extract(context.Background(), propagation.HeaderCarrier(h))
	for _, name := range w3cHeaders {
		h.Del(name)
	}
	w3c.Inject(ctx, propagation.HeaderCarrier(h))
}

// Inject calls set for each header in which a request is to carry the trace of an event.
func (p *Propagation) Inject(e *wire.Event, set func(name, value string)) {
	own := map[string]string{}
	for _, name := range w3cHeaders {
		// A value that HTTP cannot carry would make every delivery of the event fail.
		if value, ok := e.Headers.Get(name); ok && isVisible(value) {
			own[name] = value
		}
	}
	if len(own) == 0 {
		return // some formats would say that nothing is to be recorded
	}
	if p == nil {
		for name, value := range own {
			set(name, value)
		}
		return
	}
	p.formats.Inject(w3c.Extract(context.Background(), propagation.MapCarrier(own)), carrier(set))
}

// replace puts a context in place of the one that a request carries.
func (p *Propagation) replace(to carrier, sc trace.SpanContext) {
	if p != nil {
		p.formats.Inject(trace.ContextWithSpanContext(context.Background(), sc), to)
		return
	}
	to(headerParent, parentText(sc))
	if state := sc.TraceState().String(); state != "" {
		to(headerState, state)
	}
}

func isVisible(value string) bool {
	for i := range len(value) {
		if value[i] < ' ' || value[i] > '~' {
			return false
		}
	}
	return true
}

// carrier is what a propagator writes to.
type carrier func(name, value string)

func (c carrier) Set(name, value string) { c(name, value) }
func (c carrier) Get(string) string      { return "" }
func (c carrier) Keys() []string         { return nil }
