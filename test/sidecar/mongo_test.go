package sidecar

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	// patience is how long anything may take on a loaded machine.
	patience = time.Minute
	// lease is short, since the tests wait for some to run out.
	shortLease = 2 * time.Second
	// storeTimeout keeps a slow store from counting as one that is away.
	storeTimeout = 30 * time.Second
)

// database is a database of the test's own.
type database struct {
	*mongo.Database
	uri string
}

func newDatabase(t *testing.T) database {
	t.Helper()
	server := mongotest.Shared(t)
	name := server.NewDatabase(t)
	uri := server.URI(name)
	client, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	t.Cleanup(func() {
		if err := client.Disconnect(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return database{client.Database(name), uri}
}

// startShared starts a sidecar on a shared store.
func startShared(t *testing.T, dir, node string, db database, args ...string) *testkit.Sidecar {
	t.Helper()
	return testkit.StartSidecar(t, filepath.Join(dir, node), append([]string{
		"--store", db.uri, "--node-id", node, "--lease", shortLease.String(), "--store-timeout", storeTimeout.String(),
	}, args...)...)
}

func stop(t *testing.T, p *testkit.Sidecar) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.Stop(ctx); err != nil {
		t.Errorf("a sidecar did not stop gracefully: %v\n%s", err, p.Log())
	}
}

// quiet checks that a sidecar's log has no lines of errors, except for some.
func quiet(t *testing.T, p *testkit.Sidecar, but ...string) {
	t.Helper()
lines:
	for line := range strings.Lines(p.Log()) {
		if !strings.Contains(line, "level=ERROR") {
			continue
		}
		for _, b := range but {
			if strings.Contains(line, b) {
				continue lines
			}
		}
		t.Errorf("a sidecar's log has %s", line)
	}
}

// await polls until state returns ""; until then state says what is missing.
func await(t *testing.T, state func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		missing := state()
		if missing == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it has not come to pass: %s", missing)
		}
		pause.For(t.Context(), 50*time.Millisecond)
	}
}

func client(t *testing.T, p *testkit.Sidecar) *admin.HTTP {
	t.Helper()
	h := &admin.HTTP{AppURL: p.URL(), ReplayURL: p.ReplayURL(), OpsURL: p.OpsURL()}
	t.Cleanup(h.CloseIdle)
	return h
}

func exportTopic(t *testing.T, h *admin.HTTP, topic string) []wire.Event {
	t.Helper()
	var events []wire.Event
	for e, err := range h.Export(t.Context(), sluice.ExportQuery{Topic: topic}) {
		if err != nil {
			t.Fatalf("export of %s: %v", topic, err)
		}
		events = append(events, e)
	}
	return events
}

// metrics returns a sidecar's metrics, as Prometheus reads them.
func metrics(t *testing.T, p *testkit.Sidecar) string {
	t.Helper()
	resp, err := http.Get(p.OpsURL() + "/metrics")
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(text)
}

// metric is the sum of the samples of one metric whose labels have all of the parts.
func metric(t *testing.T, p *testkit.Sidecar, name string, labels ...string) float64 {
	t.Helper()
	sum := 0.0
samples:
	for line := range strings.Lines(metrics(t, p)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(series, l) {
				continue samples
			}
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatalf("metric %q: %v", line, err)
		}
		sum += n
	}
	return sum
}
