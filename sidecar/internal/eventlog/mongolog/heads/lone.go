package heads

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// A lone writer is a sidecar that appends to a topic without reservations, while nobody else appends
// to it. Its claim is in the head. No reservation of others succeeds until EndLone has ended the
// claim, and each claim is another number. A lone writer stores its events, and nothing else, at the
// seqs above the head, one after the other: it inserts at a seq only once the one before it is stored,
// or in the same ordered insert. So
//
//   - above the head nothing is missing between stored events. Readers take what is stored there, and
//     void nothing;
//   - a void right behind the last event stops it, and each of its inserts that is executed late. It
//     leaves its claim, and reserves seqs anew for what was not stored.
//
// Whoever raises the watermark raises the head too, to seqs that are stored. That changes nothing. A lone writer that stops
// in order hands its claim back: by one update the head rises to all that it has stored, and loses the claim. It had no write
// go wrong, else it would have left its claim, so nothing of it comes late that a void would have to stop.

// Lone is the claim of the topic's lone writer; 0: there is none.
func (h Head) Lone() int64 { return h.total(FieldLone) }

// End is a seq of a partition above which nothing is stored.
func (h Head) End(p int) uint64 {
	if h.Lone() != 0 {
		return Seq - 1
	}
	return h.Given(p)
}

// EndLone ends the claim that a head has, if it still has it. First voids stop the lone writer in all
// partitions. Only then the head loses the claim, and rises to these voids. Anybody may do so, any
// number of times.
func (h *Heads) EndLone(ctx context.Context, t *topics.Topic, head Head) error {
	claim := head.Lone()
	for ahead := 1; head.Lone() == claim && claim != 0; ahead *= 2 {
		raise, stopped, err := h.stop(ctx, t, head, min(ahead, max(MaxVoids/len(t.Parts), 1)))
		if err != nil {
			return err
		}
		if stopped {
			over := bson.D{{Key: FieldLone, Value: ""}, {Key: FieldBy, Value: ""}} // the head is not the one of the last reservation
			update := bson.D{{Key: "$max", Value: raise}, {Key: "$unset", Value: over}}
			h.store.Logger.Debug("ended a lone writer's claim", "topic", t.Name)
			return h.Update(ctx, t, update, bson.E{Key: FieldLone, Value: claim})
		}
		if head, err = h.Find(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

// stop takes so many seqs behind the last stored one of each partition, with one insert. It stops the
// lone writer if one of them was empty in each partition: the others before it are taken, too. raise
// are the heads above all of them. The lone writer may store events meanwhile; then stop is repeated,
// with more seqs.
func (h *Heads) stop(ctx context.Context, t *topics.Topic, head Head, ahead int) (raise bson.D, stopped bool, err error) {
	now, err := h.store.ServerTime(ctx)
	if err != nil {
		return nil, false, err
	}
	last := make([]uint64, len(t.Parts))
	err = ForEach(ctx, len(last), func(ctx context.Context, p int) error {
		stored, err := events.FindSeq(ctx, h.store, events.InPartition(t.Name, p), events.BySeq, -1)
		last[p] = max(stored, head.Given(p))
		return err
	})
	if err != nil {
		return nil, false, err
	}
	var voids []any
	for p := range last {
		for range ahead {
			last[p]++
			voids = append(voids, events.Void(t.Name, p, last[p], now))
		}
		raise = append(raise, bson.E{Key: Path(FieldGiven, p), Value: int64(last[p])})
	}
	taken, err := h.store.InsertNew(ctx, core.Events, voids)
	full := make([]int, len(last)) // by partition, how many were taken before
	stopped = err == nil
	for _, i := range taken {
		p := i / ahead
		full[p]++
		stopped = stopped && full[p] < ahead
	}
	return raise, stopped, err
}
