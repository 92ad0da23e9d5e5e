package appends

import (
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// maxLonePartitions bounds the topics that have a lone writer: ending its claim makes a void in each partition.
const maxLonePartitions = 64

// A lone writer makes a reservation again after tellAfter and tellEvents, which tells the head what it
// has stored since: lists of topics show that.
const (
	tellAfter  = time.Minute
	tellEvents = 100
)

// lone is what this process knows of a topic's lone writer, see lone.go of package heads. A reservation
// makes the claim, so becoming the lone writer costs nothing. After that a batch is one insert.
//
// Whatever goes wrong with a batch ends the claim in this process: only the answer to a reservation
// begins one. Then the next reservation finds the claim in the head, and ends it like one of others.
// What is on its way meets the void.
//
// A topic's batches, which come one after the other, own it.
type lone struct {
	claim int64 // 0: this process is not the lone writer
	// since is before the last write was sent that found the claim in force: voids behind the events
	// that were stored then are younger.
	since core.Moment
	// last is, by partition, the highest seq that was given out: by the head, as the last reservation
	// left it, or by the lone writer.
	last  []uint64
	quiet int // reservations in a row with none of others between them
	// untold is what was stored since the last reservation, which was made at claimed.
	untold  totals
	claimed core.Moment
}

// place gives seqs to the events that have none: the next ones, if this process is the lone writer,
// else reserved ones. A scheduled event may be gone when it is moved to its seq, so the lone writer
// reserves for it, too.
func (b *batch) place(ctx context.Context) error {
	inForce := b.lone.claim != 0 && b.lone.since.Age(b.store.Clock) <= reservedFor
	if !inForce && slices.ContainsFunc(b.lines, func(ln *line) bool { return ln.lone }) {
		b.leave()
	}
	tells := b.lone.untold.events >= tellEvents && b.lone.claimed.Age(b.store.Clock) > tellAfter
	if !inForce || tells || slices.ContainsFunc(b.lines, (*line).moves) {
		return b.reserve(ctx)
	}
	b.lone.untold = b.lone.untold.clone()
	for _, ln := range b.lines {
		if ln.unplaced() {
			b.lone.untold.add(b.topic.Name, ln)
			last := &b.lone.last[ln.p]
			*last += uint64(len(ln.pending))
			ln.give(*last, b.lone.since)
			ln.lone = true
		}
	}
	return nil
}

// leave has this process be no lone writer any more. What it has not stored reserves seqs.
func (b *batch) leave() {
	b.lone.claim, b.lone.quiet = 0, 0
	for _, ln := range b.lines {
		if ln.lone {
			ln.restart()
		}
	}
}

// handBackWithin bounds the wait for the end of the claims when the log is closed.
const handBackWithin = time.Second

// HandBack ends the claims of this process when the log is closed, so that the next writers need not: they make a reservation,
// and no voids. Nothing is under way by then, and a claim that this process still has never had a write go wrong. So all that it
// sent is stored, nothing of it comes late, and the head rises to it. A claim that others have ended is left alone, and one that
// could not be handed back is ended by them.
func (a *Appender) HandBack() {
	var writes []mongo.WriteModel
	a.queues.Range(func(t, q any) bool {
		if l := &q.(*queue).lone; l.claim != 0 {
			writes = append(writes, l.handBack(t.(*topics.Topic)))
		}
		return true
	})
	if len(writes) == 0 {
		return
	}
	ctx, cancel := a.store.Clock.WithTimeout(context.Background(), handBackWithin)
	defer cancel()
	if _, err := a.store.BulkWrite(ctx, core.Events, writes); err != nil {
		a.store.Logger.Debug("could not hand claims of lone writers back", "topics", len(writes), "error", err)
	}
}

func (l *lone) handBack(t *topics.Topic) mongo.WriteModel {
	most, least := bson.D{{Key: heads.FieldMaxTS, Value: l.untold.maxTS}}, bson.D{}
	for p, last := range l.last {
		most = append(most, bson.E{Key: heads.Path(heads.FieldGiven, p), Value: int64(last)})
	}
	for p, ts := range l.untold.minTS {
		least = append(least, bson.E{Key: heads.Path(heads.FieldMinTS, p), Value: ts})
	}
	update := bson.D{
		{Key: "$max", Value: most},
		{Key: "$inc", Value: bson.D{{Key: heads.FieldCount, Value: l.untold.events}, {Key: heads.FieldBytes, Value: l.untold.bytes}}},
		{Key: "$unset", Value: bson.D{{Key: heads.FieldLone, Value: ""}, {Key: heads.FieldBy, Value: ""}}},
	}
	if len(least) > 0 {
		update = append(update, bson.E{Key: "$min", Value: least})
	}
	return mongo.NewUpdateOneModel().SetUpdate(update).SetFilter(append(heads.Of(t.Name), bson.E{Key: heads.FieldLone, Value: l.claim}))
}

// mayClaim reports whether the next reservation makes a claim. The more partitions there are, the more
// it costs to end one.
func (b *batch) mayClaim() bool {
	quiet := b.lone.claim != 0 || b.loneAfter > 0 && b.lone.quiet >= b.loneAfter+len(b.topic.Parts)/16
	return quiet && b.concern.name == concernMajority && len(b.topic.Parts) <= maxLonePartitions
}

// learn takes from the answer to a reservation what was given out, and whether others have reserved.
func (b *batch) learn(r *reservation, head heads.Head) {
	if b.lone.last == nil {
		b.lone.last = make([]uint64, len(b.topic.Parts))
	}
	b.lone.untold = totals{}
	for _, ln := range r.lines {
		b.lone.last[ln.p] += uint64(len(ln.pending))
	}
	b.lone.quiet++
	for p, expected := range b.lone.last {
		given := head.Given(p)
		if given > expected {
			b.lone.quiet = 0
			b.topic.Rivals.Store(b.store.Clock.Now().UnixNano())
		}
		if given > expected || r.renews == 0 { // else the lone writer has given out seqs above the head
			b.lone.last[p] = given
		}
	}
	if b.lone.claim = 0; r.claims && head.Lone() == r.by {
		b.lone.claim, b.lone.since, b.lone.claimed = r.by, r.since, r.since
	}
}
