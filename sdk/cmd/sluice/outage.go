package main

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	sluice "github.com/sluice-bus/sluice/sdk"
	"github.com/sluice-bus/sluice/sdk/wire"
)

// notes writes lines to standard error for several goroutines.
type notes struct {
	watched bool // it is a terminal, where a line of progress may stand

	mu  sync.Mutex
	out io.Writer
}

func (n *notes) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watched {
		format = "\r\x1b[K" + format // it is drawn again
	}
	fmt.Fprintf(n.out, format+"\n", args...)
}

// outage says once that the connection is lost, and once that it is back. Its
// methods are called by one goroutine.
type outage struct {
	notes *notes
	lost  bool
}

// happened notes a change of the connection.
func (o *outage) happened(c sluice.ConnectionChange, back string) {
	switch {
	case c.Err != nil && !o.lost:
		o.notes.say("the connection to the sidecar is lost, trying again: %v", c.Err)
	case c.Err == nil:
		o.notes.say("%s", back)
	}
	o.lost = c.Err != nil
}

// patience tells whether the same request may succeed after a wait. The length of a store's outage
// is unknown.
func patience(err error) (refusal *wire.Error, ok bool) {
	refusal, ok = errors.AsType[*wire.Error](err)
	return refusal, ok && (refusal.Code == wire.RateLimited || refusal.Code == wire.Overloaded)
}

// final tells whether the sidecar refuses for good, so that it is no use to ask
// again.
func final(err error) bool {
	refusal, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return false
	}
	switch refusal.Code {
	case wire.RateLimited, wire.Overloaded, wire.StoreUnavailable, wire.Internal:
		return false
	}
	return true
}

// shortly writes a wait for people.
func shortly(wait time.Duration) time.Duration {
	return max(wait.Round(10*time.Millisecond), time.Millisecond)
}
