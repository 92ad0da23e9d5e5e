package appends

import (
	"context"
	"errors"
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

// reserve gives a seq to each event that has no valid one, with one request for all partitions. If
// the answer is lost, nobody uses the seqs, and readers void them.
func (b *batch) reserve(ctx context.Context) error {
	var inc, longer bson.D
	for _, ln := range b.lines {
		if len(ln.pending) > 0 && ln.pending[0].seq > 0 && ln.since.Age(b.store.Clock) > reservedFor {
			ln.restart()
		}
		if len(ln.pending) == 0 || ln.pending[0].seq > 0 {
			continue
		}
		inc = append(inc, bson.E{Key: heads.Path(heads.FieldGiven, ln.p), Value: int64(len(ln.pending))})
		if ln.patience > 0 {
			longer = append(longer, bson.E{Key: heads.Path(heads.FieldPatience, ln.p), Value: ln.patience.Milliseconds()})
		}
	}
	if len(inc) == 0 {
		return nil
	}
	update := bson.D{{Key: "$inc", Value: inc}}
	if len(longer) > 0 {
		update = append(update, bson.E{Key: "$max", Value: longer})
	}
	since := core.Now(b.store.Clock)
	// Half of the time is left for another try if there is no answer.
	ctx, cancel := b.store.Clock.WithTimeout(ctx, b.store.Timeout/2)
	defer cancel()
	o := options.FindOneAndUpdate().SetReturnDocument(options.After)
	ours := append(heads.Of(b.topic.Name), bson.E{Key: document.FieldGeneration, Value: b.generation})
	raw, err := b.concern.heads.FindOneAndUpdate(ctx, ours, update, o).Raw()
	if errors.Is(err, mongo.ErrNoDocuments) {
		return b.noHead(ctx)
	}
	if err != nil {
		return err
	}
	for _, ln := range b.lines {
		if len(ln.pending) == 0 || ln.pending[0].seq > 0 {
			continue
		}
		last := heads.Head(raw).Given(ln.p)
		ln.give(last, since)
		if b.topic.Parts[ln.p].Reserved.Swap(last) != last-uint64(len(ln.pending)) {
			b.topic.Rivals.Store(b.store.Clock.Now().UnixNano())
		}
	}
	return nil
}

// noHead finds out why there is no head of the batch's generation.
func (b *batch) noHead(ctx context.Context) error {
	_, err := b.heads.Read(ctx, b.topic)
	if err == nil && b.topic.Generation() == b.generation {
		return nil // there is one now
	}
	if err == nil || errors.Is(err, eventlog.ErrNotFound) {
		return errAnotherGeneration
	}
	return err
}
