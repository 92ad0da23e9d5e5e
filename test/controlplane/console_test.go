package controlplane

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/browsertest"
	"github.com/sluice-bus/sluice/test/testkit"
)

const topic = "orders.created"

// TestConsoleUnderLoad changes limits in a browser while three sidecars publish by them: a change
// is seen to arrive, and the graph to move.
func TestConsoleUnderLoad(t *testing.T) {
	t.Parallel()
	control := testkit.StartControlPlane(t)
	stop := make(chan struct{})
	var publishers sync.WaitGroup
	for i := range 3 {
		p := testkit.StartSidecar(t, t.TempDir(), "--control-plane", control.XDS(), "--node-id", []string{"s1", "s2", "s3"}[i])
		publishers.Go(func() { publish(p.URL(), stop) })
	}
	defer publishers.Wait()
	defer close(stop)
	browsertest.Run(t, browsertest.Target{
		URL: control.URL(), Topic: topic, Shots: "real-fleet",
		Only: "the topics page shows|a limit is changed, arrives everywhere|a topic is paused",
	})
}

// TestConsoleEvents reads and publishes events in a browser.
func TestConsoleEvents(t *testing.T) {
	t.Parallel()
	control := testkit.StartControlPlane(t, "--trace-url", "https://traces.example/trace/{trace_id}")
	testkit.StartSidecar(t, t.TempDir(), "--control-plane", control.XDS())
	browsertest.Run(t, browsertest.Target{Script: "events.mjs", URL: control.URL(), Topic: topic, Shots: "events"})
}

// publish publishes 150 events a second in batches until stop is closed, and minds no refusal. Each
// batch has a connection's limit to itself.
func publish(url string, stop <-chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		h := &admin.HTTP{AppURL: url}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, _ = h.PublishBatch(ctx, topic, slices.Repeat([]wire.Event{{Payload: []byte(`{}`)}}, 15)) // a refusal is what it is for
		cancel()
		h.CloseIdle()
	}
}
