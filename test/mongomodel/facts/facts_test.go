package facts

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
	"go.uber.org/goleak"

	"github.com/sluice-bus/sluice/test/mongomodel"
	"github.com/sluice-bus/sluice/test/require"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// manual is where MongoDB's documentation is. measured says that a fact was seen on a real replica
// set of version 4.4 with three members.
const (
	manual   = "https://www.mongodb.com/docs/manual/"
	measured = "measured"
)

// A fact may need these of a server.
const (
	// stepdowns: it may be told to step down.
	stepdowns = "stepdowns"
	// faults: its members can be killed, held up and cut off. Only the model's can.
	faults = "faults"
	// patience: minutes pass. On the model they take no time.
	patience = "patience"
)

// A fact is something that a driver sees.
type fact struct {
	name   string
	source string
	needs  string
	check  func(t *trial)
}

// A trial is a server on which a fact is checked, with a database of its own.
type trial struct {
	*testing.T
	db      *mongo.Database
	coll    *mongo.Collection
	model   *mongomodel.Set // nil: a real server
	version string          // the model's
	fault   *atomic.Value   // a func(mongomodel.Request) mongomodel.Fault
}

func TestFacts(t *testing.T) {
	const newest, oldest = "8.0", "4.4"
	areas := []struct {
		name     string
		facts    []fact
		versions []string // of the model: what documents mean has not changed
	}{
		{"filters", filters, []string{newest}}, {"updates", updates, []string{newest}}, {"orders", orders, []string{newest}},
		{"projections", projections, []string{newest}}, {"aggregation", aggregation, []string{newest}},
		{"errors", refusals, []string{newest}}, {"writes", writes, []string{newest}}, {"indexes", indexes, []string{newest}},
		{"concerns", concerns, []string{oldest, newest}}, {"failover", failover, []string{oldest, newest}},
		{"transactions", transactions, []string{oldest, newest}}, {"cursors", cursors, []string{oldest, newest}},
		{"change streams", followed, []string{oldest, newest}},
	}
	uri := os.Getenv("MONGODB_URI")
	seen := map[string]bool{}
	for _, area := range areas {
		t.Run(area.name, func(t *testing.T) {
			for _, f := range area.facts {
				if seen[area.name+f.name] {
					t.Errorf("two facts are called %q", f.name)
				}
				seen[area.name+f.name] = true
				if f.source != measured && !strings.HasPrefix(f.source, manual) {
					t.Errorf("%s: %q is no source", f.name, f.source)
				}
				t.Run(f.name, func(t *testing.T) {
					if uri != "" {
						onServer(t, f, uri)
						return
					}
					for _, version := range area.versions {
						t.Run(version, func(t *testing.T) { onModel(t, f, version) })
					}
				})
			}
		})
	}
	if len(seen) < 120 {
		t.Errorf("there are %d facts only", len(seen))
	}
}

func onModel(t *testing.T, f fact, version string) {
	synctest.Test(t, func(t *testing.T) {
		x := &trial{T: t, fault: &atomic.Value{}, version: version}
		x.model = mongomodel.New(mongomodel.Options{Polling: true, Version: version, Fault: func(r mongomodel.Request) mongomodel.Fault {
			if f, _ := x.fault.Load().(func(mongomodel.Request) mongomodel.Fault); f != nil {
				return f(r)
			}
			return mongomodel.Fault{}
		}})
		defer x.model.Close()
		x.start(x.client("app"), "facts")
		f.check(x)
		if t.Failed() {
			x.model.WriteTrace(t.Output())
		}
	})
}

func onServer(t *testing.T, f fact, uri string) {
	switch f.needs {
	case faults, patience:
		t.Skipf("it needs %s, which the model has", f.needs)
	}
	c, err := mongo.Connect(options.Client().ApplyURI(uri))
	require.NoError(t, err)
	x := &trial{T: t}
	x.start(c, fmt.Sprintf("facts_%d", time.Now().UnixNano()))
	defer disconnect(c)
	defer x.db.Drop(context.WithoutCancel(t.Context()))
	f.check(x)
}

func (t *trial) start(c *mongo.Client, db string) {
	t.db = c.Database(db)
	t.coll = t.db.Collection("c")
}

// client is another client of the model's, by a name of its own. It ends with the test.
func (t *trial) client(from string, more ...*options.ClientOptions) *mongo.Client {
	t.Helper()
	c, err := mongo.Connect(append([]*options.ClientOptions{t.model.Client(from)}, more...)...)
	require.NoError(t, err)
	t.Cleanup(func() { disconnect(c) })
	return c
}

func disconnect(c *mongo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.Disconnect(ctx)
}

// doc reads MongoDB's extended JSON.
func (t *trial) doc(text string) bson.D {
	t.Helper()
	var d bson.D
	if err := bson.UnmarshalExtJSON([]byte(text), false, &d); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return d
}

// docs reads documents one after the other, with commas between them.
func (t *trial) docs(text string) []any {
	t.Helper()
	all, _ := t.doc(`{"all":[` + text + `]}`)[0].Value.(bson.A)
	return all
}

func (t *trial) insert(text string) {
	t.Helper()
	if text == "" {
		return
	}
	if _, err := t.coll.InsertMany(t.Context(), t.docs(text)); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

// command runs a command that has to succeed.
func (t *trial) command(text string) bson.Raw {
	t.Helper()
	raw, err := t.db.RunCommand(t.Context(), t.doc(text)).Raw()
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return raw
}

// refused checks the code of a command's error, and that it says something.
func (t *trial) refused(err error, code int, said string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("there is no error, want %d", code)
	case code != anyCode && !slices.Contains(mongo.ErrorCodes(err), code):
		t.Errorf("the codes are %v, want %d: %v", mongo.ErrorCodes(err), code, err)
	case !strings.Contains(err.Error(), said):
		t.Errorf("%q does not say %q", err, said)
	}
}

func (t *trial) ok(err error) {
	t.Helper()
	require.NoError(t, err)
}

// show returns documents in extended JSON, with commas between them.
func show[T any](docs ...T) string {
	var all []string
	for _, d := range docs {
		text, err := bson.MarshalExtJSON(d, false, false)
		if err != nil {
			return err.Error()
		}
		all = append(all, string(text))
	}
	return strings.Join(all, ",")
}

// is compares documents with what is written down.
func (t *trial) is(got, want string) {
	t.Helper()
	if want := show(t.docs(want)...); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func (t *trial) all(c *mongo.Collection, filter string, o ...options.Lister[options.FindOptions]) string {
	t.Helper()
	cur, err := c.Find(t.Context(), t.doc(filter), o...)
	t.ok(err)
	var docs []bson.Raw
	t.ok(cur.All(t.Context(), &docs))
	return show(docs...)
}

// stored is everything in the collection, in order of _id.
func (t *trial) stored() string {
	t.Helper()
	return t.all(t.coll, `{}`, options.Find().SetSort(bson.D{{Key: "_id", Value: 1}}))
}

// with is the collection as concerns see it.
func (t *trial) with(wc *writeconcern.WriteConcern, rc *readconcern.ReadConcern) *mongo.Collection {
	return t.db.Collection("c", options.Collection().SetWriteConcern(wc).SetReadConcern(rc))
}
