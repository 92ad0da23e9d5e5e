package removal

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/document"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/events"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/topics"
)

// Compact implements eventlog.Compactor. Removed events become stubs, see package events. Other
// sidecars may append, sweep and compact meanwhile: a superseded event stays superseded, and an
// event is removed only after all events that it supersedes.
func (r *Remover) Compact(
	ctx context.Context, name string, p int, from uint64, c eventlog.Compaction,
) (next uint64, removed int, err error) {
	t, part, err := r.catalog.KnownPartition(ctx, name, p)
	if err != nil {
		return from, 0, err
	}
	x := compaction{Remover: r, topic: t, partition: p, from: int64(from), rules: c}
	op := fmt.Sprintf("compact partition %d of topic %s", p, name)
	if err := r.store.Within(ctx, op, x.read); err != nil || len(x.page) == 0 {
		return from, 0, err
	}
	if err := x.compare(ctx, op); err != nil {
		return from, 0, err
	}
	err = r.store.Within(ctx, op, func(ctx context.Context) error {
		victims, err := x.victims(ctx)
		if err != nil || len(victims) == 0 {
			return err
		}
		removed = len(victims)
		part.Unswept.Store(0)
		return events.MakeStubs(ctx, r.store, x.topic.Name, p, victims, events.Remembering{WindowMS: c.DedupeWindowMS, Now: c.Now})
	})
	if err != nil {
		return from, 0, err
	}
	return uint64(x.page[len(x.page)-1].Seq) + 1, removed, nil
}

// compaction is one call of Compact.
type compaction struct {
	*Remover
	topic     *topics.Topic
	partition int
	from      int64
	rules     eventlog.Compaction

	page []events.Entry // the events to look at
	head int64          // those of the partition
	// keys are the keys of the page, with the known events of each.
	keys map[string]*keyed
}

// keyed describes the live events of a key: the last one on the page, and whether there are others.
type keyed struct {
	last           int64
	later, earlier bool // than the page
}

// read fills the page.
func (x *compaction) read(ctx context.Context) (err error) {
	if x.rules.Limit <= 0 {
		return nil
	}
	head, err := x.heads.Read(ctx, x.topic)
	if err != nil {
		return err
	}
	extent, err := x.heads.Extent(ctx, x.topic, x.partition, head)
	if err != nil {
		return err
	}
	from, last := max(x.from, int64(extent.First)), int64(extent.Head)
	x.page, err = events.FindLive(ctx, x.store, x.topic.Name, x.partition, x.rules.Limit, events.Between(from, last))
	if err != nil || len(x.page) == 0 {
		return err
	}
	newest, err := events.FindSeq(ctx, x.store, events.InPartition(x.topic.Name, x.partition, events.Live), events.ByLiveSeq, -1)
	x.head = int64(newest)
	x.keys = map[string]*keyed{}
	for _, e := range x.page {
		if e.Key != "" {
			x.keys[e.Key] = &keyed{last: e.Seq}
		}
	}
	return err
}

// compare finds the keys that have events after the page. It also finds the keys of possible
// tombstones that have events before the page. Most keys that occur again do so soon, so compare
// searches the next few seqs for all keys, and then larger ranges for the keys that remain.
func (x *compaction) compare(ctx context.Context, op string) error {
	rest := slices.Collect(maps.Keys(x.keys))
	first, span := x.page[len(x.page)-1].Seq+1, int64(len(x.page))
	for ; len(rest) > 0 && first <= x.head; first, span = first+span, 8*span {
		err := x.find(ctx, op, rest, events.Between(first, min(first+span-1, x.head)), func(k *keyed) { k.later = true })
		if err != nil {
			return err
		}
		rest = slices.DeleteFunc(rest, func(key string) bool { return x.keys[key].later })
	}
	var maybe []string
	for _, e := range x.page {
		if k := x.keys[e.Key]; k != nil && !k.later && e.Seq == k.last && x.old(e) {
			maybe = append(maybe, e.Key)
		}
	}
	return x.find(ctx, op, maybe, events.Between(1, x.from-1), func(k *keyed) { k.earlier = true })
}

// find calls note for those of the keys that have live events within some seqs.
func (x *compaction) find(ctx context.Context, op string, keys []string, within bson.E, note func(*keyed)) error {
	for len(keys) > 0 {
		var found []events.Entry
		err := x.store.Within(ctx, op, func(ctx context.Context) (err error) {
			found, err = core.FindAll[events.Entry](ctx, x.store, core.Events, events.InPartition(x.topic.Name, x.partition,
				bson.E{Key: document.FieldKey, Value: bson.D{{Key: "$in", Value: keys}}}, within, events.Live),
				options.Find().SetHint(x.store.Hint(events.ByKeySeq)).SetLimit(events.Batch).SetProjection(events.EntryFields))
			return err
		})
		if err != nil {
			return err
		}
		done := map[string]bool{}
		for _, e := range found {
			done[e.Key] = true
			note(x.keys[e.Key])
		}
		if len(found) < events.Batch {
			return nil
		}
		keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return done[key] })
	}
	return nil
}

// old reports whether the event is to be removed if it is a tombstone.
func (x *compaction) old(e events.Entry) bool {
	return e.Accepted < x.rules.TombstonesBefore && e.Seq < x.head
}

// victims are the events of the page that are to be removed, in seq order. A tombstone stays while
// its key has events below the seq where this call began: without the tombstone one of them would
// be the key's latest. The partition's newest event stays.
func (x *compaction) victims(ctx context.Context) ([]events.Entry, error) {
	var victims []events.Entry
	var maybe []int64 // tombstones
	for _, e := range x.page {
		k := x.keys[e.Key]
		switch {
		case k == nil || e.Seq >= x.head:
		case e.Seq < k.last || k.later:
			victims = append(victims, e)
		case x.old(e) && !k.earlier:
			maybe = append(maybe, e.Seq)
		}
	}
	if len(maybe) == 0 {
		return victims, nil
	}
	tombstones, err := x.tombstones(ctx, maybe)
	for _, e := range x.page {
		if tombstones[e.Seq] {
			victims = append(victims, e)
		}
	}
	slices.SortFunc(victims, events.BySeqOf)
	return victims, err
}

// tombstones returns the events that are tombstones. It reads only payloads that may be null; its
// query also finds an array that contains a null.
func (x *compaction) tombstones(ctx context.Context, seqs []int64) (map[int64]bool, error) {
	null := bson.E{Key: document.FieldPayload, Value: bson.D{{Key: "$type", Value: "null"}}}
	filter := events.InPartition(x.topic.Name, x.partition, events.Among(seqs), null, events.Live)
	cursor, err := x.store.Majority(core.Events).Find(ctx, filter)
	if err != nil {
		return nil, err
	}
	defer cursor.Close(ctx)
	found := map[int64]bool{}
	for cursor.Next(ctx) {
		s, err := document.Decode(cursor.Current)
		if err != nil {
			return nil, err
		}
		if s.Record.Tombstone() {
			found[int64(s.Record.Seq)] = true
		}
	}
	return found, cursor.Err()
}
