package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/sluice-bus/sluice/test/otlptest"
	"github.com/sluice-bus/sluice/test/require"
)

// bare takes away every variable that the one who runs the tests has.
func bare(t *testing.T) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
}

func setenv(t *testing.T, env []string) {
	t.Helper()
	bare(t)
	for _, kv := range env {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
}

// text makes a log that is read afterwards.
func text(level slog.Level) (*slog.Logger, *bytes.Buffer) {
	var b bytes.Buffer
	return slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level})), &b
}

func open1(t *testing.T, log *slog.Logger) *Exports {
	t.Helper()
	e, err := Open(t.Context(), Config{Service: "program", Version: "v1", Instance: "n1", Log: log})
	require.NoError(t, err)
	t.Cleanup(e.Close)
	return e
}

func TestOffUnlessAskedFor(t *testing.T) {
	for name, env := range map[string][]string{
		"nothing":  nil,
		"disabled": {"OTEL_SDK_DISABLED=TRUE", "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"},
		"none": {
			"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318",
			"OTEL_TRACES_EXPORTER=none", "OTEL_METRICS_EXPORTER=prometheus", "OTEL_LOGS_EXPORTER=none",
		},
	} {
		t.Run(name, func(t *testing.T) {
			setenv(t, env)
			log, _ := text(slog.LevelInfo)
			e := open1(t, log)
			for _, e := range []*Exports{nil, e} {
				if e.Tracer() != nil || e.MetricReaders(nil) != nil || e.Resource() != nil || e.Logger(log) != log {
					t.Error("not everything is off")
				}
				if err := e.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestWrongVariables(t *testing.T) {
	for _, c := range []struct{ env, want string }{
		{"OTEL_TRACES_EXPORTER=jaeger", `must be otlp, console or none, not "jaeger"`},
		{"OTEL_LOGS_EXPORTER=prometheus", `must be otlp, console or none, not "prometheus"`},
		{"OTEL_EXPORTER_OTLP_PROTOCOL=http/json", `must be grpc or http/protobuf, not "http/json"`},
		{"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL=udp", `must be grpc or http/protobuf, not "udp"`},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=user:secret@collector:4318", `must be http://host:port or https://host:port`},
		{"OTEL_EXPORTER_OTLP_TIMEOUT=10s", `must be a whole number above 0, not "10s"`},
		{"OTEL_EXPORTER_OTLP_HEADERS=token", `must be name=value,name=value`},
		{"OTEL_EXPORTER_OTLP_COMPRESSION=zstd", `must be gzip or none, not "zstd"`},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE=/no/such/file", `open /no/such/file`},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY=/no/such/file",
			`OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY: one needs the other`},
		{"OTEL_TRACES_SAMPLER=sometimes", `must be one of always_on`},
		{"OTEL_TRACES_SAMPLER_ARG=2", `must be a number from 0 to 1, not "2"`},
		{"OTEL_BSP_MAX_QUEUE_SIZE=0", `must be a whole number above 0, not "0"`},
		{"OTEL_PROPAGATORS=b3,b4", `unknown propagator: b4; tracecontext, baggage, b3,`},
		{"OTEL_METRIC_EXPORT_INTERVAL=1m", `must be a whole number above 0, not "1m"`},
	} {
		t.Run(c.env, func(t *testing.T) {
			setenv(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318", "OTEL_TRACES_SAMPLER=traceidratio"})
			name, value, _ := strings.Cut(c.env, "=")
			t.Setenv(name, value)
			var log bytes.Buffer
			e, err := Open(t.Context(), Config{Log: slog.New(slog.NewJSONHandler(&log, nil))})
			require.NoError(t, err)
			defer e.Close()
			var line struct{ Level, Error string }
			if err := json.Unmarshal(log.Bytes(), &line); err != nil || line.Level != "WARN" || !strings.Contains(line.Error, c.want) {
				t.Errorf("logged %s, %v; want one warning with %s", &log, err, c.want)
			}
			if strings.Contains(log.String(), "secret") {
				t.Errorf("the log tells a secret: %s", &log)
			}
			if value, is := os.LookupEnv(name); is {
				t.Errorf("%s is still %q for the exporters", name, value)
			}
		})
	}
}

func TestEverySignalArrives(t *testing.T) {
	for _, protocol := range []string{otlptest.GRPC, otlptest.HTTP} {
		for _, compression := range []string{"none", "gzip"} {
			t.Run(strings.ReplaceAll(protocol, "/", "-")+" "+compression, func(t *testing.T) {
				to := otlptest.Start(t)
				setenv(t, append(to.Env(protocol), "OTEL_EXPORTER_OTLP_COMPRESSION="+compression, "OTEL_SERVICE_NAME=shop"))
				log, said := text(slog.LevelInfo)
				e := open1(t, log)

				ctx, span := e.Tracer().Start(t.Context(), "work")
				e.Logger(log).InfoContext(ctx, "under way", "n", 1)
				e.Logger(log).DebugContext(ctx, "in detail")
				span.End()
				provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(e.MetricReaders(nil)[0]), sdkmetric.WithResource(e.Resource()))
				counter, err := provider.Meter("test").Int64Counter("done")
				require.NoError(t, err)
				counter.Add(ctx, 3)
				require.NoError(t, errors.Join(provider.Shutdown(t.Context()), e.Shutdown(t.Context())))

				spans := to.WaitSpans(t, func(s []otlptest.Span) bool { return len(s) == 1 })
				if s := spans[0]; s.Name != "work" || s.Service != "shop" || s.Instance != "n1" {
					t.Errorf("span %+v", s)
				}
				to.WaitPoints(t, func(p []otlptest.Point) bool {
					return slices.ContainsFunc(p, func(p otlptest.Point) bool { return p.Metric == "done" && p.Value == 3 && p.Service == "shop" })
				})
				r := to.WaitRecord(t, func(r otlptest.Record) bool { return r.Body == "under way" })
				if r.Ref != spans[0].Ref || r.Severity != "INFO" || r.Attributes["n"] != "1" {
					t.Errorf("record %+v, want one of span %v", r, spans[0].Ref)
				}
				if n := len(to.Records()); n != 1 {
					t.Errorf("%d records, want the one that the level lets through", n)
				}
				if strings.Contains(said.String(), "OpenTelemetry") || !strings.Contains(said.String(), "under way") {
					t.Errorf("the log says %s", said)
				}
			})
		}
	}
}

func TestSamplerOfTheEnvironment(t *testing.T) {
	to := otlptest.Start(t)
	setenv(t, append(to.Env(otlptest.HTTP), "OTEL_TRACES_SAMPLER=always_off"))
	_, span := open1(t, slog.New(slog.DiscardHandler)).Tracer().Start(t.Context(), "work")
	if span.IsRecording() {
		t.Error("a span is recorded")
	}
}

// nobody is an address that refuses connections, or takes them and never says a word.
func nobody(t *testing.T, silent bool) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	if silent {
		t.Cleanup(func() { ln.Close() })
	} else {
		ln.Close()
	}
	return "http://" + ln.Addr().String()
}

func TestReceiverThatIsDown(t *testing.T) {
	for _, protocol := range []string{otlptest.GRPC, otlptest.HTTP} {
		for _, silent := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s silent=%v", strings.ReplaceAll(protocol, "/", "-"), silent), func(t *testing.T) {
				setenv(t, append(otlptest.EnvFor(protocol, nobody(t, silent)), "OTEL_BSP_MAX_QUEUE_SIZE=10", "OTEL_EXPORTER_OTLP_TIMEOUT=60000"))
				log, said := text(slog.LevelInfo)
				e := open1(t, log)
				for range 50 {
					_, span := e.Tracer().Start(t.Context(), "work")
					span.End()
				}
				e.Logger(log).Info("hello")

				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				defer cancel()
				if err := e.Shutdown(ctx); silent && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("Shutdown: %v, want that it took too long", err)
				}
				for _, want := range []string{"traces cannot be sent", "logs cannot be sent", "dropped="} {
					if !strings.Contains(said.String(), want) {
						t.Errorf("the log does not say %q: %s", want, said)
					}
				}
				if n := strings.Count(said.String(), "OpenTelemetry"); n > 5 {
					t.Errorf("%d lines: %s", n, said)
				}
			})
		}
	}
}

func TestConsole(t *testing.T) {
	bare(t)
	t.Setenv("OTEL_TRACES_EXPORTER", "console")
	var console bytes.Buffer
	log := slog.New(slog.DiscardHandler)
	e, err := Open(t.Context(), Config{Service: "program", Log: log, Console: &console})
	require.NoError(t, err)
	_, span := e.Tracer().Start(t.Context(), "work")
	span.End()
	require.NoError(t, e.Shutdown(t.Context()))
	if !strings.Contains(console.String(), `"Name":"work"`) || e.MetricReaders(nil) != nil || e.Logger(log) != log {
		t.Errorf("the console has %s", &console)
	}
}
