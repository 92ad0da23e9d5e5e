// Package store is the sidecar's view of its store: an embedded log, which belongs to this sidecar
// alone, or a log in MongoDB, which may be away and which other sidecars use too. A Store owns what
// depends on that: the log, the spool before it, this sidecar's place among the others, and what
// they tell each other.
package store

import (
	"context"
	"time"

	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/group"
	"github.com/sluice-bus/sluice/sidecar/internal/replay"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/spool"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/writer"
)

// Store is a store of events. Its methods are safe for concurrent use.
type Store interface {
	// ID names the store; "" until a shared one was reached. URL is its address, without secrets.
	ID() string
	URL() string
	// FolderSecret is of the data folder, which has events that no other sidecar has: a new folder has another
	// one. Others see policypb.PublicID of it.
	FolderSecret() string

	// Log is the log alone. Publishes go to Entry, which may be a spool before it.
	Log() eventlog.Log
	Entry() eventlog.Appender
	// History reads the events of the log and the spool as one, Parts those of each. Spool is nil
	// if there is none.
	History() replay.Source
	Parts() replay.Parts
	Spool() Spool

	// Roster has the sidecars on the store. The caller runs it.
	Roster() *roster.Roster
	// Notifier tells the readers here, and the other sidecars, of appended events.
	Notifier() writer.Notifier
	// Moved tells the other sidecars that a group has moved. It does not block.
	Moved(eventlog.GroupName)
	// Erased drops the events of a topic from the readers' memory, here and at the other sidecars,
	// after some were erased. It does not block.
	Erased(topic string)

	Status() Status
	// Away reports whether the log does not answer now.
	Away() bool
	// GroupStats are the figures of the groups, perhaps some seconds old.
	GroupStats(*group.Manager) []telemetry.GroupStat
	// HeapBytes is how much of the heap the store keeps as long as it is open.
	HeapBytes() int64
	Timing() Timing

	// Drain brings spooled events into the log until ctx ends. Events that the log refuses become
	// letters. An error before says that the store is not the one of these settings.
	Drain(ctx context.Context, letters spool.DeadLetters) error
	// Follow hears of the other sidecars' events and groups until ctx ends.
	Follow(ctx context.Context, groups *group.Manager) error
	// Close is called after Drain and Follow have returned.
	Close() error
}

// Spool has events that are not in the log yet.
type Spool interface {
	// Holds reports whether events of a topic wait, and Waits whether a given one does.
	Holds(topic string) bool
	Waits(ctx context.Context, topic, id string) (bool, error)
	// Oldest is when the oldest of them was accepted; zero: none waits.
	Oldest(ctx context.Context) time.Time
	// Erase erases waiting events, here and at the other sidecars. It returns how many were here.
	Erase(ctx context.Context, e eventlog.Erasure, r eventlog.Retention) (int, error)
}

// NewNotifier makes a Notifier. signal tells the other sidecars; nil: there are none.
func NewNotifier(tails *tail.Tails, policies *policy.Current, signal func(eventlog.Hint)) writer.Notifier {
	return writer.Notifier{
		Tails: tails, Signal: signal,
		MayVanish: func(topic string) bool { return policies.Load().Topic(topic).Durability.MayVanish() },
	}
}

// Timing is what follows from the price of a command to the log.
type Timing struct {
	// AckTimeout is how long an ack may wait to be durable; 0: no bound. AckLinger is how long it
	// waits to share a save with others.
	AckTimeout, AckLinger time.Duration
	// Together has an append store the batches of all partitions that wait, see writer.Config.
	Together bool
	// Reach lets first deliveries go without a save.
	Reach bool
	// CountEvery is the least pause between two counts of scheduled events.
	CountEvery time.Duration
}

// Status is the state of a store.
type Status struct {
	State  State
	Detail string              // why State is not StateOK, for people
	Since  time.Time           // when the store was opened, went away, failed or came back, or its disk ran short or had room again
	Err    error               // the last one of a store that is away, has failed or has no room
	Spool  telemetry.SpoolStat // the events that wait there
	Disk   telemetry.DiskStat  // that events are stored on here
	// UnmetConcerns are the write concerns of topics whose events are refused, because fewer
	// members of the store acknowledge them than that, by topic.
	UnmetConcerns map[string]string
}

// State says whether publishes are accepted.
type State string

// The states of a store.
const (
	StateOK       State = "ok"
	StateAway     State = "away"      // publishes are spooled, or refused
	StateDraining State = "draining"  // it is back, and gets the spooled events
	StateFull     State = "full"      // it is away, and the spool is full, or off
	StateDisk     State = "disk_full" // the disk has too little room for events
	StateFailed   State = "failed"
	StateStarting State = "starting"
)

// Up reports whether the log itself answers and takes events.
func (s Status) Up() bool { return s.State == StateOK || s.State == StateDraining }

// Names in the data folder.
const (
	SpoolFolder = "spool" // of a shared store
	// PendingEndsFile has the ids of lives whose ends a shared store does not know yet.
	PendingEndsFile = "pending-ends"
)
