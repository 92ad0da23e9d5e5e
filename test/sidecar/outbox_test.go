package sidecar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

// refusedLine is in the log of a sidecar that gives a document up.
const refusedLine = "a document of the outbox cannot be published"

// TestTwoSidecarsDrainAnOutbox lets an application insert while one of two sidecars is killed and
// started again, and the other one stopped.
func TestTwoSidecarsDrainAnOutbox(t *testing.T) {
	const waiting, later = 160, 100 // documents inserted before the sidecars start, and after
	db := newDatabase(t)
	coll := db.Collection("outbox")
	var all []*written
	for n := range waiting {
		all = append(all, newDocument(n, false))
	}
	all = append(all, badDocuments()...)
	shuffled := append([]*written(nil), all...)
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	insert(t, coll, shuffled...)

	dir := t.TempDir()
	start := func(node string) *testkit.Sidecar {
		return startShared(t, dir, node, db, "--outbox", db.uri+"#outbox")
	}
	a, b := start("a"), start("b")
	members := newMembers(t, a)
	insertMore := func(n int) {
		for range n {
			w := newDocument(len(all), true)
			insert(t, coll, w)
			all = append(all, w)
		}
	}
	awaitStatus(t, coll, "done", 20)
	insertMore(later / 4)
	a.Kill()
	quiet(t, a, refusedLine)
	insertMore(later / 4)
	a = start("a")
	members.use(a)
	insertMore(later / 4)
	awaitStatus(t, coll, "done", waiting)
	insertMore(later / 10)
	stop(t, b)
	quiet(t, b, refusedLine)
	insertMore(later / 10)
	awaitSettled(t, coll)

	all = append(all, insertAgain(t, db, all[0])...)
	docs := read(t, coll)
	checkMarks(t, docs, all)
	h := client(t, a)
	for _, topic := range topics {
		events := exportTopic(t, h, topic)
		checkEvents(t, topic, events, docs, all)
		await(t, func() string { return members.missing(topic, events) })
	}
	quiet(t, a, refusedLine)
	if n := metric(t, a, "sluice_outbox_published_total"); n < later/10 {
		t.Errorf("sluice_outbox_published_total is %v", n)
	}
	t.Logf("%v events came again after the kill", metric(t, a, "sluice_events_duplicate_total"))
}

// insertAgain inserts a document whose event is in the topic: once unchanged, which the same event
// settles, and once with other content. It returns the documents that end as errors.
func insertAgain(t *testing.T, db database, first *written) []*written {
	t.Helper()
	coll := db.Collection("outbox")
	again := func(name string, fields ...bson.E) *written {
		w := &written{id: name}
		w.doc = append(bson.D{{Key: "_id", Value: name}, {Key: "id", Value: first.want.ID}}, fields...)
		for _, e := range first.doc {
			if e.Key != "_id" && e.Key != "id" && (len(fields) == 0 || e.Key != fields[0].Key) {
				w.doc = append(w.doc, e)
			}
		}
		insert(t, coll, w)
		return w
	}
	same := again("the-same")
	other := again("another", bson.E{Key: "payload", Value: "something else"})
	other.reason = "conflict: "
	awaitSettled(t, coll)
	docs := read(t, coll)
	was, is := docs[rawID(t, first.id)], docs[rawID(t, same.id)]
	if is.Status != "done" || is.Seq == nil || *is.Seq != *was.Seq || *is.Partition != *was.Partition {
		t.Errorf("the same once more is %+v; want it done as %+v", is, was)
	}
	if f := docs[rawID(t, other.id)]; !strings.Contains(f.Error, fmt.Sprintf("seq %d", *was.Seq)) {
		t.Errorf("the conflict %q does not name the stored event's seq %d", f.Error, *was.Seq)
	}
	return []*written{other}
}

// members is one member of a group on each of the topics, through all lives of a sidecar.
type members struct {
	url  atomic.Pointer[string]
	mu   sync.Mutex
	seen map[string]bool // topic/id
}

func newMembers(t *testing.T, p *testkit.Sidecar) *members {
	t.Helper()
	m := &members{seen: map[string]bool{}}
	m.use(p)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			m.listen(ctx)
			pause.For(ctx, 20*time.Millisecond)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return m
}

func (m *members) use(p *testkit.Sidecar) {
	url := p.URL()
	m.url.Store(&url)
}

// listen is one connection.
func (m *members) listen(ctx context.Context) {
	c, err := sluice.DialConn(ctx, *m.url.Load(), nil)
	if err != nil {
		return
	}
	defer c.Close()
	for _, topic := range topics {
		o := &wire.SubscribeOptions{From: wire.FromEarliest, AutoAck: true}
		_, err := c.Subscribe(ctx, topic, "warehouse", o, func(ds []wire.Delivery) {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, d := range ds {
				m.seen[topic+"/"+d.Event.ID] = true
			}
		})
		if err != nil {
			return
		}
	}
	select {
	case <-c.Done():
	case <-ctx.Done():
	}
}

// missing says how many of the events the group has not had yet.
func (m *members) missing(topic string, events []wire.Event) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, e := range events {
		if !m.seen[topic+"/"+e.ID] {
			n++
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %d events of %s have not reached the group", n, len(events), topic)
}

// TestOutboxOfAnEmbeddedLog drains an outbox into a log that no one shares, with one topic paused
// at first.
func TestOutboxOfAnEmbeddedLog(t *testing.T) {
	db := newDatabase(t)
	coll := db.Collection("events_to_send")
	dir := t.TempDir()
	policies := testkit.Write(t, filepath.Join(dir, "policies.yaml"), "- {name: "+topics[1]+", paused: true}\n")
	start := func() *testkit.Sidecar {
		return testkit.StartSidecar(t, filepath.Join(dir, "data"), "--policies", policies, "--lease", shortLease.String(),
			"--outbox", db.uri+"#events_to_send")
	}
	p := start()
	var free, held []*written
	for n := range 60 {
		if w := newDocument(n, true); w.want.Topic == topics[0] {
			free = append(free, w)
		} else {
			held = append(held, w)
		}
	}
	all := append(append([]*written(nil), held...), free...)
	insert(t, coll, all...)
	awaitStatus(t, coll, "done", len(free))
	await(t, func() string {
		if metric(t, p, "sluice_outbox_deferred_total", `code="topic_paused"`) == 0 {
			return "no refusal by a paused topic is counted"
		}
		return ""
	})
	p.Kill()
	p = start()
	for id, f := range read(t, coll) {
		if f.Topic == topics[1] && (f.Status != "pending" || f.Attempts != 0 || f.Error != "") {
			t.Errorf("document %q of the paused topic is %+v", id, f)
		}
	}
	testkit.Write(t, policies, "[]\n")
	awaitSettled(t, coll)
	docs := read(t, coll)
	checkMarks(t, docs, all)
	for _, topic := range topics {
		checkEvents(t, topic, exportTopic(t, client(t, p), topic), docs, all)
	}
	quiet(t, p)
}

// TestOutboxOfTwoLogs starts sidecars on an outbox that sidecars of another log drain. They are
// refused while those work, and go on once those have stopped.
func TestOutboxOfTwoLogs(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	coll := db.Collection("outbox")
	dir := t.TempDir()
	args := []string{"--lease", shortLease.String(), "--outbox", db.uri + "#outbox"}
	start := func(node string) *testkit.Sidecar {
		return testkit.StartSidecar(t, filepath.Join(dir, node), append([]string{"--node-id", node}, args...)...)
	}
	n := 0
	drains := func(p *testkit.Sidecar) {
		t.Helper()
		before := len(exportTopic(t, client(t, p), topics[0]))
		w := newDocument(2*n, true) // an even one is of the first topic
		n++
		insert(t, coll, w)
		awaitStatus(t, coll, "done", n)
		if got := len(exportTopic(t, client(t, p), topics[0])); got != before+1 {
			t.Errorf("the log has %d events after a document, and had %d before", got, before)
		}
	}
	a := start("node-a")
	drains(a)
	for node, more := range map[string][]string{"embedded": nil, "shared": {"--store", db.uri, "--store-timeout", storeTimeout.String()}} {
		all := append([]string{
			"--data-dir", filepath.Join(dir, node), "--listen", "127.0.0.1:0", "--replay-listen", "127.0.0.1:0", "--ops-listen", "127.0.0.1:0",
		}, append(args, more...)...)
		status, _, stderr := runToEnd(t, all...)
		for _, says := range []string{"outbox", `sidecar "node-a" drains it into another log`, "same shared --store"} {
			if status != 2 || !strings.Contains(stderr, says) {
				t.Errorf("%s: exit status %d, and it does not say %s: %s", node, status, says, stderr)
			}
		}
	}
	drains(a)
	a.Kill()
	a = start("node-a")
	drains(a)
	stop(t, a)
	b := start("node-b")
	drains(b)
	b.Kill()
	c := startShared(t, dir, "node-c", db, "--outbox", db.uri+"#outbox")
	drains(c)
	quiet(t, a)
	quiet(t, c)
}

// TestOperatorSetsADocumentToPending has documents tried once more: one that was done, and one that
// was an error and is corrected. A document that is an error again stays so.
func TestOperatorSetsADocumentToPending(t *testing.T) {
	db := newDatabase(t)
	coll := db.Collection("outbox")
	good, bad := newDocument(0, true), badDocuments()[0]
	all := []*written{good, bad, largeDocument()}
	insert(t, coll, all...)
	p := testkit.StartSidecar(t, filepath.Join(t.TempDir(), "data"), "--lease", shortLease.String(), "--outbox", db.uri+"#outbox")
	awaitSettled(t, coll)
	before := read(t, coll)
	checkMarks(t, before, all)

	set := func(w *written, fields ...bson.E) {
		t.Helper()
		fields = append(fields, bson.E{Key: "status", Value: "pending"})
		if _, err := coll.UpdateOne(t.Context(), bson.D{{Key: "_id", Value: w.id}}, bson.D{{Key: "$set", Value: bson.D(fields)}}); err != nil {
			t.Fatal(err)
		}
	}
	bad.reason = ""
	bad.want = wire.Event{ID: bad.id.(string), TS: began, Topic: topics[0], Key: "customer-2", Payload: []byte("1")}
	bad.hasTS = true
	set(good)
	set(bad, bson.E{Key: "topic", Value: topics[0]})
	awaitSettled(t, coll)
	docs := read(t, coll)
	checkMarks(t, docs, all)
	if was, is := before[rawID(t, good.id)], docs[rawID(t, good.id)]; *was.Seq != *is.Seq || *was.Partition != *is.Partition {
		t.Errorf("done again the document is %+v; it was %+v", is, was)
	}
	checkEvents(t, topics[0], exportTopic(t, client(t, p), topics[0]), docs, all)
}

// TestOutboxIsAway starts a sidecar whose outbox cannot be reached. It still serves, says that the
// outbox is away, and does not log the password.
func TestOutboxIsAway(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-word"
	p := testkit.StartSidecar(t, filepath.Join(t.TempDir(), "data"), "--log-level", "debug",
		"--outbox", "mongodb://app:"+secret+"@"+closedAddress(t)+"/shop?authSource=admin#outbox")
	h := client(t, p)
	if _, err := h.Publish(t.Context(), &wire.Event{Topic: topics[0], Payload: []byte("1")}); err != nil {
		t.Error(err)
	}
	await(t, func() string {
		if strings.Contains(p.Log(), "the outbox cannot be drained") {
			return ""
		}
		return "the log does not say that the outbox is away"
	})
	status, err := h.StatusJSON(t.Context())
	require.NoError(t, err)
	if !strings.Contains(string(status), "connection refused") {
		t.Errorf("the status does not say what is wrong: %s", status)
	}
	for name, text := range map[string]string{"log": p.Log(), "status": string(status), "metrics": metrics(t, p)} {
		if strings.Contains(text, secret) {
			t.Errorf("the password is in the %s:\n%s", name, text)
		}
	}
	stop(t, p)
}
