package otlptest

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"

	logspb "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metricspb "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	// Exporters may compress what they send.
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"
)

type traceService struct {
	tracepb.UnimplementedTraceServiceServer
	receiver *Receiver
}

func (s traceService) Export(_ context.Context, q *tracepb.ExportTraceServiceRequest) (*tracepb.ExportTraceServiceResponse, error) {
	r := s.receiver
	return &tracepb.ExportTraceServiceResponse{}, keep(r, &r.spans, spansOf(q.GetResourceSpans()), appendAll)
}

type metricsService struct {
	metricspb.UnimplementedMetricsServiceServer
	receiver *Receiver
}

func (s metricsService) Export(_ context.Context, q *metricspb.ExportMetricsServiceRequest) (*metricspb.ExportMetricsServiceResponse,
	error) {
	r := s.receiver
	return &metricspb.ExportMetricsServiceResponse{}, keep(r, &r.points, pointsOf(q.GetResourceMetrics()), latest)
}

type logsService struct {
	logspb.UnimplementedLogsServiceServer
	receiver *Receiver
}

func (s logsService) Export(_ context.Context, q *logspb.ExportLogsServiceRequest) (*logspb.ExportLogsServiceResponse, error) {
	r := s.receiver
	return &logspb.ExportLogsServiceResponse{}, keep(r, &r.records, recordsOf(q.GetResourceLogs()), appendAll)
}

// maxBody bounds a request over HTTP, unpacked.
const maxBody = 64 << 20

// handler takes the same over HTTP, as protobuf.
func (r *Receiver) handler() http.Handler {
	mux := http.NewServeMux()
	handle(mux, "POST /v1/traces", &tracepb.ExportTraceServiceRequest{}, traceService{receiver: r}.Export)
	handle(mux, "POST /v1/metrics", &metricspb.ExportMetricsServiceRequest{}, metricsService{receiver: r}.Export)
	handle(mux, "POST /v1/logs", &logspb.ExportLogsServiceRequest{}, logsService{receiver: r}.Export)
	return mux
}

func handle[Q, A proto.Message](mux *http.ServeMux, route string, like Q, export func(context.Context, Q) (A, error)) {
	const protobuf = "application/x-protobuf"
	mux.HandleFunc(route, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Type") != protobuf {
			http.Error(w, "send "+protobuf, http.StatusUnsupportedMediaType)
			return
		}
		body, err := readBody(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		q := like.ProtoReflect().New().Interface()
		if err := proto.Unmarshal(body, q); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		answer, err := export(r.Context(), q.(Q))
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		data, err := proto.Marshal(answer)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", protobuf)
		_, _ = w.Write(data) // the sender went away
	})
}

func readBody(r *http.Request) ([]byte, error) {
	var body io.Reader = r.Body
	if r.Header.Get("Content-Encoding") == "gzip" {
		unpacked, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		body = unpacked
	}
	return io.ReadAll(io.LimitReader(body, maxBody))
}
