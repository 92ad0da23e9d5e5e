package mongolog

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/eventlogtest"
	"github.com/sluice-bus/sluice/test/mongotest"
)

// untouched is a log on a new, unused store.
func untouched(t *testing.T) *Log {
	t.Helper()
	server := mongotest.Shared(t)
	return mustOpen(t, Options{URL: server.URI(server.NewDatabase(t)), Timeout: testTimeout})
}

func migrate(t *testing.T, l *Log, o MigrateOptions) MigrateReport {
	t.Helper()
	r, err := l.Migrate(t.Context(), o)
	if err != nil {
		t.Fatalf("Migrate: %v", err)
	}
	return r
}

// actions are the actions on the indexes, without kept ones.
func actions(r MigrateReport) []string {
	var list []string
	for _, x := range r.Indexes {
		if x.Action != IndexKept {
			list = append(list, fmt.Sprintf("%s %s.%s", x.Action, x.Collection, x.Name))
		}
	}
	return list
}

func (l *Log) createIndex(t *testing.T, collection, name string, unique bool, keys ...string) {
	t.Helper()
	x := index{collection: collection, unique: unique, keys: ascending(keys...)}
	if _, err := l.db.Collection(collection).Indexes().CreateOne(t.Context(), x.model(name)); err != nil {
		t.Fatalf("create index %s of %s: %v", name, collection, err)
	}
}

func TestMigrateANewStore(t *testing.T) {
	l := untouched(t)
	r := migrate(t, l, MigrateOptions{DryRun: true})
	if !r.DryRun || len(r.Indexes) < 5 || len(actions(r)) != len(r.Indexes) {
		t.Errorf("a dry run would %q", actions(r))
	}
	if names, err := l.db.ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) > 0 {
		t.Errorf("after a dry run there are %q, %v", names, err)
	}
	steps := map[string]int64{}
	done := migrate(t, l, MigrateOptions{Progress: func(step string, done, _ int64) { steps[step] = done }})
	if !slices.Equal(actions(done), actions(r)) || steps[StepIndexes] != int64(len(r.Indexes)) {
		t.Errorf("it did %q and told of %v; the dry run said %q", actions(done), steps, actions(r))
	}
	for range 2 {
		if again := migrate(t, l, MigrateOptions{}); again.Changes() != 0 || len(again.Indexes) != len(r.Indexes) {
			t.Errorf("done again it did %q", actions(again))
		}
		if err := l.Ping(t.Context()); err != nil { // creates all that is missing, which is no index
			t.Fatal(err)
		}
	}
}

// A wrong index stays, and has to be dropped by hand. Migrate creates the others.
func TestMigrateRefusesWhatIsWrong(t *testing.T) {
	l := untouched(t)
	l.createIndex(t, eventsName, "topic_partition_seq", false, "topic", "partition", "seq")
	l.createIndex(t, eventsName, "topic_ts_id", false, "topic", "ts")
	l.createIndex(t, eventsName, "by_tag", false, "tags")
	l.createIndex(t, eventsName, "one_sid", true, "sid", "_id")
	want := []string{
		"create epochs.topic_group_partition_number", "create events.due_slot_deliver_at__id", "create events.topic_deliver_at_id", "create events.topic_key_seq", "create events.topic_key_ts_id",
		"create events.topic_partition_seq_ts", "not ours events.by_tag", "not ours events.one_sid",
		"wrong events.topic_partition_seq", "wrong events.topic_ts_id",
	}
	for _, dry := range []bool{true, false} {
		r, err := l.Migrate(t.Context(), MigrateOptions{DryRun: dry})
		for _, tell := range []string{"it is not unique: drop it, and migrate again (in mongosh: db.getCollection(\"events\").dropIndex(\"topic_partition_seq\"))",
			"its keys are topic, ts"} {
			if err == nil || !strings.Contains(err.Error(), tell) {
				t.Errorf("Migrate = %v; want %q", err, tell)
			}
		}
		got := slices.DeleteFunc(actions(r), func(a string) bool { return strings.HasSuffix(a, ".expireAt") })
		if slices.Sort(got); !slices.Equal(got, want) {
			t.Errorf("actions %q; want %q", got, want)
		}
	}
	for _, name := range []string{"topic_partition_seq", "topic_ts_id"} {
		if err := l.db.Collection(eventsName).Indexes().DropOne(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if r := migrate(t, l, MigrateOptions{}); r.Changes() != 2 {
		t.Errorf("when they are dropped, it does %q", actions(r))
	}
	if again := migrate(t, l, MigrateOptions{}); again.Changes() != 0 || len(actions(again)) != 2 {
		t.Errorf("done again it did %q", actions(again))
	}
}

func TestMigrateTellsOfDuplicates(t *testing.T) {
	l := untouched(t)
	for _, id := range []string{"t/a", "t/b"} {
		doc := bson.D{{Key: "_id", Value: id}, {Key: "topic", Value: "t"}, {Key: "partition", Value: 0}, {Key: "seq", Value: int64(1)}}
		if _, err := l.db.Collection(eventsName).InsertOne(t.Context(), doc); err != nil {
			t.Fatal(err)
		}
	}
	_, err := l.Migrate(t.Context(), MigrateOptions{})
	if err == nil || !strings.Contains(err.Error(), "topic_partition_seq of events: it has to be unique") {
		t.Errorf("Migrate = %v", err)
	}
}

// An index that serves the purpose under another name stays, since the server would not take a
// second one.
func TestMigrateTakesAnotherName(t *testing.T) {
	l := untouched(t)
	l.createIndex(t, eventsName, "somebodys", true, "topic", "partition", "seq")
	r := migrate(t, l, MigrateOptions{DryRun: true})
	if x := r.Indexes[0]; x.Action != IndexKept || x.Detail != "there by the name somebodys" {
		t.Errorf("%+v", x)
	}
}

func TestRestamp(t *testing.T) {
	l, _ := opened(t, Options{SeqTaken: time.Hour})
	now := time.Now().UnixMilli()
	publish(t, l, eventlogtest.Events("a", 6, eventlogtest.Accepted(now-2*hour))...)
	publish(t, l, eventlogtest.Event("live", eventlogtest.Accepted(now)))
	sweepOnce(t, l, eventlog.Retention{TTLMS: hour, DedupeWindowMS: 24 * hour}, now)
	// Another program has set other times. They are in the future, since the server removes
	// documents whose time is over.
	set := bson.D{{Key: "$set", Value: bson.D{{Key: "expireAt", Value: time.UnixMilli(now + hour)}}}}
	for _, id := range []string{"t/live", "t/a-003"} {
		if _, err := l.db.Collection(eventsName).UpdateOne(t.Context(), bson.D{{Key: "_id", Value: id}}, set); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range []struct {
		window  int64
		changed int64
		leftMS  int64 // 0: none
	}{
		{24 * hour, 2, 22 * hour},
		{24 * hour, 0, 22 * hour},
		{48 * hour, 6, 46 * hour},
		{0, 6, 0},
		{0, 0, 0},
		{hour, 6, hour}, // SeqTaken
	} {
		looked := int64(0)
		m := migration{log: l, options: MigrateOptions{
			Retention: func(topic string) eventlog.Retention {
				return eventlog.Retention{DedupeWindowMS: map[string]int64{"t": c.window}[topic]}
			},
			Progress: func(_ string, done, _ int64) { looked = done },
		}}
		for _, dry := range []bool{true, false} {
			m.options.DryRun, m.report = dry, MigrateReport{}
			if err := m.restamp(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := StubReport{Topic: "t", WindowMS: c.window, Stubs: 6, Changed: c.changed}
			if len(m.report.Stubs) != 1 || m.report.Stubs[0] != want || looked != 7 {
				t.Errorf("case %d, dry run %v: %+v of %d; want %+v of 7", i, dry, m.report.Stubs, looked, want)
			}
		}
		for id, doc := range raw(t, l, eventsName) {
			left := int64(0)
			if at, ok := doc["expireAt"].(bson.DateTime); ok {
				left = at.Time().UnixMilli() - now
			}
			want := c.leftMS
			if id == "t/live" {
				want = 0
			}
			if left < want || left > want+2*stubDelay.Milliseconds() {
				t.Errorf("case %d: %s expires in %d ms; want %d", i, id, left, want)
			}
		}
	}
}

func TestMigrateReport(t *testing.T) {
	r := MigrateReport{
		Server: "MongoDB 7.0.0, replica set", Database: "sluice", DryRun: true,
		Indexes: []IndexReport{
			{"events", "topic_ts_id", "topic, ts, id", IndexCreated, ""},
			{"events", "theirs", "tags", IndexForeign, ""},
		},
		Stubs: []StubReport{{"orders", 3 * hour, 10, 2}, {"audit", 0, 5, 0}},
		Notes: []string{"A note."},
	}
	var table strings.Builder
	if err := r.WriteTable(&table); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"MongoDB 7.0.0, replica set, database sluice\n",
		"events      topic_ts_id  topic, ts, id  create    \n",
		"orders  3h0m0s         10              2\n", "audit   for ever       5               0\n",
		"A note.\n", "A dry run: nothing was changed; changes that are due: 3.\n",
	} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, table.String())
		}
	}
	text, err := json.Marshal(r)
	if err != nil || !strings.HasPrefix(string(text), `{"server":"MongoDB 7.0.0, replica set","database":"sluice","dry_run":true,"indexes":[{"collection":"events","name":"topic_ts_id"`) {
		t.Errorf("as JSON: %s, %v", text, err)
	}
}

func TestReadIndex(t *testing.T) {
	for _, c := range []struct {
		stored bson.D
		want   string
	}{
		{bson.D{{Key: "v", Value: 2}, {Key: "key", Value: bson.D{{Key: "expireAt", Value: 1.0}}}, {Key: "name", Value: "expireAt"},
			{Key: "expireAfterSeconds", Value: int64(0)}, {Key: "sparse", Value: true}}, ""},
		{bson.D{{Key: "key", Value: bson.D{{Key: "expireAt", Value: int64(-1)}}}, {Key: "sparse", Value: true}},
			"its keys are -expireAt, nothing expires by it"},
		{bson.D{{Key: "key", Value: bson.D{{Key: "expireAt", Value: "hashed"}}}, {Key: "expireAfterSeconds", Value: 60}, {Key: "unique", Value: 1},
			{Key: "partialFilterExpression", Value: bson.D{}}},
			"its keys are expireAt (hashed), it is unique, it is not sparse, it expires after 60 s, it has only documents with {}"},
	} {
		raw, err := bson.Marshal(c.stored)
		if err != nil {
			t.Fatal(err)
		}
		want := index{keys: ascending("expireAt"), expires: true}.spec()
		if got := readIndex(raw).differs(want); got != c.want {
			t.Errorf("%v: %q; want %q", c.stored, got, c.want)
		}
	}
}
