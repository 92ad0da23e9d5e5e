package sluice

import (
	"context"
	"strconv"

	"github.com/sluice-bus/sluice/sdk/wire"
	"github.com/sluice-bus/sluice/sdk/wire/codec"
)

// call is a request that was not answered yet. Exactly one of receipt and reply is called for it,
// once: receipt for a single publish, reply for all else.
type call struct {
	receipt func(wire.Receipt, error)
	reply   func(*codec.Reply, error)
	publish bool // counts in the window
	open    bool
}

// answer passes the answer to the callback. It passes an ERR frame as err.
func (c *call) answer(r *codec.Reply, err error) {
	if err == nil && r.Err != nil {
		r, err = nil, r.Err
	}
	switch {
	case c.receipt == nil:
		c.reply(r, err)
	case err != nil:
		c.receipt(wire.Receipt{}, err)
	default:
		c.receipt(r.Receipt, nil)
	}
}

// callTable holds the calls by number. A number is used again once its call is answered, so the
// table is only as long as the most calls at one time, and a number's corr is made only once.
type callTable struct {
	calls []call
	corrs []string
	free  []int
}

func (t *callTable) add(c call) (corr string) {
	c.open = true
	if n := len(t.free); n > 0 {
		number := t.free[n-1]
		t.free = t.free[:n-1]
		t.calls[number] = c
		return t.corrs[number]
	}
	t.calls = append(t.calls, c)
	t.corrs = append(t.corrs, strconv.Itoa(len(t.corrs)))
	return t.corrs[len(t.corrs)-1]
}

// remove removes the call with that corr.
func (t *callTable) remove(corr string) (call, bool) {
	number, err := strconv.Atoi(corr)
	if err != nil || number < 0 || number >= len(t.calls) || !t.calls[number].open {
		return call{}, false
	}
	c := t.calls[number]
	t.calls[number] = call{}
	t.free = append(t.free, number)
	return c, true
}

// removeAny removes one of the calls, the last if there are several.
func (t *callTable) removeAny() (call, bool) {
	for n := len(t.calls); n > 0; n-- {
		c := t.calls[n-1]
		t.calls = t.calls[:n-1]
		if c.open {
			return c, true
		}
	}
	return call{}, false
}

// encoder appends a request's frame with the given corr.
type encoder func(dst []byte, corr string) []byte

// start queues a request. It does not wait. An error means that it was not queued, and that no
// callback will be called.
func (c *Conn) start(encode encoder, reply func(*codec.Reply, error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.startLocked(encode, reply)
}

func (c *Conn) startLocked(encode encoder, reply func(*codec.Reply, error)) error {
	if c.cause != nil {
		return c.cause
	}
	corr := c.calls.add(call{reply: reply})
	c.queue.bytes = encode(c.queue.bytes, corr)
	c.queued()
	return nil
}

// queued ends the frame that was appended to the queue.
func (c *Conn) queued() {
	c.acks = nil
	c.outstanding.Add(1)
	c.queue.seal()
	if len(c.queue.ends) == 1 {
		c.filled.Signal()
	}
}

// wait queues a request and waits for its answer. When the context ends first, the request may
// still take effect.
func (c *Conn) wait(ctx context.Context, encode encoder) (*codec.Reply, error) {
	w := newWaiter[*codec.Reply]()
	if err := c.start(encode, w.done); err != nil {
		return nil, err
	}
	return w.wait(ctx)
}

// waiter turns a callback into a wait.
type waiter[T any] struct {
	answered chan struct{}
	answer   T
	err      error
}

func newWaiter[T any]() *waiter[T] { return &waiter[T]{answered: make(chan struct{})} }

func (w *waiter[T]) done(answer T, err error) {
	w.answer, w.err = answer, err
	close(w.answered)
}

func (w *waiter[T]) wait(ctx context.Context) (answer T, err error) {
	select {
	case <-w.answered:
		return w.answer, w.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// finished counts a request whose callback has returned.
func (c *Conn) finished() {
	if c.outstanding.Add(-1) > 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
}
