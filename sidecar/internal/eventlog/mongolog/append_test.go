package mongolog

import (
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
)

// isInsert matches the driver's inserts of events.
func isInsert(request []byte) bool {
	return strings.Contains(string(request), "\x02insert\x00\x07\x00\x00\x00events\x00")
}

// faulty opens a log behind a proxy.
func faulty(t *testing.T, s *mongotest.Server, database string, o Options) (*Log, *faultproxy.Proxy) {
	t.Helper()
	p := faultproxy.New(t, s.Addr())
	o.URL = s.URIVia(p.Addr(), database)
	return mustOpen(t, o), p
}

func TestALostReplyIsNoDuplicate(t *testing.T) {
	s := mongotest.Shared(t)
	l, proxy := faulty(t, s, s.NewDatabase(t), Options{Timeout: testTimeout})
	ensure(t, l, "t", 1)
	proxy.Only(isInsert)
	lost := proxy.CutAfterNextReply()
	batch := eventlogtest.Events("a", 5)
	got := l.Append(t.Context(), "t", 0, append(batch, eventlogtest.Event("a-001"), eventlogtest.Event("a-003", eventlogtest.Payload(`0`))))
	select {
	case <-lost:
	default:
		t.Fatal("no reply was lost")
	}
	for i := range batch {
		if want := (eventlog.Outcome{Seq: uint64(i + 1), TS: batch[i].TS}); got[i] != want {
			t.Errorf("event %d: %+v; want %+v", i, got[i], want)
		}
	}
	if o := got[5]; o.Err != nil || !o.Duplicate || o.Seq != 2 {
		t.Errorf("an id that the batch has twice: %+v; want a duplicate of seq 2", o)
	}
	var conflict *eventlog.ConflictError
	if !errors.As(got[6].Err, &conflict) || conflict.Seq != 4 {
		t.Errorf("an id that the batch has with other content: %+v; want a conflict with seq 4", got[6])
	}
}

func TestALostRequestIsSentAgain(t *testing.T) {
	s := mongotest.Shared(t)
	l, proxy := faulty(t, s, s.NewDatabase(t), Options{Timeout: testTimeout})
	ensure(t, l, "t", 1)
	proxy.Only(isInsert)
	proxy.CutNextRequest()
	wantSeqs(t, stored(t, l, "t", eventlogtest.Events("a", 3)...), 1, 2, 3)
}

func TestManyRepeatsAreLookedUpTogether(t *testing.T) {
	s := mongotest.Shared(t)
	url := s.URI(s.NewDatabase(t))
	a, b := mustOpen(t, Options{URL: url, Timeout: testTimeout}), mustOpen(t, Options{URL: url, Timeout: testTimeout})
	ensure(t, a, "t", 2)
	old := eventlogtest.Events("old", 150)
	stored(t, a, "t", old...)
	batch := append(eventlogtest.Events("old", 150), eventlogtest.Event("new"))
	for i, o := range b.Append(t.Context(), "t", 0, batch) {
		want := eventlog.Outcome{Seq: uint64(i + 1), TS: batch[i].TS, Duplicate: i < len(old)}
		if !want.Duplicate { // voids have taken the seqs of the duplicates
			want.Seq += uint64(len(old))
		}
		if o != want {
			t.Errorf("event %d: %+v; want %+v", i, o, want)
		}
	}
}

func TestAnEventThatMakesNoDocumentFailsAlone(t *testing.T) {
	s := mongotest.Shared(t)
	l := mustOpen(t, Options{URL: s.URI(s.NewDatabase(t)), Timeout: testTimeout})
	ensure(t, l, "t", 1)
	huge := eventlogtest.Event("huge", func(r *eventlog.Record) { r.Payload, r.Binary = make([]byte, document.MaxBytes), true })
	got := l.Append(t.Context(), "t", 0, []*eventlog.Record{eventlogtest.Event("a"), huge, eventlogtest.Event("b")})
	if got[0].Seq != 1 || got[2].Seq != 2 || got[0].Err != nil || got[2].Err != nil {
		t.Errorf("the others: %+v, %+v", got[0], got[2])
	}
	if _, refused := errors.AsType[*eventlog.RefusedError](got[1].Err); !refused {
		t.Errorf("the huge one: %T", got[1].Err)
	}
	if err := got[1].Err; err == nil || errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), `"huge"`) {
		t.Errorf("the huge one: %v; want an error of its own that names it", err)
	}
}

func TestADocumentThatSomebodyBroke(t *testing.T) {
	s := mongotest.Shared(t)
	l := mustOpen(t, Options{URL: s.URI(s.NewDatabase(t)), Timeout: testTimeout})
	ensure(t, l, "t", 1)
	stored(t, l, "t", eventlogtest.Event("a"))
	_, err := l.store.Majority(core.Events).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "t/a"}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "ts", Value: "yesterday"}}}})
	require.NoError(t, err)
	_, readErr := l.Read(t.Context(), "t", 0, 1, eventlog.Bounds{Events: 9})
	_, lookupErr := l.Lookup(t.Context(), "t", "a")
	_, eachErr := l.LookupEach(t.Context(), "t", []string{"a"})
	if err := l.Err(); err != nil {
		t.Errorf("the store counts as away: %v", err)
	}
	_, scanErr := l.Scan(t.Context(), "t", eventlog.ScanQuery{Descending: true, MaxTS: 1 << 60, MinTS: -1 << 60}, eventlog.Bounds{Events: 9})
	out := l.Append(t.Context(), "t", 0, []*eventlog.Record{eventlogtest.Event("a"), eventlogtest.Event("b")})
	for what, err := range map[string]error{"Read": readErr, "Lookup": lookupErr, "LookupEach": eachErr, "Append": out[0].Err} {
		if err == nil || !strings.Contains(err.Error(), `"t/a"`) || errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("%s: %v; want an error that names the document", what, err)
		}
	}
	if scanErr != nil && !strings.Contains(scanErr.Error(), `"t/a"`) {
		t.Errorf("Scan: %v", scanErr)
	}
	if out[1].Err != nil || out[1].Seq != 3 {
		t.Errorf("another event: %+v", out[1])
	}
}

func TestATopicThatSomebodyBroke(t *testing.T) {
	s := mongotest.Shared(t)
	url := s.URI(s.NewDatabase(t))
	a, b := mustOpen(t, Options{URL: url}), mustOpen(t, Options{URL: url})
	ensure(t, a, "one", 1)
	ensure(t, a, "many", 1)
	for topic, partitions := range map[string]any{"one": "1", "many": 1025} {
		_, err := a.store.Majority(core.Topics).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: topic}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "partitions", Value: partitions}}}})
		require.NoError(t, err)
	}
	_, oneErr := b.LookupTopic(t.Context(), "one")
	_, manyErr := b.LookupTopic(t.Context(), "many")
	_, listErr := b.Topics(t.Context())
	for what, err := range map[string]error{"one": oneErr, "many": manyErr, "all": listErr} {
		if err == nil || !strings.Contains(err.Error(), "topic") || errors.Is(err, eventlog.ErrUnavailable) {
			t.Errorf("topic %s: %v; want an error that says what is wrong", what, err)
		}
	}
}
