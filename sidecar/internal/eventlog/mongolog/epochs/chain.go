package epochs

import (
	"cmp"
	"context"
	"slices"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// chain is the epochs of one group's partition, by number.
type chain []epochDoc

type chains map[eventlog.GroupPartition]chain

// latest returns the highest epochs, with the progress that they continue from.
func (cs chains) latest() []eventlog.Epoch {
	epochs := make([]eventlog.Epoch, 0, len(cs))
	for at, c := range cs {
		last := c[len(c)-1]
		epochs = append(epochs, eventlog.Epoch{
			GroupPartition: at, Number: last.Number, Owner: last.Owner, Beat: last.Beat, Released: c.released(), Deleted: last.Deleted,
			Progress: c.progress(last.Number).decode(),
		})
	}
	slices.SortFunc(epochs, func(a, b eventlog.Epoch) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Partition, b.Partition))
	})
	return epochs
}

// latest is the highest number, 0 if there is none.
func (c chain) latest() uint64 {
	if len(c) == 0 {
		return 0
	}
	return c[len(c)-1].Number
}

// released reports whether the highest epoch is released. A kept one is also if the one that it follows
// was released by its owner, who may not know of the kept one then.
func (c chain) released() bool {
	i := len(c) - 1
	for i > 0 && c[i].Kept && !c[i].Released && c[i-1].Number == c[i].Number-1 {
		i--
	}
	return c[i].Released
}

// has reports whether the epoch of that number is in the chain.
func (c chain) has(number uint64) bool {
	return slices.ContainsFunc(c, func(d epochDoc) bool { return d.Number == number })
}

// progress is the progress that the epoch of that number continues from: its own, or that of the
// highest epoch below it that has its own. The epoch must be in the chain. The first epoch of the
// chain inherits from none and has its own.
func (c chain) progress(number uint64) progressDoc {
	i := slices.IndexFunc(c, func(d epochDoc) bool { return d.Number == number })
	for i > 0 && c[i].Inherit {
		i--
	}
	return c[i].Progress
}

// refusal returns nil if e is in the chain with that claim, the chain has no higher epoch of
// another claim, and the same call took no epoch from e on before. Else it is ErrEpochTaken.
func (c chain) refusal(e *eventlog.Epoch, claim string, taken uint64) error {
	own := false
	for _, d := range c {
		switch {
		case d.Number == e.Number:
			own = d.Claim == claim
		case d.Number > e.Number && d.Claim != claim:
			return refusal(e, eventlog.ErrEpochTaken, c.latest())
		}
	}
	if !own || taken >= e.Number {
		return refusal(e, eventlog.ErrEpochTaken, c.latest())
	}
	return nil
}

// outdated are the epochs below the one before number. That one stays: a taker that read the chain
// before number was inserted may be about to inherit from it. So do those that tell whether a kept
// epoch is released.
func (c chain) outdated(number uint64) chain {
	i := slices.IndexFunc(c, func(d epochDoc) bool { return d.Number == number })
	for i > 0 && c[i].Kept {
		i--
	}
	return c[:max(0, i-1)]
}

// inheritUpdate stores the progress that the epoch inherits as its own, unless it has its own.
func inheritUpdate(c chain, e *eventlog.Epoch, claim string) mongo.WriteModel {
	heir := append(core.ByID(epochID(e)), bson.E{Key: "claim", Value: claim}, bson.E{Key: "inherit", Value: true})
	return mongo.NewUpdateOneModel().SetFilter(heir).SetUpdate(bson.D{{Key: "$set", Value: bson.D{
		{Key: "inherit", Value: false}, {Key: "progress", Value: c.progress(e.Number)}}}})
}

// unfenced are the epochs that may still be saved.
var unfenced = bson.E{Key: "fenced", Value: bson.D{{Key: "$ne", Value: true}}}

// fenceUpdates fence the epochs below that number, so that they accept no save any more.
func (c chain) fenceUpdates(number uint64) (models []mongo.WriteModel) {
	for _, d := range c {
		if d.Number < number && !d.Fenced {
			models = append(models, mongo.NewUpdateOneModel().SetFilter(append(core.ByID(d.ID), unfenced)).
				SetUpdate(bson.D{{Key: "$set", Value: bson.D{{Key: "fenced", Value: true}}}}))
		}
	}
	return models
}

// saveUpdate is one save of the epoch; it replaces only earlier saves.
func saveUpdate(e *eventlog.Epoch, save int64) mongo.WriteModel {
	earlier := append(core.ByID(epochID(e)), bson.E{Key: "save", Value: bson.D{{Key: "$lt", Value: save}}}, unfenced)
	return mongo.NewUpdateOneModel().SetFilter(earlier).SetUpdate(bson.D{{Key: "$set", Value: bson.D{
		{Key: "save", Value: save}, {Key: "beat", Value: e.Beat}, {Key: "released", Value: e.Released}, {Key: "deleted", Value: e.Deleted},
		{Key: "inherit", Value: false}, {Key: "kept", Value: false}, {Key: "progress", Value: newProgressDoc(&e.Progress)}}}})
}

// withoutProgress leaves out the long field.
var withoutProgress = bson.D{{Key: "progress", Value: 0}}

// partitionFilters select the partitions of the epochs, with one filter for each group.
func partitionFilters(epochs []eventlog.Epoch) bson.A {
	partitions := map[eventlog.GroupName]bson.A{}
	var order []eventlog.GroupName
	for i := range epochs {
		g := eventlog.GroupName{Topic: epochs[i].Topic, Group: epochs[i].Group}
		if partitions[g] == nil {
			order = append(order, g)
		}
		if !slices.Contains(partitions[g], any(epochs[i].Partition)) {
			partitions[g] = append(partitions[g], epochs[i].Partition)
		}
	}
	filters := make(bson.A, len(order))
	for i, g := range order {
		filters[i] = bson.D{{Key: "topic", Value: g.Topic}, {Key: "group", Value: g.Group},
			{Key: "partition", Value: bson.D{{Key: "$in", Value: partitions[g]}}}}
	}
	return filters
}

// readChains reads the epochs that any of the filters selects. It reads those of one group in
// ascending order, so a reader that finds an epoch has seen every epoch that it may inherit from,
// even if other sidecars delete epochs meanwhile.
func (es *Epochs) readChains(ctx context.Context, filters bson.A, projection bson.D) (chains, error) {
	o := options.Find().SetSort(byPartition)
	if projection != nil {
		o.SetProjection(projection)
	}
	found := chains{}
	for some := range slices.Chunk(filters, core.MaxBranches) {
		docs, err := core.FindAll[epochDoc](ctx, es.store, core.Epochs, core.AnyOf(some), o)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			found[d.GroupPartition] = append(found[d.GroupPartition], d)
		}
	}
	for _, c := range found {
		slices.SortFunc(c, func(a, b epochDoc) int { return cmp.Compare(a.Number, b.Number) })
	}
	return found, nil
}
