// Package otlptest is a receiver of OpenTelemetry data for tests and examples, made of the
// protocol's own server stubs: it takes traces, metrics and logs over gRPC and over HTTP, keeps
// them, and draws the tree that spans form. It must not know what sends them.
package otlptest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	logspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-bus/sluice/test/require"
)

// maxKept is how many spans, points and records are kept of each; a receiver that is full refuses
// more.
const maxKept = 200_000

// Receiver keeps all that it receives, until it is closed.
type Receiver struct {
	grpc net.Listener
	http net.Listener

	rpc     *grpc.Server
	web     *http.Server
	serving sync.WaitGroup

	mu      sync.Mutex
	spans   []Span
	points  []Point
	records []Record
	changed chan struct{} // closed when more is received
}

// Open starts a receiver on two free ports of this machine. Close has to follow.
func Open() (*Receiver, error) {
	r := &Receiver{rpc: grpc.NewServer(), changed: make(chan struct{})}
	var err error
	if r.grpc, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("otlptest: %w", err)
	}
	if r.http, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("otlptest: %w", errors.Join(err, r.grpc.Close()))
	}
	tracepb.RegisterTraceServiceServer(r.rpc, traceService{receiver: r})
	metricspb.RegisterMetricsServiceServer(r.rpc, metricsService{receiver: r})
	logspb.RegisterLogsServiceServer(r.rpc, logsService{receiver: r})
	r.web = &http.Server{Handler: r.handler(), ReadHeaderTimeout: 10 * time.Second}
	// Both return when they are closed, with no other error.
	r.serving.Go(func() { _ = r.rpc.Serve(r.grpc) })
	r.serving.Go(func() { _ = r.web.Serve(r.http) })
	return r, nil
}

// Start is Open for a test, at whose end the receiver is closed.
func Start(t testing.TB) *Receiver {
	t.Helper()
	r, err := Open()
	require.NoError(t, err)
	t.Cleanup(r.Close)
	return r
}

// Close ends all connections.
func (r *Receiver) Close() {
	r.rpc.Stop()
	_ = r.web.Close()
	r.serving.Wait()
}

// The protocols, as OTEL_EXPORTER_OTLP_PROTOCOL has them.
const (
	GRPC = "grpc"
	HTTP = "http/protobuf"
)

// Endpoint is the URL to send to with a protocol.
func (r *Receiver) Endpoint(protocol string) string {
	if protocol == GRPC {
		return "http://" + r.grpc.Addr().String()
	}
	return "http://" + r.http.Addr().String()
}

// Env are the variables, as name=value, with which a program sends its data here at once.
func (r *Receiver) Env(protocol string) []string {
	return append(EnvFor(protocol, r.Endpoint(protocol)),
		"OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_BLRP_SCHEDULE_DELAY=50", "OTEL_METRIC_EXPORT_INTERVAL=200")
}

// EnvFor are the variables with which a program sends to an endpoint.
func EnvFor(protocol, endpoint string) []string {
	return []string{"OTEL_EXPORTER_OTLP_PROTOCOL=" + protocol, "OTEL_EXPORTER_OTLP_ENDPOINT=" + endpoint}
}

// Spans are the spans received so far, in the order in which they came.
func (r *Receiver) Spans() []Span { return kept(r, &r.spans) }

// Points are the last value of each metric and set of labels, in no order.
func (r *Receiver) Points() []Point { return kept(r, &r.points) }

// Records are the log records received so far, in the order in which they came.
func (r *Receiver) Records() []Record { return kept(r, &r.records) }

func kept[T any](r *Receiver, list *[]T) []T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(*list)
}

// Await calls enough whenever more is received, until it returns true or ctx ends.
func (r *Receiver) Await(ctx context.Context, enough func(*Receiver) bool) error {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if enough(r) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("otlptest: %w", context.Cause(ctx))
		case <-changed:
		}
	}
}

// patience is how long tests wait for sent data.
const patience = 30 * time.Second

// WaitSpans waits until enough accepts all spans, and returns them. After a time the test fails,
// and shows the tree of the received ones.
func (r *Receiver) WaitSpans(t testing.TB, enough func([]Span) bool) []Span {
	t.Helper()
	return wait(t, r, r.Spans, enough, "spans", Drawing{Services: true}.Tree)
}

// WaitPoints is WaitSpans for metrics.
func (r *Receiver) WaitPoints(t testing.TB, enough func([]Point) bool) []Point {
	t.Helper()
	return wait(t, r, r.Points, enough, "metrics", func(points []Point) string { return fmt.Sprint(points) })
}

// WaitRecord waits for a log record that matches.
func (r *Receiver) WaitRecord(t testing.TB, matches func(Record) bool) Record {
	t.Helper()
	records := wait(t, r, r.Records, func(records []Record) bool { return slices.ContainsFunc(records, matches) },
		"log records", func(records []Record) string { return fmt.Sprint(records) })
	return records[slices.IndexFunc(records, matches)]
}

func wait[T any](t testing.TB, r *Receiver, list func() []T, enough func([]T) bool, what string, show func([]T) string) (all []T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := r.Await(ctx, func(*Receiver) bool {
		all = list()
		return enough(all)
	})
	if err != nil {
		t.Fatalf("the test waited %s for %s; these came:\n%s", patience, what, show(all))
	}
	return all
}

// keep merges received things into the kept ones, and wakes the goroutines that wait for them.
func keep[T any](r *Receiver, kept *[]T, came []T, merge func(kept, came []T) []T) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(*kept)+len(came) > maxKept {
		return status.Error(codes.ResourceExhausted, "otlptest: the receiver is full")
	}
	*kept = merge(*kept, came)
	close(r.changed)
	r.changed = make(chan struct{})
	return nil
}

func appendAll[T any](kept, came []T) []T { return append(kept, came...) }
