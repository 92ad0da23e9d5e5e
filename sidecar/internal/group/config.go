package group

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/roster"
	"github.com/sluice-bus/sluice/sidecar/internal/tail"
	"github.com/sluice-bus/sluice/sidecar/internal/telemetry"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Bounds of what a group keeps in memory.
type Bounds struct {
	// Lookahead is how many events of a partition are fetched, counted from the lowest unsettled
	// one: so far other keys may get ahead of a stuck key.
	Lookahead int
	// HeldBytes bounds the bytes of fetched events that are not settled.
	HeldBytes int
	// FetchEvents and FetchBytes bound one read from the log.
	FetchEvents int
	FetchBytes  int
}

// DefaultBounds let a group hold some tens of megabytes at the most.
func DefaultBounds() Bounds {
	return Bounds{Lookahead: 10_000, HeldBytes: 32 << 20, FetchEvents: 1000, FetchBytes: 1 << 20}
}

// Log is what groups need of the event log.
type Log interface {
	eventlog.Reader
	eventlog.Groups
	eventlog.Redrives
	EnsureTopic(ctx context.Context, name string, partitions int) (eventlog.Topic, error)
	ForgetGroup(ctx context.Context, topic, group string) error
}

// Config is what a Manager needs; every field but Moved, Tracing and Clock is required.
type Config struct {
	// Context ends when stopping may not wait any longer.
	Context     context.Context
	Log         Log
	Tails       *tail.Tails
	Policy      func(topic string) *policy.Effective
	DeadLetters DeadLetters
	Metrics     *telemetry.Metrics
	Tracing     *tracing.Tracing
	// Roster says which sidecars are alive; it is run beside the Manager, and ends after the
	// Manager has stopped.
	Roster *roster.Roster
	// AckTimeout bounds how long an ack waits for its progress to be durable; 0: no bound.
	AckTimeout time.Duration
	// AckLinger is how long acks wait for the next deliveries, to share a save with them; those of
	// a Puller do not wait.
	AckLinger time.Duration
	// Reach lets first deliveries go without a save, as far as an earlier one reached (dispatch/reach.go),
	// and turns go on during a save. It is for such a log, too.
	Reach bool
	// Moved, if set, calls Manager.Moved on the other sidecars. These then look at the owners of
	// the group's partitions. It must not block.
	Moved  func(eventlog.GroupName)
	Logger *slog.Logger
	Bounds Bounds
	Clock  clock.Clock
	// MaxGroups bounds the groups of the store; 0: any number.
	MaxGroups int
	// MaxGroupsEach bounds the groups that were made for one identity; 0: any number.
	MaxGroupsEach int
}

// DefaultAckLinger is for a log whose saves each cost a command to a remote store.
const DefaultAckLinger = 20 * time.Millisecond

func (c *Config) notifyMoved(id eventlog.GroupName) {
	if c.Moved != nil {
		c.Moved(id)
	}
}

// DeadLetters appends to dead letter topics.
type DeadLetters interface {
	// AppendDeadLetter appends the record to its topic, which it creates if need be. It takes no
	// rate limit's tokens. done is called once: with nil when an event with this id is durable
	// there, perhaps from an earlier try with another reason.
	AppendDeadLetter(ctx context.Context, rec *eventlog.Record, done func(error))
}

// errStopped answers calls after the sidecar has begun to stop.
var errStopped = fmt.Errorf("shutting down: %w", eventlog.ErrUnavailable)

const (
	// retryAfterFailure is the pause before the store is asked again.
	retryAfterFailure = 250 * time.Millisecond
	// aloneAfter is how often a partition is read in vain together with others. A read of the
	// partition alone also finds seqs that will never hold an event.
	aloneAfter = 2
	// pagesPerTurn bounds how long acks and deadlines wait while a group reads events that its
	// filters do not let pass.
	pagesPerTurn = 16
)
