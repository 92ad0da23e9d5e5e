package signals

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

const (
	// tailAwait is how long the server keeps a follower waiting when it has no signals: an idle
	// cursor costs one command in that time. A follower notices a dead connection up to this much
	// later, unless the driver notices it first.
	tailAwait = 10 * time.Second
	tailBatch = 1000
	// tailSpacing is how long a follower waits after a signal before it asks for more. Then the
	// signals of many sidecars arrive at once.
	tailSpacing = 5 * time.Millisecond
)

var errTailEnded = errors.New("the server ended the cursor on signals")

// collection is a capped collection of signals. Signals are useful for a short time only, so one
// server is enough to hold them.
func collection(s *core.Store, shard int) *mongo.Collection {
	return s.DB.Collection(core.SignalsName(shard), options.Collection().
		SetWriteConcern(writeconcern.W1()).SetReadConcern(&readconcern.ReadConcern{}))
}

// tail follows a capped collection. A cursor on it begins at the oldest document, so tail skips
// stored signals. Filters do not help: the order is that in which the server received the signals,
// and no field has that order.
func (f *follower) tail(ctx context.Context, progress func()) error {
	last, err := f.lastSignal(ctx)
	if err != nil {
		return err
	}
	o := options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(tailAwait).SetBatchSize(1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.store.PrimaryTerm(), cancel)() // that server is then a secondary
	// This is no deadline of ctx, since the server would apply that to the whole cursor.
	patience := f.store.Clock.AfterFunc(f.store.Timeout, cancel)
	others := bson.D{{Key: "node", Value: bson.D{{Key: "$ne", Value: f.sender}}},
		{Key: "slots", Value: bson.D{{Key: "$in", Value: f.slots}}}}
	cur, err := collection(f.store, f.shard).Find(ctx, core.AnyOf(bson.A{others, bson.D{{Key: "_id", Value: last}}}), o)
	if err != nil {
		return err
	}
	patience.Stop()
	defer f.closeCursor(cur)
	cur.SetBatchSize(tailBatch)
	progress()
	f.open()
	skipping := true
	for n := 1; ctx.Err() == nil; n++ {
		var d signalDoc
		switch more, err := f.next(ctx, cur, &d); {
		case err != nil:
			return err
		case cur.ID() == 0 && !more:
			return errTailEnded
		case skipping:
			// If the end comes first, newer signals have pushed the last one out of the collection,
			// and tail may have skipped them. A batch that is not full shows the end; the first
			// batch has size 1.
			ended := !more || cur.RemainingBatchLength() == 0 && n%tailBatch != 1
			skipping = d.ID != last && !ended
			if d.ID != last && ended {
				f.open()
			}
		case more:
			f.hear(&d, false)
			if cur.RemainingBatchLength() == 0 && !f.store.Clock.Sleep(ctx, tailSpacing) {
				return ctx.Err()
			}
		}
	}
	return ctx.Err()
}

// next waits for a signal for some time.
func (f *follower) next(ctx context.Context, cur *mongo.Cursor, d *signalDoc) (bool, error) {
	ctx, cancel := f.store.Clock.WithTimeout(ctx, tailAwait+f.store.Timeout)
	defer cancel()
	if !cur.TryNext(ctx) {
		return false, cur.Err()
	}
	return true, bson.Unmarshal(cur.Current, d)
}

// lastSignal is the newest signal's id. If there is no signal, lastSignal inserts a hello, because
// the server keeps no cursor on an empty collection.
func (f *follower) lastSignal(ctx context.Context) (bson.ObjectID, error) {
	ctx, end, err := f.store.Begin(ctx)
	if err != nil {
		return bson.ObjectID{}, err
	}
	defer end()
	var d signalDoc
	newest := options.FindOne().SetSort(bson.D{{Key: "$natural", Value: -1}})
	err = collection(f.store, f.shard).FindOne(ctx, bson.D{}, newest).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		d = signalDoc{ID: bson.NewObjectID(), Node: f.sender, Slots: []int32{}}
		_, err = collection(f.store, f.shard).InsertOne(ctx, d)
	}
	return d.ID, err
}

func (f *follower) closeCursor(cur *mongo.Cursor) {
	ctx, cancel := f.store.Clock.WithTimeout(context.Background(), f.store.Timeout)
	defer cancel()
	_ = cur.Close(ctx) // the server forgets it in any case
}

// following is one Follow.
type following struct {
	store  *core.Store
	sender string // this process's own id
	wanted eventlog.Topics

	mu    sync.Mutex // held while heard runs
	heard func(s eventlog.Signal, missed []string)
}

// follower follows some slots of one collection.
type follower struct {
	*following
	shard  int
	slots  []int32
	spare  time.Time // since when it also follows unwanted slots; zero: it does not
	cancel context.CancelFunc
	ended  chan struct{}
}

// missed are the wanted topics of these slots.
func (f *following) missed(slots []int32) []string {
	topics, _ := f.wanted()
	return slices.DeleteFunc(topics, func(topic string) bool {
		_, found := slices.BinarySearch(slots, slotOf(topic))
		return !found
	})
}

func (f *follower) has(slot int32) bool {
	_, found := slices.BinarySearch(f.slots, slot)
	return found
}

// hear passes a signal on, unless it is this log's own or concerns none of the followed slots.
// missed says that some signals before it may be lost.
func (f *follower) hear(d *signalDoc, missed bool) {
	concerns := missed || slices.ContainsFunc(d.Slots, f.has)
	if d.Node == f.sender || !concerns {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var topics []string
	switch {
	case missed:
		topics = f.missed(f.slots)
	case d.All:
		topics = f.missed(d.Slots)
	}
	f.heard(d.signal(), topics)
}

// open says that the follower has begun, and that earlier signals are lost.
func (f *follower) open() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.heard(eventlog.Signal{}, f.missed(f.slots))
}
