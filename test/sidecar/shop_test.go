package sidecar

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/internal/pause"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/test/faultproxy"
	"github.com/sluice-bus/sluice/test/mongotest"
	"github.com/sluice-bus/sluice/test/require"
	"github.com/sluice-bus/sluice/test/testkit"
)

const (
	// troubleTime is how long one round disturbs the application.
	troubleTime = 12 * time.Second
	customers   = 6
	// patience is how long everything may take to come to rest, on a machine with other work: a
	// real MongoDB keeps the locks of a killed transaction for a minute.
	shopPatience = 4 * time.Minute
	// policies are the defaults, except for a deadline after which other services get the events of
	// a paused one.
	shopPolicies = `
- name: "*"
  delivery: {ack_timeout: 2s}
`
)

// TestEffectsHappenOnce runs a shop while its sidecar is killed and paused, its services are killed
// and paused, and their database is away and hangs, all at random. Each order is charged and in the
// read model once, none is missing, and the orders of each customer come in order.
func TestEffectsHappenOnce(t *testing.T) { testkit.Rounds(t, keepShop) }

// shop is the application with its database and its sidecar, as the test sees them.
type shop struct {
	t       *testing.T
	server  *mongotest.Server
	db      *mongo.Database
	sidecar *testkit.Sidecar
	start   func(args ...string) *testkit.Sidecar
	parts   []*part
	sold    []order
}

// part is a process of the application, and its way to the database.
type part struct {
	name     string
	args     []string
	database *faultproxy.Proxy
	process  *testkit.Process
	troubled sync.Mutex // held while it is killed or paused
}

func (p *part) start(t *testing.T) {
	var ready struct{}
	p.process = testkit.Self().Start(t, &ready, p.args...)
}

func keepShop(t *testing.T, seed uint64) {
	s := openShop(t)
	ctx, cancel := context.WithTimeout(t.Context(), troubleTime)
	defer cancel()
	troubles := s.disturb(ctx, seed)
	s.sell(ctx, rand.New(rand.NewPCG(seed, 0)))
	t.Logf("%d orders, and %s", len(s.sold), troubles())

	rest, cancel := context.WithTimeout(t.Context(), shopPatience)
	defer cancel()
	began := time.Now()
	s.settle(rest)
	t.Logf("all has come to rest after %.1f s", time.Since(began).Seconds())
	s.check(rest)
	for _, p := range s.parts {
		if err := p.process.Stop(rest); err != nil {
			t.Errorf("%s did not end well: %v", p.name, err)
		}
	}
	if err := s.sidecar.Stop(rest); err != nil {
		t.Errorf("the sidecar did not end well: %v", err)
	}
}

func openShop(t *testing.T) *shop {
	server := mongotest.Shared(t)
	server.Needs(t, mongotest.Transactions)
	name := server.NewDatabase(t)
	client, err := mongo.Connect(options.Client().ApplyURI(server.URI(name)))
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Disconnect(context.WithoutCancel(t.Context())) })
	dir := t.TempDir()
	file := filepath.Join(dir, "policies.yaml")
	require.NoError(t, os.WriteFile(file, []byte(shopPolicies), 0o600))
	s := &shop{t: t, server: server, db: client.Database(name), start: func(args ...string) *testkit.Sidecar {
		return testkit.StartSidecar(t, filepath.Join(dir, "data"), append([]string{"--policies", file}, args...)...)
	}}
	s.sidecar = s.start()
	for _, service := range []string{"orders", "payments", "payments", "readmodel"} {
		proxy := faultproxy.New(t, server.Addr())
		p := &part{name: service, database: proxy, args: []string{
			serviceArgument, "-name", service, "-sidecar", s.sidecar.URL(), "-uri", server.URIVia(proxy.Addr(), name), "-database", name,
		}}
		p.start(t)
		s.parts = append(s.parts, p)
	}
	return s
}

// sell puts orders into the orders service's database until ctx ends.
func (s *shop) sell(ctx context.Context, random *rand.Rand) {
	numbers := map[string]int{}
	for pause.For(ctx, time.Duration(random.IntN(50))*time.Millisecond) {
		o := order{Customer: fmt.Sprint("c", random.IntN(customers)), Amount: 1 + random.IntN(1000)}
		numbers[o.Customer]++
		o.Number = numbers[o.Customer]
		o.ID = fmt.Sprintf("%s-%d", o.Customer, o.Number)
		if _, err := s.db.Collection("orders").InsertOne(context.WithoutCancel(ctx), o); err != nil {
			s.t.Fatal(err)
		}
		s.sold = append(s.sold, o)
	}
}

// settle waits until every order is published, and every group has all.
func (s *shop) settle(ctx context.Context) {
	h := &admin.HTTP{AppURL: s.sidecar.URL()}
	defer h.CloseIdle()
	var waits string
	rested := func() bool {
		left, err := s.db.Collection("orders").CountDocuments(ctx, bson.D{{Key: "published", Value: false}})
		if waits = fmt.Sprintf("%d orders are not published, %v", left, err); err != nil || left > 0 {
			return false
		}
		for _, g := range [][2]string{{ordersTopic, payingGroup}, {paymentsTopic, readingGroup}, {ordersTopic, readingGroup}} {
			info, err := h.GroupInfo(ctx, g[0], g[1])
			if waits = fmt.Sprintf("the group %s has a lag of %d on %s, %v", g[1], info.Lag, g[0], err); err != nil || info.Lag > 0 {
				return false
			}
		}
		return true
	}
	for !rested() {
		if !pause.For(ctx, 50*time.Millisecond) {
			s.t.Fatalf("the application does not come to rest: %s", waits)
		}
	}
}

// check compares the orders with the documents of the services and the events of the log.
func (s *shop) check(ctx context.Context) {
	t := s.t
	accounts, rows := map[string]account{}, map[string]row{}
	for _, o := range s.sold {
		a := accounts[o.Customer]
		accounts[o.Customer] = account{o.Customer, a.Charges + 1, a.Sum + o.Amount, o.Number}
		rows[o.ID] = row{o.ID, o.Customer, o.Amount, o.Amount}
	}
	compare(ctx, t, s.db.Collection("accounts"), accounts, func(a account) string { return a.Customer })
	compare(ctx, t, s.db.Collection("rows"), rows, func(r row) string { return r.ID })
	for _, f := range all[struct{ Says string }](ctx, t, s.db.Collection("faults")) {
		t.Error(f.Says)
	}

	h := &admin.HTTP{AppURL: s.sidecar.URL(), ReplayURL: s.sidecar.ReplayURL()}
	defer h.CloseIdle()
	for topic, suffix := range map[string]string{ordersTopic: "", paymentsTopic: ".charged"} {
		s.checkLog(ctx, h, topic, suffix)
		dead, err := h.DeadLetters(ctx, topic, admin.DeadLetterQuery{Limit: 3})
		if err != nil || dead.Total > 0 {
			t.Errorf("%d dead letters of %s: %+v, %v", dead.Total, topic, dead.DeadLetters, err)
		}
	}
	if len(s.sold) < 50 {
		t.Errorf("only %d orders: the test has not tested anything", len(s.sold))
	}
}

// checkLog compares the events of a topic with the orders.
func (s *shop) checkLog(ctx context.Context, h *admin.HTTP, topic, suffix string) {
	seqs := map[string]uint64{}
	for e, err := range h.Export(ctx, sluice.ExportQuery{Topic: topic}) {
		if err != nil {
			s.t.Fatal(err)
		}
		if seqs[e.ID] > 0 {
			s.t.Errorf("%s is in %s twice", e.ID, topic)
		}
		seqs[e.ID] = e.Seq
	}
	last := map[string]uint64{}
	for _, o := range s.sold { // by number, for each customer
		seq := seqs[o.ID+suffix]
		if seq <= last[o.Customer] {
			s.t.Errorf("%s is at seq %d of %s, and the one before it at %d", o.ID, seq, topic, last[o.Customer])
		}
		last[o.Customer] = seq
	}
	if len(seqs) != len(s.sold) {
		s.t.Errorf("%d events are in %s; %d orders were made", len(seqs), topic, len(s.sold))
	}
}

// compare wants exactly these documents in a collection.
func compare[T comparable](ctx context.Context, t *testing.T, c *mongo.Collection, want map[string]T, id func(T) string) {
	t.Helper()
	got := map[string]T{}
	for _, doc := range all[T](ctx, t, c) {
		got[id(doc)] = doc
	}
	for name, doc := range want {
		if got[name] != doc {
			t.Errorf("%s: %+v; want %+v", c.Name(), got[name], doc)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d documents; want %d", c.Name(), len(got), len(want))
	}
}

func all[T any](ctx context.Context, t *testing.T, c *mongo.Collection) (docs []T) {
	t.Helper()
	found, err := c.Find(ctx, bson.D{})
	if err == nil {
		err = found.All(ctx, &docs)
	}
	require.NoError(t, err)
	return docs
}
