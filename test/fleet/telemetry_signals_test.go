package fleet

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/otlptest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// exportTo makes the programs that the test starts from now on send as the variables say, and in no
// other way.
func exportTo(t *testing.T, env []string) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
}

const signalPatience = testkit.Patience

// work has the sidecar do everything that is counted: events accepted, repeated, refused,
// delivered, acked, nacked, delivered again and dead-lettered. Work that is not done when it
// returns goes on until the end of the test.
func work(t *testing.T, sc *testkit.Sidecar) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), signalPatience)
	defer cancel()
	conn, err := sluice.DialConn(ctx, sc.URL(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	var sub *sluice.ConnSubscription
	subscribed, most := make(chan struct{}), 2
	sub, err = conn.Subscribe(ctx, "orders", "billing", &wire.SubscribeOptions{From: wire.FromEarliest, MaxAttempts: &most},
		func(ds []wire.Delivery) {
			<-subscribed
			for _, d := range ds {
				if d.Event.ID == "good" {
					_ = sub.AckAsync(nil, d.Event.ID) // the metrics tell
				} else {
					_ = sub.NackAsync(nil, sluice.Nack{Reason: "bad"}, d.Event.ID)
				}
			}
		})
	close(subscribed)
	require.NoError(t, err)
	for _, id := range []string{"bad", "good", "good"} {
		if _, err := conn.Publish(ctx, &wire.Event{Topic: "orders", ID: id, Payload: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	_, err = conn.Publish(ctx, &wire.Event{Topic: "orders", ID: "good", Payload: []byte(`1`)})
	if !errors.Is(err, &wire.Error{Code: wire.Conflict}) {
		t.Fatalf("publishing other content: %v", err)
	}
}

// contractMetrics are the metrics of the contract, with their labels.
var contractMetrics = map[string]string{
	"sluice_events_published_total":        "topic=orders",
	"sluice_events_duplicate_total":        "topic=orders",
	"sluice_events_rejected_total":         "code=conflict topic=orders",
	"sluice_events_delivered_total":        "group=billing topic=orders",
	"sluice_events_acked_total":            "group=billing topic=orders",
	"sluice_events_nacked_total":           "group=billing topic=orders",
	"sluice_events_redelivered_total":      "group=billing topic=orders",
	"sluice_events_dead_lettered_total":    "group=billing topic=orders",
	"sluice_events_inflight":               "group=billing topic=orders",
	"sluice_group_lag":                     "group=billing topic=orders",
	"sluice_publish_duration_seconds":      "topic=orders",
	"sluice_delivery_latency_seconds":      "group=billing topic=orders",
	"sluice_store_append_duration_seconds": "",
	"sluice_store_batch_size":              "",
	"sluice_spool_events":                  "",
	"sluice_spool_bytes":                   "",
	"sluice_ws_connections":                "",
	"sluice_buffered_bytes":                "",
	"sluice_disk_free_bytes":               "",
	"sluice_disk_low_water_bytes":          "",
	"sluice_disk_short":                    "",
	"sluice_messages_refused_total":        "reason=memory",
	"sluice_connections_refused_total":     "listener=listen",
	"sluice_policy_version_info":           "policy=orders",
	"messaging.client.sent.messages":       "error.type=conflict messaging.destination.name=orders",
	"messaging.client.consumed.messages":   "messaging.consumer.group.name=billing messaging.destination.name=orders",
	"messaging.client.operation.duration":  "messaging.destination.name=orders messaging.operation.name=send messaging.system=sluice",
	"messaging.process.duration":           "messaging.consumer.group.name=billing messaging.destination.name=orders",
}

// counts are the values that work brings the counters to.
var signalCounts = map[string]float64{
	"sluice_events_published_total": 2, "sluice_events_duplicate_total": 1, "sluice_events_rejected_total": 1,
	"sluice_events_delivered_total": 3, "sluice_events_acked_total": 1, "sluice_events_nacked_total": 2,
	"sluice_events_redelivered_total": 1, "sluice_events_dead_lettered_total": 1,
}

func TestEveryMetricAndTheLogArrive(t *testing.T) {
	for _, protocol := range []string{otlptest.GRPC, otlptest.HTTP} {
		t.Run(strings.ReplaceAll(protocol, "/", "-"), func(t *testing.T) {
			to := otlptest.Start(t)
			exportTo(t, append(to.Env(protocol), "OTEL_RESOURCE_ATTRIBUTES=deployment.environment.name=test"))
			policies := filepath.Join(t.TempDir(), "policies.yaml")
			require.NoError(t, os.WriteFile(policies, []byte("- name: orders\n  partitions: 1\n"), 0o600))
			sc := testkit.StartSidecar(t, t.TempDir(), "--node-id", "edge-1", "--policies", policies)
			work(t, sc)
			to.WaitPoints(t, func(points []otlptest.Point) bool { return len(lacking(points)) == 0 })

			ctx, cancel := context.WithTimeout(t.Context(), signalPatience)
			defer cancel()
			require.NoError(t, sc.Stop(ctx))
			to.WaitRecord(t, func(r otlptest.Record) bool {
				return r.Body == "stopping" && r.Severity == "INFO" && r.Service == "sluice-sidecar" && r.Attributes["deadline"] != ""
			})
			if strings.Contains(sc.Log(), "OpenTelemetry") {
				t.Errorf("the log speaks of trouble:\n%s", sc.Log())
			}
		})
	}
}

// lacking are the contract's metrics that are missing, or wrong.
func lacking(points []otlptest.Point) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(contractMetrics)) {
		ok := slices.ContainsFunc(points, func(p otlptest.Point) bool {
			return p.Metric == name && p.Service == "sluice-sidecar" && p.Instance == "edge-1" &&
				strings.HasPrefix(p.Attributes.String(), contractMetrics[name]) && p.Value >= signalCounts[name]
		})
		if !ok {
			names = append(names, name)
		}
	}
	return names
}

func TestControlPlaneSendsToo(t *testing.T) {
	to := otlptest.Start(t)
	exportTo(t, to.Env(otlptest.GRPC))
	cp := testkit.StartControlPlane(t, "--name", "cp-1")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cp.URL()+"/v1/policies/orders", nil)
	require.NoError(t, err)
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	req.Header.Set("traceparent", "00-"+trace+"-"+parent+"-01")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()

	spans := to.WaitSpans(t, func(s []otlptest.Span) bool { return len(s) > 0 })
	s := spans[0]
	if s.Name != "GET /v1/policies/{name}" || s.Trace != trace || s.Parent != parent || s.Attributes["http.response.status_code"] != "404" {
		t.Errorf("span %+v", s)
	}
	if s.Service != "sluice-controlplane" || s.Instance != "cp-1" {
		t.Errorf("the span is of %s, %s", s.Service, s.Instance)
	}
	to.WaitPoints(t, func(points []otlptest.Point) bool {
		for _, name := range []string{
			"sluice_controlplane_policies", "sluice_controlplane_revision",
			"sluice_controlplane_sidecars", "sluice_controlplane_sidecars_missing", "sluice_controlplane_sidecars_rejecting",
		} {
			if !slices.ContainsFunc(points, func(p otlptest.Point) bool { return p.Metric == name }) {
				return false
			}
		}
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), signalPatience)
	defer cancel()
	require.NoError(t, cp.Stop(ctx))
	to.WaitRecord(t, func(r otlptest.Record) bool { return r.Service == "sluice-controlplane" && r.Body == "stopping" })
}

// A receiver that cannot be reached costs nothing but a line in the log.
func TestReceiverThatIsDown(t *testing.T) {
	for _, protocol := range []string{otlptest.GRPC, otlptest.HTTP} {
		t.Run(strings.ReplaceAll(protocol, "/", "-"), func(t *testing.T) {
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			ln.Close()
			exportTo(t, append(otlptest.EnvFor(protocol, "http://"+ln.Addr().String()),
				"OTEL_EXPORTER_OTLP_TIMEOUT=1000", "OTEL_BSP_SCHEDULE_DELAY=50", "OTEL_BLRP_SCHEDULE_DELAY=50", "OTEL_METRIC_EXPORT_INTERVAL=50"))
			sc := testkit.StartSidecar(t, t.TempDir())
			began := time.Now()
			work(t, sc)
			ctx, cancel := context.WithTimeout(t.Context(), signalPatience)
			defer cancel()
			for !strings.Contains(sc.Log(), "metrics cannot be sent") && pause.For(ctx, 10*time.Millisecond) {
			}
			work(t, sc) // goes on as always
			require.NoError(t, sc.Stop(ctx))
			for _, signal := range []string{"metrics", "logs"} {
				// At once, after every minute, and at the end for the rest.
				most := 2 + int(time.Since(began)/time.Minute)
				if n := strings.Count(sc.Log(), signal+" cannot be sent"); n < 1 || n > most {
					t.Errorf("%d lines about %s", n, signal)
				}
			}
		})
	}
}

// A variable that is meant for other programs of the machine is no reason not to take events.
func TestVariablesOfOthersAreLeftOut(t *testing.T) {
	exportTo(t, []string{"OTEL_METRICS_EXPORTER=statsd", "OTEL_TRACES_SAMPLER=parentbased_jaeger_remote"})
	sidecar := testkit.StartSidecar(t, t.TempDir())
	for _, says := range []string{"OTEL_METRICS_EXPORTER", "OTEL_TRACES_SAMPLER"} {
		if n := strings.Count(sidecar.Log(), "variable="+says); n != 1 {
			t.Errorf("%d lines about %s in %s", n, says, sidecar.Log())
		}
	}
}
