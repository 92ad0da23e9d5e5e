package main

import (
	"errors"
	"fmt"
	"io"
	"sync"

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

// outage says once that the connection is lost, and once that it is back. Its methods are called by
// one goroutine.
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

// final reports whether the sidecar refuses for good, so that another attempt does not help.
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
