package appends

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/heads"
)

// reservedFor is how long seqs that were given out count. It is far below core.Config.SeqTaken.
const reservedFor = time.Hour

// reservation is a request for seqs.
type reservation struct {
	by    int64 // its own number, which the head keeps until the next one
	lines []*line
	since core.Moment // before it was sent
	// renews is the claim of this process as a lone writer, which it ends; 0: none. claims: its number
	// becomes the claim.
	renews int64
	claims bool
}

// reserve gives a seq to each event that has no valid one, with one request for all partitions. If
// the answer is lost, reserve asks for it: while the head has the request's number, nobody has
// reserved since, and the highest seqs are the request's. Otherwise reserve makes another request.
// Readers void the seqs that nobody uses.
func (b *batch) reserve(ctx context.Context) error {
	// Half of the time is left for another try if there is no answer.
	ctx, cancel := b.store.Clock.WithTimeout(ctx, b.store.Timeout/2)
	defer cancel()
	if r := b.unanswered; r != nil {
		// The update changes nothing. As a write it finds what this primary has, and its answer waits
		// until the concern has it too.
		by := bson.E{Key: heads.FieldBy, Value: r.by}
		head, err := b.updateHead(ctx, bson.D{{Key: "$set", Value: bson.D{by}}}, by)
		if err == nil {
			return b.give(r, head)
		} else if !errors.Is(err, mongo.ErrNoDocuments) {
			return err
		}
		b.unanswered = nil
	}
	r, update := b.newReservation()
	if len(r.lines) == 0 {
		return nil
	}
	head, err := b.updateHead(ctx, update, bson.E{Key: heads.FieldLone, Value: bson.D{{Key: "$in", Value: r.expected()}}})
	if err == nil {
		return b.give(r, head)
	}
	b.leave()
	r.claims, r.renews = false, 0 // the claim, if it was made, is nobody's
	switch {
	case errors.Is(err, mongo.ErrNoDocuments):
		return b.noHead(ctx)
	case !core.IsRefusedBefore(err):
		b.unanswered = r
	}
	return err
}

// expected are the claims that the head may have.
func (r *reservation) expected() bson.A {
	if r.renews != 0 {
		return bson.A{nil, r.renews}
	}
	return bson.A{nil}
}

// updateHead updates the head of the batch's generation, if it is as expected, and returns it.
func (b *batch) updateHead(ctx context.Context, update any, expected ...bson.E) (heads.Head, error) {
	o := options.FindOneAndUpdate().SetReturnDocument(options.After)
	ours := append(heads.Of(b.topic.Name), bson.E{Key: document.FieldGeneration, Value: b.generation})
	raw, err := b.concern.heads.FindOneAndUpdate(ctx, append(ours, expected...), update, o).Raw()
	return heads.Head(raw), err
}

// newReservation is the next request, for all events that have no valid seq, and its update.
func (b *batch) newReservation() (r *reservation, update any) {
	r = &reservation{by: 1 + rand.Int64N(math.MaxInt64), since: core.Now(b.store.Clock), renews: b.lone.claim, claims: b.mayClaim()}
	set := bson.D{{Key: heads.FieldBy, Value: r.by}}
	if r.claims {
		set = append(set, bson.E{Key: heads.FieldLone, Value: r.by})
	}
	var inc, longer, above, lowest bson.D
	all := b.lone.untold.clone()
	for _, ln := range b.lines {
		if len(ln.pending) > 0 && !ln.unplaced() && !ln.lone && ln.since.Age(b.store.Clock) > reservedFor {
			ln.restart()
		}
		if !ln.unplaced() {
			continue
		}
		r.lines = append(r.lines, ln)
		given, patience := heads.Path(heads.FieldGiven, ln.p), heads.Path(heads.FieldPatience, ln.p)
		n, ms := int64(len(ln.pending)), ln.patience.Milliseconds()
		inc = append(inc, bson.E{Key: given, Value: n})
		highest := maxOf("$"+given, int64(b.topic.Parts[ln.p].Reserved.Load()))
		above = append(above, bson.E{Key: given, Value: bson.D{{Key: "$add", Value: bson.A{highest, n}}}})
		if ms > 0 {
			longer = append(longer, bson.E{Key: patience, Value: ms})
			above = append(above, bson.E{Key: patience, Value: maxOf("$"+patience, ms)})
		}
		all.add(b.topic.Name, ln)
	}
	for p, ts := range all.minTS {
		minTS := heads.Path(heads.FieldMinTS, p)
		lowest = append(lowest, bson.E{Key: minTS, Value: ts})
		above = append(above, bson.E{Key: minTS, Value: bson.D{{Key: "$min", Value: bson.A{"$" + minTS, ts}}}})
	}
	if b.concern.members == 1 || b.behind || r.renews != 0 { // the head is below what the lone writer has stored
		above = append(above, plus(heads.FieldCount, all.events), plus(heads.FieldBytes, all.bytes),
			bson.E{Key: heads.FieldMaxTS, Value: maxOf("$"+heads.FieldMaxTS, all.maxTS)})
		return r, bson.A{bson.D{{Key: "$set", Value: append(above, set...)}}}
	}
	inc = append(inc, bson.E{Key: heads.FieldCount, Value: all.events}, bson.E{Key: heads.FieldBytes, Value: all.bytes})
	longer = append(longer, bson.E{Key: heads.FieldMaxTS, Value: all.maxTS})
	return r, bson.D{{Key: "$inc", Value: inc}, {Key: "$set", Value: set}, {Key: "$max", Value: longer}, {Key: "$min", Value: lowest}}
}

// totals are what a head is told about events.
type totals struct {
	events, bytes, maxTS int64
	minTS                map[int]int64 // by partition
}

// clone is a copy, to be added to.
func (x totals) clone() totals {
	if x.minTS = maps.Clone(x.minTS); x.minTS == nil {
		x.minTS = map[int]int64{}
	}
	return x
}

// add adds the events of a partition. The size of an event that was scheduled is not known here.
func (x *totals) add(topic string, ln *line) {
	for _, d := range ln.pending {
		if d.call == nil {
			continue
		}
		if d.raw != nil {
			x.events++
			x.bytes += int64(d.record.Size() - len(d.record.Topic) + len(topic)) // as it will be read
		}
		if ts, known := x.minTS[ln.p]; !known || d.record.TS < ts {
			x.minTS[ln.p] = d.record.TS
		}
		x.maxTS = max(x.maxTS, d.record.TS)
	}
}

// maxOf is the higher of two numbers, in a pipeline.
func maxOf(path string, least int64) bson.D { return bson.D{{Key: "$max", Value: bson.A{path, least}}} }

// plus adds to a field, in a pipeline.
func plus(field string, n int64) bson.E {
	return bson.E{Key: field, Value: bson.D{{Key: "$add", Value: bson.A{maxOf("$"+field, 0), n}}}}
}

// give gives the events the seqs that they have in a head. The head is behind if this process was
// given these seqs before: a reservation at w: 1 was lost with a primary.
func (b *batch) give(r *reservation, head heads.Head) error {
	b.unanswered, b.behind = nil, false
	b.learn(r, head)
	for _, ln := range r.lines {
		last, n, reserved := head.Given(ln.p), uint64(len(ln.pending)), &b.topic.Parts[ln.p].Reserved
		highest := reserved.Load()
		if last < highest+n {
			b.behind = true
			continue
		}
		ln.give(last, r.since)
		reserved.Store(last)
	}
	if b.behind {
		b.leave()
		return core.ErrBehind
	}
	return nil
}

// noHead finds out why there is no head of the batch's generation without a lone writer, and sees to
// it that there is one.
func (b *batch) noHead(ctx context.Context) error {
	head, err := b.heads.Read(ctx, b.topic)
	if err == nil && b.topic.Generation() == b.generation {
		if err = b.heads.EndLone(ctx, b.topic, head); err == nil {
			err = core.ErrBehind
		}
		return err
	}
	if err == nil || errors.Is(err, eventlog.ErrNotFound) {
		return errAnotherGeneration
	}
	return err
}
