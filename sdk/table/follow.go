package table

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/admin"
	"github.com/sluice-bus/sluice/sdk/internal/pause"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
)

func decodeJSON[T any](e *sluice.Event) (value T, err error) {
	if e.Binary {
		return value, errors.New("its payload is bytes, not JSON")
	}
	err = json.Unmarshal(e.Payload, &value)
	return value, err
}

// final tells which refusals end a table.
type final func(*wire.Error) bool

// opening fails where the same request would fail again.
func opening(err *wire.Error) bool {
	return err.RetryAfter == 0 && err.Code != wire.OutOfRange && err.Code != wire.StoreUnavailable && err.Code != wire.Overloaded
}

// running goes on where a token may have expired, too.
func running(err *wire.Error) bool { return opening(err) && err.Code != wire.Unauthorized }

// run follows the topic until the table ends.
func (t *Table[T]) run(sub *sluice.Subscription) {
	defer close(t.done)
	for {
		why := "an expected event has not come"
		select {
		case <-sub.Closed():
			if err := sub.Err(); err != nil {
				why = err.Error()
			} else {
				t.cancel(sluice.ErrClosed) // with its client
			}
		case <-t.again:
		case <-t.ctx.Done():
		}
		sub.Stop()
		<-sub.Closed()
		if t.ctx.Err() != nil {
			return
		}
		t.opts.Logger.Warn("a table reads the latest events of its topic again", "topic", t.topic, "why", why)
		var err error
		if sub, err = t.begin(t.ctx, running); err != nil {
			t.cancel(err) // no effect if the table has ended already
			return
		}
		select {
		case <-t.again: // they have just been read
		default:
		}
	}
}

// begin reads the latest events, and subscribes right behind them, until it has or ctx ends.
func (t *Table[T]) begin(ctx context.Context, ends final) (*sluice.Subscription, error) {
	pauses := pause.Backoff{First: 50 * time.Millisecond, Most: 5 * time.Second}
	for {
		sub, err := t.try(ctx)
		if err == nil {
			return sub, nil
		}
		var refusal *wire.Error
		if ctx.Err() != nil || errors.Is(err, ErrTooLarge) || errors.Is(err, sluice.ErrClosed) || errors.As(err, &refusal) && ends(refusal) {
			return nil, err
		}
		var asked time.Duration
		if refusal != nil {
			asked = refusal.RetryAfter
		}
		if !pause.For(ctx, max(pauses.Step(), asked)) {
			return nil, fmt.Errorf("%w (the last attempt: %w)", ctx.Err(), err)
		}
	}
}

func (t *Table[T]) try(ctx context.Context) (*sluice.Subscription, error) {
	from := option.FromEarliest() // of a topic that is made now
	positions, err := t.load(ctx)
	if errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if len(positions) > 0 {
		from = option.FromPositions(positions)
	}
	return t.client.Subscribe(ctx, t.topic, "", func(_ context.Context, m *sluice.Message) error {
		t.apply(&m.Event)
		return nil
	}, from, option.EndOnGap())
}

// load reads the latest events, and puts them in the place of the rows. Nothing else changes these
// meanwhile.
func (t *Table[T]) load(ctx context.Context) (map[int]uint64, error) {
	rows, total := map[string]row[T]{}, 0
	var changes []Change[T]
	query := admin.LatestQuery{Topic: t.topic, Prefix: t.opts.Prefix}
	positions, err := t.client.HTTP().Latest(ctx, query, func(e wire.Event) error {
		old, had := t.rows[e.Key]
		if !had || old.partition != e.Partition || old.seq != e.Seq || old.ts != e.TS {
			value, err := t.decode(&e)
			if err != nil {
				return nil
			}
			old = row[T]{value: value, partition: e.Partition, seq: e.Seq, ts: e.TS, size: size(&e)}
			if t.opts.OnChange != nil {
				changes = append(changes, Change[T]{Key: e.Key, Value: value, Event: &e})
			}
		}
		rows[e.Key] = old
		total += old.size
		return t.fits(len(rows), total)
	})
	if err != nil && !errors.Is(err, &wire.Error{Code: wire.NotFound}) {
		return nil, err
	}
	for key := range t.rows {
		if _, ok := rows[key]; !ok {
			changes = append(changes, Change[T]{Key: key, Deleted: true})
		}
	}
	t.mu.Lock()
	t.rows, t.bytes = rows, total
	t.positions.Replace(positions)
	t.mu.Unlock()
	for i := range changes {
		t.tell(changes[i])
	}
	t.told.Replace(positions)
	return positions, err
}

// apply takes an event of the subscription.
func (t *Table[T]) apply(e *sluice.Event) {
	change := Change[T]{Key: e.Key, Event: e}
	selected := e.Key != "" && strings.HasPrefix(e.Key, t.opts.Prefix)
	if selected && !e.Binary && bytes.Equal(e.Payload, []byte("null")) {
		change.Deleted = true
	} else if selected {
		value, err := t.decode(e)
		if change.Deleted = err != nil; !change.Deleted {
			change.Value = value
		}
	}
	t.mu.Lock()
	changed, err := false, t.ctx.Err() // a table that has ended keeps what it has
	if err == nil && selected {
		changed, err = t.change(&change)
	}
	if err == nil {
		t.positions.AdvanceOne(e.Partition, e.Seq)
	}
	t.mu.Unlock()
	if err != nil {
		t.cancel(err)
		return
	}
	if changed {
		t.tell(change)
	}
	t.told.AdvanceOne(e.Partition, e.Seq)
}

// change changes the row of a key; it reports whether there was anything to change. The lock is
// held.
func (t *Table[T]) change(c *Change[T]) (changed bool, err error) {
	old, had := t.rows[c.Key]
	if c.Deleted {
		delete(t.rows, c.Key)
		t.bytes -= old.size
		return had, nil
	}
	keys, bytes := len(t.rows), t.bytes-old.size+size(c.Event)
	if !had {
		keys++
	}
	if err := t.fits(keys, bytes); err != nil {
		return false, err
	}
	t.rows[c.Key] = row[T]{value: c.Value, partition: c.Event.Partition, seq: c.Event.Seq, ts: c.Event.TS, size: size(c.Event)}
	t.bytes = bytes
	return true, nil
}

func (t *Table[T]) tell(c Change[T]) {
	if t.opts.OnChange != nil {
		t.opts.OnChange(c)
	}
}

// decode logs the events that it cannot decode.
func (t *Table[T]) decode(e *sluice.Event) (T, error) {
	value, err := t.opts.Decode(e)
	if err != nil {
		t.opts.Logger.Error("an event cannot be decoded, and its key is not in the table", "topic", t.topic,
			"key", e.Key, "id", e.ID, "partition", e.Partition, "seq", e.Seq, "error", err)
	}
	return value, err
}

func (t *Table[T]) fits(keys, size int) error {
	switch {
	case keys > t.opts.MaxKeys:
		return fmt.Errorf("%w: more than %d keys (MaxKeys)", ErrTooLarge, t.opts.MaxKeys)
	case size > t.opts.MaxBytes:
		return fmt.Errorf("%w: more than %d bytes of keys and payloads (MaxBytes)", ErrTooLarge, t.opts.MaxBytes)
	}
	return nil
}

func size(e *sluice.Event) int { return len(e.Key) + len(e.Payload) }
