package mongolog

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
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
	_, err := l.majority(eventsName).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: "t/a"}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "ts", Value: "yesterday"}}}})
	if err != nil {
		t.Fatal(err)
	}
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
		_, err := a.majority(topicsName).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: topic}},
			bson.D{{Key: "$set", Value: bson.D{{Key: "partitions", Value: partitions}}}})
		if err != nil {
			t.Fatal(err)
		}
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

func TestJudge(t *testing.T) {
	write := func(index, code int, raw bson.D) error {
		b, _ := bson.Marshal(raw)
		e := mongo.WriteError{Index: index, Code: code, Message: "E11000 … index: topic_partition_seq", Raw: b}
		return mongo.BulkWriteException{WriteErrors: []mongo.BulkWriteError{{WriteError: e}}}
	}
	named := func(keys ...string) bson.D {
		var pattern bson.D
		for _, k := range keys {
			pattern = append(pattern, bson.E{Key: k, Value: 1})
		}
		return bson.D{{Key: "keyPattern", Value: pattern}}
	}
	lost := write(3, codeDuplicateKey, nil).(mongo.BulkWriteException)
	lost.WriteConcernError = &mongo.WriteConcernError{Code: 64}
	cases := []struct {
		name   string
		err    error
		stored int
		want   failure
	}{
		{"a duplicate id", write(3, codeDuplicateKey, named("_id")), 3, failure{duplicate: true}},
		{"a duplicate seq", write(3, codeDuplicateKey, named("topic", "partition", "seq")), 3, failure{duplicate: true, seqTaken: true}},
		{"a duplicate that no majority knows of", lost, 0, failure{}},
		{"a bad document", write(3, 2, nil), 3, failure{refused: true}},
		{"interrupted in the middle", write(3, 11600, nil), 0, failure{}},
		{"one of the documents is bad", mongo.CommandError{Code: 2}, 0, failure{refused: true, whole: true}},
		{"not the primary", mongo.CommandError{Code: 10107}, 0, failure{}},
		{"the network", errors.New("connection reset"), 0, failure{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			stored, got := judge(c.err)
			if got.err == nil {
				t.Error("the error is lost")
			}
			got.err = nil
			if stored != c.stored || got != c.want {
				t.Errorf("judge = %d, %+v; want %d, %+v", stored, got, c.stored, c.want)
			}
		})
	}
}

func TestSecretsStayOutOfErrors(t *testing.T) {
	for _, url := range []string{
		"mongodb://user:geheim@host:port/db",
		"mongodb://user:gehe%69m@host:99999/db",
		"mongodb://user:ge/heim@host/db",
		"mongodb://user:geheim@@host/db?x=geheim",
		"mongodb://user:gehe%zzm@host/db",
		"mongodb://host/db?authMechanismProperties=AWS_SESSION_TOKEN:geheim&w=geheim",
		"mongodb://host/db?tlsCertificateKeyFilePassword=geheim&connectTimeoutMS=geheim",
	} {
		l, err := Open(Options{URL: url})
		if err == nil {
			l.Close()
			continue
		}
		for _, secret := range []string{"geheim", "ge/heim", "gehe%69m", "gehe%zzm"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
}

func TestErrorsThatStay(t *testing.T) {
	err := new(Log).unavailable(t.Context(), "append", mongo.CommandError{Code: codeUnauthorized, Message: "not authorized on db"})
	if !errors.Is(err, eventlog.ErrUnavailable) || !strings.Contains(err.Error(), "needs the role") {
		t.Errorf("%v", err)
	}
	if !isPermanent(fmt.Errorf("x: %w", mongo.CommandError{Code: codeAuthenticationFailed})) {
		t.Error("a wrong password is tried again")
	}
}
