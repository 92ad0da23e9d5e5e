package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sidecar/internal/capture"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
)

// The collection that sidecars capture, and the topic of its changes. No other application
// publishes to it.
const (
	capturedDatabase   = "shop"
	capturedCollection = "orders"
	capturedTopic      = capturedDatabase + "." + capturedCollection
)

// changerPlan is an application that changes documents of the captured collection, one after the
// other.
type changerPlan struct {
	Seed    uint64 `json:"seed"`
	Start   ms     `json:"start"`
	Every   ms     `json:"every"`
	Changes int    `json:"changes"`
	IDs     int    `json:"ids"` // documents of its own
}

// addChangers gives some plans a collection that is captured.
func (p *plan) addChangers(m mix) {
	d := newDice(p.Seed, 15)
	if !d.chance(m.captures) {
		return
	}
	for range d.upTo(2) {
		every := d.between(20, 1500)
		p.Changers = append(p.Changers, changerPlan{
			Seed: d.Uint64(), Start: d.between(0, p.Lasts/4), Every: every, Changes: min(40, int((p.Lasts-p.Lasts/4)/every)), IDs: d.upTo(4),
		})
	}
}

// newCapture makes what package sidecar does for a captured collection; nil: the plan has none.
func (p *process) newCapture() (*capture.Capture, error) {
	if len(p.machine.run.plan.Changers) == 0 {
		return nil, nil
	}
	url := strings.Replace(p.machine.run.set.URI(), "/?", "/"+mongolog.DefaultDatabase+"?serverMonitoringMode=poll&", 1)
	source, err := capture.ParseSource(capturedTopic, url)
	if err != nil {
		return nil, err
	}
	return capture.New(capture.Config{
		Source: source, Store: url, Database: mongolog.DefaultDatabase, NodeID: p.machine.name, Roster: p.roster,
		Limits: wire.DefaultLimits(), Observer: telemetry.Discard().Capture(capturedTopic, capturedTopic),
		Publisher: outboxPublisher{p.publisher, p.publisher.NewLogOnlyConnection()}, Clock: p.machine.clock.Clock(), Logger: p.machine.logger(),
		Dialer: gated{p.machine.run.set.Client(p.link).Dialer, &p.machine.gate, nil},
	})
}

// documentChange is one change of a document, which takes effect exactly once.
type documentChange struct {
	Op, ID       string
	Version      int // of the document behind the change, or that a delete removes
	Began, Ended moment
}

// changer makes the changes of its plan. Of all faults, it meets only those of the replica set.
type changer struct {
	run      *run
	name     string
	plan     changerPlan
	dice     dice
	coll     *mongo.Collection
	versions map[string]int // by _id; of deleted documents, too
	there    map[string]bool
}

// openCollection starts the applications that change documents, if the plan has any.
func (r *run) openCollection() {
	if len(r.plan.Changers) == 0 {
		return
	}
	client, err := mongo.Connect(r.set.Client("shop").SetRetryWrites(false).
		SetServerMonitoringMode(options.ServerMonitoringModePoll).SetServerSelectionTimeout(patience).SetTimeout(patience).
		SetReadConcern(readconcern.Majority()).SetWriteConcern(writeconcern.Majority()))
	if err != nil {
		r.fail("captured collection: %v", err)
		return
	}
	r.closeCollection = func() error { return client.Disconnect(context.Background()) }
	for i, p := range r.plan.Changers {
		app := &changer{
			run: r, name: fmt.Sprintf("d%d", i), plan: p, dice: newDice(p.Seed, 16), versions: map[string]int{}, there: map[string]bool{},
			coll: client.Database(capturedDatabase).Collection(capturedCollection),
		}
		r.going.Add(1)
		r.apps.Go(func() {
			defer r.going.Add(-1)
			app.work()
		})
	}
}

func (a *changer) work() {
	// A capture begins with the changes that come after its first place is saved.
	for !a.followed() {
		if !a.run.sleep(a.run.tryAgain()) {
			return
		}
	}
	if !a.run.sleep(a.plan.Start.d()) {
		return
	}
	for range a.plan.Changes {
		if !a.run.sleep(time.Duration(a.dice.Int64N(int64(2*a.plan.Every.d()) + 1))) {
			return
		}
		c := a.next()
		a.run.history.note(func(now moment) {
			c.Began = now
			a.run.history.Changes = append(a.run.history.Changes, c)
		})
		for !a.change(c) {
			if a.run.late() {
				a.run.unmet("%s could not %s %s", a.name, c.Op, c.ID)
				return
			}
			time.Sleep(a.run.tryAgain())
		}
		a.run.history.note(func(now moment) { c.Ended = now })
	}
}

// followed reports whether a place of the capture is saved.
func (a *changer) followed() bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n, err := a.coll.Database().Client().Database(mongolog.DefaultDatabase).Collection(capture.Places).CountDocuments(ctx, bson.D{})
	return err == nil && n > 0
}

// next is the next change of one of the documents.
func (a *changer) next() *documentChange {
	id := fmt.Sprintf("%s-%d", a.name, a.dice.IntN(a.plan.IDs))
	c := &documentChange{Op: "insert", ID: id}
	if a.there[id] {
		c.Op = []string{"update", "update", "replace", "delete"}[a.dice.IntN(4)]
	}
	if a.there[id] = c.Op != "delete"; a.there[id] {
		a.versions[id]++
	}
	c.Version = a.versions[id]
	return c
}

// change makes the change unless it is made already, and reports whether a majority has it. Its
// filter names the version before it, so that it takes effect once, however often it is tried.
func (a *changer) change(c *documentChange) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	before := bson.D{{Key: "_id", Value: c.ID}, {Key: "version", Value: c.Version - 1}}
	after := bson.D{{Key: "_id", Value: c.ID}, {Key: "version", Value: c.Version}}
	var err error
	switch c.Op {
	case "insert":
		_, err = a.coll.InsertOne(ctx, after)
	case "update":
		_, err = a.coll.UpdateOne(ctx, before, bson.D{{Key: "$set", Value: after[1:]}})
	case "replace":
		_, err = a.coll.ReplaceOne(ctx, before, after)
	case "delete":
		_, err = a.coll.DeleteOne(ctx, after)
	}
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return false
	}
	var found struct {
		Version int `bson:"version"`
	}
	err = a.coll.FindOne(ctx, bson.D{{Key: "_id", Value: c.ID}}).Decode(&found)
	if c.Op == "delete" {
		return errors.Is(err, mongo.ErrNoDocuments)
	}
	return err == nil && found.Version == c.Version
}

// captured reports whether there is an event for each change.
func (r *run) captured() bool {
	if len(r.plan.Changers) == 0 {
		return true
	}
	p := r.machines[0].process()
	if p == nil {
		return false
	}
	r.history.mu.Lock()
	changes := len(r.history.Changes)
	r.history.mu.Unlock()
	recs, err := p.log.Read(context.Background(), capturedTopic, 0, 1, eventlog.Bounds{Events: 10_000})
	return err == nil && len(recs) >= changes || changes == 0
}

// checkCaptured holds the events of each document against its changes. The event of an update has
// the document as the capture found it when it looked, which may be after later changes.
func checkCaptured(v *view, broken func(string, ...any)) {
	changes, events := map[string][]*documentChange{}, map[string][]*stored{}
	for _, c := range v.Changes {
		changes[c.ID] = append(changes[c.ID], c)
	}
	for _, s := range v.parts[part{capturedTopic, 0}] {
		events[s.Key] = append(events[s.Key], s)
		if changes[s.Key] == nil {
			broken("seq %d has an event of %q, which was never changed", s.Seq, s.Key)
		}
	}
	for id, all := range changes {
		if !all[len(all)-1].Ended.came() { // it may have taken effect or not
			all = all[:len(all)-1]
		}
		if got := len(events[id]); got < len(all) || got > len(changes[id]) {
			broken("%s was changed %d times and has %d events", id, len(all), got)
			continue
		}
		for i, c := range all {
			s := events[id][i]
			if err := c.compare(s); err != nil {
				broken("change %d of %s, at seq %d: %v", i+1, id, s.Seq, err)
			}
		}
	}
}

// compare returns how an event differs from one of this change.
func (c *documentChange) compare(s *stored) error {
	if c.Op == "delete" || s.Content == "null" {
		if c.Op != "delete" || s.Content != "null" {
			return fmt.Errorf("it was a %s, and the event is %s", c.Op, s.Content)
		}
		return nil
	}
	var e struct {
		Op       string
		Document *struct{ Version int }
	}
	if err := json.Unmarshal([]byte(s.Content), &e); err != nil {
		return err
	}
	switch later := c.Op == "update"; {
	case e.Op != c.Op:
		return fmt.Errorf("it was a %s, and the event says %s", c.Op, e.Op)
	case e.Document == nil && !later:
		return errors.New("the event has no document")
	case e.Document != nil && (e.Document.Version < c.Version || e.Document.Version > c.Version && !later):
		return fmt.Errorf("it made version %d, and the event has %d", c.Version, e.Document.Version)
	}
	return nil
}
