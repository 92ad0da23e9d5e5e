package table

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"sync"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/internal/positions"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// Options are the options of a table. The zero value has the defaults.
type Options[T any] struct {
	// Prefix selects the keys that begin with it.
	Prefix string
	// Decode makes a value of an event, which it may keep; nil reads the payload as JSON. A key
	// whose latest event cannot be decoded is not in the table.
	Decode func(*sluice.Event) (T, error)
	// OnChange is called for each key that Open has read, and then for each change, once the table
	// has it: those of one key in the order of their seqs, and one at a time. It may use the table,
	// except for Close and Current. While it runs the table does not go on.
	OnChange func(Change[T])
	// MaxKeys (1,000,000) and MaxBytes (256 MiB, of keys and payloads) bound the table: one that
	// would be larger ends with ErrTooLarge.
	MaxKeys, MaxBytes int
	// Logger is told why the latest events are read again, and of events that cannot be decoded;
	// nil is slog.Default.
	Logger *slog.Logger
}

// A Change is a change of a key.
type Change[T any] struct {
	Key     string
	Value   T
	Deleted bool // Value is the zero value then
	// Event made the change; nil where the latest events were read again, and had none of the key.
	Event *sluice.Event
}

const (
	defaultMaxKeys  = 1_000_000
	defaultMaxBytes = 256 << 20
)

// ErrTooLarge is matched by the error of a table that is at one of its bounds.
var ErrTooLarge = errors.New("table: it is too large")

// A Table has the latest event of each key. Its methods may be called by several goroutines at
// once. [Table.Close] ends it, and so does the end of its client.
type Table[T any] struct {
	client *sluice.Client
	topic  string
	opts   Options[T]
	ctx    context.Context // ends when the table does
	cancel context.CancelCauseFunc
	done   chan struct{}
	again  chan struct{} // asks for the latest events to be read again; it holds one

	mu        sync.RWMutex
	rows      map[string]row[T]
	bytes     int
	positions positions.Positions // changed with rows
	told      positions.Positions // those whose OnChange has returned
}

// row is the value of a key.
type row[T any] struct {
	value     T
	partition int
	seq       uint64
	ts        int64 // with partition and seq it tells whether an event is another one
	size      int
}

// Open returns a table that has all that was published to the topic before, and follows it. The
// context bounds the opening alone, which is tried again while it can succeed.
func Open[T any](ctx context.Context, client *sluice.Client, topic string, opts Options[T]) (*Table[T], error) {
	if opts.Decode == nil {
		opts.Decode = decodeJSON[T]
	}
	opts.MaxKeys = cmp.Or(max(opts.MaxKeys, 0), defaultMaxKeys)
	opts.MaxBytes = cmp.Or(max(opts.MaxBytes, 0), defaultMaxBytes)
	opts.Logger = cmp.Or(opts.Logger, slog.Default())
	t := &Table[T]{
		client: client, topic: topic, opts: opts, done: make(chan struct{}), again: make(chan struct{}, 1),
		rows: map[string]row[T]{},
	}
	t.ctx, t.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	sub, err := t.begin(ctx, opening)
	if err != nil {
		t.cancel(err)
		return nil, fmt.Errorf("table of topic %s: %w", topic, err)
	}
	go t.run(sub) // Close waits for it
	return t, nil
}

// Get returns the value of a key, and whether there is one.
func (t *Table[T]) Get(key string) (value T, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.rows[key]
	return r.value, ok
}

// Len is how many keys there are.
func (t *Table[T]) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.rows)
}

// All yields keys and values as they are when the loop begins, in no order.
func (t *Table[T]) All() iter.Seq2[string, T] {
	return func(yield func(string, T) bool) {
		t.mu.RLock()
		rows := maps.Clone(t.rows)
		t.mu.RUnlock()
		for key, r := range rows {
			if !yield(key, r.value) {
				return
			}
		}
	}
}

// Snapshot returns keys and values, and the positions of the topic at which they are so.
func (t *Table[T]) Snapshot() (map[string]T, map[int]uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	values := make(map[string]T, len(t.rows))
	for key, r := range t.rows {
		values[key] = r.value
	}
	return values, t.positions.All()
}

// patience is for how long Current waits for events that do not come, before the table reads the
// latest events again: the awaited events may have been erased.
const patience = time.Second

// Current waits until the table has all events that were published before the call, and OnChange
// has returned from their changes.
func (t *Table[T]) Current(ctx context.Context) error {
	// This reads one key; only the positions matter.
	heads, err := t.client.HTTP().Latest(ctx, admin.LatestQuery{Topic: t.topic, Keys: []string{"-"}}, func(wire.Event) error { return nil })
	if errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		return t.Err() // nothing was published
	}
	if err != nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		moved := t.told.Behind(heads)
		if moved == nil {
			return t.Err()
		}
		select {
		case <-moved:
			timer.Reset(patience)
		case <-timer.C:
			if t.positions.Behind(heads) != nil { // and OnChange is not what takes its time
				t.readAgain()
			}
			timer.Reset(patience)
		case <-t.ctx.Done():
			return t.Err()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// readAgain makes the table read the latest events again.
func (t *Table[T]) readAgain() {
	select {
	case t.again <- struct{}{}:
	default:
	}
}

// Close ends the table, which keeps what it has. It waits for OnChange.
func (t *Table[T]) Close() {
	t.cancel(sluice.ErrClosed)
	<-t.done
}

// Done is closed when the table has ended.
func (t *Table[T]) Done() <-chan struct{} { return t.done }

// Err is nil while the table follows its topic, and then says why it does not: [sluice.ErrClosed],
// [ErrTooLarge], or the [*sluice.Error] with which the sidecar refuses it for good.
func (t *Table[T]) Err() error {
	if t.ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("table of topic %s: %w", t.topic, context.Cause(t.ctx))
}
