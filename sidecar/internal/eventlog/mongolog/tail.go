package mongolog

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

const (
	// tailAwait is how long the server lets a follower wait while there are no signals for it: an
	// idle cursor costs one command in that time. A follower notices a dead connection so much
	// later, unless the driver does.
	tailAwait = 10 * time.Second
	tailBatch = 1000
	// tailSpacing is how long a follower waits after a signal before it asks for more: those of
	// many sidecars come at once then.
	tailSpacing = 5 * time.Millisecond
)

var errTailEnded = errors.New("the server ended the cursor on signals")

// signals is a capped collection that signals are inserted into. They are worth nothing tomorrow,
// so one server is enough to have them.
func (l *Log) signals(shard int) *mongo.Collection {
	return l.db.Collection(l.signalsName(shard), options.Collection().
		SetWriteConcern(writeconcern.W1()).SetReadConcern(&readconcern.ReadConcern{}))
}

// tail follows a capped collection. A cursor on one begins at its oldest document, so tail skips
// stored signals: they are in the order in which the server got them, not in that of any field, and
// filters do not help.
func (f *follower) tail(ctx context.Context, progress func()) error {
	last, err := f.lastSignal(ctx)
	if err != nil {
		return err
	}
	// Not every engine keeps a tailable cursor whose first batch is not full.
	o := options.Find().SetCursorType(options.TailableAwait).SetMaxAwaitTime(tailAwait).SetBatchSize(1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(f.log.primary.term(), cancel)() // the cursor would go on, on what is a secondary then
	// Not a deadline: the server would hold the cursor to it.
	patience := f.log.opts.Clock.AfterFunc(f.log.opts.Timeout, cancel)
	others := bson.D{{Key: "node", Value: bson.D{{Key: "$ne", Value: f.node}}}, {Key: "slots", Value: bson.D{{Key: "$in", Value: f.slots}}}}
	cur, err := f.log.signals(f.shard).Find(ctx, anyOf(bson.A{others, bson.D{{Key: "_id", Value: last}}}), o)
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
			// If the end comes first, newer signals have pushed the last one out, and may have been
			// skipped. It comes with a batch that is not full; the first one is of 1.
			ended := !more || cur.RemainingBatchLength() == 0 && n%tailBatch != 1
			skipping = d.ID != last && !ended
			if d.ID != last && ended {
				f.open()
			}
		case more:
			f.hear(&d, false)
			if cur.RemainingBatchLength() == 0 && !f.log.opts.Clock.Sleep(ctx, tailSpacing) {
				return ctx.Err()
			}
		}
	}
	return ctx.Err()
}

// next waits for a signal for some time.
func (f *follower) next(ctx context.Context, cur *mongo.Cursor, d *signalDoc) (bool, error) {
	ctx, cancel := f.log.opts.Clock.WithTimeout(ctx, tailAwait+f.log.opts.Timeout)
	defer cancel()
	if !cur.TryNext(ctx) {
		return false, cur.Err()
	}
	return true, bson.Unmarshal(cur.Current, d)
}

// lastSignal is the newest signal's id. Where there is none it says hello, because the server keeps
// no cursor on an empty collection.
func (f *follower) lastSignal(ctx context.Context) (bson.ObjectID, error) {
	ctx, end, err := f.log.begin(ctx)
	if err != nil {
		return bson.ObjectID{}, err
	}
	defer end()
	var d signalDoc
	newest := options.FindOne().SetSort(bson.D{{Key: "$natural", Value: -1}})
	err = f.log.signals(f.shard).FindOne(ctx, bson.D{}, newest).Decode(&d)
	if errors.Is(err, mongo.ErrNoDocuments) {
		d = signalDoc{ID: bson.NewObjectID(), Node: f.node, Slots: []int32{}}
		_, err = f.log.signals(f.shard).InsertOne(ctx, d)
	}
	return d.ID, err
}

func (f *follower) closeCursor(cur *mongo.Cursor) {
	ctx, cancel := f.log.opts.Clock.WithTimeout(context.Background(), f.log.opts.Timeout)
	defer cancel()
	_ = cur.Close(ctx) // the server forgets it in any case
}
