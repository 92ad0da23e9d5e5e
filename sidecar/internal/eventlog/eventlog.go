// Package eventlog says what an event log is: the interface that the sidecar is
// built on, and the promises that every implementation keeps. The suite in
// eventlogtest is the same page as tests. The package knows the event and
// nothing of how one is published, limited or delivered.
//
// A log is a set of topics; a topic is a fixed number of partitions; a
// partition is a list of events whose seq rises strictly in the order in which
// they become readable.
package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/sluice-bus/sluice/sdk/wire"
)

// Errors that callers tell apart. Implementations wrap them with detail.
var (
	// ErrNotFound: no such topic, event or group epoch.
	ErrNotFound = errors.New("not found")
	// ErrDeleting: the topic is being deleted, or that was broken off:
	// DeleteTopic goes on with it.
	ErrDeleting = errors.New("being deleted")
	// ErrUnavailable: the store cannot be reached or has failed. The operation may or may not have
	// taken effect; an append may be repeated.
	ErrUnavailable = errors.New("store unavailable")
	// ErrTimeout is why the store counts as unavailable that did not answer in
	// time.
	ErrTimeout = errors.New("no answer in time")
	// ErrEpochTaken: another sidecar took this epoch of the group's partition.
	ErrEpochTaken = errors.New("group epoch taken")
	// ErrFenced: a later epoch exists, so this owner's writes no longer count.
	ErrFenced = errors.New("group epoch fenced")
)

// ConflictError refuses an id that the topic already holds with other content.
type ConflictError struct {
	ID  string
	Seq uint64 // of the stored event
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("id %q is already stored with other content at seq %d", e.ID, e.Seq)
}

// ConcernError refuses an event of a topic whose write concern the store does
// not meet: too few of its members are there. The event may be stored, and
// counts as stored once the concern is met and it is appended again. The store
// is not away, and other topics go on.
type ConcernError struct {
	Topic   string
	Concern string // as the policy has it
	Cause   error
}

func (e *ConcernError) Error() string {
	return fmt.Sprintf("the store does not meet the write concern %s of topic %q: %v", e.Concern, e.Topic, e.Cause)
}

// Unwrap is the store's own error.
func (e *ConcernError) Unwrap() error { return e.Cause }

// RefusedError refuses an event that the store does not take as it is, now or
// later: its document would be too large, or a rule of the store's own forbids
// it. The event is not stored.
type RefusedError struct{ Cause error }

func (e *RefusedError) Error() string { return "the store refuses the event: " + e.Cause.Error() }

// Unwrap is the reason.
func (e *RefusedError) Unwrap() error { return e.Cause }

// Record is an event in the log, and when the sidecar accepted it: retention
// and the deduplication window count from AcceptedAt (milliseconds since the
// epoch), never from the publisher's own ts.
type Record struct {
	wire.Event
	AcceptedAt int64
	// FreshID says that the sidecar has just made the id, so that it cannot
	// be in the log and need not be looked up. It is not stored. The log
	// clears it where the outcome of an append is not known, so that a second
	// try does look.
	FreshID bool
	// LogOnly says that the event must not be spooled: its publisher keeps it
	// until the log has it. It is not stored.
	LogOnly bool
	// DeliverAt has an append keep the event until that time (milliseconds
	// since the epoch), see Scheduler; 0: it goes into the log at once.
	DeliverAt int64
}

// Topic is a topic's entry in the catalog. Its number of partitions never
// changes: a key would otherwise move to another partition and lose its order.
type Topic struct {
	Name       string
	Partitions int
	By         string // whom it was made for, as MadeBy said
}

// Outcome is what became of one event of an append.
type Outcome struct {
	Partition int
	Seq       uint64
	// TS is the stored event's ts: for a duplicate, the first publish's.
	TS        int64
	Duplicate bool
	// Spooled says that the event is durable on this sidecar, and on its way
	// into the log: it has no Partition or Seq yet. No Log says so itself.
	Spooled bool
	// DeliverAt says that the event is scheduled for that time, or for a
	// Duplicate that the first one is: it has no Partition, Seq or TS yet.
	DeliverAt int64
	// Err is a *ConflictError or *RefusedError, or wraps ErrUnavailable when it is not known
	// whether the event was stored, or wraps ErrNotFound when there is no such
	// topic or partition. Nothing else is set with it.
	Err error
}

// DiskFullError says that an append was refused, and nothing of it stored, since
// the disk under the log has too little room; where it wraps ErrUnavailable as
// well, that the disk was full before it was known whether it is stored. Reading,
// progress and retention go on.
type DiskFullError struct {
	Free, LowWater int64 // bytes, where known
}

func (e *DiskFullError) Error() string { return "the disk under the event log has too little room" }

// Bounds of one page of results. At least one event is returned however
// large it is, so that a reader always gets on.
type Bounds struct {
	Events int // at most this many, and
	Bytes  int // stop once wire.Event.Size adds up to this much; 0: no bound
}

// Extent is what a partition holds.
type Extent struct {
	// First is the lowest seq that may be readable, Head the highest that was
	// ever given and is readable or has been; First = Head+1 when nothing is
	// left, and Head may be a seq above that has never held an event then. An
	// untouched partition has First 1 and Head 0.
	First, Head uint64
	// Hidden is how many events are stored above Head, but not readable before
	// a seq below them is filled or void.
	Hidden int64
}

// Log is all of a store. Every method may be called from many goroutines at
// once. Every method returns soon after its context ends.
type Log interface {
	Appender
	Reader
	Groups
	Retainer
	Compactor
	Deleter
	Redrives
	Scheduler
	// Close waits for calls under way, makes everything durable and releases
	// the store. Methods called later wrap ErrUnavailable.
	Close() error
}

// Appender makes events durable.
type Appender interface {
	// EnsureTopic returns the topic, creating it with that many partitions
	// if it is new, for whom MadeBy says. Racing calls agree on one number. 1 ≤ partitions ≤ 1024.
	// ErrDeleting while the deletion of an earlier topic of that name goes on.
	EnsureTopic(ctx context.Context, name string, partitions int) (Topic, error)

	// Append stores a batch in one partition of an existing topic and returns
	// one Outcome per event, in order. It promises:
	//
	//   - An Outcome without Err means durable: it survives a kill and a
	//     power cut.
	//   - New events get seqs in batch order, above every seq given before in
	//     that partition, and become readable in seq order: a reader that has
	//     seen seq N never later finds a new event below N.
	//   - An id is stored once per topic, whatever partition it is appended
	//     to and however many appends race: the others are told Duplicate
	//     with the stored seq when codec.SameContent says so, else a
	//     *ConflictError. This includes ids that occur twice in the batch,
	//     and ids whose event retention has removed while their
	//     deduplication window lasts.
	//   - After Err wrapping ErrUnavailable, appending the same events again
	//     is safe.
	//   - An event with a DeliverAt takes its id, and nothing else: it is
	//     scheduled, whatever the partition. A Duplicate of one keeps the time
	//     that the first was given. A *ConflictError with one has no Seq.
	//
	// The log fills in Partition and Seq of the records it stores, keeps
	// references to them, and so do readers: the caller never changes a
	// record again. Callers keep one Append in flight per partition where
	// order matters to them; the log is right without it.
	Append(ctx context.Context, topic string, partition int, batch []*Record) []Outcome
}

// Reader reads events. Nothing is readable before it is durable.
type Reader interface {
	// Topics lists the catalog by name.
	Topics(ctx context.Context) ([]Topic, error)

	// LookupTopic finds one topic; ErrNotFound if there is none.
	LookupTopic(ctx context.Context, name string) (Topic, error)

	// Extents returns what each partition of the topic holds.
	Extents(ctx context.Context, topic string) ([]Extent, error)

	// Read returns events of a partition with seq ≥ from, ascending, without
	// holes other than what retention and compaction removed, and seqs that no
	// event has come to or ever will. Nothing at or above from: no events and
	// no error.
	Read(ctx context.Context, topic string, partition int, from uint64, b Bounds) ([]*Record, error)

	// Scan returns a page of the topic ordered by (ts, id): events that q
	// selects. A page that is empty is the end.
	Scan(ctx context.Context, topic string, q ScanQuery, b Bounds) ([]*Record, error)

	// Lookup finds an event by id; ErrNotFound if the topic has none, also
	// when only its id is remembered for deduplication.
	Lookup(ctx context.Context, topic, id string) (*Record, error)

	// Latest returns a page of the latest events of keys: of each key that q
	// selects the one with the highest seq, also where it is a tombstone, in
	// descending order of keys. A page that is empty is the end. It costs what
	// it returns, and what there is above q.UpTo; what compaction removed costs
	// nothing. Where q.UpTo is what Extents told, all of that is seen but what
	// was removed since, by compaction only for a later event of its key.
	Latest(ctx context.Context, topic string, q LatestQuery, b Bounds) ([]*Record, error)

	// Seek translates a position into the seq to start at, per partition.
	Seek(ctx context.Context, topic string, p Position) ([]uint64, error)
}

// Point is a place in the (ts, id) order.
type Point struct {
	TS int64
	ID string
}

// Compare orders points: by ts, then by the id's bytes.
func (p Point) Compare(q Point) int { return cmp.Or(cmp.Compare(p.TS, q.TS), cmp.Compare(p.ID, q.ID)) }

// ScanQuery selects events by (ts, id). The zero value selects the whole topic,
// ascending.
type ScanQuery struct {
	// MinTS and MaxTS are inclusive; MaxTS 0 means no upper bound unless
	// HasMaxTS is set. Any other MaxTS counts either way.
	MinTS    int64
	MaxTS    int64
	HasMaxTS bool
	// After continues behind this point: only events that come after it in
	// the direction of the scan.
	After *Point
	// Key selects the events of one key.
	Key *string
	// Descending turns the order round.
	Descending bool
}

// Pages scans a topic page by page. An error is the last of them.
func Pages(ctx context.Context, log interface {
	Scan(ctx context.Context, topic string, q ScanQuery, b Bounds) ([]*Record, error)
}, topic string, q ScanQuery, b Bounds) iter.Seq2[[]*Record, error] {
	return func(yield func([]*Record, error) bool) {
		for {
			page, err := log.Scan(ctx, topic, q, b)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) == 0 || !yield(page, nil) {
				return
			}
			last := page[len(page)-1]
			q.After = &Point{TS: last.TS, ID: last.ID}
		}
	}
}

// Upper is the inclusive upper bound on ts.
func (q ScanQuery) Upper() int64 {
	if q.HasMaxTS || q.MaxTS != 0 {
		return q.MaxTS
	}
	return math.MaxInt64
}

// Position is where to start in a topic.
type Position struct {
	// From is one of wire.FromLatest, FromEarliest, FromTS, FromAfterID.
	From string
	// TS with FromTS: each partition starts at its lowest seq whose event has
	// that ts or a later one.
	TS int64
	// After with FromAfterID: each partition starts at its lowest seq whose
	// event comes after this point in (ts, id) order.
	After Point
}

// GroupPartition names one partition as a consumer group sees it.
type GroupPartition struct {
	Topic, Group string
	Partition    int
}

// Epoch is one owner's time with a group's partition. Epochs of a
// GroupPartition are a chain of numbers from 1; only the owner of the highest
// writes progress.
type Epoch struct {
	GroupPartition
	Number   uint64
	Owner    string // a Node's ID; the sidecar's own name where the log is not shared
	Beat     uint64 // rises while the owner lives
	Released bool   // the owner has finished with it
	// Deleted says that the group was deleted with this epoch: it has no
	// progress that anybody goes on from, and what it is the latest epoch of
	// has no place yet. Its number is taken all the same, so that what its
	// owners before may still send changes nothing.
	Deleted  bool
	Progress Progress
	// Inherit is for TakeEpochs alone: the epoch goes on from the progress of the one before it,
	// and Progress is ignored. Where there is none before it, Progress counts.
	Inherit bool
}

// Progress is how far a group has come in one partition.
type Progress struct {
	// Cursor is the lowest seq that is not settled: everything below is acked,
	// dead-lettered or passed over.
	Cursor uint64
	// Settled are the seqs above Cursor that are settled all the same,
	// ascending and disjoint.
	Settled []SeqRange
	// Attempts are the deliveries counted so far of unsettled events,
	// ascending and disjoint; an event without an entry has had none.
	Attempts []AttemptRange
	// Out are the seqs that were being delivered, ascending and disjoint, by
	// the owner OutBy: their last attempt counts if it died.
	Out   []SeqRange
	OutBy string
	// Unsure are the seqs, ascending and disjoint, whose last attempt counts
	// though it may not have reached anybody.
	Unsure []SeqRange
	// Delays are the events that are to be delivered no earlier than that,
	// ascending by seq.
	Delays []Delay
	// By is whom the group was made for, as MadeBy said.
	By string
	// Unused says that the group has settled no event, and when it was last in
	// use as far as is known, in milliseconds since the epoch. 0: it has settled
	// some, was put somewhere by a seek, or nothing is known.
	Unused int64
	// Since is when the group was put there where it began, by its start or by a
	// seek, in milliseconds since the epoch; 0: not known.
	Since int64
	// Redrives are redriven dead letters of which there is something to say.
	Redrives []RedriveProgress
}

// Delay is when an event may be delivered again, in milliseconds since the
// epoch, and how many of them that was away when it was saved; 0: not known.
// Clocks differ: another owner waits for the lesser of both.
type Delay struct {
	Seq   uint64
	Until int64
	Left  int64
}

// SeqRange is the seqs from First to Last, both included.
type SeqRange struct{ First, Last uint64 }

// AttemptRange is a range of seqs that have each been delivered Attempts times.
type AttemptRange struct {
	SeqRange
	Attempts int
}

// Mark remembers that a group has acked an id, until ExpiresAt (milliseconds
// since the epoch).
type Mark struct {
	Topic, Group, ID string
	ExpiresAt        int64
}

// Groups keeps the progress of consumer groups. It is stored in two steps,
// because a delivery need not wait for what an answered ack must: once saved,
// progress survives the process being killed; once synced, a power cut too.
type Groups interface {
	// ListGroups names the groups that the topic has, sorted; deleted ones are
	// none.
	ListGroups(ctx context.Context, topic string) ([]string, error)

	// LatestEpochs returns the highest epoch of each partition of the group that has one, by
	// partition. A group that no sidecar ever took has none. Its answer survives a kill, not always
	// a power cut. Those of a deleted group may be Deleted, or not be there any more.
	LatestEpochs(ctx context.Context, topic, group string) ([]Epoch, error)

	// AllEpochs returns what LatestEpochs does for all groups there are, by
	// topic, group and partition, but of the progress only the cursor, what
	// is settled, By and Unused, and none that are Deleted.
	AllEpochs(ctx context.Context) ([]Epoch, error)

	// Backlog returns, in order, about what partitions hold above known heads;
	// at little cost, so that it may count what no event came to. Where there
	// is no event above a head, that is certain: the extent ends there.
	Backlog(ctx context.Context, known []Hint) ([]Extent, error)

	// TakeEpochs inserts epochs, each of which must be new: an error for each,
	// in order; nil, or ErrEpochTaken when that number already exists or a
	// higher one does. Of racing inserts of one number exactly one succeeds.
	// It survives a power cut when it returns. Whether the earlier owner may
	// be replaced is for the caller to know.
	//
	// With Inherit, LatestEpochs tells the progress that the epoch goes on
	// from: everything that a save of an earlier owner answered nil for,
	// however the two raced. The first save of the new owner replaces it.
	TakeEpochs(ctx context.Context, epochs []Epoch) []error

	// SaveEpochs stores the owner's Beat, Released, Deleted and Progress of epochs that
	// it took, and the marks. When it returns nil, all of it survives a kill,
	// and no epoch's progress ever survives what its marks do not. ErrFenced
	// (wrapped) when a higher epoch exists for any of them: then no progress
	// is stored, though the marks may be, and progress of a fenced epoch is
	// never seen by anybody again. Of two saves of one epoch at once either
	// may be the one that counts.
	SaveEpochs(ctx context.Context, epochs []Epoch, marks []Mark) error

	// Sync returns nil once everything that SaveEpochs calls had stored before it was called is as
	// durable as an appended event: it survives a power cut. SaveEpochs does not wait for a Sync
	// that runs at the same time, and Syncs that run at the same time share their work. The end of
	// Sync's context loses no save.
	Sync(ctx context.Context) error

	// Marked tells for each id whether the group's mark on it is in force at
	// now (milliseconds since the epoch).
	Marked(ctx context.Context, topic, group string, ids []string, now int64) ([]bool, error)
}

// Retention is what a topic keeps. Zero durations mean for ever.
type Retention struct {
	TTLMS          int64 // remove events that were accepted longer ago
	DedupeWindowMS int64 // remember removed events' ids for this long after they were accepted
	// UpTo, by partition, is the highest seq that is removed at any age; nil: none.
	UpTo []uint64
}

// Over says that an event has to go that was accepted then, at a time now: both
// in milliseconds since the epoch.
func (r Retention) Over(partition int, seq uint64, acceptedAt, now int64) bool {
	return r.TTLMS > 0 && acceptedAt <= now-r.TTLMS || partition < len(r.UpTo) && seq <= r.UpTo[partition]
}

// Retainer removes what has expired.
type Retainer interface {
	// Sweep removes up to limit events of the topic that are Over, and up to limit
	// remembered ids whose window is over; more says that it stopped at a
	// bound, and removed counts the events. It goes in seq order per
	// partition, so that what remains of a partition is always its newest
	// part.
	Sweep(ctx context.Context, topic string, r Retention, now int64, limit int) (removed int, more bool, err error)

	// SweepMarks removes up to limit marks that have expired.
	SweepMarks(ctx context.Context, now int64, limit int) (removed int, more bool, err error)
}

// Compactor keeps the latest event of each key only.
type Compactor interface {
	// Compact looks at up to limit events of a partition from seq from on, and
	// removes what is superseded: an event with a key for which the partition
	// has a later one, and an event with a key whose payload is JSON null (a
	// tombstone) and that was accepted before tombstonesBefore (milliseconds
	// since the epoch). Two stay all the same: a tombstone while the partition
	// has older events of its key, and the partition's newest event. The ids
	// of removed events are remembered for the deduplication window, as Sweep
	// does it. It returns how many events it removed, and the seq to go on at;
	// next == from says that there is nothing at or above from. Other readers
	// see holes, never an older event of a key without the later one that
	// replaced it.
	Compact(ctx context.Context, topic string, partition int, from uint64, c Compaction) (next uint64, removed int, err error)
}

// Compaction is what Compact needs to know.
type Compaction struct {
	Retention
	Now              int64 // milliseconds since the epoch
	TombstonesBefore int64
	Limit            int // events to look at
}

// Deleter removes topics, groups and events on request. Everything that it does is durable when it
// returns, and may be done again: after an error that goes on where it stopped.
type Deleter interface {
	// DeleteTopic removes a topic with its events, ids and marks; ErrNotFound if there is none. Its
	// groups are to be deleted before. Events that are appended meanwhile are removed as well, or
	// fail with ErrNotFound. EnsureTopic makes the topic again, with as many partitions as it had:
	// its ids may be used again, and its seqs are above those that were given before, so that no
	// reader takes an event for one of those, and nobody's request that comes late brings one of
	// those back.
	DeleteTopic(ctx context.Context, name string) error

	// ForgetGroup removes the marks and the earlier epochs of a group whose
	// latest epochs are Deleted, or that has none.
	ForgetGroup(ctx context.Context, topic, group string) error

	// Erase removes everything of events of a partition but their ids, seqs and
	// times, and returns how many of these seqs had an event. The ids are
	// remembered as Sweep does it, without what was published under them: an
	// event of any content is a conflict.
	Erase(ctx context.Context, topic string, partition int, seqs []uint64, r Retention, now int64) (removed int, err error)
}
