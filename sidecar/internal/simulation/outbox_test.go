package simulation

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/admit"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/outbox"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

const outboxName = "outbox"

// inserterPlan is an application that publishes through the outbox, with keys of its own.
type inserterPlan struct {
	Seed    uint64 `json:"seed"`
	Topic   string `json:"topic"`
	Start   ms     `json:"start"`
	Every   ms     `json:"every"`
	Calls   int    `json:"calls"`
	Batch   int    `json:"batch"`             // documents of a call, at most
	Keys    int    `json:"keys"`              // 0: events have no keys
	Atomic  bool   `json:"atomic,omitempty"`  // documents are inserted in a transaction
	Untimed bool   `json:"untimed,omitempty"` // documents have no ts, so that their ids alone say the order
}

// addInserters gives some plans an outbox.
func (p *plan) addInserters(m mix) {
	d := newDice(p.Seed, 6)
	if !d.chance(m.outbox) {
		return
	}
	for range d.upTo(2) {
		topic, every := p.Topics[d.IntN(len(p.Topics))].Name, d.between(20, 1500)
		if p.unmet(topic) {
			continue // nothing of it would ever be published
		}
		p.Inserters = append(p.Inserters, inserterPlan{
			Seed: d.Uint64(), Topic: topic, Start: d.between(0, p.Lasts/4),
			Every: every, Calls: min(40, int((p.Lasts-p.Lasts/4)/every)), Batch: d.upTo(5), Keys: d.IntN(4),
			Atomic: d.chance(50), Untimed: d.chance(20),
		})
	}
}

// newDrainer makes what package sidecar does for an outbox.
func (p *process) newDrainer() (*outbox.Drainer, error) {
	if len(p.machine.run.plan.Inserters) == 0 {
		return nil, nil
	}
	return outbox.New(outbox.Config{
		URL: p.machine.run.set.URI() + "&serverMonitoringMode=poll", Collection: outboxName, NodeID: p.machine.name, Lease: lease,
		LogID: p.log.StoreID, Roster: p.roster, Limits: wire.DefaultLimits(), Observer: telemetry.Discard().Outbox(outboxName),
		Publisher: outboxPublisher{p.publisher, p.publisher.NewLogOnlyConnection()}, Clock: p.machine.clock.Clock(), Logger: p.machine.logger(),
		Dialer: gated{p.machine.run.set.Client(p.link).Dialer, &p.machine.gate, nil},
	})
}

// unread are the topics whose news the drainers and captures need.
func (p *plan) unread() (topics []string) {
	if len(p.Inserters) > 0 {
		topics = append(topics, outbox.Topic)
	}
	if len(p.Changers) > 0 {
		topics = append(topics, capture.Topic)
	}
	return topics
}

// outboxPublisher is package sidecar's.
type outboxPublisher struct {
	publisher  *admit.Publisher
	connection *admit.Connection
}

func (p outboxPublisher) Publish(ctx context.Context, items []wire.PublishItem, done func([]wire.ResultItem)) *wire.Error {
	return p.publisher.Publish(ctx, p.connection, items, done)
}

func (outboxPublisher) MaxEvents(string) int { return 0 }

// entry is one document that an application has inserted into the outbox.
type entry struct {
	Inserter, Topic, ID, Key, Content string
	Began, Ended                      moment // Ended: the insert was answered OK

	// The document's fields in the end.
	Status, Error string
	Partition     int
	Seq           uint64 // 0: it did not say
}

// outboxClient inserts for applications. Of all faults, it meets only those of the replica set.
type outboxClient struct {
	run  *run
	coll *mongo.Collection
}

// openOutbox starts the applications that publish through the outbox, if the plan has any.
func (r *run) openOutbox() {
	if len(r.plan.Inserters) == 0 {
		return
	}
	client, err := mongo.Connect(r.set.Client("applications").
		SetServerMonitoringMode(options.ServerMonitoringModePoll).SetServerSelectionTimeout(patience).SetTimeout(patience).
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		r.fail("outbox: %v", err)
		return
	}
	r.outbox = &outboxClient{r, client.Database(outbox.DefaultDatabase).Collection(outboxName)}
	for i, p := range r.plan.Inserters {
		app := &inserter{client: r.outbox, name: fmt.Sprintf("o%d", i), plan: p, dice: newDice(p.Seed, 7)}
		r.apps.Go(app.work)
	}
}

// drained reports whether nothing is left in the outbox to publish.
func (o *outboxClient) drained() bool {
	if o == nil {
		return true
	}
	n, err := o.coll.CountDocuments(context.Background(), bson.D{{Key: "status", Value: "pending"}})
	return err == nil && n == 0
}

// close notes the state of the documents in the end.
func (o *outboxClient) close() error {
	if o == nil {
		return nil
	}
	ctx := context.Background()
	var docs []struct {
		ID            string `bson:"_id"`
		Status, Error string
		Partition     int
		Seq           uint64
	}
	cursor, err := o.coll.Find(ctx, bson.D{})
	if err == nil {
		err = cursor.All(ctx, &docs)
	}
	if err != nil {
		return err
	}
	byID := map[string]*entry{}
	for _, e := range o.run.history.Entries {
		byID[e.ID] = e
	}
	for _, d := range docs {
		e := byID[d.ID]
		e.Status, e.Error, e.Partition, e.Seq = d.Status, d.Error, d.Partition, d.Seq
	}
	return o.coll.Database().Client().Disconnect(ctx)
}

// inserter inserts what its plan says, one call after the other, and goes on trying until each is
// answered for.
type inserter struct {
	client *outboxClient
	name   string
	plan   inserterPlan
	dice   dice
	made   int
}

func (a *inserter) work() {
	r := a.client.run
	if !r.sleep(a.plan.Start.d()) {
		return
	}
	for range a.plan.Calls {
		if !r.sleep(time.Duration(a.dice.Int64N(int64(2*a.plan.Every.d()) + 1))) {
			return
		}
		entries, docs := a.next()
		r.history.note(func(now moment) {
			for _, e := range entries {
				e.Began = now
			}
			r.history.Entries = append(r.history.Entries, entries...)
		})
		for first := true; !a.insert(docs, first); first = false {
			if r.late() {
				r.unmet("%s could not insert %v", a.name, docs)
				return
			}
			time.Sleep(r.tryAgain())
		}
		r.history.note(func(now moment) {
			for _, e := range entries {
				e.Ended = now
			}
		})
	}
}

// next makes the documents of a call; ids rise.
func (a *inserter) next() (entries []*entry, docs []bson.D) {
	now := time.Now()
	for range a.dice.upTo(a.plan.Batch) {
		e := &entry{Inserter: a.name, Topic: a.plan.Topic, ID: fmt.Sprintf("%s-%04d", a.name, a.made)}
		a.made++
		e.Content = fmt.Sprintf(`{"of":%q}`, e.ID)
		doc := bson.D{
			{Key: "_id", Value: e.ID}, {Key: "topic", Value: e.Topic}, {Key: "status", Value: "pending"},
			{Key: "payload", Value: bson.D{{Key: "of", Value: e.ID}}},
		}
		if a.plan.Keys > 0 {
			e.Key = fmt.Sprintf("%s-k%d", a.name, a.dice.IntN(a.plan.Keys))
			doc = append(doc, bson.E{Key: "key", Value: e.Key})
		}
		if !a.plan.Untimed {
			doc = append(doc, bson.E{Key: "ts", Value: now})
		}
		entries, docs = append(entries, e), append(docs, doc)
	}
	return entries, docs
}

// insert reports whether a majority has all of the documents.
func (a *inserter) insert(docs []bson.D, first bool) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	insert := func(ctx context.Context) error {
		_, err := a.client.coll.InsertMany(ctx, docs, options.InsertMany().SetOrdered(first))
		return err
	}
	var err error
	if a.plan.Atomic {
		err = a.client.coll.Database().Client().UseSession(ctx, func(ctx context.Context) error {
			_, err := mongo.SessionFromContext(ctx).WithTransaction(ctx, func(ctx context.Context) (any, error) { return nil, insert(ctx) })
			return err
		})
	} else {
		err = insert(ctx)
	}
	if err == nil || first {
		return err == nil
	}
	// An earlier call may have inserted some.
	ids := bson.A{}
	for _, d := range docs {
		ids = append(ids, d[0].Value)
	}
	n, err := a.client.coll.CountDocuments(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	return err == nil && n == int64(len(docs))
}

func checkOutboxLost(v *view, broken func(string, ...any)) {
	for _, e := range v.Entries {
		s := v.find(e.Topic, e.ID)
		switch {
		case !e.Ended.came():
		case e.Status != "done":
			broken("%s/%s is %s in the outbox (%s)", e.Topic, e.ID, e.Status, e.Error)
		case !v.lasting(e.Topic):
		case s == nil:
			broken("%s/%s is done in the outbox and not in the log", e.Topic, e.ID)
		case s.Content != e.Content || s.Key != e.Key:
			broken("%s/%s is %s with key %q in the log, and was %s with key %q in the outbox", e.Topic, e.ID, s.Content, s.Key, e.Content, e.Key)
		case e.Seq > 0 && (e.Seq != s.Seq || e.Partition != s.Partition):
			broken("%s/%s is said to be at %d/%d and is at %d/%d", e.Topic, e.ID, e.Partition, e.Seq, s.Partition, s.Seq)
		}
	}
}

func checkOutboxOrder(v *view, broken func(string, ...any)) {
	type key struct{ topic, key string }
	latest := map[key]*stored{}
	entries := slices.Clone(v.Entries)
	slices.SortStableFunc(entries, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.Began.Order, b.Began.Order), cmp.Compare(a.ID, b.ID))
	})
	for _, e := range entries {
		s := v.find(e.Topic, e.ID)
		if e.Key == "" || s == nil || !v.lasting(e.Topic) {
			continue
		}
		k := key{e.Topic, e.Key}
		if before := latest[k]; before != nil && s.Seq < before.Seq {
			broken("key %s of %s: %s is behind %s in the outbox and before it in the log (%d, %d)", e.Key, e.Topic, e.ID, before.ID, s.Seq,
				before.Seq)
			continue
		}
		latest[k] = s
	}
}

// checkInvented looks at contents: the sidecar makes the ids of some events.
func checkInvented(v *view, broken func(string, ...any)) {
	type sent struct{ topic, content string }
	all := map[sent]bool{}
	for _, p := range v.Publishes {
		all[sent{p.Topic, p.Content}] = true
	}
	for _, e := range v.Entries {
		all[sent{e.Topic, e.Content}] = true
	}
	for _, s := range v.Stored {
		if _, dead := deadLettersOf(s.Topic); !dead && s.Topic != capturedTopic && s.Content != "" && !all[sent{s.Topic, s.Content}] {
			broken("nobody has published %s/%s, which is in the log with %s", s.Topic, s.ID, s.Content)
		}
	}
}
