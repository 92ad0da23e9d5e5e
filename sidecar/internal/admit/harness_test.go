package admit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
	"github.com/sluice-bus/sluice/test/require"
)

// fakeLog answers an event by how its id begins: see outcomeOf. Topics whose names begin with
// "lost" cannot be created.
type fakeLog struct {
	gate   chan struct{} // nil: open; else an append waits for it to close
	forget bool          // what it is given, for benchmarks
	begun  chan struct{} // unless nil, gets one for each append that begins

	mu      sync.Mutex
	records []*eventlog.Record // as they came, whatever became of them
	ensured []string
}

func (l *fakeLog) EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ensured = append(l.ensured, name)
	if strings.HasPrefix(name, "lost") {
		return eventlog.Topic{}, fmt.Errorf("ensure: %w", eventlog.ErrUnavailable)
	}
	return eventlog.Topic{Name: name, Partitions: partitions}, ctx.Err()
}

func (l *fakeLog) Append(ctx context.Context, _ string, partition int, batch []*eventlog.Record) []eventlog.Outcome {
	if l.begun != nil {
		l.begun <- struct{}{}
	}
	if l.gate != nil {
		select {
		case <-l.gate:
		case <-ctx.Done():
			return slices.Repeat([]eventlog.Outcome{{Err: fmt.Errorf("append: %w", eventlog.ErrUnavailable)}}, len(batch))
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	outs := make([]eventlog.Outcome, len(batch))
	for i, r := range batch {
		if !l.forget {
			l.records = append(l.records, r)
		}
		outs[i] = outcomeOf(r, partition)
	}
	return outs
}

func outcomeOf(r *eventlog.Record, partition int) eventlog.Outcome {
	kind, _, _ := strings.Cut(r.ID, "-")
	switch kind {
	case "conflict":
		return eventlog.Outcome{Err: &eventlog.ConflictError{ID: r.ID, Seq: 7}}
	case "refused":
		return eventlog.Outcome{Err: &eventlog.RefusedError{Cause: errors.New("it is too large")}}
	case "unavailable":
		return eventlog.Outcome{Err: fmt.Errorf("append: %w", eventlog.ErrUnavailable)}
	case "away":
		return eventlog.Outcome{Err: &spool.AwayError{RetryAfter: 3 * time.Second}}
	case "nospool":
		return eventlog.Outcome{Err: &spool.FullError{Bound: "total", RetryAfter: 4 * time.Second}}
	case "waiting":
		return eventlog.Outcome{Err: &eventlog.ConflictError{ID: r.ID}}
	case "spooled":
		return eventlog.Outcome{TS: r.TS, Spooled: true}
	case "defect":
		return eventlog.Outcome{Err: errors.New("the secret detail")}
	case "duplicate":
		return eventlog.Outcome{Partition: partition, Seq: 3, TS: 42, Duplicate: true}
	}
	return eventlog.Outcome{Partition: partition, Seq: 9, TS: r.TS}
}

func (l *fakeLog) ids() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		ids = append(ids, r.ID)
	}
	return ids
}

// fixture is a Publisher on a real writer and a fakeLog, with one connection.
type fixture struct {
	*admit.Publisher
	conn    *admit.Connection
	log     *fakeLog
	writer  *writer.Writer
	current *policy.Current
	metrics *telemetry.Metrics
	logged  *bytes.Buffer
}

func parse(t testing.TB, yaml string) *policy.Snapshot {
	t.Helper()
	list, err := policy.ParseYAML([]byte(yaml))
	require.NoError(t, err)
	s, err := policy.NewSnapshot(list, "test")
	require.NoError(t, err)
	return s
}

func newFixture(t testing.TB, policies string, log *fakeLog, bounds writer.Bounds, with ...func(*fixture, *admit.Config)) *fixture {
	t.Helper()
	metrics, err := telemetry.New(telemetry.Config{})
	require.NoError(t, err)
	f := &fixture{log: log, current: policy.NewCurrent(parse(t, policies)), metrics: metrics, logged: &bytes.Buffer{}}
	f.writer = writer.New(writer.Config{Log: log, Bounds: bounds})
	t.Cleanup(func() { f.writer.Stop(context.Background()) })
	cfg := admit.Config{
		Catalog: log, Writer: f.writer, Policies: f.current, Limits: wire.DefaultLimits(),
		Metrics: metrics, Logger: slog.New(slog.NewTextHandler(f.logged, nil)),
	}
	for _, change := range with {
		change(f, &cfg)
	}
	f.Publisher = admit.New(cfg)
	f.conn = f.NewConnection()
	return f
}

// open is a fixture whose log answers at once.
func open(t testing.TB, policies string) *fixture {
	return newFixture(t, policies, &fakeLog{}, writer.DefaultBounds())
}

// answer is what became of one call.
type answer struct {
	results chan []wire.ResultItem // gets everything that done is called with
	err     *wire.Error
}

func (f *fixture) start(ctx context.Context, items ...wire.PublishItem) answer {
	a := answer{results: make(chan []wire.ResultItem, 2)}
	a.err = f.Publish(ctx, f.conn, items, func(r []wire.ResultItem) { a.results <- r })
	return a
}

// ok waits for the results of a call that was not refused whole.
func (a answer) ok(t testing.TB) []wire.ResultItem {
	t.Helper()
	if a.err != nil {
		t.Fatalf("refused: %v", a.err)
	}
	return <-a.results
}

// publish publishes and returns one word per item: its code, "ok" or "duplicate".
func (f *fixture) publish(t testing.TB, items ...wire.PublishItem) []string {
	t.Helper()
	a := f.start(t.Context(), items...)
	if a.err != nil {
		return []string{"all " + string(a.err.Code)}
	}
	return words(a.ok(t))
}

func words(results []wire.ResultItem) (out []string) {
	for _, r := range results {
		switch {
		case r.Err != nil:
			out = append(out, string(r.Err.Code))
		case r.Receipt.Duplicate:
			out = append(out, "duplicate")
		default:
			out = append(out, "ok")
		}
	}
	return out
}

// item is an event with a payload of ten bytes.
func item(topic, id string) wire.PublishItem {
	return wire.PublishItem{Event: wire.Event{Topic: topic, ID: id, Payload: []byte(`"12345678"`)}}
}

// items are n of them, with ids that the sidecar makes.
func items(topic string, n int) []wire.PublishItem {
	return slices.Repeat([]wire.PublishItem{item(topic, "")}, n)
}

func (f *fixture) wantTokens(t testing.TB, topic string, connection, events, bytes int) {
	t.Helper()
	if c, e, b := f.Tokens(f.conn, topic); c != connection || e != events || b != bytes {
		t.Errorf("%d, %d and %d tokens of the connection, topic and bytes are left; want %d, %d and %d",
			c, e, b, connection, events, bytes)
	}
}

// counted returns the lines of /metrics about publishing that are not zero.
func (f *fixture) counted() (lines []string) {
	rec := httptest.NewRecorder()
	f.metrics.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(rec.Body.String()) {
		line = strings.TrimSpace(line)
		name, _, _ := strings.Cut(line, "{")
		counter := strings.HasPrefix(name, "sluice_events_") || name == "sluice_publish_duration_seconds_count"
		if counter && !strings.HasSuffix(line, " 0") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// small are limits that tests can use up: 20 events of the connection, 10 of topics a…, which also
// take 8 MiB and then 1000 bytes a second.
const small = `[
  {name: "*", connection: {rate: 1, burst: 20}},
  {name: "a*", publish: {rate: 2, burst: 10, bytes_per_second: 1000}},
  {name: paused, paused: true},
]`

// fullBytes is what a byte bucket holds: the largest batch.
const fullBytes = 8 << 20
