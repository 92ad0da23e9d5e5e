// Package eventlog defines the event log: the interface that the sidecar is built on, and the
// promises that every implementation keeps. The suite in eventlogtest tests these promises. The
// package knows the event. It does not know how events are published, limited or delivered.
//
// A log is a set of topics. A topic has a fixed number of partitions. A partition is a list of
// events. Their seqs rise in the order in which the events become readable.
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
	// ErrNotFound: no such topic, event or group epoch. A NotFoundError says which.
	ErrNotFound = errors.New("not found")
	// ErrDeleting: the topic is being deleted, or its deletion was interrupted and DeleteTopic
	// continues it.
	ErrDeleting = errors.New("being deleted")
	// ErrUnavailable: the store cannot be reached or has failed. The operation may or may not have
	// taken effect; an append may be repeated.
	ErrUnavailable = errors.New("store unavailable")

	// ErrFailed: an earlier write to the disk failed, and the store does nothing until a restart. It wraps ErrUnavailable.
	ErrFailed = fmt.Errorf("%w: an earlier write failed, restart to recover", ErrUnavailable)
	// ErrTimeout: the store did not answer in time, and so counts as unavailable.
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

// ConcernError refuses an event of a topic whose write concern the store does not meet, since too
// few of its members answer. The event may be stored. It counts as stored once the concern is met
// and the event is appended again. The store is not away: appends to other topics succeed.
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

// RefusedError refuses an event that the store will never accept: its document would be too large,
// or the store has a rule against it. The event is not stored.
type RefusedError struct{ Cause error }

func (e *RefusedError) Error() string { return "the store refuses the event: " + e.Cause.Error() }

// Unwrap is the reason.
func (e *RefusedError) Unwrap() error { return e.Cause }

// Record is an event in the log, with the time when the sidecar accepted it. Retention and the
// deduplication window count from AcceptedAt (milliseconds since the epoch), never from the
// publisher's ts.
type Record struct {
	wire.Event
	AcceptedAt int64
	// FreshID says that the sidecar has just generated the id, so the log need not look it up. It
	// is not stored. The log clears it when the outcome of an append is not known, so that the next
	// try looks the id up.
	FreshID bool
	// LogOnly says that the event must not be spooled, since its publisher keeps it until the log
	// has it. It is not stored.
	LogOnly bool
	// DeliverAt is the time until which the log keeps the event as scheduled (milliseconds since
	// the epoch), see Scheduler. 0: the log stores it in its partition at once.
	DeliverAt int64
}

// Topic is a topic's entry in the catalog. Its number of partitions never changes, since keys would
// move to other partitions and lose their order.
type Topic struct {
	Name       string
	Partitions int
	By         string // the identity that it was created for, see MadeBy
}

// Outcome is the result for one event of an append.
type Outcome struct {
	Partition int
	Seq       uint64
	// TS is the stored event's ts: for a duplicate, the first publish's.
	TS        int64
	Duplicate bool
	// Spooled says that the event is durable in this sidecar's spool and not yet in the log: it has
	// no Partition or Seq yet. Only the spool sets it.
	Spooled bool
	// DeliverAt is the time for which the event is scheduled, or for a Duplicate the first event:
	// it has no Partition, Seq or TS yet.
	DeliverAt int64
	// Err is a *ConflictError or *RefusedError, or wraps ErrUnavailable when it is not known
	// whether the event was stored, or wraps ErrNotFound when there is no such topic or partition.
	// Nothing else is set with it.
	Err error
}

// NotFoundError is ErrNotFound with the name of what is not there, such as `topic "orders"`.
type NotFoundError struct{ What string }

// NotFound returns a NotFoundError.
func NotFound(format string, args ...any) error {
	return &NotFoundError{What: fmt.Sprintf(format, args...)}
}

func (e *NotFoundError) Error() string { return e.What + ": not found" }

func (e *NotFoundError) Is(err error) bool { return err == ErrNotFound }

// DiskFullError refuses an append, since the disk under the log has too little room. Nothing of the
// append is stored. An error that also wraps ErrUnavailable says that the disk became full during
// the append, and that the events may be stored. Reading, progress and retention continue.
type DiskFullError struct {
	Free, LowWater int64 // bytes, where known
}

func (e *DiskFullError) Error() string { return "the disk under the event log has too little room" }

// Bounds of one page of results. A page has at least one event, however large, so that every reader
// makes progress.
type Bounds struct {
	Events int // at most this many, and
	Bytes  int // stop once wire.Event.Size adds up to this much; 0: no bound
}

// Extent is what a partition holds.
type Extent struct {
	// First is the lowest seq that may be readable. Head is the highest seq given out that is or
	// was readable. When no event is left, First is Head+1, and Head may be a higher seq that never
	// held an event. A partition without any append has First 1 and Head 0.
	First, Head uint64
	// Removed is the highest seq whose event went by retention, or with the topic. Compaction and
	// erasure do not raise it.
	Removed uint64
	// Voids counts the seqs right above Head that hold no event and never will.
	Voids uint64
	// Hidden counts the events stored above Head. They become readable once every seq below them
	// holds an event or is void.
	Hidden int64
}

// Log is all of a store. Every method may be called from many goroutines at once. Every method
// returns soon after its context ends.
type Log interface {
	Appender
	Reader
	Groups
	Retainer
	Compactor
	Deleter
	Redrives
	Scheduler
	// Close waits for calls under way, makes everything durable and releases the store. Methods
	// called later wrap ErrUnavailable.
	Close() error
}

// Appender makes events durable.
type Appender interface {
	// EnsureTopic returns the topic. If there is none, it creates one with that many partitions (1
	// to 1024) for the identity in ctx, see MadeBy. Concurrent calls agree on one number of
	// partitions. ErrDeleting while an earlier topic of that name is being deleted.
	EnsureTopic(ctx context.Context, name string, partitions int) (Topic, error)

	// Append stores a batch in one partition of an existing topic and returns one Outcome per
	// event, in order. It promises:
	//
	//   - An Outcome without Err means durable: it survives a kill and a power cut.
	//   - New events get seqs in batch order, above every seq given before in that partition, and
	//     become readable in seq order: a reader that has seen seq N never later finds a new event
	//     below N.
	//   - An id is stored once per topic, in any partition and with any number of concurrent
	//     appends. The other appends get Duplicate with the stored seq if codec.SameContent is
	//     true, else a *ConflictError. This includes ids that occur twice in the batch, and ids
	//     whose event retention has removed, during their deduplication window.
	//   - After Err wrapping ErrUnavailable, appending the same events again is safe.
	//   - An event with a DeliverAt reserves its id and is scheduled; the partition does not
	//     matter. A Duplicate of a scheduled event does not change its time. A *ConflictError with
	//     a scheduled event has no Seq.
	//
	// The log sets Partition and Seq of the records that it stores. The log and its readers keep
	// references to these records, so the caller must not change them. A caller to which order
	// matters keeps one Append in flight per partition; the log does not depend on that.
	Append(ctx context.Context, topic string, partition int, batch []*Record) []Outcome
}

// Batch is an append's events for one partition, and what became of them: its Outcomes are as Append returns them.
type Batch struct {
	Topic     string
	Partition int
	Records   []*Record
	Outcomes  []Outcome
}

// GroupAppender is an Appender that stores the batches of many partitions by one commit.
type GroupAppender interface {
	Appender
	// AppendAll sets the Outcomes of the batches. It promises for each what Append does: a batch that is refused refuses no
	// other. Batches of one partition are stored in any order.
	AppendAll(ctx context.Context, batches []Batch)
}

// AppendAll appends batches, by one commit if the log is a GroupAppender, else one after the other.
func AppendAll(ctx context.Context, log Appender, batches []Batch) {
	if group, ok := log.(GroupAppender); ok {
		group.AppendAll(ctx, batches)
		return
	}
	for i := range batches {
		b := &batches[i]
		b.Outcomes = log.Append(ctx, b.Topic, b.Partition, b.Records)
	}
}

// Reader reads events. Nothing is readable before it is durable.
type Reader interface {
	// Topics lists the catalog by name.
	Topics(ctx context.Context) ([]Topic, error)

	// CountTopics is how many topics there are, and how many of them were created for an identity, see MadeBy.
	CountTopics(ctx context.Context, by string) (all, own int, err error)

	// LookupTopic finds one topic; ErrNotFound if there is none.
	LookupTopic(ctx context.Context, name string) (Topic, error)

	// Extents returns what each partition of the topic holds.
	Extents(ctx context.Context, topic string) ([]Extent, error)

	// Holdings returns what those of the topics hold that exist, in this order, without reading them
	// event by event. So the numbers of topics that hold much are estimates.
	Holdings(ctx context.Context, topics []string) ([]Holding, error)

	// Read returns events of a partition with seq ≥ from, ascending. Its only holes are events that
	// retention or compaction removed, and void seqs. If there is nothing at or above from, it
	// returns no events and no error.
	Read(ctx context.Context, topic string, partition int, from uint64, b Bounds) ([]*Record, error)

	// Scan returns a page of the events that q selects, ordered by (ts, id). An empty page is the
	// end.
	Scan(ctx context.Context, topic string, q ScanQuery, b Bounds) ([]*Record, error)

	// Lookup finds an event by id. ErrNotFound if the topic has none, also if it remembers the id
	// for deduplication only.
	Lookup(ctx context.Context, topic, id string) (*Record, error)

	// Locate finds where an event is, or was before it was removed. It knows a removed event at
	// least as long as its id is remembered for deduplication. ErrNotFound if it knows none.
	Locate(ctx context.Context, topic, id string) (Location, error)

	// Latest returns a page of the latest events of keys: for each key that q selects, the event
	// with the highest seq, also if it is a tombstone, in descending order of keys. An empty page
	// is the end. The cost depends on the events that it returns and those above q.UpTo; events
	// that compaction removed cost nothing. If q.UpTo is the result of Extents, Latest sees every
	// event of that moment, except for events removed since. Compaction removes an event only for a
	// later event of its key.
	Latest(ctx context.Context, topic string, q LatestQuery, b Bounds) ([]*Record, error)

	// Seek translates a position into the seq to start at in each partition.
	Seek(ctx context.Context, topic string, p Position) ([]uint64, error)
}

// Location is the place of one event.
type Location struct {
	Partition int
	Seq       uint64
	TS        int64
	Gone      bool // the event was removed
}

// Point is a place in the (ts, id) order.
type Point struct {
	TS int64
	ID string
}

// Compare orders points: by ts, then by the id's bytes.
func (p Point) Compare(q Point) int { return cmp.Or(cmp.Compare(p.TS, q.TS), cmp.Compare(p.ID, q.ID)) }

// ScanQuery selects events by (ts, id). The zero value selects the whole topic, ascending.
type ScanQuery struct {
	// MinTS and MaxTS are inclusive; MaxTS 0 means no upper bound unless HasMaxTS is set. Any other
	// MaxTS counts either way.
	MinTS    int64
	MaxTS    int64
	HasMaxTS bool
	// After selects only events that come after this point in the direction of the scan.
	After *Point
	// Key selects the events of one key.
	Key *string
	// Descending reverses the order.
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
	// TS with FromTS: each partition starts at its lowest seq whose event has that ts or a later
	// one.
	TS int64
	// After with FromAfterID: each partition starts at its lowest seq whose event comes after this
	// point in (ts, id) order.
	After Point
}

// GroupPartition names one partition as a consumer group sees it.
type GroupPartition struct {
	Topic, Group string
	Partition    int
}

// Epoch is one owner's period of ownership of a group's partition. The epochs of a GroupPartition
// are numbered from 1. Only the owner of the highest epoch writes progress.
type Epoch struct {
	GroupPartition
	Number   uint64
	Owner    string // a Node's ID; the sidecar's own name where the log is not shared
	Beat     uint64 // rises while the owner lives
	Released bool   // the owner has finished with it
	// Deleted says that the group was deleted with this epoch. The next owner does not continue
	// from its progress: the group has no position in the partition yet. The number stays taken, so
	// that late writes of earlier owners have no effect.
	Deleted  bool
	Progress Progress
	// Inherit is for TakeEpochs alone: the epoch continues from the progress of the epoch before
	// it, and Progress is ignored. Progress counts if there is no earlier epoch.
	Inherit bool
	// Kept is for TakeEpochs alone: somebody else makes the epoch, and Owner, which owns the epoch
	// before it, keeps the partition. The epoch is Released if the one before it was released after
	// all.
	Kept bool
}

// Progress is how far a group has come in one partition.
type Progress struct {
	// Cursor is the lowest seq that is not settled: every event below it is acked, dead-lettered or
	// skipped.
	Cursor uint64
	// Settled are the settled seqs above Cursor, ascending and disjoint.
	Settled []SeqRange
	// Attempts counts the deliveries of unsettled events, ascending and disjoint. An event without
	// an entry was not delivered.
	Attempts []AttemptRange
	// Out are the seqs that the owner OutBy was delivering, ascending and disjoint. Their last
	// attempt counts if that owner died.
	Out   []SeqRange
	OutBy string
	// Reach is up to which seq the owner ReachBy may deliver events without a save that names them. If that
	// owner died, each unsettled event up to it that the progress names nowhere counts as delivered
	// once. 0: none.
	Reach   uint64
	ReachBy string
	// Unsure are the seqs whose last attempt counts although it may not have reached a member,
	// ascending and disjoint.
	Unsure []SeqRange
	// Delays are the events that must not be delivered before a time, ascending by seq.
	Delays []Delay
	// By is the identity that the group was created for, see MadeBy.
	By string
	// Unused is set while the group has settled no event: the time when it was last in use, as far
	// as is known, in milliseconds since the epoch. 0: it has settled some, a seek has moved it, or
	// the time is not known.
	Unused int64
	// Since is when the group's start or a seek put it at the position where it began, in
	// milliseconds since the epoch. 0: not known.
	Since int64
	// Redrives are the redriven dead letters that have progress.
	Redrives []RedriveProgress
}

// Delay says when an event may be delivered again: Until in milliseconds since the epoch, and Left,
// the remaining milliseconds when it was saved (0: not known). Clocks differ, so another owner
// waits for the lesser of the two.
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

// Mark records until ExpiresAt (milliseconds since the epoch) that a group has acked an id.
type Mark struct {
	Topic, Group, ID string
	ExpiresAt        int64
}

// Groups keeps the progress of consumer groups. Progress is stored in two steps: saved progress
// survives a kill of the process, synced progress also a power cut. A delivery waits for the first
// step only, the answer to an ack for both.
type Groups interface {
	// ListGroups returns the names of the topic's groups, sorted, without deleted groups.
	ListGroups(ctx context.Context, topic string) ([]string, error)

	// GroupsOf is ListGroups for many topics. A group that is being deleted may be missing.
	GroupsOf(ctx context.Context, topics []string) (map[string][]string, error)

	// LatestEpochs returns the highest epoch of each partition of the group that has one, by
	// partition. A group that no sidecar ever took has none. The returned epochs survive a kill,
	// but perhaps not a power cut. The epochs of a deleted group are Deleted or removed.
	LatestEpochs(ctx context.Context, topic, group string) ([]Epoch, error)

	// AllEpochs returns the latest epochs of all groups, by topic, group and partition, without
	// Deleted epochs. Of the progress it sets Cursor, Settled, By and Unused only.
	AllEpochs(ctx context.Context) ([]Epoch, error)

	// Backlog returns, in order, the approximate extents of partitions above known heads. It is
	// cheap, and may count void seqs. If there is no event above a head, the extent ends exactly
	// there.
	Backlog(ctx context.Context, known []Hint) ([]Extent, error)

	// TakeEpochs inserts new epochs and returns an error for each, in order: nil, or ErrEpochTaken
	// if that number or a higher one exists. Of concurrent inserts of one number exactly one
	// succeeds. The epochs survive a power cut when it returns. The caller decides whether the
	// earlier owner may be replaced.
	//
	// With Inherit, LatestEpochs returns the progress that the epoch continues from. It has every
	// save of an earlier owner that returned nil, also a concurrent one. The first save of the new
	// owner replaces it.
	TakeEpochs(ctx context.Context, epochs []Epoch) []error

	// SaveEpochs stores Beat, Released, Deleted and Progress of epochs that the owner took, and the
	// marks. When it returns nil, all of this survives a kill. After a power cut progress is there
	// only if its marks are. ErrFenced (wrapped) if a higher epoch exists for any of them: then no
	// progress is stored, the marks may be, and no call returns the progress of a fenced epoch
	// again. Of two concurrent saves of one epoch either may win.
	SaveEpochs(ctx context.Context, epochs []Epoch, marks []Mark) error

	// Sync returns nil once everything that earlier SaveEpochs calls stored survives a power cut,
	// like an appended event. SaveEpochs does not wait for a concurrent Sync, and concurrent Syncs
	// share their work. The end of Sync's context loses no save.
	Sync(ctx context.Context) error

	// Marked reports for each id whether the group's mark is in force at now (milliseconds since
	// the epoch).
	Marked(ctx context.Context, topic, group string, ids []string, now int64) ([]bool, error)
}

// Retention is what a topic keeps. Zero durations mean for ever.
type Retention struct {
	TTLMS          int64 // remove events that were accepted longer ago
	DedupeWindowMS int64 // remember removed events' ids for this long after they were accepted
	// UpTo, by partition, is the highest seq that is removed at any age; nil: none.
	UpTo []uint64
}

// Over reports whether an event that was accepted at acceptedAt is to be removed at now, both in
// milliseconds since the epoch.
func (r Retention) Over(partition int, seq uint64, acceptedAt, now int64) bool {
	return r.TTLMS > 0 && acceptedAt <= now-r.TTLMS || partition < len(r.UpTo) && seq <= r.UpTo[partition]
}

// Retainer removes what has expired.
type Retainer interface {
	// Sweep removes up to limit events of the topic that are Over, and up to limit remembered ids
	// whose window is over. more says that it stopped at a bound, and removed counts the events. It
	// removes events in seq order per partition, so the newest part of a partition remains.
	Sweep(ctx context.Context, topic string, r Retention, now int64, limit int) (removed int, more bool, err error)

	// SweepMarks removes up to limit marks that have expired.
	SweepMarks(ctx context.Context, now int64, limit int) (removed int, more bool, err error)
}

// Compactor keeps the latest event of each key only.
type Compactor interface {
	// Compact examines up to c.Limit events of a partition from seq from on, and removes superseded
	// events: events with a key for which the partition has a later event, and tombstones (events
	// with a key and the payload JSON null) that were accepted before c.TombstonesBefore. It keeps
	// a tombstone while the partition has older events of its key, and the partition's newest
	// event. The ids of removed events are remembered for the deduplication window, as with Sweep.
	// It returns the number of events removed and the seq to continue at; next == from says that
	// there is nothing at or above from. Readers see holes, never an older event of a key without
	// the later event that replaced it.
	Compact(ctx context.Context, topic string, partition int, from uint64, c Compaction) (next uint64, removed int, err error)
}

// Compaction has the parameters of Compact.
type Compaction struct {
	Retention
	Now              int64 // milliseconds since the epoch
	TombstonesBefore int64
	Limit            int // events to look at
}

// Deleter removes topics, groups and events on request. A removal is durable when the call returns.
// Calls may be repeated: after an error the next call continues the removal.
type Deleter interface {
	// DeleteTopic removes a topic with its events, ids and marks. ErrNotFound if there is none. The
	// caller deletes its groups first. Concurrent appends are removed as well, or fail with
	// ErrNotFound. EnsureTopic creates the topic again with the same number of partitions. Then ids
	// may be used again, and seqs continue above the earlier ones, so that no reader confuses a new
	// event with an earlier one, and no late request brings an earlier event back.
	DeleteTopic(ctx context.Context, name string) error

	// ForgetGroup removes the marks and the earlier epochs of a group whose latest epochs are
	// Deleted, or that has no epochs.
	ForgetGroup(ctx context.Context, topic, group string) error

	// Gone returns those of the topics that are deleted, and those of the groups that do not exist,
	// for callers that keep something for their names. A topic that never was is not among them,
	// since its events may wait in a spool.
	Gone(ctx context.Context, topics []string, groups []GroupName) (goneTopics []string, goneGroups []GroupName, err error)

	// Erase removes events of a partition, except for their ids, seqs and times, and returns how
	// many of the seqs had an event. The ids are remembered as with Sweep, but without their
	// content: every event that is published under such an id is a conflict.
	Erase(ctx context.Context, topic string, partition int, seqs []uint64, r Retention, now int64) (removed int, err error)
}
