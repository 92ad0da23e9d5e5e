package snapshot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/internal/positions"
	"github.com/sluice-bus/sluice/sdk/internal/settings"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Options are the options of a consumer whose state is an S. The zero value of a field has the
// default; Apply is needed.
type Options[S any] struct {
	// Apply changes the state by an event. Calls come one after the other, those of a partition in
	// the order of their seqs. An error ends the consumer, and the last snapshot stays the one
	// before. The context ends when that of Close does.
	Apply func(ctx context.Context, state *S, e *sluice.Event) error
	// Encode and Decode are for states that are not kept as JSON.
	Encode func(*S) ([]byte, error)
	Decode func([]byte, *S) error
	// Every is the time between two snapshots (30 s). Where nothing has come, none is saved.
	Every time.Duration
	// MaxAge refuses older snapshots with ErrTooOld; 0 refuses none. A topic with retention.compact
	// keeps deletions of keys for a day: give less for one.
	MaxAge time.Duration
	// Rebuild starts with the topic's earliest event, and a zero state, where the last snapshot is
	// too old, instead of with ErrTooOld.
	Rebuild bool
	// Logger is told of snapshots that could not be saved; nil is slog.Default.
	Logger *slog.Logger
}

const defaultEvery = 30 * time.Second

// ErrTooOld is matched by the error of a consumer whose snapshot, or place, is so old that the
// topic has not kept all events behind it.
var ErrTooOld = errors.New("snapshot: it is older than what the topic keeps")

// A Consumer has a state that follows a topic. Its methods may be called by several goroutines at
// once. [Consumer.Close] ends it, and so does the end of its client.
type Consumer[S any] struct {
	client *sluice.Client
	topic  string
	store  Store
	opts   Options[S]
	sub    *sluice.Subscription
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}

	saving sync.Mutex // held while a snapshot is saved

	mu      sync.RWMutex
	state   S
	changed bool // since the last snapshot
	broken  bool // Apply has failed, and the state may be half changed

	// positions of applied events change under mu. The positions that the subscription starts
	// behind do not: Apply, which mu is held for, may come before Follow has returned.
	positions positions.Positions
}

// Follow starts a consumer with the last good snapshot, or where there is none with the topic's
// earliest event. The context bounds the start alone.
func Follow[S any](ctx context.Context, client *sluice.Client, topic string, store Store, opts Options[S]) (*Consumer[S], error) {
	if opts.Apply == nil || store == nil {
		return nil, fmt.Errorf("%w: Apply, or the store, of a consumer with snapshots", sluice.ErrNil)
	}
	if opts.Encode == nil {
		opts.Encode = func(s *S) ([]byte, error) { return json.Marshal(s) }
	}
	if opts.Decode == nil {
		opts.Decode = func(b []byte, s *S) error { return json.Unmarshal(b, s) }
	}
	opts.Every = cmp.Or(max(opts.Every, 0), defaultEvery)
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	c := &Consumer[S]{client: client, topic: topic, store: store, opts: opts, done: make(chan struct{})}
	c.ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	if err := c.start(ctx); err != nil {
		c.cancel(err)
		return nil, fmt.Errorf("consumer of topic %s: %w", topic, err)
	}
	go c.run() // Close waits for it
	return c, nil
}

func (c *Consumer[S]) start(ctx context.Context) error {
	last, err := c.store.Load(ctx)
	switch {
	case errors.Is(err, ErrNone):
		return c.subscribe(ctx)
	case err != nil:
		return err
	}
	if err := c.opts.Decode(last.State, &c.state); err != nil {
		return fmt.Errorf("the state of the snapshot of %s: %w", stamp(last.At), err)
	}
	c.positions.Replace(last.Positions)
	if age := time.Since(last.At); c.opts.MaxAge > 0 && age > c.opts.MaxAge {
		err = wire.Errorf(wire.OutOfRange, "it is %v old, and MaxAge is %v", age.Round(time.Second), c.opts.MaxAge)
	} else {
		err = c.subscribe(ctx)
	}
	if !errors.Is(err, &wire.Error{Code: wire.OutOfRange}) {
		return err
	}
	if err = tooOld("the snapshot of "+stamp(last.At), err); !c.opts.Rebuild {
		return err
	}
	c.opts.Logger.Warn("a consumer starts with the earliest event of its topic", "topic", c.topic, "error", err)
	c.state = *new(S)
	c.positions.Replace(nil)
	return c.subscribe(ctx)
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func tooOld(what string, err error) error {
	return fmt.Errorf("%w: %s: %w; remove the snapshots, or set Rebuild, to start with the earliest event, "+
		"or read the latest event of each key with package table", ErrTooOld, what, err)
}

// subscribe follows the topic behind the positions.
func (c *Consumer[S]) subscribe(ctx context.Context) (err error) {
	from := option.FromEarliest()
	if at := c.positions.All(); len(at) > 0 {
		from = option.FromPositions(at)
	}
	// The start positions of partitions without events count, too: retention may remove their
	// events before the next start. Only the first connection counts: a later one starts behind
	// events that have come, and some of those may not be applied yet.
	var once sync.Once
	started := func(s *settings.Subscribe) {
		s.Started = func(at map[int]uint64) { once.Do(func() { c.positions.Advance(at) }) }
	}
	c.sub, err = c.client.Subscribe(ctx, c.topic, "", c.handle, from, option.EndOnGap(), started)
	return err
}

func (c *Consumer[S]) handle(_ context.Context, m *sluice.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return nil
	}
	if err := c.opts.Apply(c.ctx, &c.state, &m.Event); err != nil {
		c.broken = true
		c.cancel(fmt.Errorf("applying event %q: %w", m.Event.ID, err))
		return nil
	}
	c.positions.AdvanceOne(m.Event.Partition, m.Event.Seq)
	c.changed = true
	return nil
}

// run saves now and then, and ends the consumer.
func (c *Consumer[S]) run() {
	defer close(c.done)
	ticks := time.NewTicker(c.opts.Every)
	defer ticks.Stop()
	for c.ctx.Err() == nil {
		select {
		case <-ticks.C:
			if err := c.Save(c.ctx); err != nil && c.ctx.Err() == nil {
				c.opts.Logger.Error("a snapshot could not be saved; the next one is tried when it is due", "topic", c.topic, "error", err)
			}
		case <-c.sub.Closed():
			switch err := c.sub.Err(); {
			case errors.Is(err, &wire.Error{Code: wire.OutOfRange}):
				c.cancel(tooOld("what the consumer had", err))
			case err != nil:
				c.cancel(err)
			default:
				c.cancel(sluice.ErrClosed) // with its client
			}
		case <-c.ctx.Done():
		}
	}
	c.sub.Stop()
	<-c.sub.Closed()
}

// View calls f with the state, which f must not change or keep: Apply waits for it.
func (c *Consumer[S]) View(f func(state *S)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	f(&c.state)
}

// Save saves a snapshot now, unless nothing has come since the last one, or Apply has failed.
func (c *Consumer[S]) Save(ctx context.Context) error {
	c.saving.Lock()
	defer c.saving.Unlock()
	c.mu.Lock()
	if !c.changed || c.broken {
		c.mu.Unlock()
		return nil
	}
	state, err := c.opts.Encode(&c.state)
	s := Snapshot{State: state, Positions: c.positions.All(), At: time.Now()}
	c.changed = false
	c.mu.Unlock()
	if err == nil {
		err = c.store.Save(ctx, s)
	}
	if err != nil {
		c.mu.Lock()
		c.changed = true
		c.mu.Unlock()
	}
	return err
}

// Current waits until all that was published before the call is applied. Where an event was erased
// before it came, it waits for the next one of its partition.
func (c *Consumer[S]) Current(ctx context.Context) error {
	// This reads one key; only the positions matter.
	heads, err := c.client.HTTP().Latest(ctx, admin.LatestQuery{Topic: c.topic, Keys: []string{"-"}}, func(wire.Event) error { return nil })
	if err != nil {
		return err
	}
	for {
		moved := c.positions.Behind(heads)
		if moved == nil {
			return c.Err()
		}
		select {
		case <-moved:
		case <-c.ctx.Done():
			return c.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Close ends the consumer and saves a snapshot as Save does. It waits for Apply, whose context ends
// when ctx does.
func (c *Consumer[S]) Close(ctx context.Context) error {
	c.sub.Stop()
	select {
	case <-c.sub.Closed():
	case <-ctx.Done():
	}
	c.cancel(sluice.ErrClosed)
	<-c.done
	return c.Save(ctx)
}

// Done is closed when the consumer has ended.
func (c *Consumer[S]) Done() <-chan struct{} { return c.done }

// Err is nil while the consumer follows its topic, and then says why it does not:
// [sluice.ErrClosed], one that matches [ErrTooOld], the error of Apply, or the [*sluice.Error] with
// which the sidecar refuses it for good.
func (c *Consumer[S]) Err() error {
	if c.ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("consumer of topic %s: %w", c.topic, context.Cause(c.ctx))
}
