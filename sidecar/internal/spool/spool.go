// Package spool keeps publishes safe while the shared store is away. Its Log is between the writer
// and the store's log. While the store answers, appends pass through. While it does not, events of
// topics whose policy allows it go to a synced queue on this machine, and from there into the
// store, in order, once it is back.
//
// The way of an event: append.go decides where it goes, put.go puts it into the spool, and
// drain.go moves it into the store, in pages that window.go sizes. health.go knows whether the
// store answers, and owner.go whether it is the spool's store.
//
// # What holds the order
//
// The writer has one batch in flight per (topic, partition), and a key is in one partition. A topic
// is direct or spooling. It becomes spooling with the first event that is spooled, and from then on
// every batch of every partition goes behind it. It becomes direct again only while the topic's
// gate keeps all batches out, and with nothing left in the spool. So no event can overtake an
// earlier one of its partition.
//
// # What makes it safe to repeat
//
// An event leaves the spool only after the log has answered for it, and goes into the log under the
// id that it was published with. So an interrupted step can be repeated: an event that was stored
// nevertheless is a duplicate.
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

// Reader is what a replay reads from; see eventlog.Reader for the methods.
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
	// Truncate removes the events up to a seq without remembering their ids. The removal is durable
	// when it returns nil. Seqs continue as before.
	Truncate(ctx context.Context, topic string, partition int, upTo uint64) error
	// Snapshot freezes a topic: it has all events whose append was answered before, also if they
	// are truncated later.
	Snapshot(ctx context.Context, topic string) (eventlog.Snapshot, error)
	// WriteFile writes a file beside the events atomically, for people. The file is durable when it
	// returns nil.
	WriteFile(name string, text []byte) error
	// SetText keeps a small text with the events. It is durable when it returns nil.
	SetText(name string, text []byte) error
	// Text returns such a text; nil if there is none.
	Text(name string) ([]byte, error)
}

// queue is the partition of Store that is used.
const queue = 0

// Config is what a Log needs. Heard and DeadLettered may be nil.
type Config struct {
	// Log is the store's. Its appends give up by themselves when the store does not answer.
	Log eventlog.Appender
	// Ping returns nil if the store answers. From then on StoreID identifies it. StoreURL is its
	// address, without secrets.
	Ping     func(ctx context.Context) error
	StoreID  func() string
	StoreURL string
	Store    Store
	// Folder is the folder of Store, for log lines and errors.
	Folder   string
	Policies *policy.Current
	// MaxBytes bounds all topics together, in addition to durability.spool_max_bytes of each; 0: no
	// such bound.
	MaxBytes int64
	// Off: while the log is away no event is spooled, whatever its topic's policy says. Those of an
	// earlier life still go into the log, and later ones behind them.
	Off bool
	// Announce is called with events that have become readable in a partition of the log to which
	// the writer did not append them: in seq order, from several goroutines.
	Announce func(topic string, partition int, recs []*eventlog.Record)
	// Heard is called when a partition has events up to head that were stored earlier.
	Heard func(topic string, partition int, head uint64)
	// DeadLettered is called for every spooled event that became a dead letter.
	DeadLettered func(topic string)
	// Erasures has the store's erasures; nil: nothing is ever erased. Erased is called with a topic
	// after erased events of it were found in the log.
	Erasures Erasures
	Erased   func(topic string)
	Tracing  *tracing.Tracing // nil: off
	Logger   *slog.Logger
	Clock    clock.Clock
}

// DeadLetters stores dead letters: see admit's Publisher.
type DeadLetters interface {
	AppendDeadLetter(ctx context.Context, rec *eventlog.Record, done func(error))
}

// Log is the event log as the writer sees it. All of its state but the queue is in memory, so a
// direct append costs nothing extra.
type Log struct {
	cfg    Config
	health health
	// wake tells Run that there is something to do.
	wake pause.Wake

	mu     sync.RWMutex
	topics map[string]*topic // the topics that are known to exist

	account account
	own     ownership
	drain   drainage // Run's alone
}

var _ eventlog.Appender = (*Log)(nil)

// Open counts the events that an earlier run has left in the spool. Run drains them.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	l := &Log{cfg: cfg, wake: pause.NewWake(), topics: make(map[string]*topic)}
	l.health.since = cfg.Clock.Now()
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

// recover counts the spool's events of a topic.
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
	// Since is when it went away, came back, or the spool was opened, and Cause why it is away.
	Since time.Time `json:"-"`
	Cause error     `json:"-"`
	// Draining: the store is there, and the spool is on its way into it.
	Draining bool `json:"-"`
	// Full: an event was refused because of MaxBytes, and there has been no room since.
	Full bool `json:"-"`
	// Shut: nothing is spooled until it is known whether the spool's events are for this store.
	Shut bool `json:"-"`
}

// Stats counts the waiting events, including those that are just being spooled.
func (l *Log) Stats() Stats {
	s := l.account.stats()
	l.health.mu.Lock()
	s.Away, s.Since, s.Cause = l.health.away.Load(), l.health.since, l.health.cause
	l.health.mu.Unlock()
	s.Draining = s.Draining && !s.Away
	s.Shut = !l.own.trusted.Load()
	return s
}

// oldestLooked bounds the topics in which Oldest looks.
const oldestLooked = 100

// Oldest is when the oldest waiting event was accepted; zero: none waits, or it cannot be read now.
// With more than 100 spooling topics it is that of some of them.
func (l *Log) Oldest(ctx context.Context) (oldest time.Time) {
	topics := l.account.list()
	for _, t := range topics[:min(len(topics), oldestLooked)] {
		first, err := l.cfg.Store.Read(ctx, t.name, queue, 1, eventlog.Bounds{Events: 1})
		if err != nil || len(first) == 0 {
			continue
		}
		if at := time.UnixMilli(first[0].AcceptedAt); oldest.IsZero() || at.Before(oldest) {
			oldest = at
		}
	}
	return oldest
}

// Holds reports whether events of the topic wait in the spool.
func (l *Log) Holds(topic string) bool {
	t := l.find(topic)
	return t != nil && t.spooling.Load()
}

// Waits reports whether the event with that id waits in the spool. The store may have it as well.
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
		return "the spool is full (--spool-max-bytes)"
	}
	return "the topic's part of the spool is full (durability.spool_max_bytes of its policy)"
}

const (
	boundTopic = "topic"
	boundTotal = "total"
)

// AwayError refuses an event that must not be spooled, by its topic's policy or by Record.LogOnly,
// while the store is away or other events of its topic are in the spool. The event is not stored.
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

// unavailable reports whether an error says that the store did not answer.
func unavailable(err error) bool { return errors.Is(err, eventlog.ErrUnavailable) }
