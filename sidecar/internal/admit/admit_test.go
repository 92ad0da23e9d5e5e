package admit_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// Each item has its outcome, and only events that are stored, now or before, cost tokens.
func TestOutcomesAndTokens(t *testing.T) {
	broken := func(topic string) wire.PublishItem {
		it := item(topic, "")
		it.Err = wire.Errorf(wire.PayloadTooLarge, "too large")
		return it
	}
	for _, c := range []struct {
		name  string
		items []wire.PublishItem
		want  []string
		paid  int // of the items' tokens
	}{
		{"none", nil, nil, 0},
		{"one", items("a", 1), []string{"ok"}, 1},
		{"a batch", items("a", 3), []string{"ok", "ok", "ok"}, 3},
		{"duplicates keep their tokens", []wire.PublishItem{item("a", "duplicate")}, []string{"duplicate"}, 1},
		{"a conflict", []wire.PublishItem{item("a", "conflict"), item("a", "x")}, []string{"conflict", "ok"}, 1},
		{"the store is away", []wire.PublishItem{item("a", "unavailable")}, []string{"store_unavailable"}, 0},
		{"away, and the topic does not spool", []wire.PublishItem{item("a", "away")}, []string{"store_unavailable"}, 0},
		{"the spool is full", []wire.PublishItem{item("a", "nospool"), item("a", "x")}, []string{"overloaded", "ok"}, 1},
		{"spooled", []wire.PublishItem{item("a", "spooled")}, []string{"ok"}, 1},
		{"a defect", []wire.PublishItem{item("a", "defect"), item("a", "x")}, []string{"internal", "ok"}, 1},
		{"items with their own error", []wire.PublishItem{broken("a"), item("a", "x"), broken("")},
			[]string{"payload_too_large", "ok", "payload_too_large"}, 1},
		{"nothing but errors", []wire.PublishItem{broken("a"), broken("a")}, []string{"payload_too_large", "payload_too_large"}, 0},
		{"errors do not count towards the burst", append(slices.Repeat([]wire.PublishItem{broken("a")}, 30), item("a", "x")),
			append(slices.Repeat([]string{"payload_too_large"}, 30), "ok"), 1},
		{"a paused topic", []wire.PublishItem{item("paused", "x"), item("a", "x")}, []string{"topic_paused", "ok"}, 1},
		{"a topic that cannot be created", []wire.PublishItem{item("lost", "x"), item("a", "x"), item("lost", "y")},
			[]string{"store_unavailable", "ok", "store_unavailable"}, 1},
		{"more than the topic's burst", items("a", 11), []string{"all bad_request"}, 0},
		{"more than the connection's burst", items("b", 21), []string{"all bad_request"}, 0},
		{"one topic refuses all", append(items("a2", 3), items("a", 11)...), []string{"all bad_request"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := open(t, small)
				if got := f.publish(t, c.items...); !slices.Equal(got, c.want) {
					t.Errorf("%q, want %q", got, c.want)
				}
				f.wantTokens(t, "a", 20-c.paid, 10-c.paid, fullBytes-10*c.paid)
				f.wantTokens(t, "a2", 20-c.paid, 10, fullBytes)
			})
		})
	}
}

func TestRefusalsNameTheLimit(t *testing.T) {
	for _, c := range []struct {
		name          string
		used, refused []wire.PublishItem
		want          wire.Error // Msg: a part of it
	}{
		{"a topic's events", items("a", 9), items("a", 4),
			wire.Error{Code: wire.RateLimited, Scope: "topic", RetryAfter: 3 * time.Second / 2,
				Msg: "topic a is used up (publish.rate of the policy, 2 a second): this publish has 4 events"}},
		{"the connection's", items("b", 18), items("a", 5),
			wire.Error{Code: wire.RateLimited, Scope: "connection", RetryAfter: 3 * time.Second,
				Msg: "this connection is used up (connection.rate of the policy, 1 a second): this publish has 5 events"}},
		{"the longest wait of all", append(items("a", 10), items("b", 10)...), items("a", 2),
			wire.Error{Code: wire.RateLimited, Scope: "connection", RetryAfter: 2 * time.Second, Msg: "this connection"}},
		{"a topic's bytes", large("a", fullBytes), items("a", 1),
			wire.Error{Code: wire.RateLimited, Scope: "topic", RetryAfter: 10 * time.Millisecond,
				Msg: "topic a is used up (publish.bytes_per_second of the policy, 1000 a second): this publish has 10 bytes"}},
		{"a topic's burst", nil, items("a", 11), wire.Error{Code: wire.BadRequest,
			Msg: "11 events is larger than the burst of topic a, which is 10"}},
		{"a topic's burst of bytes", nil, large("a", fullBytes+1),
			wire.Error{Code: wire.BadRequest, Msg: "8388609 bytes is larger than the burst of topic a, which is 8388608"}},
		{"the connection's burst", nil, items("b", 21), wire.Error{Code: wire.BadRequest, Msg: "burst of this connection, which is 20"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := open(t, small)
				f.start(t.Context(), c.used...).ok(t)
				got := f.start(t.Context(), c.refused...)
				if got.err == nil || !strings.Contains(got.err.Msg, c.want.Msg) {
					t.Fatalf("%v, want %v", got.err, &c.want)
				}
				if e := got.err; e.Code != c.want.Code || e.Scope != c.want.Scope || e.RetryAfter != c.want.RetryAfter {
					t.Errorf("%+v, want %+v", *e, c.want)
				}
				if got.err.Code == wire.RateLimited {
					time.Sleep(got.err.RetryAfter) // is enough
					f.start(t.Context(), c.refused...).ok(t)
				}
				if len(got.results) != 0 {
					t.Error("done was called for a call that was refused whole")
				}
			})
		})
	}
}

func large(topic string, bytes int) []wire.PublishItem {
	return []wire.PublishItem{{Event: wire.Event{Topic: topic, ID: "large", Payload: make([]byte, bytes)}}}
}

func TestErrorsOfTheLogInTheContractsWords(t *testing.T) {
	f := open(t, small)
	for id, want := range map[string]wire.Error{
		"conflict":    {Code: wire.Conflict, Seq: 7, Msg: `id "conflict" is already stored with other content at seq 7`},
		"unavailable": {Code: wire.StoreUnavailable, RetryAfter: time.Second, Msg: "under the same id"},
		"away":        {Code: wire.StoreUnavailable, RetryAfter: 3 * time.Second, Msg: "the event is not stored"},
		"nospool":     {Code: wire.Overloaded, RetryAfter: 4 * time.Second, Msg: "the spool is full"},
		"waiting":     {Code: wire.Conflict, Msg: `an event with other content has the id "waiting": it is scheduled`},
		"refused":     {Code: wire.BadRequest, Msg: "the store refuses the event: it is too large"},
		"defect":      {Code: wire.Internal, Msg: "internal error"},
	} {
		got := f.start(t.Context(), item("a", id)).ok(t)[0].Err
		if got == nil || got.Code != want.Code || got.Seq != want.Seq || got.RetryAfter != want.RetryAfter ||
			!strings.Contains(got.Msg, want.Msg) {
			t.Errorf("%s: %+v, want %+v", id, got, want)
		}
	}
	logged := f.logged.String()
	if strings.Count(logged, "\n") != 1 || !strings.Contains(logged, "topic=a") || !strings.Contains(logged, "the secret detail") {
		t.Errorf("the log says %q, want the detail of the defect alone", logged)
	}

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := f.start(ended, item("new", "x")).ok(t)[0].Err; got == nil || got.Code != wire.StoreUnavailable {
		t.Errorf("a context that ended before the topic was created: %v", got)
	}
}

func TestReceiptOfASpooledEvent(t *testing.T) {
	f := open(t, small)
	got := f.start(t.Context(), item("a", "spooled-1")).ok(t)[0]
	if r := got.Receipt; got.Err != nil || !r.Spooled || r.ID != "spooled-1" || r.TS == 0 || r.Seq != 0 {
		t.Errorf("%+v", got)
	}
	if want := `sluice_events_published_total{topic="a"} 1`; !slices.Contains(f.counted(), want) {
		t.Errorf("counted %q, want %s", f.counted(), want)
	}
}

func TestFullQueueAndStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bounds := writer.DefaultBounds()
		bounds.PartitionEvents = 2
		log := &fakeLog{gate: make(chan struct{})}
		f := newFixture(t, small, log, bounds)
		keyed := func(n int) []wire.PublishItem { // all in one partition
			out := items("a", n)
			for i := range out {
				out[i].Event.Key = "k"
			}
			return out
		}
		first := f.start(t.Context(), keyed(1)...)
		synctest.Wait() // its append is under way
		second := f.start(t.Context(), keyed(4)...)
		f.wantTokens(t, "a", 20-3, 10-3, fullBytes-3*10)
		if len(first.results)+len(second.results) != 0 {
			t.Error("answered before all outcomes are there")
		}

		// Stopping gives up at once: queued events are refused, and so are new ones.
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		f.writer.Stop(ended)
		if got := words(first.ok(t)); !slices.Equal(got, []string{"store_unavailable"}) {
			t.Errorf("the first: %q", got)
		}
		results := second.ok(t)
		if got := words(results); !slices.Equal(got, []string{"store_unavailable", "store_unavailable", "overloaded", "overloaded"}) {
			t.Errorf("the second: %q", got)
		}
		if e := results[3].Err; e.RetryAfter <= 0 || !strings.Contains(e.Msg, "partition queue is full") {
			t.Errorf("overloaded: %+v", *e)
		}
		third := f.start(t.Context(), keyed(1)...).ok(t)[0].Err
		if third == nil || third.Code != wire.StoreUnavailable || !strings.Contains(third.Msg, "shutting down") {
			t.Errorf("after the stop: %v", third)
		}
		f.wantTokens(t, "a", 20, 10, fullBytes)
	})
}

func TestOrderOfCallsIsOrderOfTheLog(t *testing.T) {
	log := &fakeLog{gate: make(chan struct{})}
	f := newFixture(t, `[{name: "*", partitions: 1, publish: {rate: 0}, connection: {rate: 0}}]`, log, writer.DefaultBounds())
	var want []string
	var answers []answer
	for i := range 50 {
		batch := make([]wire.PublishItem, 1+i%3)
		for j := range batch {
			batch[j] = item("a", fmt.Sprintf("%02d-%d", i, j))
			want = append(want, batch[j].Event.ID)
		}
		answers = append(answers, f.start(t.Context(), batch...))
	}
	close(log.gate)
	for _, a := range answers {
		a.ok(t)
	}
	if got := log.ids(); !slices.Equal(got, want) {
		t.Errorf("logged %q, want %q", got, want)
	}
}

func TestIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, `[{name: "*", partitions: 16, publish: {rate: 1, burst: 4, on_limit: wait, max_wait: 1m}}]`)
		own := item("a", "own")
		own.Event.TS, own.HasTS, own.Event.Key = 0, true, "k"
		results := f.start(t.Context(), own, item("a", ""), item("a", ""), item("a", "duplicate")).ok(t)
		accepted := time.Now().UnixMilli()
		byID := map[string]*eventlog.Record{}
		for _, r := range f.log.records {
			byID[r.ID] = r
		}
		for i, r := range results {
			rec := byID[r.Receipt.ID]
			if rec == nil {
				t.Fatalf("result %d: no event %q in the log", i, r.Receipt.ID)
			}
			if rec.AcceptedAt != accepted {
				t.Errorf("result %d: accepted at %d, want %d", i, rec.AcceptedAt, accepted)
			}
			if want := eventlog.PartitionOf(rec.Key, rec.ID, 16); rec.Partition != want || r.Receipt.Partition != want {
				t.Errorf("result %d: partition %d and %d in the receipt, want %d", i, rec.Partition, r.Receipt.Partition, want)
			}
			made := i == 1 || i == 2
			if rec.FreshID != made {
				t.Errorf("result %d: FreshID %v, want %v", i, rec.FreshID, made)
			}
			if id, err := uuid.Parse(rec.ID); made && (err != nil || id.Version() != 7) {
				t.Errorf("result %d: id %q is no UUIDv7: %v", i, rec.ID, err)
			}
		}
		if got := results[0].Receipt; got != (wire.Receipt{ID: "own", TS: 0, Partition: eventlog.PartitionOf("k", "", 16), Seq: 9}) {
			t.Errorf("with id and ts: %+v", got)
		}
		if got := results[1].Receipt.TS; got != accepted {
			t.Errorf("without ts: %d, want %d", got, accepted)
		}
		if got := results[3].Receipt; !got.Duplicate || got.Seq != 3 || got.TS != 42 {
			t.Errorf("a duplicate: %+v, want what is stored", got)
		}

		// An event is accepted when it has its tokens, not when it came.
		f.start(t.Context(), item("a", "late")).ok(t)
		if got := f.log.records[len(f.log.records)-1].AcceptedAt; got != accepted+1000 {
			t.Errorf("accepted at %d after a wait of 1s from %d", got, accepted)
		}
	})
}

func TestTopicsAreEnsuredOnce(t *testing.T) {
	f := open(t, small)
	for range 2 {
		f.publish(t, append(items("b", 3), items("lost", 3)...)...)
	}
	if want := []string{"b", "lost", "lost"}; !slices.Equal(f.log.ensured, want) {
		t.Errorf("ensured %q, want %q", f.log.ensured, want)
	}
}

func TestMetrics(t *testing.T) {
	f := open(t, small)
	bad := wire.PublishItem{Event: wire.Event{Topic: "no topic"}, Err: wire.Errorf(wire.BadRequest, "bad")}
	f.publish(t, item("a", "1"), item("a", "2"), item("a", "duplicate"), item("b", "3"), item("b", "conflict"), bad)
	f.publish(t, item("a", "4"))
	f.publish(t, item("a", "duplicate"))
	f.publish(t, item("paused", "5"))
	f.publish(t, append(items("a", 11), bad)...)
	f.Refused("a", wire.PayloadTooLarge, 2)
	want := []string{
		`sluice_events_duplicate_total{topic="a"} 2`,
		`sluice_events_published_total{topic="a"} 3`,
		`sluice_events_published_total{topic="b"} 1`,
		`sluice_events_rejected_total{code="bad_request",topic="_other"} 2`,
		`sluice_events_rejected_total{code="bad_request",topic="a"} 11`,
		`sluice_events_rejected_total{code="conflict",topic="b"} 1`,
		`sluice_events_rejected_total{code="payload_too_large",topic="a"} 2`,
		`sluice_events_rejected_total{code="topic_paused",topic="paused"} 1`,
		`sluice_publish_duration_seconds_count{topic="a"} 3`,
		`sluice_publish_duration_seconds_count{topic="b"} 1`,
	}
	if got := f.counted(); !slices.Equal(got, want) {
		t.Errorf("counted\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestAppendDeadLetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := open(t, `[{name: "*", publish: {rate: 1, burst: 1}, connection: {rate: 1, burst: 1}, paused: true}]`)
		appendLetter := func(topic, id string) error {
			t.Helper()
			done := make(chan error, 2)
			f.AppendDeadLetter(t.Context(), &eventlog.Record{Event: wire.Event{Topic: topic, ID: id}}, func(err error) { done <- err })
			synctest.Wait()
			if len(done) != 1 {
				t.Fatalf("done was called %d times", len(done))
			}
			return <-done
		}
		for _, id := range []string{"1", "2", "duplicate", "conflict", "spooled"} {
			if err := appendLetter("a.dlq", id); err != nil {
				t.Errorf("%s: %v", id, err)
			}
		}
		for _, c := range []struct{ topic, id string }{{"a.dlq", "unavailable"}, {"a.dlq", "away"}, {"a.dlq", "nospool"}, {"a.dlq", "defect"},
			{"lost", "1"}} {
			if appendLetter(c.topic, c.id) == nil {
				t.Errorf("%v: no error", c)
			}
		}
		f.writer.Stop(t.Context())
		if appendLetter("a.dlq", "3") == nil {
			t.Error("no error after the writer was stopped")
		}
		if got := f.counted(); len(got) != 0 {
			t.Errorf("counted %q, want nothing", got)
		}
	})
}
