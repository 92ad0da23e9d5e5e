package fleet

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/otlptest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	tracedTopic = "orders.created"
	traceID     = "0af7651916cd43dd8448eb211c80319c"
	publisher   = "b7ad6b7169203331" // the span that publishes
	parent      = "00-" + traceID + "-" + publisher + "-01"
)

// pair is two sidecars on one store, which send their spans to one receiver. The first knows the
// second as a peer.
type pair struct {
	*otlptest.Receiver
	first, second *testkit.Sidecar
}

// startPair starts both with policies; "" for the defaults.
func startPair(t *testing.T, protocol, policies string) *pair {
	t.Helper()
	p := &pair{Receiver: otlptest.Start(t)}
	for _, v := range p.Env(protocol) {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	dir := t.TempDir()
	db := mongotest.Shared(t)
	args := []string{"--store", db.URI(db.NewDatabase(t)), "--lease", "3s"}
	if policies != "" {
		file := filepath.Join(dir, "policies.yaml")
		require.NoError(t, os.WriteFile(file, []byte(policies), 0o600))
		args = append(args, "--policies", file)
	}
	p.second = testkit.StartSidecar(t, filepath.Join(dir, "b"), append(args, "--node-id", "b")...)
	p.first = testkit.StartSidecar(t, filepath.Join(dir, "a"), append(args, "--node-id", "a", "--peers", p.second.Replay)...)
	return p
}

// consume subscribes a group through a sidecar.
func consume(t *testing.T, p *testkit.Sidecar, topic, group string, handler sluice.Handler, opts ...option.Subscribe) {
	t.Helper()
	c, err := sluice.Dial(t.Context(), p.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Subscribe(t.Context(), topic, group, handler, append(opts, option.FromEarliest())...); err != nil {
		t.Fatal(err)
	}
}

func ack(context.Context, *sluice.Message) error { return nil }

// publish publishes over HTTP, under the publisher's span.
func publishTraced(t *testing.T, p *testkit.Sidecar, id string, headers ...string) testkit.Object {
	t.Helper()
	headers = append([]string{"Sluice-Id: " + id, "traceparent: " + parent, "tracestate: shop=1", "baggage: user=7"}, headers...)
	answer := testkit.Call(t, http.MethodPost, p.URL()+"/v1/topics/"+tracedTopic+"/events", `{"n":1}`, headers...)
	if answer.Status != http.StatusCreated {
		t.Fatalf("publish was answered %d: %s", answer.Status, answer.Body)
	}
	return answer.JSON(t)
}

// named are the spans of that name.
func named(spans []otlptest.Span, name string) []otlptest.Span {
	return slices.DeleteFunc(slices.Clone(spans), func(s otlptest.Span) bool { return s.Name != name })
}

// waitFor waits for so many spans of each name, and returns all there are.
func (p *pair) waitFor(t *testing.T, counts map[string]int) []otlptest.Span {
	t.Helper()
	return p.WaitSpans(t, func(spans []otlptest.Span) bool {
		for name, n := range counts {
			if len(named(spans, name)) < n {
				return false
			}
		}
		return true
	})
}

// From the publisher's context to the acks of two groups on two sidecars.
func TestSpansOfAnEvent(t *testing.T) {
	p := startPair(t, otlptest.GRPC, "")
	consume(t, p.first, tracedTopic, "billing", ack)
	consume(t, p.second, tracedTopic, "shipping", ack)
	publishTraced(t, p.first, "order-1")
	spans := p.waitFor(t, map[string]int{"process " + tracedTopic: 2, "settle " + tracedTopic: 2, "send " + tracedTopic: 1,
		"append " + tracedTopic: 1})

	// The commands depend on the kind of server.
	insert := named(spans, "insert events")
	spans = slices.DeleteFunc(spans, func(s otlptest.Span) bool { return s.Attributes["db.system.name"] == "mongodb" })
	want := strings.TrimPrefix(`
send orders.created (producer) sluice-sidecar/a system=sluice operation=send topic=orders.created id=order-1 seq=1 durability=store … under a span that was not received
├─ append orders.created sluice-sidecar/a system=sluice topic=orders.created batch=1
│     ⇢ send orders.created
├─ process orders.created (consumer) sluice-sidecar/a system=sluice operation=process topic=orders.created id=order-1 seq=1 group=billing attempt=1 outcome=acked
│  └─ settle orders.created (client) sluice-sidecar/a system=sluice operation=settle topic=orders.created id=order-1 seq=1 group=billing attempt=1
└─ process orders.created (consumer) sluice-sidecar/b system=sluice operation=process topic=orders.created id=order-1 seq=1 group=shipping attempt=1 outcome=acked
   └─ settle orders.created (client) sluice-sidecar/b system=sluice operation=settle topic=orders.created id=order-1 seq=1 group=shipping attempt=1
`, "\n")
	drawing := otlptest.Drawing{Services: true, ByName: true, Attributes: []string{
		"messaging.system=system", "messaging.operation.type=operation", "messaging.destination.name=topic",
		"messaging.batch.message_count=batch",
		"messaging.message.id=id", "sluice.seq=seq", "messaging.consumer.group.name=group", "sluice.attempt=attempt", "sluice.outcome=outcome",
		"sluice.durability=durability",
	}}
	if got := drawing.Tree(spans); got != want {
		t.Errorf("the spans are\n%swant\n%s", got, want)
	}
	send, batch := named(spans, "send "+tracedTopic)[0], named(spans, "append "+tracedTopic)[0]
	if send.Trace != traceID || send.Parent != publisher {
		t.Errorf("the event's span is in trace %s under %s, not the publisher's", send.Trace, send.Parent)
	}
	if len(insert) != 1 || insert[0].Parent != batch.Span || insert[0].Kind != "client" {
		t.Fatalf("the inserts below the batch are %+v", insert)
	}
	says := insert[0].Attributes
	inserts := says["db.collection.name"] == "events" && says["db.operation.name"] == "insert"
	if !inserts || says["db.namespace"] == "" || says["server.address"] == "" {
		t.Errorf("the insert below the batch says %v", says)
	}

	h := &admin.HTTP{ReplayURL: p.first.ReplayURL()}
	defer h.CloseIdle()
	page, err := h.Replay(t.Context(), sluice.ReplayQuery{Topic: tracedTopic})
	if err != nil || len(page.Events) != 1 {
		t.Fatalf("replayed %v: %v", page.Events, err)
	}
	headers := map[string]string{}
	for _, x := range page.Events[0].Headers {
		headers[x.Name] = x.Value
	}
	if headers["traceparent"] != "00-"+traceID+"-"+send.Span+"-01" || headers["tracestate"] != "shop=1" || headers["baggage"] != "user=7" {
		t.Errorf("the stored event carries %v, not the context of its span %s", headers, send.Span)
	}
}

// A handler that fails: another delivery, and in the end a dead letter, all in the publisher's
// trace.
func TestSpansOfADeadLetter(t *testing.T) {
	p := startPair(t, otlptest.HTTP, `[{name: "*", delivery: {backoff: {min: 1ms, max: 1ms}}}]`)
	consume(t, p.second, tracedTopic, "billing", func(ctx context.Context, m *sluice.Message) error {
		return m.Nack(ctx, sluice.Nack{Reason: "no stock"})
	}, option.MaxAttempts(2))
	consume(t, p.first, tracedTopic+".dlq", "undertaker", ack)
	publishTraced(t, p.first, "order-1")
	spans := p.waitFor(t, map[string]int{
		"process " + tracedTopic: 2, "settle " + tracedTopic: 2, "send " + tracedTopic + ".dlq": 1, "append " + tracedTopic + ".dlq": 1,
		"process " + tracedTopic + ".dlq": 1, "settle " + tracedTopic + ".dlq": 1, "append " + tracedTopic: 1, "send " + tracedTopic: 1,
	})
	spans = slices.DeleteFunc(spans, func(s otlptest.Span) bool { return s.Attributes["db.system.name"] == "mongodb" })
	want := strings.TrimPrefix(`
send orders.created (producer) sluice-sidecar/a … under a span that was not received
├─ append orders.created sluice-sidecar/a
│     ⇢ send orders.created
├─ process orders.created (consumer) sluice-sidecar/b attempt=1 outcome=nacked failed: no stock
│  └─ settle orders.created (client) sluice-sidecar/b attempt=1
└─ process orders.created (consumer) sluice-sidecar/b attempt=2 outcome=dead_lettered failed: no stock
   │  ⇢ process orders.created
   ├─ send orders.created.dlq (producer) sluice-sidecar/b
   │  ├─ append orders.created.dlq sluice-sidecar/b
   │  │     ⇢ send orders.created.dlq
   │  └─ process orders.created.dlq (consumer) sluice-sidecar/a attempt=1 outcome=acked
   │     └─ settle orders.created.dlq (client) sluice-sidecar/a attempt=1
   └─ settle orders.created (client) sluice-sidecar/b attempt=2
`, "\n")
	drawing := otlptest.Drawing{Services: true, ByName: true, Attributes: []string{"sluice.attempt=attempt", "sluice.outcome=outcome"}}
	if got := drawing.Tree(spans); got != want {
		t.Errorf("the spans are\n%swant\n%s", got, want)
	}
}

// A replay of the fleet is one trace across the sidecars that it asks.
func TestSpansOfAFleetReplay(t *testing.T) {
	p := startPair(t, otlptest.GRPC, "")
	publishTraced(t, p.first, "order-1")
	const asker = "00-1af7651916cd43dd8448eb211c80319d-c7ad6b7169203331-01"
	answer := testkit.Call(t, http.MethodGet, p.first.ReplayURL()+"/export?scope=fleet&topic="+tracedTopic, "", "traceparent: "+asker)
	if answer.Status != http.StatusOK || !strings.Contains(string(answer.Body), "order-1") {
		t.Fatalf("exported %d %s", answer.Status, answer.Body)
	}
	inTrace := func(s otlptest.Span) bool { return s.Trace == asker[3:35] }
	spans := p.WaitSpans(t, func(spans []otlptest.Span) bool {
		servers := 0
		for _, s := range spans {
			if inTrace(s) && s.Kind == "server" {
				servers++
			}
		}
		return servers == 2
	})
	spans = slices.DeleteFunc(spans, func(s otlptest.Span) bool {
		return !inTrace(s) || s.Attributes["db.system.name"] == "mongodb" || s.Name == "GET /peer" // asks who it is, now and then
	})
	want := strings.TrimPrefix(`
GET /export (server) sluice-sidecar/a topic=orders.created scope=fleet status=200 … under a span that was not received
└─ GET /export (client) sluice-sidecar/a status=200
   └─ GET /export (server) sluice-sidecar/b topic=orders.created scope=store status=200
`, "\n")
	drawing := otlptest.Drawing{Services: true, ByName: true, Attributes: []string{
		"messaging.destination.name=topic", "sluice.scope=scope", "http.response.status_code=status",
	}}
	if got := drawing.Tree(spans); got != want {
		t.Errorf("the spans are\n%swant\n%s", got, want)
	}
}

// A trace that the policy does not sample leaves no span. The event keeps the publisher's own
// context.
func TestSpansThePolicyDoesNotWant(t *testing.T) {
	p := startPair(t, otlptest.GRPC, `[{name: "*", tracing: {sample_ratio: 0}}, {name: seen, tracing: {sample_ratio: 1}}]`)
	got := make(chan string, 1)
	consume(t, p.second, tracedTopic, "billing", func(_ context.Context, m *sluice.Message) error {
		h, _ := m.Event.Headers.Get("traceparent")
		got <- h
		return nil
	})
	publishTraced(t, p.first, "order-1")
	select {
	case h := <-got:
		if h != parent {
			t.Errorf("delivered with %s, want the publisher's %s", h, parent)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing was delivered")
	}
	testkit.Call(t, http.MethodPost, p.first.URL()+"/v1/topics/seen/events", `1`)
	spans := p.waitFor(t, map[string]int{"send seen": 1, "append seen": 1})
	for _, s := range spans {
		if strings.Contains(s.Name, tracedTopic) || s.Trace == traceID {
			t.Errorf("recorded: %s in %s", s.Name, s.Trace)
		}
	}
}
