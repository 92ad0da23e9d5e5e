package epochs

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog/mongolog/core"
)

// epochDoc is an epoch in the store. BSON's whole numbers are signed; seqs and numbers stay below
// 2^63.
type epochDoc struct {
	ID                      string `bson:"_id"`
	eventlog.GroupPartition `bson:",inline"`
	Number                  uint64 `bson:"number"`
	Owner                   string `bson:"owner"`
	Beat                    uint64 `bson:"beat"`
	Released                bool   `bson:"released"`
	// Deleted says that the group was deleted with this epoch. ExpireAt is when no late request of
	// its owners can arrive any more.
	Deleted  bool      `bson:"deleted,omitempty"`
	ExpireAt time.Time `bson:"expireAt,omitempty"`
	// Claim identifies the TakeEpochs call that inserted the document. After a lost reply the call
	// recognizes its own document by it.
	Claim string `bson:"claim"`
	// Save is the number of the owner's last save, 0 before the first. It only rises, so a save
	// that arrives after its sender gave up replaces no later save.
	Save int64 `bson:"save"`
	// Fenced says that a later epoch was taken. Its taker has read the saves or will read them, so
	// no save is accepted any more.
	Fenced bool `bson:"fenced,omitempty"`
	// Inherit says that the progress is that of the epoch before it, if there is one: the taker has
	// not yet copied that progress into this document.
	Inherit  bool        `bson:"inherit"`
	Progress progressDoc `bson:"progress"`
}

// progressDoc is a progress. Its lists are flat, which takes the least space.
type progressDoc struct {
	Cursor   uint64  `bson:"cursor"`
	Settled  []int64 `bson:"settled"`  // first, last, first, last, …
	Attempts []int64 `bson:"attempts"` // first, last, attempts, …
	Out      []int64 `bson:"out,omitempty"`
	OutBy    string  `bson:"out_by,omitempty"`
	Unsure   []int64 `bson:"unsure,omitempty"`
	Delays   []int64 `bson:"delays,omitempty"` // seq, until, left, …
	Since    int64   `bson:"since,omitempty"`
	By       string  `bson:"by,omitempty"`
	Unused   int64   `bson:"unused,omitempty"`

	Redrives []redriveProgressDoc `bson:"redrives,omitempty"`
}

type redriveProgressDoc struct {
	Seq      uint64 `bson:"seq"`
	Letter   string `bson:"letter"`
	Attempts int    `bson:"attempts,omitempty"`
	Until    int64  `bson:"until,omitempty"`
	Left     int64  `bson:"left,omitempty"`
	Out      bool   `bson:"out,omitempty"`
	Unsure   bool   `bson:"unsure,omitempty"`
	Done     bool   `bson:"done,omitempty"`
}

// epochID is unambiguous although a group's name may hold a slash: a topic's name holds none, and
// exactly two parts follow the group.
func epochID(e *eventlog.Epoch) string {
	return e.Topic + "/" + e.Group + "/" + strconv.Itoa(e.Partition) + "/" + strconv.FormatUint(e.Number, 10)
}

func newEpochDoc(e *eventlog.Epoch, claim string) epochDoc {
	return epochDoc{
		ID: epochID(e), GroupPartition: e.GroupPartition, Number: e.Number,
		Owner: e.Owner, Beat: e.Beat, Released: e.Released, Deleted: e.Deleted, Claim: claim,
		Inherit: e.Inherit, Progress: newProgressDoc(&e.Progress),
	}
}

func newProgressDoc(p *eventlog.Progress) progressDoc {
	d := progressDoc{
		Cursor:   p.Cursor,
		Settled:  flat(p.Settled),
		Attempts: make([]int64, 0, 3*len(p.Attempts)),
		Out:      flat(p.Out), OutBy: p.OutBy, Unsure: flat(p.Unsure),
	}
	for _, r := range p.Attempts {
		d.Attempts = append(d.Attempts, int64(r.First), int64(r.Last), int64(r.Attempts))
	}
	for _, x := range p.Delays {
		d.Delays = append(d.Delays, int64(x.Seq), x.Until, x.Left)
	}
	d.Since, d.By, d.Unused = p.Since, p.By, p.Unused
	for _, r := range p.Redrives {
		d.Redrives = append(d.Redrives, redriveProgressDoc(r))
	}
	return d
}

func (d progressDoc) decode() eventlog.Progress {
	p := eventlog.Progress{Cursor: d.Cursor, Settled: seqRanges(d.Settled), Out: seqRanges(d.Out), OutBy: d.OutBy, Unsure: seqRanges(d.Unsure)}
	for c := range slices.Chunk(d.Attempts, 3) {
		if len(c) == 3 {
			p.Attempts = append(p.Attempts, eventlog.AttemptRange{SeqRange: seqRange(c), Attempts: int(c[2])})
		}
	}
	for c := range slices.Chunk(d.Delays, 3) {
		if len(c) == 3 {
			p.Delays = append(p.Delays, eventlog.Delay{Seq: uint64(c[0]), Until: c[1], Left: c[2]})
		}
	}
	p.Since, p.By, p.Unused = d.Since, d.By, d.Unused
	for _, r := range d.Redrives {
		p.Redrives = append(p.Redrives, eventlog.RedriveProgress(r))
	}
	return p
}

// flat returns ranges as one flat list.
func flat(ranges []eventlog.SeqRange) []int64 {
	list := make([]int64, 0, 2*len(ranges))
	for _, r := range ranges {
		list = append(list, int64(r.First), int64(r.Last))
	}
	return list
}

func seqRanges(list []int64) (ranges []eventlog.SeqRange) {
	for c := range slices.Chunk(list, 2) {
		if len(c) == 2 {
			ranges = append(ranges, seqRange(c))
		}
	}
	return ranges
}

func seqRange(c []int64) eventlog.SeqRange {
	return eventlog.SeqRange{First: uint64(c[0]), Last: uint64(c[1])}
}

// chain is the epochs of one group's partition, by number.
type chain []epochDoc

type chains map[eventlog.GroupPartition]chain

// latest returns the highest epochs, with the progress that they continue from.
func (cs chains) latest() []eventlog.Epoch {
	epochs := make([]eventlog.Epoch, 0, len(cs))
	for at, c := range cs {
		last := c[len(c)-1]
		epochs = append(epochs, eventlog.Epoch{
			GroupPartition: at, Number: last.Number, Owner: last.Owner, Beat: last.Beat, Released: last.Released, Deleted: last.Deleted,
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
// before number was inserted may be about to inherit from it.
func (c chain) outdated(number uint64) chain {
	i := slices.IndexFunc(c, func(d epochDoc) bool { return d.Number == number })
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
		{Key: "inherit", Value: false}, {Key: "progress", Value: newProgressDoc(&e.Progress)}}}})
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
