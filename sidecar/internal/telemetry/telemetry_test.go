package telemetry_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"pgregory.net/rapid"

	"github.com/sluice-bus/sluice/internal/budget"
	"github.com/sluice-bus/sluice/internal/instrument"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/test/require"
)

func newMetrics(t testing.TB, cfg telemetry.Config) *telemetry.Metrics {
	t.Helper()
	m, err := telemetry.New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := m.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

// scrape returns the lines of the exposition that tell of Sluice, sorted, less the help texts and
// the histograms' buckets and sums.
func scrape(t testing.TB, m *telemetry.Metrics) []string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("scrape: status %d: %s", rec.Code, rec.Body)
	}
	var lines []string
	for line := range strings.Lines(rec.Body.String()) {
		line = strings.TrimSuffix(line, "\n")
		name := strings.TrimPrefix(line, "# TYPE ")
		if !strings.HasPrefix(name, "sluice_") || strings.Contains(name, "_bucket{") ||
			strings.Contains(name, "_seconds_sum") || strings.Contains(name, "_size_sum") {
			continue
		}
		lines = append(lines, line)
	}
	slices.Sort(lines)
	return lines
}

func wantLines(t *testing.T, got, want []string) {
	t.Helper()
	for _, w := range want {
		if !slices.Contains(got, w) {
			t.Errorf("missing %s", w)
		}
	}
	for _, g := range got {
		if !slices.Contains(want, g) {
			t.Errorf("not expected: %s", g)
		}
	}
}

// The metrics of OpenTelemetry's conventions count the same, under names and labels of theirs.
func TestSemanticConventions(t *testing.T) {
	m := newMetrics(t, telemetry.Config{MaxTopics: 1})
	orders := m.Topic("orders")
	orders.Published(3)
	orders.Duplicate(2)
	orders.Rejected(wire.RateLimited, 4)
	orders.PublishDuration(time.Millisecond)
	m.Topic("beyond").Published(1)
	m.Group("orders", "mail").Delivered(6)
	m.Group("orders", "mail").Latency(time.Hour, 40*time.Millisecond)
	m.Group("orders", "").Delivered(1)
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	const on = `messaging_operation_name="%s",messaging_system="sluice"`
	of := func(topic, operation string) string {
		return `messaging_destination_name="` + topic + `",` + fmt.Sprintf(on, operation)
	}
	group := `messaging_consumer_group_name="mail",`
	for _, want := range []string{
		`messaging_client_sent_messages{` + of("orders", "send") + `} 5`,
		`messaging_client_sent_messages{error_type="rate_limited",` + of("orders", "send") + `} 4`,
		`messaging_client_sent_messages{` + of("_other", "send") + `} 1`,
		`messaging_client_consumed_messages{` + group + of("orders", "deliver") + `} 6`,
		`messaging_client_consumed_messages{` + of("orders", "deliver") + `} 1`,
		`messaging_client_operation_duration_count{` + of("orders", "send") + `} 1`,
		`messaging_process_duration_sum{` + group + of("orders", "process") + `} 0.04`,
	} {
		if !strings.Contains(rec.Body.String(), "\n"+want+"\n") {
			t.Errorf("missing %s", want)
		}
	}
}

func TestExposition(t *testing.T) {
	m := newMetrics(t, telemetry.Config{Version: "v1", NodeID: "n1", StoreKind: "embedded"})
	orders := m.Topic("orders.created")
	orders.Published(3)
	orders.Duplicate(2)
	orders.Rejected(wire.RateLimited, 4)
	orders.Rejected(wire.BadRequest, 1)
	orders.Rejected(wire.RateLimited, 1)
	orders.PublishDuration(time.Millisecond)
	mail := m.Group("orders.created", "mail")
	mail.Delivered(6)
	mail.Acked(5)
	mail.Nacked(4)
	mail.Redelivered(3)
	mail.DeadLettered(2)
	mail.PassedOver(3)
	mail.Expired(4)
	mail.Latency(time.Second, time.Second)
	m.BatchAppended(100, 2*time.Millisecond)
	m.ConnectionOpened()
	m.ConnectionOpened()
	m.ConnectionClosed()
	m.ObserveGroups(func() []telemetry.GroupStat {
		return []telemetry.GroupStat{{Topic: "orders.created", Group: "mail", Inflight: 7, Lag: 8, Members: 2, Paused: true}}
	})
	m.ObserveTenants(func() map[string]int { return map[string]int{"orders.created": 16} })
	m.ObservePolicies(func() []policy.InForce {
		return []policy.InForce{{Name: "orders.*", Version: policy.VersionNumber(3), Source: "file"}}
	})

	m.ObserveSpool(func() telemetry.SpoolStat { return telemetry.SpoolStat{Events: 9, Bytes: 10} })
	m.Shed(telemetry.ShedLate)
	m.ConnectionsRefused("listen", 2)
	m.ObserveDisk(func() telemetry.DiskStat { return telemetry.DiskStat{Free: 14, LowWater: 15, Short: true} })
	m.ObserveStore(func() bool { return true })
	m.ObserveBuffered(func() int64 { return 13 })
	m.ObserveAuthFailures(func() (refused, unseen int64) { return 11, 12 })

	const topic, group = `{topic="orders.created"}`, `{group="mail",topic="orders.created"}`
	wantLines(t, scrape(t, m), []string{
		`# TYPE sluice_events_published_total counter`,
		`# TYPE sluice_events_duplicate_total counter`,
		`# TYPE sluice_events_rejected_total counter`,
		`# TYPE sluice_events_delivered_total counter`,
		`# TYPE sluice_events_acked_total counter`,
		`# TYPE sluice_events_nacked_total counter`,
		`# TYPE sluice_events_redelivered_total counter`,
		`# TYPE sluice_events_dead_lettered_total counter`,
		`# TYPE sluice_events_passed_over_total counter`,
		`# TYPE sluice_events_expired_total counter`,
		`# TYPE sluice_events_inflight gauge`,
		`# TYPE sluice_group_lag gauge`,
		`# TYPE sluice_group_paused gauge`,
		`# TYPE sluice_group_members gauge`,
		`sluice_group_members` + group + ` 2`,
		`# TYPE sluice_group_oldest_unacked_seconds gauge`,
		`sluice_group_oldest_unacked_seconds` + group + ` 0`,
		`# TYPE sluice_build_info gauge`,
		`sluice_build_info{store="embedded",version="v1"} 1`,
		`# TYPE sluice_store_up gauge`,
		`sluice_store_up 1`,
		`# TYPE sluice_publish_tenants gauge`,
		`sluice_publish_tenants` + topic + ` 16`,
		`# TYPE sluice_publish_duration_seconds histogram`,
		`# TYPE sluice_delivery_latency_seconds histogram`,
		`# TYPE sluice_store_append_duration_seconds histogram`,
		`# TYPE sluice_store_batch_size histogram`,
		`# TYPE sluice_spool_events gauge`,
		`# TYPE sluice_spool_bytes gauge`,
		`# TYPE sluice_ws_connections gauge`,
		`# TYPE sluice_policy_version_info gauge`,
		`# TYPE sluice_buffered_bytes gauge`,
		`sluice_buffered_bytes 13`,
		`# TYPE sluice_disk_free_bytes gauge`,
		`sluice_disk_free_bytes 14`,
		`# TYPE sluice_disk_low_water_bytes gauge`,
		`sluice_disk_low_water_bytes 15`,
		`# TYPE sluice_disk_short gauge`,
		`sluice_disk_short 1`,
		`# TYPE sluice_messages_refused_total counter`,
		`sluice_messages_refused_total{reason="memory"} 0`,
		`sluice_messages_refused_total{reason="timeout"} 1`,
		`# TYPE sluice_connections_refused_total counter`,
		`sluice_connections_refused_total{listener="listen"} 2`,
		`# TYPE sluice_auth_failures_total counter`,
		`sluice_auth_failures_total{outcome="refused"} 11`,
		`sluice_auth_failures_total{outcome="rate_limited"} 12`,
		`sluice_events_published_total` + topic + ` 3`,
		`sluice_events_duplicate_total` + topic + ` 2`,
		`sluice_events_rejected_total{code="rate_limited",topic="orders.created"} 5`,
		`sluice_events_rejected_total{code="bad_request",topic="orders.created"} 1`,
		`sluice_publish_duration_seconds_count` + topic + ` 1`,
		`sluice_events_delivered_total` + group + ` 6`,
		`sluice_events_acked_total` + group + ` 5`,
		`sluice_events_nacked_total` + group + ` 4`,
		`sluice_events_redelivered_total` + group + ` 3`,
		`sluice_events_dead_lettered_total` + group + ` 2`,
		`sluice_events_passed_over_total` + group + ` 3`,
		`sluice_events_expired_total` + group + ` 4`,
		`sluice_delivery_latency_seconds_count` + group + ` 1`,
		`sluice_events_inflight` + group + ` 7`,
		`sluice_group_lag` + group + ` 8`,
		`sluice_group_paused` + group + ` 1`,
		`sluice_store_append_duration_seconds_count 1`,
		`sluice_store_batch_size_count 1`,
		`sluice_spool_events 9`,
		`sluice_spool_bytes 10`,
		`sluice_ws_connections 1`,
		`sluice_policy_version_info{policy="orders.*",source="file",version="3"} 1`,
	})
}

func TestExpositionOfNothing(t *testing.T) {
	wantLines(t, scrape(t, newMetrics(t, telemetry.Config{})), []string{
		`# TYPE sluice_spool_events gauge`, `sluice_spool_events 0`,
		`# TYPE sluice_buffered_bytes gauge`, `sluice_buffered_bytes 0`,
		`# TYPE sluice_messages_refused_total counter`, `sluice_messages_refused_total{reason="memory"} 0`,
		`sluice_messages_refused_total{reason="timeout"} 0`,
		`# TYPE sluice_spool_bytes gauge`, `sluice_spool_bytes 0`,
		`# TYPE sluice_ws_connections gauge`, `sluice_ws_connections 0`,
		`# TYPE sluice_auth_failures_total counter`, `sluice_auth_failures_total{outcome="refused"} 0`,
		`sluice_auth_failures_total{outcome="rate_limited"} 0`,
	})
	if got := scrape(t, telemetry.Discard()); len(got) > 0 {
		t.Errorf("Discard shows %q", got)
	}
}

func TestRuntimeMetrics(t *testing.T) {
	rec := httptest.NewRecorder()
	newMetrics(t, telemetry.Config{}).Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for _, name := range []string{"go_goroutines ", "process_resident_memory_bytes "} {
		if !strings.Contains(rec.Body.String(), "\n"+name) {
			t.Errorf("no %s", name)
		}
	}
}

// only keeps the samples of one metric.
func only(lines []string, metric string) []string {
	return slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, metric+"{") })
}

func TestTopicsPastTheBoundShareALabel(t *testing.T) {
	m := newMetrics(t, telemetry.Config{MaxTopics: 2})
	for _, name := range []string{"a", "b", "c", "d", "a", "c"} {
		m.Topic(name).Published(1)
	}
	if m.Topic("c") != m.Topic("d") || m.Topic("a") == m.Topic("b") {
		t.Error("handles are not folded as the labels are")
	}
	const name = "sluice_events_published_total"
	wantLines(t, only(scrape(t, m), name), []string{
		name + `{topic="a"} 2`, name + `{topic="b"} 1`, name + `{topic="_other"} 3`,
	})
}

func TestPoliciesPastTheBoundAreThoseOfTopicsInUse(t *testing.T) {
	m := newMetrics(t, telemetry.Config{MaxTopics: 2})
	m.Topic("d").Published(1)
	m.ObservePolicies(func() (all []policy.InForce) {
		for _, name := range []string{"*", "a", "b", "c", "d", "e"} {
			all = append(all, policy.InForce{Name: name, Version: policy.VersionNumber(1), Source: "s"})
		}
		return all
	})
	const name = "sluice_policy_version_info"
	wantLines(t, only(scrape(t, m), name), []string{
		name + `{policy="*",source="s",version="1"} 1`, name + `{policy="a",source="s",version="1"} 1`,
		name + `{policy="d",source="s",version="1"} 1`,
	})
}

func TestGroupsPastTheBoundShareALabel(t *testing.T) {
	m := newMetrics(t, telemetry.Config{MaxTopics: 1}) // four pairs
	for i := range 6 {
		m.Group("a", "g"+strconv.Itoa(i)).Acked(1)
	}
	m.Group("b", "g0").Acked(1)
	m.Group("b", "g1").Acked(1)
	m.ObserveGroups(func() []telemetry.GroupStat {
		return []telemetry.GroupStat{
			{Topic: "a", Group: "g0", Inflight: 1, Lag: 10},
			{Topic: "b", Group: "g0", Inflight: 2, Lag: 20},
			{Topic: "c", Group: "g1", Inflight: 3, Lag: 30},
		}
	})
	got := scrape(t, m)
	const acked, lag = "sluice_events_acked_total", "sluice_group_lag"
	wantLines(t, only(slices.Clone(got), acked), []string{
		acked + `{group="g0",topic="a"} 1`, acked + `{group="g1",topic="a"} 1`,
		acked + `{group="g2",topic="a"} 1`, acked + `{group="g3",topic="a"} 1`,
		acked + `{group="_other",topic="a"} 2`,
		acked + `{group="_other",topic="_other"} 2`,
	})
	wantLines(t, only(got, lag), []string{
		lag + `{group="g0",topic="a"} 10`, lag + `{group="_other",topic="_other"} 50`,
	})
}

// What names a topic or a group that is forgotten goes, and its place is free.
func TestForget(t *testing.T) {
	m := newMetrics(t, telemetry.Config{MaxTopics: 2}) // and eight groups
	for _, topic := range []string{"a", "b", "c"} {
		m.Topic(topic).Published(1)
		m.Topic(topic).PublishDuration(time.Second)
		m.Topic(topic).Rejected(wire.Conflict, 1)
		for i := range 6 {
			m.Group(topic, strconv.Itoa(i)).Acked(1)
			m.Group(topic, strconv.Itoa(i)).Latency(time.Second, time.Second)
		}
	}
	topics, groups := m.Names()
	if len(topics) != 2 || len(groups) != 8 {
		t.Errorf("%v and %v have labels of their own", topics, groups)
	}
	m.ForgetTopic("a")
	for _, g := range groups {
		if g.Topic == "a" || g.Group == "1" {
			m.ForgetGroup(g)
		}
	}
	for _, line := range scrape(t, m) {
		if strings.Contains(line, `topic="a"`) || strings.Contains(line, `group="1"`) {
			t.Errorf("it stays: %s", line)
		}
	}
	m.Topic("d").Published(1)
	m.Topic("b").Published(1)
	for i := range 8 {
		m.Group("d", strconv.Itoa(i)).Acked(1)
	}
	got := scrape(t, m)
	for _, want := range []string{
		`sluice_events_published_total{topic="b"} 2`, `sluice_events_published_total{topic="d"} 1`,
		`sluice_events_published_total{topic="_other"} 1`,
		`sluice_events_acked_total{group="0",topic="b"} 1`, `sluice_events_acked_total{group="6",topic="d"} 1`,
		`sluice_events_acked_total{group="_other",topic="d"} 1`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("missing %s", want)
		}
	}
}

func TestARefusedTopicTakesNoLabel(t *testing.T) {
	m := newMetrics(t, telemetry.Config{})
	m.KnownTopic("a").Rejected(wire.BadJSON, 1)
	m.Topic("a").Published(1)
	m.KnownTopic("a").Rejected(wire.BadJSON, 2)
	const name = "sluice_events_rejected_total"
	wantLines(t, only(scrape(t, m), name), []string{name + `{code="bad_json",topic="_other"} 1`, name + `{code="bad_json",topic="a"} 2`})
}

// Buckets go to an hour, and a reader gets totals or what is new, as it asks.
func TestHistograms(t *testing.T) {
	for _, temporality := range []metricdata.Temporality{metricdata.CumulativeTemporality, metricdata.DeltaTemporality} {
		var reader *sdkmetric.ManualReader
		m := newMetrics(t, telemetry.Config{Readers: func(p func(metricdata.Temporality) sdkmetric.Producer) []sdkmetric.Reader {
			reader = sdkmetric.NewManualReader(sdkmetric.WithProducer(p(temporality)))
			return []sdkmetric.Reader{reader}
		}})
		latency := func() (x metricdata.HistogramDataPoint[float64]) {
			var got metricdata.ResourceMetrics
			if err := reader.Collect(t.Context(), &got); err != nil {
				t.Fatal(err)
			}
			for _, s := range got.ScopeMetrics {
				for _, d := range s.Metrics {
					if h, is := d.Data.(metricdata.Histogram[float64]); is && d.Name == "sluice_delivery_latency_seconds" {
						if h.Temporality != temporality {
							t.Errorf("temporality %v, want %v", h.Temporality, temporality)
						}
						x = h.DataPoints[0]
					}
				}
			}
			return x
		}
		group := m.Group("a", "g")
		for _, d := range []time.Duration{50 * time.Microsecond, 40 * time.Minute, 2 * time.Hour} {
			group.Latency(d, d)
		}
		x := latency()
		last := len(x.BucketCounts) - 1
		if x.Bounds[last-1] != 3600 || x.BucketCounts[0] != 1 || x.BucketCounts[last-1] != 1 || x.BucketCounts[last] != 1 {
			t.Errorf("%v in %v", x.BucketCounts, x.Bounds)
		}
		group.Latency(time.Hour, time.Hour)
		want := metricdata.HistogramDataPoint[float64]{Count: 4, Sum: 50e-6 + 2400 + 7200 + 3600}
		if temporality == metricdata.DeltaTemporality {
			want.Count, want.Sum = 1, 3600
		}
		if x = latency(); x.Count != want.Count || math.Abs(x.Sum-want.Sum) > 1e-6 {
			t.Errorf("%v: %d events in %v s, want %d in %v", temporality, x.Count, x.Sum, want.Count, want.Sum)
		}
	}
}

func TestOldestUnacked(t *testing.T) {
	m := newMetrics(t, telemetry.Config{})
	now := time.Now()
	m.ObserveGroups(func() []telemetry.GroupStat {
		return []telemetry.GroupStat{
			{Topic: "a", Group: "g", Oldest: now.Add(-time.Minute)}, {Topic: "a", Group: "g", Oldest: now.Add(-time.Hour)}, {Topic: "a", Group: "g"},
		}
	})
	lines := only(scrape(t, m), "sluice_group_oldest_unacked_seconds")
	if len(lines) != 1 || !strings.HasPrefix(lines[0], `sluice_group_oldest_unacked_seconds{group="g",topic="a"} 3600`) {
		t.Errorf("%q, want an hour", lines)
	}
}

// More series than the SDK's own default bound must all be shown.
func TestManyGroups(t *testing.T) {
	m := newMetrics(t, telemetry.Config{})
	for i := range 2500 {
		m.Group("a", strconv.Itoa(i)).Acked(1)
	}
	if n := len(only(scrape(t, m), "sluice_events_acked_total")); n != 2500 {
		t.Errorf("%d series, want 2500", n)
	}
}

func TestNamesThatCannotBeLabels(t *testing.T) {
	m := newMetrics(t, telemetry.Config{})
	for _, name := range []string{"\xff", strings.Repeat("x", wire.MaxTopicBytes+1)} {
		m.Topic(name).Rejected(wire.BadRequest, 1)
		m.Group("a", name).Acked(1)
	}
	got := scrape(t, m)
	for _, want := range []string{
		`sluice_events_rejected_total{code="bad_request",topic="_other"} 2`,
		`sluice_events_acked_total{group="_other",topic="a"} 2`,
	} {
		if !slices.Contains(got, want) {
			t.Errorf("missing %s", want)
		}
	}
}

func TestObservedGroupsComeAndGo(t *testing.T) {
	m := newMetrics(t, telemetry.Config{})
	stats := []telemetry.GroupStat{{Topic: "a", Group: "g", Lag: 1}}
	m.ObserveGroups(func() []telemetry.GroupStat { return stats })
	wantLines(t, only(scrape(t, m), "sluice_group_lag"), []string{`sluice_group_lag{group="g",topic="a"} 1`})
	stats = nil
	wantLines(t, only(scrape(t, m), "sluice_group_lag"), nil)
}

func TestReadersGetTheSameNames(t *testing.T) {
	reader := sdkmetric.NewManualReader()
	m := newMetrics(t, telemetry.Config{Version: "v1", NodeID: "n1",
		Readers: func(func(metricdata.Temporality) sdkmetric.Producer) []sdkmetric.Reader {
			return []sdkmetric.Reader{reader}
		}})
	m.Topic("a").Published(1)
	var got metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &got))
	for _, want := range []string{"service.name=sluice-sidecar", "service.version=v1", "service.instance.id=n1"} {
		if about := got.Resource.String(); !strings.Contains(about, want) {
			t.Errorf("resource %s lacks %s", about, want)
		}
	}
	if !slices.ContainsFunc(got.ScopeMetrics[0].Metrics, func(x metricdata.Metrics) bool {
		return x.Name == "sluice_events_published_total"
	}) {
		t.Error("no sluice_events_published_total")
	}
}

// A count or a scrape that comes late finds a working, if empty, page.
func TestAfterShutdown(t *testing.T) {
	m, err := telemetry.New(telemetry.Config{})
	require.NoError(t, err)
	m.ObserveGroups(func() []telemetry.GroupStat { return []telemetry.GroupStat{{Topic: "a", Group: "g"}} })
	require.NoError(t, m.Shutdown(t.Context()))
	m.Topic("a").Published(1)
	m.Group("a", "g").Latency(time.Second, time.Second)
	if got := scrape(t, m); len(got) > 0 {
		t.Errorf("after Shutdown: %q", got)
	}
}

func TestConcurrentUse(t *testing.T) {
	m := newMetrics(t, telemetry.Config{MaxTopics: 3})
	m.ObserveGroups(func() []telemetry.GroupStat {
		return []telemetry.GroupStat{{Topic: "t0", Group: "fresh", Lag: 1}}
	})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				topic := "t" + strconv.Itoa(i%5)
				m.Topic(topic).Published(1)
				m.Topic(topic).Rejected(wire.Overloaded, 1)
				m.Topic(topic).PublishDuration(time.Millisecond)
				m.Group(topic, "g"+strconv.Itoa(i%7)).Delivered(1)
			}
		})
		wg.Go(func() {
			for range 3 {
				scrape(t, m)
			}
		})
	}
	wg.Wait()
	got := scrape(t, m)
	for metric, max := range map[string]int{
		"sluice_events_published_total": 3 + 1,
		"sluice_events_delivered_total": 4*3 + 3 + 1,
	} {
		series := only(slices.Clone(got), metric)
		total := 0
		for _, s := range series {
			n, err := strconv.Atoi(s[strings.LastIndexByte(s, ' ')+1:])
			require.NoError(t, err)
			total += n
		}
		if total != 800 || len(series) > max {
			t.Errorf("%s: %d in %d series, want 800 in at most %d", metric, total, len(series), max)
		}
	}
}

func BenchmarkPublished(b *testing.B) {
	topic := newMetrics(b, telemetry.Config{}).Topic("orders.created")
	b.ReportAllocs()
	for b.Loop() {
		topic.Published(1)
	}
}

func BenchmarkPublishDuration(b *testing.B) {
	topic := newMetrics(b, telemetry.Config{}).Topic("orders.created")
	b.ReportAllocs()
	for b.Loop() {
		topic.PublishDuration(123 * time.Microsecond)
	}
}

func BenchmarkRejected(b *testing.B) {
	topic := newMetrics(b, telemetry.Config{}).Topic("orders.created")
	b.ReportAllocs()
	for b.Loop() {
		topic.Rejected(wire.RateLimited, 1)
	}
}

func BenchmarkTopic(b *testing.B) {
	m := newMetrics(b, telemetry.Config{})
	b.ReportAllocs()
	for b.Loop() {
		m.Topic("orders.created")
	}
}

// TestReference: what is exported has the types and labels that the reference says.
func TestReference(t *testing.T) {
	m := newMetrics(t, telemetry.Config{StoreKind: "embedded"})
	m.Topic("t").Rejected(wire.Conflict, 1)
	m.Group("t", "g").Latency(time.Second, time.Second)
	m.ConnectionsRefused("listen", 1)
	m.Outbox("o").Failed(wire.Conflict)
	m.Capture("c", "t").Deferred(wire.Conflict)
	m.ObservePolicies(func() []policy.InForce { return []policy.InForce{{Name: "t"}} })
	m.ObserveDead(func() []telemetry.DeadStat { return []telemetry.DeadStat{{Topic: "t"}} })
	m.ObserveCaptures(func() []telemetry.CaptureStat {
		return []telemetry.CaptureStat{{Capture: "c", Topic: "t", Lag: new(float64)}}
	})
	exported := strings.Join(scrape(t, m), "\n")
	seen := 0
	for _, metric := range telemetry.Reference() {
		if !strings.Contains(exported, "# TYPE "+metric.Name+" ") {
			continue
		}
		seen++
		labels := slices.Sorted(slices.Values(metric.Labels))
		sample := metric.Name
		if metric.Type == instrument.Histogram {
			sample += "_count"
		}
		if len(labels) > 0 {
			sample += "{" + strings.Join(labels, `="[^"]*",`) + `="[^"]*"}`
		}
		for _, want := range []string{"# TYPE " + metric.Name + " " + metric.Type, sample + " .*"} {
			if !regexp.MustCompile("(?m)^" + want + "$").MatchString(exported) {
				t.Errorf("%s: nothing matches %s", metric.Name, want)
			}
		}
	}
	if seen < 25 {
		t.Errorf("only %d metrics were exported:\n%s", seen, exported)
	}
}

// TestOneIdentityLeavesLabels: in whatever order topics are counted and forgotten, those of each of four identities have labels of their
// own up to its share, and all together no more than there are.
func TestOneIdentityLeavesLabels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(4, 20).Draw(t, "labels")
		m, err := telemetry.New(telemetry.Config{MaxTopics: most, Owner: func(topic string) string { return topic[:1] }})
		require.NoError(t, err)
		counted := map[string]bool{}
		topic := rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom([]string{"a", "a", "a", "b", "c", "d"}).Draw(t, "of") + fmt.Sprint(rapid.IntRange(0, 30).Draw(t, "topic"))
		})
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			name := topic.Draw(t, "name")
			if rapid.IntRange(0, 9).Draw(t, "forgotten") == 0 {
				m.ForgetTopic(name)
				delete(counted, name)
				continue
			}
			m.Topic(name).Published(1)
			counted[name] = true
			labels, _ := m.Names()
			has, all := map[string]int{}, map[string]int{}
			for _, l := range labels {
				has[l[:1]]++
			}
			for name := range counted {
				all[name[:1]]++
			}
			few := has[name[:1]] < min(all[name[:1]], max(most/budget.SharesOfAll, 1))
			if len(labels) > most || few && !slices.Contains(labels, name) {
				t.Fatalf("%d of %d labels are given: %v; it counted %v", len(labels), most, has, all)
			}
		}
	})
}
