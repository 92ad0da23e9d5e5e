package tracing_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/sluice-bus/sluice/internal/mongowatch"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing/tracingtest"
)

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
)

// ask sends a request to a sidecar that asks a peer in turn, and returns the traceparent that the
// peer got.
func ask(t *testing.T, rec *tracingtest.Recorder, traceparent string, peer http.HandlerFunc) (got string) {
	t.Helper()
	far := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = r.Header.Get("Traceparent")
		peer(w, r)
	}))
	defer far.Close()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: rec.Transport(transport)}
	near := rec.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := http.NewRequestWithContext(r.Context(), http.MethodGet, far.URL+"/export", nil)
		if err != nil {
			panic(err)
		}
		res, err := client.Do(q)
		if err != nil {
			http.Error(w, "no answer", http.StatusBadGateway)
			return
		}
		defer res.Body.Close()
		if _, err := io.Copy(w, res.Body); err != nil {
			panic(http.ErrAbortHandler)
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
	}), "/replay", "/export")
	r := httptest.NewRequest(http.MethodGet, "/replay?topic=orders&scope=fleet", nil)
	if traceparent != "" {
		r.Header.Set("Traceparent", traceparent)
	}
	defer func() {
		if p := recover(); p != nil && p != http.ErrAbortHandler {
			panic(p)
		}
	}()
	near.ServeHTTP(httptest.NewRecorder(), r)
	return got
}

func TestSpansOfARequest(t *testing.T) {
	for name, c := range map[string]struct {
		peer http.HandlerFunc
		want string
	}{
		"whole": {func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "text") }, `
b7ad6b7169203331: GET /replay server name=orders scope=fleet status_code=200
  GET /export client status_code=200
`},
		"refused": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }, `
b7ad6b7169203331: GET /replay server name=orders scope=fleet status_code=200
  GET /export client status_code=503 type=503 Error
`},
		"broken off": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "te")
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, `
b7ad6b7169203331: GET /replay server name=orders scope=fleet status_code=200 type=aborted Error: the answer broke off
  GET /export client status_code=200 type=aborted Error: the answer broke off
`},
		"no answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, `
b7ad6b7169203331: GET /replay server name=orders scope=fleet status_code=502 type=502 Error
  GET /export client type=network Error
`},
	} {
		t.Run(name, func(t *testing.T) {
			rec := tracingtest.New(t, nil, 1)
			got := ask(t, rec, sampled, c.peer)
			tree := rec.Tree("messaging.destination.name", "sluice.scope", "http.response.status_code", "error.type")
			if want := strings.TrimPrefix(c.want, "\n"); tree != want {
				t.Errorf("the spans are\n%s, want\n%s", tree, want)
			}
			if id := rec.Named("GET /export")[0].SpanContext.SpanID(); !strings.Contains(got, id.String()) {
				t.Errorf("the peer got %s, not the context of %s", got, id)
			}
		})
	}
}

// Nobody begins a trace of its own in the course of one that is not recorded.
func TestWhatIsNotRecordedIsHandedOn(t *testing.T) {
	whole := func(http.ResponseWriter, *http.Request) {}
	for name, c := range map[string]struct {
		sampler     sdktrace.Sampler
		ratio       float64
		traceparent string
	}{
		"the asker's decision": {nil, 1, unsampled},
		"the policy's":         {nil, 0, ""},
		"the sampler's":        {sdktrace.NeverSample(), 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			rec := tracingtest.New(t, c.sampler, c.ratio)
			got := ask(t, rec, c.traceparent, whole)
			if spans := rec.Spans(); len(spans) > 0 {
				t.Errorf("recorded: %v", spans)
			}
			if !strings.HasSuffix(got, "-00") || c.traceparent != "" && got != c.traceparent {
				t.Errorf("the peer got %q", got)
			}
		})
	}
}

func TestOtherPathsAreNotRecorded(t *testing.T) {
	rec := tracingtest.New(t, nil, 1)
	rec.Handler(http.NotFoundHandler(), "/replay").ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/etc", nil))
	if spans := rec.Spans(); len(spans) > 0 {
		t.Errorf("recorded: %v", spans)
	}
}

func TestCommandsBelowNoSpanAreNotRecorded(t *testing.T) {
	rec := tracingtest.New(t, nil, 1)
	if over := rec.Commands()(t.Context(), mongowatch.Command{Name: "find"}); over != nil {
		t.Error("a command of nobody's is recorded")
	}
}
