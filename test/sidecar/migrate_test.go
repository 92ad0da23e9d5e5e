package sidecar

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/test/testkit"
)

// Names in a store. They are documented for people, who look at and create the same things as the
// tests.
const (
	eventsName = "events"
	seqIndex   = "topic_partition_seq"
	timeIndex  = "topic_ts_id"
)

// nothingToDo ends the table of a migration that had nothing to do.
const nothingToDo = "Everything is as it should be."

// migrated runs a migration and returns what it printed.
func migrated(t *testing.T, db database, args ...string) string {
	t.Helper()
	status, stdout, stderr := runToEnd(t, append([]string{"migrate", "--store", db.uri}, args...)...)
	if status != 0 {
		t.Fatalf("migrate %q ended with status %d\n%s%s", args, status, stdout, stderr)
	}
	return stdout
}

// report is the output of --json.
type report struct {
	Server   string
	Database string
	DryRun   bool `json:"dry_run"`
	Indexes  []struct{ Collection, Name, Keys, Action, Detail string }
	Stubs    []struct {
		Topic          string
		DedupeWindowMS int64 `json:"dedupe_window_ms"`
		Stubs, Changed int64
	}
}

func migratedJSON(t *testing.T, db database, args ...string) (r report) {
	t.Helper()
	text := migrated(t, db, append(args, "--json")...)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return r
}

// actions returns the action on each index.
func (r report) actions() map[string]string {
	by := map[string]string{}
	for _, x := range r.Indexes {
		by[x.Collection+"."+x.Name] = x.Action
	}
	return by
}

func (db database) collections(t *testing.T) []string {
	t.Helper()
	names, err := db.ListCollectionNames(t.Context(), bson.D{})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// index is an index of events as the server has it.
func (db database) index(t *testing.T, name string) (keys string, unique bool) {
	t.Helper()
	specs, err := db.Collection(eventsName).Indexes().ListSpecifications(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range specs {
		if s.Name == name {
			elements, err := s.KeysDocument.Elements()
			if err != nil {
				t.Fatal(err)
			}
			var list []string
			for _, e := range elements {
				list = append(list, e.Key())
			}
			return strings.Join(list, " "), s.Unique != nil && *s.Unique
		}
	}
	return "", false
}

// spoil replaces a unique index of events by one that is not unique.
func (db database) spoil(t *testing.T, name string, keys ...string) {
	t.Helper()
	ix := db.Collection(eventsName).Indexes()
	if present, _ := db.index(t, name); present != "" {
		if err := ix.DropOne(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	var d bson.D
	for _, k := range keys {
		d = append(d, bson.E{Key: k, Value: 1})
	}
	if _, err := ix.CreateOne(t.Context(), mongo.IndexModel{Keys: d, Options: options.Index().SetName(name)}); err != nil {
		t.Fatal(err)
	}
}

func (db database) checkIndexes(t *testing.T) {
	t.Helper()
	if keys, unique := db.index(t, seqIndex); keys != "topic partition seq" || !unique {
		t.Errorf("index %s is on (%s), unique %v", seqIndex, keys, unique)
	}
	if keys, unique := db.index(t, timeIndex); keys != "topic ts id" || unique {
		t.Errorf("index %s is on (%s), unique %v", timeIndex, keys, unique)
	}
}

func TestMigrateAnEmptyDatabase(t *testing.T) {
	db := newDatabase(t)
	planned := migrated(t, db, "--dry-run")
	if !strings.Contains(planned, "nothing was changed") || !strings.Contains(planned, seqIndex) {
		t.Errorf("the dry run says\n%s", planned)
	}
	plan := migratedJSON(t, db, "--dry-run")
	if !plan.DryRun || plan.Database != db.Name() || plan.Server == "" || plan.actions()[eventsName+"."+seqIndex] != "create" {
		t.Errorf("the dry run's report is %+v", plan)
	}
	if names := db.collections(t); len(names) > 0 {
		t.Errorf("after the dry runs there are %q", names)
	}
	done := migratedJSON(t, db)
	if done.DryRun || !slices.Equal(done.Indexes, plan.Indexes) {
		t.Errorf("it did %+v\nthe dry run said %+v", done, plan)
	}
	db.checkIndexes(t)
	for _, args := range [][]string{nil, {"--dry-run"}} {
		if again := migrated(t, db, args...); !strings.Contains(again, nothingToDo) {
			t.Errorf("once more, with %q, it says\n%s", args, again)
		}
	}
}

// TestMigrateBesideASidecar replaces an index of a store while events are published through it.
func TestMigrateBesideASidecar(t *testing.T) {
	const topic = "orders"
	db := newDatabase(t)
	dir := t.TempDir()
	unlimited := testkit.Write(t, filepath.Join(dir, "policies.yaml"), `[{name: "*", connection: {rate: 0}, publish: {rate: 0}}]`)
	p := startShared(t, dir, "a", db, "--policies", unlimited)
	h := client(t, p)
	var receipts []wire.Receipt
	publish := func(ctx context.Context) error {
		n := len(receipts)
		r, err := h.Publish(ctx, &wire.Event{
			ID: fmt.Sprintf("e-%d", n), Topic: topic, Key: fmt.Sprintf("k-%d", n%7), Payload: fmt.Appendf(nil, `{"n":%d}`, n),
		})
		if err == nil {
			receipts = append(receipts, r)
		}
		return err
	}
	for range 30 {
		if err := publish(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	besides(t, publish, func() {
		for _, keys := range [][]string{{"topic", "ts"}, {"topic", "ts", "id"}} {
			db.spoil(t, timeIndex, keys...)
			status, stdout, stderr := runToEnd(t, "migrate", "--store", db.uri)
			if drop := fmt.Sprintf("db.getCollection(%q).dropIndex(%q)", eventsName, timeIndex); status == 0 || !strings.Contains(stderr, drop) {
				t.Errorf("it ended with status %d, and does not say to do %s:\n%s%s", status, drop, stdout, stderr)
			}
			if err := db.Collection(eventsName).Indexes().DropOne(t.Context(), timeIndex); err != nil {
				t.Fatal(err)
			}
			if report := migratedJSON(t, db); report.actions()[eventsName+"."+timeIndex] != "create" {
				t.Errorf("it did not create %s: %+v", timeIndex, report)
			}
		}
	})
	t.Logf("%d events were published", len(receipts))
	db.checkIndexes(t)
	if again := migrated(t, db); !strings.Contains(again, nothingToDo) {
		t.Errorf("once more it says\n%s", again)
	}
	checkReceipts(t, receipts, exportTopic(t, h, topic))
	quiet(t, p)
}

// besides does something while publishes go on. None of them may fail, and some more follow.
func besides(t *testing.T, publish func(context.Context) error, do func()) {
	t.Helper()
	const afterwards = 10
	done := make(chan struct{})
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for left := afterwards; left > 0; {
			if err := publish(t.Context()); err != nil {
				t.Errorf("a publish failed: %v", err)
				return
			}
			select {
			case <-done:
				left--
			default:
			}
		}
	})
	defer publishing.Wait()
	defer close(done)
	do()
}

// checkReceipts checks that each answered event is where the answer said, and that there are no
// others.
func checkReceipts(t *testing.T, receipts []wire.Receipt, events []wire.Event) {
	t.Helper()
	type place struct {
		partition int
		seq       uint64
	}
	at := map[string]place{}
	taken := map[place]string{}
	for _, e := range events {
		here := place{e.Partition, e.Seq}
		if other, twice := taken[here]; twice {
			t.Errorf("%s and %s are both at %+v", other, e.ID, here)
		}
		taken[here], at[e.ID] = e.ID, here
	}
	if len(events) != len(receipts) || len(at) != len(receipts) {
		t.Errorf("%d events, %d different ones, of %d that were answered", len(events), len(at), len(receipts))
	}
	for _, r := range receipts {
		if r.Duplicate {
			t.Errorf("%s was answered as a duplicate", r.ID)
		}
		if here, ok := at[r.ID]; !ok || !r.Spooled && here != (place{r.Partition, r.Seq}) {
			t.Errorf("%s was answered as %+v and is at %+v (there: %v)", r.ID, r, here, ok)
		}
	}
}

// TestSidecarWaitsForAMigration starts a sidecar on a store whose index is not unique. The sidecar
// must not append there, and says what to do.
func TestSidecarWaitsForAMigration(t *testing.T) {
	const topic = "orders"
	db := newDatabase(t)
	db.spoil(t, seqIndex, "topic", "partition", "seq")
	p := startShared(t, t.TempDir(), "a", db, "--store-timeout", "1s")
	h := client(t, p)
	var receipts []wire.Receipt
	publish := func() wire.Receipt {
		r, err := h.Publish(t.Context(), &wire.Event{ID: fmt.Sprintf("e-%d", len(receipts)), Topic: topic, Key: "k", Payload: []byte("1")})
		if err != nil {
			t.Fatal(err)
		}
		receipts = append(receipts, r)
		return r
	}
	for range 5 {
		if r := publish(); !r.Spooled {
			t.Errorf("%+v: it was stored without the unique index", r)
		}
	}
	if log := p.Log(); !strings.Contains(log, "sluice-sidecar migrate") || !strings.Contains(log, seqIndex) {
		t.Errorf("the log does not say what to do:\n%s", log)
	}
	if err := db.Collection(eventsName).Indexes().DropOne(t.Context(), seqIndex); err != nil {
		t.Fatal(err)
	}
	migrated(t, db)
	db.checkIndexes(t)
	awaitSpoolMoved(t, h)
	publish()
	checkReceipts(t, receipts, exportTopic(t, h, topic))
}

func awaitSpoolMoved(t *testing.T, h *admin.HTTP) {
	t.Helper()
	await(t, func() string {
		s, err := h.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if s.Spool.Events == 0 && s.Store.State == "ok" {
			return ""
		}
		return fmt.Sprintf("store %+v, spool %+v", s.Store, s.Spool)
	})
}

func TestMigrateRefuses(t *testing.T) {
	t.Parallel()
	closed := closedAddress(t)
	const secret = "s3cr3t-word"
	for _, c := range []struct {
		name   string
		args   []string
		status int
		says   []string
	}{
		{"embedded", []string{"--store", "embedded:"}, 2, []string{"store", "MongoDB"}},
		{"no store", nil, 2, []string{"store"}},
		{"a broken URL", []string{"--store", "mongodb://app:" + secret + "@/db"}, 2, []string{"store"}},
		{"no policies", []string{"--store", "mongodb://" + closed + "/db", "--policies", "none.yaml"}, 2, []string{"none.yaml"}},
		{"unreachable", []string{"--store", "mongodb://app:" + secret + "@" + closed + "/db?authSource=admin"}, 1, []string{"connect", closed}},
		{"unreachable, in detail", []string{"--dry-run", "--log-level", "debug", "--store", "mongodb://app:" + secret + "@" + closed + "/db"}, 1,
			[]string{"connect", closed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			start := time.Now()
			status, stdout, stderr := runToEnd(t, append([]string{"migrate"}, c.args...)...)
			if status != c.status {
				t.Errorf("exit status %d, want %d", status, c.status)
			}
			for _, s := range c.says {
				if !strings.Contains(stderr, s) {
					t.Errorf("stderr does not say %q:\n%s", s, stderr)
				}
			}
			if stdout != "" {
				t.Errorf("stdout: %q", stdout)
			}
			if strings.Contains(stderr, secret) {
				t.Errorf("the password is in %q", stderr)
			}
			if took := time.Since(start); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

// closedAddress is an address without a listener.
func closedAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
