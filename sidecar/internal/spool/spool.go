// Package spool keeps publishes safe while the shared store is away. Its Log
// stands between the writer and the store's log: as long as the store answers,
// appends pass straight through; while it does not, those of topics whose policy
// allows it go to a synced queue on this machine, and from there into the store,
// in order, once it is back. The package knows events and policies; it must not
// know which store there is, nor what the queue is made of.
//
// The way of an event: append.go decides where it goes, keep.go puts it into the
// spool, drain.go takes it out again, as much at once as window.go says.
// health.go knows whether the store is there, and owner.go whether it is the one
// that the spool is for.
//
// # What holds the order
//
// The writer has one batch in flight per (topic, partition), and a key is in one
// partition. A topic is direct or spooling. It becomes spooling with the first event
// that is spooled, and from then on every batch of every partition goes behind it.
// It becomes direct again only while no batch is between asking and being
// answered (the topic's gate), and with nothing left in the spool. So there is no moment
// at which an event could pass an earlier one of its partition.
//
// # What makes it safe to repeat
//
// An event leaves the spool only after the log has answered for it, and goes into the log under the
// id that it was published with. So an interrupted step is repeated, and an event that was stored
// after all is a duplicate.
package spool

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/clock"
	"github.com/sluice-bus/sluice/internal/pause"
	"github.com/sluice-bus/sluice/internal/policy"
	"github.com/sluice-bus/sluice/sidecar/internal/eventlog"
	"github.com/sluice-bus/sluice/sidecar/internal/tracing"
)

// Reader is what a replay reads; eventlog.Reader says what the methods promise.
type Reader interface {
	Scan(ctx context.Context, topic string, q eventlog.ScanQuery, b eventlog.Bounds) ([]*eventlog.Record, error)
	Lookup(ctx context.Context, topic, id string) (*eventlog.Record, error)
}

// Store holds the spool: an event log on this machine to which nothing else appends. A topic's
// events are all in partition 0, in the order in which they have to go into the store. Its catalog
// also remembers how many partitions topics have, for when the store cannot be asked.
type Store interface {
	eventlog.Appender
	Reader
	Topics(ctx context.Context) ([]eventlog.Topic, error)
	LookupTopic(ctx context.Context, name string) (eventlog.Topic, error)
	Read(ctx context.Context, topic string, partition int, from uint64, b eventlog.Bounds) ([]*eventlog.Record, error)
	// Erase is eventlog.Deleter's.
	Erase(ctx context.Context, topic string, partition int, seqs []uint64, r eventlog.Retention, now int64) (removed int, err error)
	// Truncate removes the events up to a seq, for good when it returns nil,
	// and remembers no ids of them. Seqs go on from where they were.
	Truncate(ctx context.Context, topic string, partition int, upTo uint64) error
	// Snapshot freezes a topic: it has all events whose append was answered before, also if they
	// are truncated later.
	Snapshot(ctx context.Context, topic string) (eventlog.Snapshot, error)
	// WriteFile keeps a file beside the events, whole or not at all, and for
	// good when it returns nil.
	WriteFile(name string, text []byte) error
	// ReadFile returns such a file; fs.ErrNotExist where there is none.
	ReadFile(name string) ([]byte, error)
}

// queue is the partition of Store that is used.
const queue = 0

// Config is what a Log needs. Heard and DeadLettered may be nil.
type Config struct {
	// Log is the store's. Its appends give up by themselves when the store
	// does not answer.
	Log eventlog.Appender
	// Ping returns nil once the store answers, and from then on StoreID names
	// it. StoreURL is where it is, without secrets.
	Ping     func(ctx context.Context) error
	StoreID  func() string
	StoreURL string
	Store    Store
	// Folder is where Store is, for people who look for its files.
	Folder   string
	Policies *policy.Current
	// MaxBytes bounds all topics together, beside each one's own
	// durability.spool_max_bytes; 0: no bound beside those.
	MaxBytes int64
	// Announce is told of events that have become readable in the log without
	// an append of the writer's to that partition: in seq order, by several
	// goroutines at once.
	Announce func(topic string, partition int, recs []*eventlog.Record)
	// Heard is told that a partition has events up to head, which were stored earlier.
	Heard func(topic string, partition int, head uint64)
	// AppendDeadLetter stores a dead letter: see admit's Publisher.AppendDeadLetter.
	AppendDeadLetter func(ctx context.Context, rec *eventlog.Record, done func(error))
	// DeadLettered is told of every spooled event that became a dead letter.
	DeadLettered func(topic string)
	// Erasures is the store as it knows of erasures; nil: nothing is ever erased.
	// Erased is told of topics of which events that are to be gone were in the log.
	Erasures Erasures
	Erased   func(topic string)
	Tracing  *tracing.Tracing // nil: off
	Logger   *slog.Logger
	Clock    clock.Clock
}

// Log is the event log as the writer sees it. Everything is in memory except
// the queue itself, so that the direct way costs nothing.
type Log struct {
	cfg    Config
	health health
	// wake tells Run that there is something to do.
	wake pause.Wake

	mu     sync.RWMutex
	topics map[string]*topic // those that are known to exist

	account account
	own     ownership
	drain   drainage // Run's alone
}

var _ eventlog.Appender = (*Log)(nil)

// Open finds what an earlier run has left in the spool, and counts it. Run
// drains it.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	l := &Log{cfg: cfg, wake: pause.NewWake(), topics: make(map[string]*topic)}
	l.account.spooling = make(map[*topic]struct{})
	l.drain.whole = defaultPage
	l.drain.window.restart()
	known, err := cfg.Store.Topics(ctx)
	if err != nil {
		return nil, fmt.Errorf("spool: list the topics: %w", err)
	}
	for _, tp := range known {
		if err := l.recover(ctx, tp); err != nil {
			return nil, fmt.Errorf("spool: topic %s: %w", tp.Name, err)
		}
	}
	if err := l.claim(); err != nil {
		return nil, fmt.Errorf("spool: %w", err)
	}
	if s := l.Stats(); s.Events > 0 {
		cfg.Logger.Info("the spool has events for the store", "events", s.Events, "bytes", s.Bytes)
	}
	return l, nil
}

// recover counts what the spool has of a topic.
func (l *Log) recover(ctx context.Context, tp eventlog.Topic) error {
	events, bytes := 0, int64(0)
	for next := uint64(1); ; {
		page, err := l.cfg.Store.Read(ctx, tp.Name, queue, next, defaultPage)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			break
		}
		events += len(page)
		bytes += sizeOf(page)
		next = page[len(page)-1].Seq + 1
	}
	if events > 0 {
		t := l.add(tp.Name, tp.Partitions, 0, tp.By)
		l.account.begin(t)
		l.account.change(t, events, bytes) // no other goroutine has it yet
	}
	return nil
}

// Stats is the state of the spool.
type Stats struct {
	Events int   `json:"events"`
	Bytes  int64 `json:"bytes"`
	// Away: the store does not answer.
	Away bool `json:"-"`
	// Draining: the store is there, and the spool is on its way into it.
	Draining bool `json:"-"`
	// Full: an event was refused because of MaxBytes, and there has been no
	// room since.
	Full bool `json:"-"`
	// Shut: nothing is spooled before it is known whether what is there is for
	// this store.
	Shut bool `json:"-"`
}

// Stats counts what waits now. Events that are just being spooled count.
func (l *Log) Stats() Stats {
	s := l.account.stats()
	s.Away = l.health.away.Load()
	s.Draining = s.Draining && !s.Away
	s.Shut = !l.own.trusted.Load()
	return s
}

// Holds says whether events of the topic wait in the spool.
func (l *Log) Holds(topic string) bool {
	t := l.find(topic)
	return t != nil && t.spooling.Load()
}

// Waits says whether the event with that id waits in the spool. The store may
// have it as well.
func (l *Log) Waits(ctx context.Context, topic, id string) (bool, error) {
	if !l.Holds(topic) {
		return false, nil
	}
	_, err := l.cfg.Store.Lookup(ctx, topic, id)
	if errors.Is(err, eventlog.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// FullError refuses an event because the spool is full: it is not stored.
type FullError struct {
	Bound string // "topic" or "total"
	// RetryAfter is about how long it takes until there is room.
	RetryAfter time.Duration
}

func (e *FullError) Error() string {
	if e.Bound == boundTotal {
		return "the spool is full"
	}
	return "the topic's part of the spool is full"
}

const (
	boundTopic = "topic"
	boundTotal = "total"
)

// AwayError refuses an event that does not spool, by its topic's policy or as
// eventlog.Record says, because the store is away, or others of its topic are
// still in the spool: it is not stored.
type AwayError struct {
	// RetryAfter is when it makes sense to try again.
	RetryAfter time.Duration
}

func (e *AwayError) Error() string { return "the store is away and the event does not spool" }

// Unwrap makes it an ErrUnavailable.
func (e *AwayError) Unwrap() error { return eventlog.ErrUnavailable }

func sizeOf(recs []*eventlog.Record) (n int64) {
	for _, r := range recs {
		n += int64(r.Size())
	}
	return n
}

// unavailable says that an error is the store's: it did not answer.
func unavailable(err error) bool { return errors.Is(err, eventlog.ErrUnavailable) }
