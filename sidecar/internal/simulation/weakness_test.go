package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/group/dispatch"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
)

// weakness is one way to build the product wrong. It is put around the parts of a sidecar, or
// between the driver and the replica set, so that the product itself has no way to be weakened.
type weakness struct {
	name    string
	is      string // the mistake that it stands for
	obvious bool   // one schedule of five finds it, at the least
	seed    uint64 // of the first schedule of those that a test looks at
	// Any of these is set.
	commands func(*command)
	answers  func(*command, *answered)
	hasty    bool // events that may vanish with a primary are announced before the log shows them
	groups   func(group.Log) group.Log
	nodes    func(eventlog.Nodes) eventlog.Nodes
	appender func(eventlog.Appender) eventlog.Appender
	store    func(spool.Store) spool.Store
	// Of plans that schedule events.
	scheduler func(eventlog.Scheduler) eventlog.Scheduler
}

// The list leaves out mistakes that other parts make up for. One is epochs and nodes that are read
// locally, or outside of causally consistent sessions. Each such read follows a write at majority
// by the same driver. The driver never goes back to a primary that it knows to be replaced, and
// reads only from primaries. A look that follows no write errs only about a life that a replaced
// primary has not heard of. Another is a beat that is saved regardless of the beat saved before:
// epochs alone decide which sidecar delivers, so the mistake costs the others no more than a lease
// of waiting.
var weaknesses = []weakness{
	{name: "local-heads", is: "events and heads are read locally", commands: func(c *command) {
		if c.collection == "events" || c.collection == "heads" {
			readLocally(c)
		}
	}},
	{name: "w1-events", is: "events are answered OK at w: 1", commands: func(c *command) { writeOnce(c, "events") }},
	{name: "w1-epochs", is: "epochs are saved and taken at w: 1", commands: func(c *command) { writeOnce(c, "epochs") }},
	{name: "no-deduplication", obvious: true, is: "an event's _id is not made of its id alone", commands: func(c *command) {
		if c.name == "insert" && c.collection == "events" {
			for _, doc := range c.docs {
				if id, is := get(doc, "_id").(string); is { // an event's
					set(doc, "_id", fmt.Sprintf("%s/%d", id, rand.Uint64()))
				}
			}
		}
	}},
	{name: "replaced-epochs", is: "an epoch is taken by a replace instead of an insert", commands: replaceEpochs},
	{name: "unguarded-saves", is: "an epoch is saved whatever was saved before", commands: func(c *command) { unguard(c, "epochs") }},
	{name: "unfenced", is: "a save that a later epoch refuses counts", groups: func(l group.Log) group.Log {
		return weakGroups{Log: l, save: func(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
			if err := l.SaveEpochs(ctx, epochs, marks); !errors.Is(err, eventlog.ErrFenced) {
				return err
			}
			return nil
		}}
	}},
	{name: "ack-before-save", is: "an ack is answered before it is saved", groups: func(l group.Log) group.Log {
		return weakGroups{Log: l, save: func(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
			go func() { _ = l.SaveEpochs(context.WithoutCancel(ctx), epochs, marks) }()
			return nil
		}}
	}},
	{name: "cursor-ahead", obvious: true, is: "the cursor is saved beyond the first unsettled event", groups: func(l group.Log) group.Log {
		return weakGroups{Log: l, save: func(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
			epochs = slices.Clone(epochs)
			for i := range epochs {
				if p := &epochs[i].Progress; len(p.Settled) > 0 {
					p.Cursor, p.Settled = p.Settled[len(p.Settled)-1].Last+1, nil
				}
			}
			return l.SaveEpochs(ctx, epochs, marks)
		}}
	}},
	{name: "forgotten-settles", obvious: true, is: "what is settled above the cursor is not saved", groups: func(l group.Log) group.Log {
		return weakGroups{Log: l, save: func(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
			epochs = slices.Clone(epochs)
			for i := range epochs {
				epochs[i].Progress.Settled = nil
			}
			return l.SaveEpochs(ctx, epochs, marks)
		}}
	}},
	{name: "early-inheritance", is: "a taker goes on from what it had read before it took", groups: func(l group.Log) group.Log {
		return weakGroups{Log: l, take: func(ctx context.Context, epochs []eventlog.Epoch) []error {
			epochs = slices.Clone(epochs)
			for i := range epochs {
				epochs[i].Inherit = false
			}
			return l.TakeEpochs(ctx, epochs)
		}}
	}},
	{name: "uncounted-attempts", is: "attempts are not saved", groups: func(l group.Log) group.Log {
		return weakGroups{Log: l, save: func(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
			epochs = slices.Clone(epochs)
			for i := range epochs {
				epochs[i].Progress.Attempts = nil
			}
			return l.SaveEpochs(ctx, epochs, marks)
		}}
	}},
	{name: "no-reach", is: "saves do not say how far events go unsaved", groups: func(l group.Log) group.Log {
		return weakGroups{Log: l, save: func(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
			epochs = slices.Clone(epochs)
			for i := range epochs {
				epochs[i].Progress.Reach, epochs[i].Progress.ReachBy = 0, ""
			}
			return l.SaveEpochs(ctx, epochs, marks)
		}}
	}},
	{name: "reach-of-a-release", is: "a released epoch has a reach", groups: func(l group.Log) group.Log {
		return weakGroups{Log: l, save: func(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
			epochs = slices.Clone(epochs)
			for i := range epochs {
				if e := &epochs[i]; e.Released {
					e.Progress.Reach, e.Progress.ReachBy = math.MaxInt64, e.Owner
				}
			}
			return l.SaveEpochs(ctx, epochs, marks)
		}}
	}},
	{name: "early-order", is: "the order of a key counts an ack as saved before it is", groups: func(l group.Log) group.Log {
		return &earlySaves{Log: l}
	}},
	{name: "sure-reach", is: "what may not have been sent counts as sent for certain", groups: func(l group.Log) group.Log {
		return sureReach{l}
	}},
	{name: "silent-nodes", is: "a sidecar counts on a beat that it has not saved", nodes: func(n eventlog.Nodes) eventlog.Nodes {
		return &silentNodes{Nodes: n}
	}},
	{name: "empty-roll", is: "no change of a life is entered in the roll", nodes: func(n eventlog.Nodes) eventlog.Nodes {
		return rolllessNodes{n}
	}},
	{name: "early-deaths", is: "a sidecar is taken for dead after two looks", nodes: func(n eventlog.Nodes) eventlog.Nodes {
		return &hastyNodes{Nodes: n}
	}},
	{name: "unmet-is-away", is: "a topic whose write concern is not met counts as a store that is away",
		appender: func(a eventlog.Appender) eventlog.Appender {
			return weakAppender{a, func(outs []eventlog.Outcome, _ []*eventlog.Record, _ int) {
				for i := range outs {
					var unmet *eventlog.ConcernError
					if errors.As(outs[i].Err, &unmet) {
						outs[i].Err = fmt.Errorf("%w: %v", eventlog.ErrUnavailable, unmet)
					}
				}
			}}
		}},
	{name: "unknown-is-stored", is: "an append whose outcome is not known counts as stored",
		appender: func(a eventlog.Appender) eventlog.Appender {
			return weakAppender{a, func(outs []eventlog.Outcome, batch []*eventlog.Record, p int) {
				for i := range outs {
					if errors.Is(outs[i].Err, eventlog.ErrUnavailable) {
						outs[i] = eventlog.Outcome{Partition: p, Seq: batch[i].Seq, TS: batch[i].TS}
					}
				}
			}}
		}},
	{name: "conflict-is-duplicate", obvious: true, is: "an id that is taken by other content counts as stored",
		appender: func(a eventlog.Appender) eventlog.Appender {
			return weakAppender{a, func(outs []eventlog.Outcome, batch []*eventlog.Record, p int) {
				for i := range outs {
					var conflict *eventlog.ConflictError
					if errors.As(outs[i].Err, &conflict) {
						outs[i] = eventlog.Outcome{Partition: p, Seq: conflict.Seq, TS: batch[i].TS, Duplicate: true}
					}
				}
			}}
		}},
	{name: "spool-upside-down", is: "the spool is drained in another order than it was filled in", store: func(s spool.Store) spool.Store {
		return weakSpool{s, func(recs []*eventlog.Record) []*eventlog.Record {
			if len(recs) > 2 {
				recs = slices.Clone(recs)
				slices.Reverse(recs[:len(recs)-1])
			}
			return recs
		}}
	}},
	{name: "spool-forgets", is: "the spool leaves out what it has while it is drained", store: func(s spool.Store) spool.Store {
		return weakSpool{s, func(recs []*eventlog.Record) []*eventlog.Record {
			if len(recs) > 2 {
				return recs[1:]
			}
			return recs
		}}
	}},
}

// weaken finds a weakness; the zero value weakens nothing.
func weaken(name string) (weakness, error) {
	if name == "" {
		return weakness{}, nil
	}
	for _, w := range slices.Concat(weaknesses, logWeaknesses, redriveWeaknesses, laterWeaknesses) {
		if w.name == name {
			return w, nil
		}
	}
	return weakness{}, fmt.Errorf("no weakness is called %q", name)
}

func readLocally(c *command) {
	if concern, ok := get(c.body, "readConcern").(bson.D); ok {
		set(concern, "level", "local")
		set(c.body, "readConcern", without(concern, "afterClusterTime"))
	}
}

func writeOnce(c *command, collection string) {
	if c.collection == collection {
		set(c.body, "writeConcern", bson.D{{Key: "w", Value: 1}})
	}
}

// unguard leaves nothing in the filters of updates but the _id.
func unguard(c *command, collection string) {
	if c.name != "update" || c.collection != collection {
		return
	}
	for _, statement := range c.docs {
		if filter, ok := get(statement, "q").(bson.D); ok && get(filter, "_id") != nil {
			set(statement, "q", bson.D{{Key: "_id", Value: get(filter, "_id")}})
		}
	}
}

// replaceEpochs makes updates of inserts.
func replaceEpochs(c *command) {
	if c.name != "insert" || c.collection != "epochs" {
		return
	}
	c.body[0].Key, c.sequence = "update", "updates"
	for i, doc := range c.docs {
		c.docs[i] = bson.D{{Key: "q", Value: bson.D{{Key: "_id", Value: get(doc, "_id")}}}, {Key: "u", Value: doc}, {Key: "upsert", Value: true}}
	}
}

// weakGroups is a log whose groups are saved or taken in another way.
type weakGroups struct {
	group.Log
	save func(context.Context, []eventlog.Epoch, []eventlog.Mark) error
	take func(context.Context, []eventlog.Epoch) []error
}

func (w weakGroups) SaveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	if w.save == nil {
		return w.Log.SaveEpochs(ctx, epochs, marks)
	}
	return w.save(ctx, epochs, marks)
}

func (w weakGroups) TakeEpochs(ctx context.Context, epochs []eventlog.Epoch) []error {
	if w.take == nil {
		return w.Log.TakeEpochs(ctx, epochs)
	}
	return w.take(ctx, epochs)
}

// earlySaves tells of a save before it is made. A sync, after which acks are answered, waits for all of them.
type earlySaves struct {
	group.Log
	mu   sync.Mutex
	last chan struct{} // closed when the last save has ended; nil: there was none
}

func (l *earlySaves) SaveEpochs(ctx context.Context, epochs []eventlog.Epoch, marks []eventlog.Mark) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, done := l.last, make(chan struct{})
	l.last = done
	go func() {
		defer close(done)
		if before != nil {
			<-before
		}
		_ = l.Log.SaveEpochs(context.WithoutCancel(ctx), epochs, marks)
	}()
	return nil
}

func (l *earlySaves) Sync(ctx context.Context) error {
	l.mu.Lock()
	last := l.last
	l.mu.Unlock()
	if last != nil {
		select {
		case <-last:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return l.Log.Sync(ctx)
}

// sureReach reads the reach of epochs as deliveries.
type sureReach struct{ group.Log }

func (l sureReach) LatestEpochs(ctx context.Context, topic, g string) ([]eventlog.Epoch, error) {
	epochs, err := l.Log.LatestEpochs(ctx, topic, g)
	for i := range epochs {
		p := &epochs[i].Progress
		named := slices.Concat(p.Settled, p.Out, p.Unsure)
		for _, r := range p.Attempts {
			named = append(named, r.SeqRange)
		}
		for seq := p.Cursor; seq <= p.Reach; seq++ {
			if !slices.ContainsFunc(named, dispatch.Holds(seq)) {
				p.Attempts = append(p.Attempts, eventlog.AttemptRange{SeqRange: eventlog.SeqRange{First: seq, Last: seq}, Attempts: 1})
			}
		}
		slices.SortFunc(p.Attempts, func(a, b eventlog.AttemptRange) int { return cmp.Compare(a.First, b.First) })
		p.Reach, p.ReachBy = 0, ""
	}
	return epochs, err
}

// silentNodes saves the first beat only.
type silentNodes struct {
	eventlog.Nodes
	saved map[string]bool
}

func (n *silentNodes) SaveNode(ctx context.Context, node eventlog.Node) error {
	if n.saved[node.ID] {
		return nil
	}
	err := n.Nodes.SaveNode(ctx, node)
	if err == nil {
		n.saved = map[string]bool{node.ID: true}
	}
	return err
}

// rolllessNodes leaves the roll as it is.
type rolllessNodes struct{ eventlog.Nodes }

func (rolllessNodes) Enter(context.Context, ...eventlog.NodeChange) error { return nil }

// hastyNodes leaves out the nodes that have not moved since the look before.
type hastyNodes struct {
	eventlog.Nodes
	beats map[string]uint64
}

func (n *hastyNodes) Look(ctx context.Context, ids []string, known uint64) (left []eventlog.Node, roll eventlog.Roll, err error) {
	all, roll, err := n.Nodes.Look(ctx, ids, known)
	if n.beats == nil {
		n.beats = map[string]uint64{}
	}
	for _, node := range all {
		if before, seen := n.beats[node.ID]; !seen || before != node.Beat {
			left = append(left, node)
		}
		n.beats[node.ID] = node.Beat
	}
	return left, roll, err
}

// weakAppender changes some outcomes.
type weakAppender struct {
	eventlog.Appender
	change func(outs []eventlog.Outcome, batch []*eventlog.Record, partition int)
}

func (a weakAppender) Append(ctx context.Context, topic string, partition int, batch []*eventlog.Record) []eventlog.Outcome {
	outs := a.Appender.Append(ctx, topic, partition, batch)
	a.change(outs, batch, partition)
	return outs
}

// weakSpool reads something else than it has.
type weakSpool struct {
	spool.Store
	change func([]*eventlog.Record) []*eventlog.Record
}

func (s weakSpool) Read(ctx context.Context, topic string, partition int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error) {
	recs, err := s.Store.Read(ctx, topic, partition, from, b)
	return s.change(recs), err
}
