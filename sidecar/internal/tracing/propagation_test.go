package tracing_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-bus/sluice/internal/otlp"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing/tracingtest"
	"github.com/sluice-bus/sluice/test/require"
)

const (
	traceOf  = "0af7651916cd43dd8448eb211c80319c"
	spanOf   = "b7ad6b7169203331"
	singleB3 = traceOf + "-" + spanOf + "-1"
)

// Requests carry the formats that are asked for, and events W3C's: in, and out again.
func TestPropagation(t *testing.T) {
	for _, c := range []struct{ formats, in, event, out string }{
		{"", "Traceparent=" + sampled + " Baggage=a=b", "traceparent=" + sampled + " baggage=a=b",
			"traceparent=" + sampled + " baggage=a=b"},
		{"", "B3=" + singleB3, "", ""},
		{"b3", "B3=" + singleB3, "traceparent=" + sampled, "b3=" + singleB3},
		{"b3", "Traceparent=" + sampled + " Baggage=a=b", "", ""},
		{"b3multi", "X-B3-Traceid=" + traceOf + " X-B3-Spanid=" + spanOf + " X-B3-Sampled=1", "traceparent=" + sampled,
			"x-b3-traceid=" + traceOf + " x-b3-spanid=" + spanOf + " x-b3-sampled=1"},
		{"jaeger", "Uber-Trace-Id=" + traceOf + ":" + spanOf + ":0:1", "traceparent=" + sampled,
			"uber-trace-id=" + traceOf + ":" + spanOf + ":0:1"},
		{"tracecontext,b3", "B3=" + singleB3, "traceparent=" + sampled, "traceparent=" + sampled + " b3=" + singleB3},
		{"none", "Traceparent=" + sampled, "", ""},
	} {
		t.Setenv("OTEL_PROPAGATORS", c.formats)
		exports, err := otlp.Open(t.Context(), otlp.Config{Log: slog.New(slog.DiscardHandler)})
		require.NoError(t, err)
		p := tracing.NewPropagation(exports.Propagators())
		r := httptest.NewRequest(http.MethodPost, "/", nil)
		for _, h := range strings.Fields(c.in) {
			name, value, _ := strings.Cut(h, "=")
			r.Header.Set(name, value)
		}
		var e wire.Event
		p.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			for _, name := range []string{"traceparent", "tracestate", "baggage"} {
				if value := r.Header.Get(name); value != "" {
					e.Headers = e.Headers.With(name, value)
				}
			}
		})).ServeHTTP(nil, r)
		var event []string
		for _, h := range e.Headers {
			event = append(event, h.Name+"="+h.Value)
		}
		if got := strings.Join(event, " "); got != c.event {
			t.Errorf("%q, %s: the event has %q, want %q", c.formats, c.in, got, c.event)
		}
		out := http.Header{}
		p.Inject(&e, out.Set)
		want := http.Header{}
		for _, h := range strings.Fields(c.out) {
			name, value, _ := strings.Cut(h, "=")
			want.Set(name, value)
		}
		for name := range want {
			if out.Get(name) != want.Get(name) {
				t.Errorf("%q, %s: out goes %v, want %v", c.formats, c.in, out, want)
			}
		}
		if len(out) != len(want) {
			t.Errorf("%q, %s: out goes %v, want %v", c.formats, c.in, out, want)
		}
	}
}

// The request that brings a delivery has a span below the delivery's. That of a batch is linked to all of its deliveries.
func TestSpansOfARequestToAnEndpoint(t *testing.T) {
	rec := tracingtest.New(t, nil, 1)
	var got string
	endpoint := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Traceparent")
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer endpoint.Close()
	base := &http.Transport{}
	client := &http.Client{Transport: rec.Transport(base)}
	defer client.CloseIdleConnections()
	bring := func(recs ...*eventlog.Record) {
		var deliveries []*tracing.Process
		for _, r := range recs {
			deliveries = append(deliveries, rec.Process(r, "g", 1, nil))
		}
		req, err := http.NewRequestWithContext(tracing.Deliver(t.Context(), deliveries), http.MethodPost, endpoint.URL+"/in?token=secret", nil)
		require.NoError(t, err)
		res, err := client.Do(req)
		require.NoError(t, err)
		res.Body.Close()
		for _, d := range deliveries {
			d.End(tracing.Nacked, "")
		}
	}
	bring(events(1, sampled)...)
	bring(append(events(1, unsampled), events(2, sampled)...)...)
	bring(events(1, unsampled)...)
	if got != "" {
		t.Errorf("a delivery that is not recorded has the context %s", got)
	}
	headers := map[string]string{}
	delivery := rec.Process(events(1, sampled)[0], "g", 1, nil)
	call := rec.Call(tracing.Deliver(context.Background(), []*tracing.Process{delivery}), "s/M",
		func(name, value string) { headers[name] = value })
	call.End("UNAVAILABLE", true)
	delivery.End(tracing.Acked, "")
	if !strings.HasPrefix(headers["traceparent"], "00-"+traceOf) || strings.Contains(headers["traceparent"], spanOf) {
		t.Errorf("the call carries %v", headers)
	}
	wantTree(t, rec, `
b7ad6b7169203331: process orders consumer type=nacked Error
  POST /in client status_code=503 type=503 Error
b7ad6b7169203331: process orders consumer type=nacked Error
  POST /in client message_count=3 status_code=503 type=503 Error -> process orders, process orders
b7ad6b7169203331: process orders consumer type=nacked Error
b7ad6b7169203331: process orders consumer
  s/M client type=UNAVAILABLE status_code=UNAVAILABLE Error
`, "messaging.batch.message_count", "http.response.status_code", "error.type", "rpc.response.status_code")
}
