package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// captured is an application's collection that a sidecar captures.
type captured struct {
	*testing.T
	coll *mongo.Collection
	did  map[string][]string // the operations on each document, in order
	n    int                 // all of them
}

// change inserts, updates, replaces and deletes documents, round after round.
func (c *captured) change(rounds int) {
	c.Helper()
	ctx := context.Background()
	for range rounds {
		key := fmt.Sprint("order-", c.n%7)
		byKey := bson.D{{Key: "_id", Value: key}}
		number := bson.E{Key: "n", Value: c.n}
		op, err := [...]string{"insert", "update", "replace", "delete"}[len(c.did[key])%4], error(nil)
		switch op {
		case "insert":
			_, err = c.coll.InsertOne(ctx, append(byKey, number))
		case "update":
			_, err = c.coll.UpdateOne(ctx, byKey, bson.D{{Key: "$set", Value: bson.D{number}}})
		case "replace":
			_, err = c.coll.ReplaceOne(ctx, byKey, bson.D{number})
		case "delete":
			_, err = c.coll.DeleteOne(ctx, byKey)
		}
		require.NoError(c, err)
		c.did[key] = append(c.did[key], op)
		c.n++
	}
}

// isIn checks that each change is in the topic once, and those of a document in their order.
func (c *captured) isIn(p *testkit.Sidecar, topic string) {
	c.Helper()
	var events []wire.Event
	await(c.T, func() string {
		if events = exportTopic(c.T, client(c.T, p), topic); len(events) < c.n {
			return fmt.Sprintf("%d of %d changes are in the topic", len(events), c.n)
		}
		return ""
	})
	slices.SortFunc(events, func(a, b wire.Event) int { return int(a.Seq) - int(b.Seq) }) // all events of a key are in one partition
	got := map[string][]string{}
	for _, e := range events {
		op, _ := e.Headers.Get("sluice-capture-op")
		got[e.Key] = append(got[e.Key], op)
		if (op == "delete") != (string(e.Payload) == "null") {
			c.Errorf("a %s has the payload %s", op, e.Payload)
		}
	}
	for key, want := range c.did {
		if !slices.Equal(got[key], want) {
			c.Errorf("%s: the topic has %q, want %q", key, got[key], want)
		}
	}
	if len(got) != len(c.did) {
		c.Errorf("%d keys, want %d", len(got), len(c.did))
	}
}

type captureStatus struct {
	State           string
	Active, Stopped bool
}

func statusOfCapture(t *testing.T, p *testkit.Sidecar) captureStatus {
	t.Helper()
	text, err := client(t, p).StatusJSON(t.Context())
	require.NoError(t, err)
	var status struct{ Captures []captureStatus }
	if err := json.Unmarshal(text, &status); err != nil || len(status.Captures) != 1 {
		t.Fatalf("%v in the status %s", err, text)
	}
	return status.Captures[0]
}

// TestCapture kills the sidecar that captures a changing collection, again and again. The other
// sidecar goes on, each change is in the topic once, and the changes of a document are in their
// order.
func TestCapture(t *testing.T) {
	db, dir := newDatabase(t), t.TempDir()
	c := &captured{T: t, coll: db.Collection("orders"), did: map[string][]string{}}
	start := func(node string) *testkit.Sidecar {
		return startShared(t, dir, node, db, "--capture", db.Name()+".orders=orders")
	}
	nodes := map[string]*testkit.Sidecar{"a": start("a"), "b": start("b")}
	active := func() (node string) {
		t.Helper()
		await(t, func() string {
			var all []string
			for name, p := range nodes {
				if s := statusOfCapture(t, p); s.Active && s.State == "ok" {
					all, node = append(all, name), name
				}
			}
			if len(all) != 1 {
				return fmt.Sprintf("one sidecar captures, and not %q", all)
			}
			return ""
		})
		return node
	}
	for range 3 {
		node := active()
		c.change(40)
		nodes[node].Kill()
		c.change(40)
		nodes[node] = start(node)
	}
	c.change(10)
	c.isIn(nodes["a"], "orders")
	for _, p := range nodes {
		quiet(t, p)
	}
	if n := metric(t, nodes[active()], "sluice_capture_published_total", `topic="orders"`); n == 0 {
		t.Error("no metric counts the changes")
	}
}

// TestCaptureIntoAnEmbeddedLog has the place in the data folder. A sidecar publishes the changes
// that were made while it was down when it starts again. A re-read makes it
// publish everything once more.
func TestCaptureIntoAnEmbeddedLog(t *testing.T) {
	t.Parallel()
	db, dir := newDatabase(t), t.TempDir()
	c := &captured{T: t, coll: db.Collection("orders"), did: map[string][]string{}}
	start := func() *testkit.Sidecar {
		p := testkit.StartSidecar(t, filepath.Join(dir, "data"), "--capture", db.uri+"#orders=orders")
		await(t, func() string {
			if s := statusOfCapture(t, p); s.State != "ok" {
				return "the capture is to be ok: " + s.State
			}
			return ""
		})
		return p
	}
	p := start()
	c.change(30)
	c.isIn(p, "orders")
	p.Kill()
	c.change(30)
	p = start()
	c.isIn(p, "orders")
	quiet(t, p)
	stop(t, p)

	documents, err := c.coll.CountDocuments(t.Context(), bson.D{})
	require.NoError(t, err)
	p = start()
	post(t, p.URL()+"/v1/captures/orders/reread", "", http.StatusAccepted)
	post(t, p.URL()+"/v1/captures/products/reread", "", http.StatusNotFound)
	for range 2 {
		await(t, func() string {
			if n := len(exportTopic(t, client(t, p), "orders")); n != c.n+int(documents) {
				return fmt.Sprintf("%d events, want %d changes and %d documents", n, c.n, documents)
			}
			return ""
		})
		stop(t, p)
		p = start()
	}
}

// TestCaptureSettings tries invalid settings.
func TestCaptureSettings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--capture", "shop.orders"}, []string{"capture", "shop.orders", "--store", "connection string"}},
		{[]string{"--capture", "mongodb://u:s3cr3t@127.0.0.1/shop"}, []string{"capture", "'#' and the collection"}},
		{[]string{"--capture", "mongodb://u:s3cr3t@127.0.0.1/#orders"}, []string{"capture", "names the database"}},
		{[]string{"--capture", "mongodb://u:s3cr3t@127.0.0.1/shop#orders=no topic"}, []string{"capture", "no topic", "=TOPIC"}},
		{[]string{"--capture", "mongodb://u:s3cr3t@127.0.0.1:port/shop#orders"}, []string{"capture", "port"}},
		{[]string{"--store", "mongodb://127.0.0.1/events", "--capture", "events.marks"}, []string{"capture", "events.marks", "event log itself"}},
		{[]string{"--store", "mongodb://127.0.0.1/events", "--capture", "a.b=x", "--capture", "c.d=x"}, []string{"capture", "c.d", "topic x"}},
	} {
		status, _, stderr := runToEnd(t, append([]string{"--data-dir", filepath.Join(t.TempDir(), "data"), "--listen", "127.0.0.1:0",
			"--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0"}, c.args...)...)
		for _, says := range c.says {
			if status != 2 || !strings.Contains(stderr, says) || strings.Contains(stderr, "s3cr3t") {
				t.Errorf("%q: status %d, and it should say %s: %s", c.args, status, says, stderr)
			}
		}
	}
}
