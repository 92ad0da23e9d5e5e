package outbox

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/require"
)

func TestDrainsEachDocumentOnceInOrder(t *testing.T) {
	for _, drainers := range []int{1, 3} {
		t.Run(fmt.Sprint(drainers), func(t *testing.T) {
			a := newApp(t)
			a.insert(many(0, 150)...)
			var all []*member
			for i := range drainers {
				all = append(all, a.startIn(fmt.Sprint("node-", i)))
			}
			sum := func(of func(Stats) int64) (sum int64) {
				for _, m := range all {
					sum += of(m.Stats())
				}
				return sum
			}
			published := func(s Stats) int64 { return s.Published }
			a.until("the shards are to be shared", func() bool {
				return !slices.ContainsFunc(all, func(m *member) bool { return m.Stats().Shards == 0 || m.Stats().Shards == Shards && drainers > 1 }) &&
					sum(func(s Stats) int64 { return int64(s.Shards) }) == Shards
			})
			a.untilStatus(statusDone, 150)
			a.until("nothing is to be pending", func() bool { return sum(func(s Stats) int64 { return s.Pending }) == 0 })
			before := sum(published)
			a.insert(many(150, 150)...)
			a.untilStatus(statusDone, 300)
			if events, _ := a.log.count(); events != 300 {
				t.Errorf("%d events of 300 documents", events)
			}
			a.inKeyOrder()
			for _, m := range all {
				m.stop()
			}
			if n := sum(published) - before; n != 150 {
				t.Errorf("the drainers say that they published %d documents of 150 since they knew of each other", n)
			}
			for _, d := range a.documents() {
				if d.Seq == 0 || d.Partition == nil || d.DoneAt.IsZero() || d.Error != "" {
					t.Fatalf("marked as %+v", d)
				}
			}
		})
	}
}

// TestSuccessor: a drainer that is cut off, with work under way, loses its shards to another one,
// which publishes documents without a mark again.
func TestSuccessor(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	proxy := faultproxy.New(t, a.server.Addr())
	via := func(c *Config) { c.URL = a.server.URIVia(proxy.Addr(), a.name) }
	a.insert(many(0, 200)...)
	// The first drainer cannot mark what it publishes.
	a.log.set(func(f *fakeLog) {
		f.refuse = func(*wire.Event) *wire.Error {
			if len(f.events) == 150 {
				proxy.Down()
				return refusal(wire.StoreUnavailable)
			}
			return nil
		}
	})
	first := a.start(via)
	a.until("150 events are to be published", func() bool { n, _ := a.log.count(); return n == 150 })
	a.until("the server is to be gone", func() bool { return first.Stats().Shards == 0 })
	first.stop()
	if n := a.statuses()[statusDone]; n != 0 {
		t.Fatalf("%d documents are done", n)
	}
	a.log.set(func(f *fakeLog) { f.refuse = nil })
	a.start()
	a.untilStatus(statusDone, 200)
	a.inKeyOrder()
	if events, duplicates := a.log.count(); events != 200 || duplicates < 150 {
		t.Errorf("%d events and %d duplicates of 200 documents, 150 of which were published but not marked", events, duplicates)
	}
}

// TestPausedOwner: a drainer that is stopped between looking at its shards and publishing, past its
// lease, and goes on: at most its call comes once more.
func TestPausedOwner(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.insert(many(0, 200)...)
	proxy := faultproxy.New(t, a.server.Addr())
	frozen, wake := make(chan struct{}), make(chan struct{})
	held := &pausedLog{fakeLog: a.log, frozen: frozen, wake: wake}
	first := a.startIn("first", func(c *Config) {
		c.URL = a.server.URIVia(proxy.Addr(), a.name)
		c.Publisher = held
	})
	<-frozen
	first.away.Store(true)
	proxy.Pause(faultproxy.Both)
	second := a.startIn("second")
	a.untilStatus(statusDone, 200)
	a.insert(many(200, 50)...)
	a.untilStatus(statusDone, 250)
	close(wake)
	first.away.Store(false)
	proxy.Resume(faultproxy.Both)
	a.until("both are to have shards", func() bool { return first.Stats().Shards > 0 && second.Stats().Shards < Shards })
	a.insert(many(250, 50)...)
	a.untilStatus(statusDone, 300)
	a.inKeyOrder()
	if events, duplicates := a.log.count(); events != 300 || duplicates == 0 || duplicates > 200 {
		t.Errorf("%d events and %d duplicates of 300 documents", events, duplicates)
	}
}

// pausedLog holds the first call of each topic until it may wake.
type pausedLog struct {
	*fakeLog
	frozen, wake chan struct{}
}

func (p *pausedLog) Publish(ctx context.Context, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	select {
	case p.frozen <- struct{}{}:
	default:
	}
	<-p.wake
	return p.fakeLog.Publish(ctx, items, done)
}

// TestServerAway: the drainer goes on when the server is back.
func TestServerAway(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	proxy := faultproxy.New(t, a.server.Addr())
	proxy.Down()
	r := a.start(func(c *Config) { c.URL = a.server.URIVia(proxy.Addr(), a.name) })
	a.until("it is to notice", func() bool { return r.Stats().State != "ok" })
	a.insert(many(0, 50)...)
	proxy.Up()
	a.untilStatus(statusDone, 50)
	proxy.Cut()
	a.insert(many(50, 50)...)
	a.untilStatus(statusDone, 100)
	a.until("it is to be well", func() bool { return r.Stats().State == "ok" })
	a.inKeyOrder()
}

// TestRefusedForGood: such documents become errors and let the others pass.
func TestRefusedForGood(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.log.refuse = func(e *wire.Event) *wire.Error {
		if strings.HasPrefix(e.ID, "bad") {
			return refusal(wire.SchemaViolation)
		}
		return nil
	}
	a.insert(
		keyed("a", "t", "k", 1), keyed("bad", "t", "k", 2), keyed("c", "t", "k", 3),
		bson.D{{Key: "_id", Value: "no-topic"}, {Key: "payload", Value: 1}, {Key: "key", Value: "k"}},
		bson.D{{Key: "_id", Value: "no-payload"}, {Key: "topic", Value: "t"}},
		bson.D{{Key: "_id", Value: "reserved"}, {Key: "topic", Value: "_x"}, {Key: "payload", Value: 1}},
	)
	r := a.start()
	a.untilStatus(statusError, 4)
	a.untilStatus(statusDone, 2)
	if got := a.log.ids("t", "k"); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("published %v", got)
	}
	for id, says := range map[string]string{
		"bad": "schema_violation: as the test wants it", "no-topic": "bad_request: topic is missing",
		"no-payload": "payload is missing", "reserved": "reserved",
	} {
		if d := a.document(id); !strings.Contains(d.Error, says) || d.Attempts != 1 || d.FailedAt.IsZero() {
			t.Errorf("%s: %+v, which should say %q", id, d, says)
		}
	}
	if s := r.Stats(); s.Errors != 4 || s.Published != 2 {
		t.Errorf("%+v", s)
	}
}

// TestRefusedForNow: nothing overtakes documents that have to wait, no attempt counts, and other
// topics go on.
func TestRefusedForNow(t *testing.T) {
	for _, code := range []wire.Code{wire.RateLimited, wire.Overloaded, wire.StoreUnavailable, wire.TopicPaused, wire.NotFound, wire.InUse} {
		for _, whole := range []bool{false, true} {
			t.Run(fmt.Sprint(code, " whole ", whole), func(t *testing.T) {
				t.Parallel()
				a := newApp(t)
				turn := 0
				refuse := func(topic string) *wire.Error {
					if turn++; topic == "slow" && turn%3 != 0 {
						err := refusal(code)
						err.RetryAfter = 20 * time.Millisecond
						return err
					}
					return nil
				}
				if whole {
					a.log.whole = func(items []wire.PublishItem) *wire.Error { return refuse(items[0].Event.Topic) }
				} else {
					a.log.refuse = func(e *wire.Event) *wire.Error { return refuse(e.Topic) }
				}
				var docs []bson.D
				for i := range 40 {
					docs = append(docs, keyed(fmt.Sprintf("s%03d", i), "slow", fmt.Sprint("k", i%4), int64(i+1)),
						keyed(fmt.Sprintf("f%03d", i), "fast", "k", int64(i+1)))
				}
				a.insert(docs...)
				a.start()
				a.untilStatus(statusDone, 80)
				a.inKeyOrder()
				for _, d := range a.documents() {
					if d.Attempts != 0 || d.Error != "" {
						t.Fatalf("%+v", d)
					}
				}
			})
		}
	}
}

// TestPausedTopicBlocksNobodyElse, however many documents of it are in front.
func TestPausedTopicBlocksNobodyElse(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.log.refuse = func(e *wire.Event) *wire.Error {
		if e.Topic == "paused" {
			return refusal(wire.TopicPaused)
		}
		return nil
	}
	var docs []bson.D
	for i := range 1100 {
		docs = append(docs, keyed(fmt.Sprintf("p%04d", i), "paused", "k", 1))
	}
	a.insert(append(docs, many(0, 20)...)...)
	r := a.start()
	a.untilStatus(statusDone, 20)
	a.until("the pending ones are to be counted", func() bool { return r.Stats().Pending == 1100 })
	a.log.set(func(f *fakeLog) { f.refuse = nil })
	a.untilStatus(statusDone, 1120)
	a.inKeyOrder()
}

// TestTopicIsMissing: documents of a topic that may not be made wait until an operator makes it,
// and the state says so.
func TestTopicIsMissing(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.log.refuse = func(e *wire.Event) *wire.Error {
		if e.Topic == "missing" {
			return refusal(wire.NotFound)
		}
		return nil
	}
	a.insert(keyed("a", "missing", "k", 1), keyed("b", "missing", "k", 2), keyed("c", "missing", "", 3), keyed("d", "t", "k", 4))
	r := a.start()
	a.untilStatus(statusDone, 1)
	a.until("the state is to name the refusal", func() bool { return strings.Contains(r.Stats().State, "not_found: as the test wants it") })
	pause.For(t.Context(), 3*time.Second)
	for _, id := range []string{"a", "b", "c"} {
		if d := a.document(id); d.Status != statusPending || d.Error != "" {
			t.Errorf("%s is %+v", id, d)
		}
	}
	a.log.set(func(f *fakeLog) { f.refuse = nil })
	a.untilStatus(statusDone, 4)
	a.until("it is to be well", func() bool { return r.Stats().State == "ok" })
	a.inKeyOrder()
}

// TestBurst: a call that is larger than the publisher takes is made smaller.
func TestBurst(t *testing.T) {
	a := newApp(t)
	a.log.whole = func(items []wire.PublishItem) *wire.Error {
		if len(items) > 7 {
			return refusal(wire.BadRequest)
		}
		return nil
	}
	a.insert(many(0, 100)...)
	a.start()
	a.untilStatus(statusDone, 100)
	a.inKeyOrder()
}

// TestUnclear: after an internal error a document is tried again, while its key waits, and becomes
// an error after the attempts.
func TestUnclear(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.log.refuse = func(e *wire.Event) *wire.Error {
		if e.ID == "b" || e.ID == "keyless" {
			return refusal(wire.Internal)
		}
		return nil
	}
	failed := bson.E{Key: "attempts", Value: maxAttempts - 2} // so that the test takes seconds
	a.insert(keyed("a", "t", "k", 1), append(keyed("b", "t", "k", 2), failed), keyed("c", "t", "k", 3), keyed("other", "t", "x", 4),
		append(keyed("keyless", "t", "", 5), failed))
	a.start()
	a.until("the first try is to be noted", func() bool {
		d := a.document("b")
		return d.Attempts == maxAttempts-1 && d.Status == statusPending
	})
	a.untilStatus(statusDone, 3)
	a.untilStatus(statusError, 2)
	if got := a.log.ids("t", "k"); !slices.Equal(got, []string{"a", "c"}) {
		t.Errorf("published %v", got)
	}
	if d := a.document("b"); d.Attempts != maxAttempts || d.Error != "internal: as the test wants it" {
		t.Errorf("%+v", d)
	}
	// An operator has it tried once more.
	a.log.set(func(f *fakeLog) { f.refuse = nil })
	_, err := a.coll.UpdateOne(t.Context(), byID("b"), bson.D{{Key: "$set", Value: bson.D{{Key: "status", Value: "pending"}}}})
	require.NoError(t, err)
	a.untilStatus(statusDone, 4)
	if d := a.document("b"); d.Error != "" || !d.FailedAt.IsZero() || d.Seq == 0 {
		t.Errorf("%+v", d)
	}
}

// TestOneOfAKeyInACall: the publisher may refuse the first and take the second.
func TestOneOfAKeyInACall(t *testing.T) {
	a := newApp(t)
	var docs []bson.D
	for i := range 30 {
		docs = append(docs, keyed(fmt.Sprintf("e%02d", i), "t", "k", int64(i+1)))
	}
	a.insert(docs...)
	a.start()
	a.untilStatus(statusDone, 30)
	a.inKeyOrder()
	a.log.set(func(f *fakeLog) {
		if f.calls != 30 {
			t.Errorf("%d calls for 30 documents of one key", f.calls)
		}
	})
}

func TestAllKindsOfID(t *testing.T) {
	a := newApp(t)
	ids := map[any]string{
		"text": "text", someID: someID.Hex(), int32(7): "7", int64(1) << 40: "1099511627776", 2.0: "2",
	}
	for id := range ids {
		a.insert(keyed(id, "t", "", 0))
	}
	uuid := bson.Binary{Subtype: 4, Data: []byte("0123456789abcdef")}
	a.insert(keyed(uuid, "t", "", 0), append(keyed("inner", "t", "", 0), bson.E{Key: "id", Value: "own"}))
	a.start()
	a.untilStatus(statusDone, len(ids)+2)
	want := []string{"30313233-3435-3637-3839-616263646566", "own"}
	for _, id := range ids {
		want = append(want, id)
	}
	got := a.log.ids("t", "")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("published %v, not %v", got, want)
	}
}

// TestLateInsert: an older ts that becomes visible late is drained all the same.
func TestLateInsert(t *testing.T) {
	t.Parallel()
	a := newApp(t)
	a.insert(keyed("new", "t", "k", 2000))
	a.start()
	a.untilStatus(statusDone, 1)
	a.insert(keyed("old", "t", "k", 1000))
	a.untilStatus(statusDone, 2)
}

// TestOrderWithoutTS is that of the _id.
func TestOrderWithoutTS(t *testing.T) {
	a := newApp(t)
	a.insert(keyed("c", "t", "k", 0), keyed("a", "t", "k", 0), keyed("b", "t", "k", 5), keyed("d", "t", "k", 4))
	a.start()
	a.untilStatus(statusDone, 4)
	if got := a.log.ids("t", "k"); !slices.Equal(got, []string{"a", "c", "d", "b"}) {
		t.Errorf("published %v", got)
	}
}

func TestSettings(t *testing.T) {
	someLog := func() string { return "log" }
	for _, c := range []struct {
		config Config
		says   string
	}{
		{Config{URL: "http://x", Collection: "outbox", Publisher: newFakeLog(), LogID: someLog}, "outbox: "},
		{Config{URL: "mongodb://x/app", Publisher: newFakeLog(), LogID: someLog}, "collection"},
		{Config{URL: "mongodb://x/app", Collection: "outbox", LogID: someLog}, "publisher"},
		{Config{URL: "mongodb://x/app", Collection: "outbox", Publisher: newFakeLog()}, "which log"},
	} {
		if _, err := New(c.config); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, which should say %q", c.config, err, c.says)
		}
	}
	d, err := New(Config{URL: "mongodb://user:secret@x", Collection: "outbox", Publisher: newFakeLog(), LogID: someLog,
		Logger: slog.Default(), Roster: roster.Alone("node")})
	if err != nil || d.Stats().Outbox != "sluice.outbox" {
		t.Errorf("%v, %v", d, err)
	}
}

// TestLargeDocuments: with a part of the shards, documents are read whole by as many as fit into a
// page.
func TestLargeDocuments(t *testing.T) {
	a := newApp(t)
	first, second := a.startIn("first"), a.startIn("second")
	a.until("the shards are to be shared", func() bool {
		return first.Stats().Shards > 0 &&
			first.Stats().Shards+second.Stats().Shards == Shards
	})
	text := strings.Repeat("x", 900<<10)
	for i := range 24 {
		doc := keyed(fmt.Sprintf("e%02d", i), "t", fmt.Sprint("k", i%3), int64(i+1))
		a.insert(append(doc[:2:2], append(doc[3:], bson.E{Key: "payload", Value: text})...))
	}
	a.untilStatus(statusDone, 24)
	a.inKeyOrder()
}
