package epochs

import (
	"slices"
	"strconv"
	"time"

	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
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
	Inherit bool `bson:"inherit"`
	// Kept says that somebody else made the epoch for the owner of the epoch before it.
	Kept     bool        `bson:"kept,omitempty"`
	Progress progressDoc `bson:"progress"`
}

// progressDoc is a progress. Its lists are flat, which takes the least space.
type progressDoc struct {
	Cursor   uint64  `bson:"cursor"`
	Settled  []int64 `bson:"settled"`  // first, last, first, last, …
	Attempts []int64 `bson:"attempts"` // first, last, attempts, …
	Out      []int64 `bson:"out,omitempty"`
	OutBy    string  `bson:"out_by,omitempty"`
	Reach    uint64  `bson:"reach,omitempty"`
	ReachBy  string  `bson:"reach_by,omitempty"`
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
		Inherit: e.Inherit, Kept: e.Kept, Progress: newProgressDoc(&e.Progress),
	}
}

func newProgressDoc(p *eventlog.Progress) progressDoc {
	d := progressDoc{
		Cursor:   p.Cursor,
		Settled:  flat(p.Settled),
		Attempts: make([]int64, 0, 3*len(p.Attempts)),
		Out:      flat(p.Out), OutBy: p.OutBy, Unsure: flat(p.Unsure), Reach: p.Reach, ReachBy: p.ReachBy,
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
	p := eventlog.Progress{Cursor: d.Cursor, Settled: seqRanges(d.Settled), Out: seqRanges(d.Out), OutBy: d.OutBy, Unsure: seqRanges(d.Unsure),
		Reach: d.Reach, ReachBy: d.ReachBy}
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
