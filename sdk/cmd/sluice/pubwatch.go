package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-bus/sluice/internal/program"
	"github.com/sluice-bus/sluice/internal/terminal"
	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/option"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// pubWatch gives publishing up once the sidecar has answered nothing for the time of --timeout
// while events wait for it: context ends then. A refusal that asks for time is an answer, unless
// its store is away, which may take for ever.
type pubWatch struct {
	timeout time.Duration // 0: it never gives up
	notes   *notes
	outage  outage
	context context.Context
	cancel  context.CancelCauseFunc

	mu      sync.Mutex
	waiting int       // events without a result
	since   time.Time // when the last answer came, or the wait began
	timer   *time.Timer
	waits   int
	reason  error // why there is no answer, where that is known
}

func newPubWatch(ctx context.Context, app *program.App, timeout time.Duration) *pubWatch {
	said := &notes{out: app.Stderr, watched: terminal.Is(app.Stderr)}
	w := &pubWatch{timeout: timeout, notes: said, outage: outage{notes: said}}
	w.context, w.cancel = context.WithCancelCause(ctx)
	w.mu.Lock() // a short timeout may have passed before the timer is known
	defer w.mu.Unlock()
	if timeout > 0 {
		w.timer = time.AfterFunc(timeout, w.check)
	}
	return w
}

// dial connects with all that the watch needs to know.
func (w *pubWatch) dial(c *client) (*sluice.Client, error) {
	return c.dial(w.context, sluice.WithConnectionHook(w.connection),
		sluice.WithPublisher(option.KeyedBatches(), option.OnWait(w.asked)))
}

// stop ends the watch.
func (w *pubWatch) stop() {
	w.cancel(nil)
	if w.timer != nil {
		w.timer.Stop()
	}
}

// handed counts an event that waits for its result from now on.
func (w *pubWatch) handed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting++; w.waiting == 1 {
		w.since = time.Now()
	}
}

// answered counts a result.
func (w *pubWatch) answered() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting--
	w.since, w.reason = time.Now(), nil
}

// asked notes that the sidecar asks for time.
func (w *pubWatch) asked(refusal *wire.Error, wait time.Duration) {
	w.mu.Lock()
	w.waits++
	first := w.waits == 1
	if refusal.Code == wire.RateLimited || refusal.Code == wire.Overloaded { // the length of a store's outage is unknown
		w.since, w.reason = time.Now().Add(wait), nil
	} else {
		w.reason = refusal
	}
	w.mu.Unlock()
	if first && w.notes.watched {
		w.notes.say("waiting %v, as the sidecar asks: %v", max(wait.Round(10*time.Millisecond), time.Millisecond), refusal)
	}
}

// connection notes what became of the connection.
func (w *pubWatch) connection(c sluice.ConnectionChange) {
	if final(c.Err) {
		w.cancel(c.Err)
		return
	}
	w.outage.happened(c, "the connection is back")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reason = c.Err
}

// check gives up if it is time to.
func (w *pubWatch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.context.Err() != nil {
		return
	}
	left := w.timeout
	if w.waiting > 0 {
		left -= time.Since(w.since)
	}
	if left > 0 {
		w.timer.Reset(left)
		return
	}
	err := fmt.Errorf("the sidecar did not answer within %v (--timeout)", w.timeout)
	if w.reason != nil {
		err = fmt.Errorf("%w: %w", err, w.reason)
	}
	w.cancel(err)
}

// cause returns why the watch gave up if that caused err, else err.
func (w *pubWatch) cause(err error) error {
	if gaveUp := context.Cause(w.context); gaveUp != nil && (errors.Is(err, context.Canceled) || errors.Is(err, sluice.ErrClosed)) {
		return gaveUp
	}
	return err
}
