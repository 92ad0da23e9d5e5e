package setup

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/coretest"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/test/mongotest"
)

// untouched is the setup of a new, unused store.
func untouched(t *testing.T) *Setup {
	t.Helper()
	server := mongotest.Shared(t)
	s := coretest.Open(t, core.Config{URL: server.URI(server.NewDatabase(t))})
	su := New(s)
	s.Prepare = su.Prepare
	return su
}

func migrate(t *testing.T, su *Setup, o MigrateOptions) MigrateReport {
	t.Helper()
	r, err := su.Migrate(t.Context(), o)
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

func (su *Setup) createIndex(t *testing.T, collection, name string, unique bool, keys ...string) {
	t.Helper()
	x := index{collection: collection, unique: unique, keys: events.Ascending(keys...)}
	if _, err := su.store.DB.Collection(collection).Indexes().CreateOne(t.Context(), x.model(name)); err != nil {
		t.Fatalf("create index %s of %s: %v", name, collection, err)
	}
}

func TestMigrateANewStore(t *testing.T) {
	su := untouched(t)
	r := migrate(t, su, MigrateOptions{DryRun: true})
	if !r.DryRun || len(r.Indexes) < 5 || len(actions(r)) != len(r.Indexes) {
		t.Errorf("a dry run would %q", actions(r))
	}
	if names, err := su.store.DB.ListCollectionNames(t.Context(), bson.D{}); err != nil || len(names) > 0 {
		t.Errorf("after a dry run there are %q, %v", names, err)
	}
	steps := map[string]int64{}
	done := migrate(t, su, MigrateOptions{Progress: func(step string, done, _ int64) { steps[step] = done }})
	if !slices.Equal(actions(done), actions(r)) || steps[StepIndexes] != int64(len(r.Indexes)) {
		t.Errorf("it did %q and told of %v; the dry run said %q", actions(done), steps, actions(r))
	}
	for range 2 {
		if again := migrate(t, su, MigrateOptions{}); again.Changes() != 0 || len(again.Indexes) != len(r.Indexes) {
			t.Errorf("done again it did %q", actions(again))
		}
		if err := su.store.Ping(t.Context()); err != nil { // creates all that is missing, which is no index
			t.Fatal(err)
		}
	}
}

// A wrong index stays, and has to be dropped by hand. Migrate creates the others.
func TestMigrateRefusesWhatIsWrong(t *testing.T) {
	su := untouched(t)
	su.createIndex(t, core.Events, "topic_partition_seq", false, "topic", "partition", "seq")
	su.createIndex(t, core.Events, "topic_ts_id", false, "topic", "ts")
	su.createIndex(t, core.Events, "by_tag", false, "tags")
	su.createIndex(t, core.Events, "one_sid", true, "sid", "_id")
	want := []string{
		"create epochs.topic_group_partition_number", "create events.due_slot_deliver_at_seq", "create events.topic_deliver_at_id",
		"create events.topic_key_seq", "create events.topic_key_ts_id",
		"create events.topic_partition_seq_ts", "not ours events.by_tag", "not ours events.one_sid",
		"wrong events.topic_partition_seq", "wrong events.topic_ts_id",
	}
	for _, dry := range []bool{true, false} {
		r, err := su.Migrate(t.Context(), MigrateOptions{DryRun: dry})
		for _, tell := range []string{
			`it is not unique: drop it, and migrate again (in mongosh: db.getCollection("events").dropIndex("topic_partition_seq"))`,
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
		if err := su.store.DB.Collection(core.Events).Indexes().DropOne(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	if r := migrate(t, su, MigrateOptions{}); r.Changes() != 2 {
		t.Errorf("when they are dropped, it does %q", actions(r))
	}
	if again := migrate(t, su, MigrateOptions{}); again.Changes() != 0 || len(actions(again)) != 2 {
		t.Errorf("done again it did %q", actions(again))
	}
}

func TestMigrateTellsOfDuplicates(t *testing.T) {
	su := untouched(t)
	for _, id := range []string{"t/a", "t/b"} {
		doc := bson.D{{Key: "_id", Value: id}, {Key: "topic", Value: "t"}, {Key: "partition", Value: 0}, {Key: "seq", Value: int64(1)}}
		if _, err := su.store.DB.Collection(core.Events).InsertOne(t.Context(), doc); err != nil {
			t.Fatal(err)
		}
	}
	_, err := su.Migrate(t.Context(), MigrateOptions{})
	if err == nil || !strings.Contains(err.Error(), "topic_partition_seq of events: it has to be unique") {
		t.Errorf("Migrate = %v", err)
	}
}

// An index that serves the purpose under another name stays, since the server would not take a
// second one.
func TestMigrateTakesAnotherName(t *testing.T) {
	su := untouched(t)
	su.createIndex(t, core.Events, "somebodys", true, "topic", "partition", "seq")
	r := migrate(t, su, MigrateOptions{DryRun: true})
	if x := r.Indexes[0]; x.Action != IndexKept || x.Detail != "there by the name somebodys" {
		t.Errorf("%+v", x)
	}
}

func TestMigrateReport(t *testing.T) {
	r := MigrateReport{
		Server: "MongoDB 7.0.0, replica set", Database: "sluice", DryRun: true,
		Indexes: []IndexReport{
			{"events", "topic_ts_id", "topic, ts, id", IndexCreated, ""},
			{"events", "theirs", "tags", IndexForeign, ""},
		},
		Stubs: []StubReport{{"orders", 3 * 3_600_000, 10, 2}, {"audit", 0, 5, 0}},
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
	if err != nil || !strings.HasPrefix(string(text),
		`{"server":"MongoDB 7.0.0, replica set","database":"sluice","dry_run":true,"indexes":[{"collection":"events","name":"topic_ts_id"`) {
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
		{bson.D{{Key: "key", Value: bson.D{{Key: "expireAt", Value: "hashed"}}}, {Key: "expireAfterSeconds", Value: 60},
			{Key: "unique", Value: 1},
			{Key: "partialFilterExpression", Value: bson.D{}}},
			"its keys are expireAt (hashed), it is unique, it is not sparse, it expires after 60 s, it has only documents with {}"},
	} {
		raw, err := bson.Marshal(c.stored)
		if err != nil {
			t.Fatal(err)
		}
		want := index{keys: events.Ascending("expireAt"), expires: true}.spec()
		if got := readIndex(raw).differs(want); got != c.want {
			t.Errorf("%v: %q; want %q", c.stored, got, c.want)
		}
	}
}
